"""B2 Contest: species compete in a chemostat and poison each other; noise decides which one stays.

    birth  n_i -> n_i + 1 :  n_i mu_i(T) f_i,      f_i = sum_k w_ik R_k / (K_ik + R_k)
    death  n_i -> n_i - 1 :  n_i [D + del_i + sum_j A_ij n_j / V]
    R_k' = D (S_k - R_k) - sum_i y_ik w_ik mu_i(T) R_k / (K_ik + R_k) n_i / V
    P'   = sum_i b_i n_i / V - (D + k_P) P
    mu_i(T) = mu_i exp(-((T - T_i) / 0.08)^2 / 2),     S_1 = S rho, S_2 = S (1 - rho)

Counts are whole numbers, volumes in units that make n / V a density; a tick is one generation (1 / mu). Three
or four species, in one of four relations: mutual inhibition (founder control), cyclic, hierarchical, or none
(A = 0), where the resource trade-off picks the winner. The inoculum is Poisson with mean 6, given at least
one of each species present.

Sources: Gause 1934; Park 1954; Mertz, Cawthon, Park 1976 (doi:10.1073/pnas.73.4.1368); Hsu, Hubbell, Waltman
1977 (doi:10.1137/0132030).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import TauLeap
from simworlds.keys import Draws, Noise, poisson_from
from simworlds.world import Drive, Grammar, JumpWorld, Sensor

SPECIES = 4
_WIDTH = 0.08  # of the temperature response


class Params(NamedTuple):
    """Parameters of an instance, padded to four species (rows) and two resources (columns)."""

    mu: Any  # growth rate at the optimum [4]
    T: Any  # temperature optimum [4]
    w: Any  # share of each resource in the diet [4, 2]
    K: Any  # half-saturation constants [4, 2]
    y: Any  # resource used per birth [4, 2]
    loss: Any  # del: own mortality [4]
    A: Any  # inhibition of species i by species j [4, 4]
    b: Any  # pigment made per individual [4]
    c: Any  # weight in the pH-like sensor [4]
    k_P: Any  # decay of the pigment
    V: Any  # volume
    inoculum: Any  # mean of the founders' Poisson law; 0 for an absent species [4]


class State(NamedTuple):
    """Counts (a tuple of four), resources, pigment: scalars."""

    n: Any
    R1: Any
    R2: Any
    P: Any


def _inhibition(draws: Draws, relation: str, species: int) -> np.ndarray:
    """A_ij for a relation between species in a random order, ``[4, 4]``."""
    base = draws.uniform(0.63, 1.25)
    strength = np.array([[base * draws.uniform(0.8, 1.2) for _ in range(SPECIES)] for _ in range(SPECIES)])
    order = draws.permutation(species)
    kept = np.zeros((SPECIES, SPECIES))
    for place, i in enumerate(order):
        for other, j in enumerate(order):
            beaten = {
                "mutual": i != j,
                "cyclic": place == (other + 1) % 3,
                "hierarchical": place > other,
                "none": False,
            }
            kept[i, j] = beaten[relation]
    return strength * kept


class Contest(JumpWorld):
    """B2: one species stays; which one, noise decides in the first generations."""

    id = "B2"
    title = "Contest"
    track = "B"
    phenomenon = "which of several like species wins is decided by noise; the record of it is bimodal"
    drives = (
        Drive("D", 0.02, 0.5, rest=0.2),
        Drive("S", 0.5, 3.0, rest=0.4),
        Drive("rho", 0.1, 0.9, rest=0.5),
        Drive("T", 0.9, 1.1, rest=0.5),
    )
    sensors = (
        Sensor("turbidity", 0.0, 6.0),
        Sensor("residual resource 1", 0.0, 1.5),
        Sensor("pigment", 0.0, 16.0),
        Sensor("pH", -4.0, 4.0),
        Sensor("gas", 0.0, 1.5),
    )
    scheme = TauLeap(dt=0.05, substeps=20)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(20, 64),
        window=(8, 32),
        changes=(1, 2),
        ask={"turbidity": 0.7, "residual resource 1": 0.7, "pigment": 1.6, "pH": 1.6, "gas": 0.6},
        sd_share=0.15,
        levels={"D": (0.0, 0.7), "S": (0.2, 1.0), "T": (0.25, 0.75)},
    )
    changes = tuple(
        tuple(sign * (i == j) for j in range(SPECIES)) for i in range(SPECIES) for sign in (1, -1)
    )
    branches = ("species 1", "species 2", "species 3", "species 4", "undecided", "extinct")
    mean_fraction = 0.10
    sd_fraction = 0.05

    def draw(self, draws: Draws) -> Params:
        """Relation, wiring, pigment makers and rates of near-equal species."""
        relation = draws.choice(("mutual", "cyclic", "hierarchical", "none"), (0.7, 0.1, 0.1, 0.1))
        species = 3 if relation == "cyclic" else draws.integer(3, 4)
        inhibition = _inhibition(draws, relation, species)
        # Rivals that poison each other feed alike; without poison the trade-off in feeding decides.
        base, width = ([0.55, 0.55], 0.15) if relation != "none" else ([0.65, 0.65], 0.5)
        half = [[b * draws.uniform(1 - width, 1 + width) for b in base] for _ in range(SPECIES)]
        taste = np.array([0.5 + draws.uniform(-0.6, 0.6) * width for _ in range(SPECIES)])
        makers = draws.permutation(species)[: draws.integer(1, species - 1)]
        values = Params(
            mu=[draws.uniform(0.97, 1.03) for _ in range(SPECIES)],
            T=[draws.uniform(0.97, 1.03) for _ in range(SPECIES)],
            w=np.stack([taste, 1 - taste], axis=1),
            K=half,
            y=[[draws.uniform(0.3, 1.0) for _ in range(2)] for _ in range(SPECIES)],
            loss=[draws.uniform(0.02, 0.06) for _ in range(SPECIES)],
            A=inhibition,
            b=[draws.uniform(0.5, 1.5) * (i in makers) for i in range(SPECIES)],
            c=[draws.uniform(0.3, 1.0) * draws.choice((1.0, -1.0)) for _ in range(SPECIES)],
            k_P=draws.uniform(0.05, 0.3),
            V=draws.uniform(200.0, 600.0),
            inoculum=[6.0 * (i < species) for i in range(SPECIES)],
        )
        return Params(*(np.asarray(value, np.float32) for value in values))

    def limit(self, **changes: Any) -> Params:
        """One resource that never runs low (K = y = 0, so f = 1), no toxins, no mortality but D."""
        zero = np.zeros(SPECIES)
        plain = Params(
            mu=np.ones(SPECIES),
            T=np.ones(SPECIES),
            w=np.array([[1.0, 0.0]] * SPECIES),
            K=np.zeros((SPECIES, 2)),
            y=np.zeros((SPECIES, 2)),
            loss=zero,
            A=np.zeros((SPECIES, SPECIES)),
            b=zero,
            c=zero,
            k_P=0.1,
            V=200.0,
            inoculum=zero,
        )
        return plain._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A distribution: founders Poisson given at least one; resources at the rest feed, no pigment."""
        counts = []
        for i in range(SPECIES):
            mean = params.inoculum[i]
            absent = jnp.exp(-mean)
            given = absent + (1 - absent) * noise.uniform(i, jnp.result_type(mean))
            counts.append(jnp.where(mean > 0, jnp.maximum(poisson_from(given, mean), 1), 0))
        feed = 1.5 * jnp.ones_like(params.V)
        return State(n=tuple(counts), R1=feed / 2, R2=feed / 2, P=jnp.zeros_like(params.V))

    def propensities(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Birth and death of each species in turn."""
        rates = []
        for i, n in enumerate(state.n):
            toxin = sum(params.A[i, j] * state.n[j] for j in range(SPECIES)) / params.V
            rates += [self._births(i, state, drive, params), n * (drive.D + params.loss[i] + toxin)]
        return tuple(rates)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """Resources and pigment; counts move by births and deaths."""
        used1 = used2 = made = 0.0
        for i, n in enumerate(state.n):
            first, second = self._uptake(i, state, drive, params)
            used1 = used1 + params.y[i, 0] * first * n
            used2 = used2 + params.y[i, 1] * second * n
            made = made + params.b[i] * n
        return State(
            n=tuple(jnp.zeros_like(n) for n in state.n),
            R1=drive.D * (drive.S * drive.rho - state.R1) - used1 / params.V,
            R2=drive.D * (drive.S * (1 - drive.rho) - state.R2) - used2 / params.V,
            P=made / params.V - (drive.D + params.k_P) * state.P,
        )

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Turbidity, residual resource, pigment, a weighted density, and births per volume."""
        births = [self._births(i, state, drive, params) for i in range(SPECIES)]
        turbidity, acid = (
            sum(state.n) / params.V,
            sum(params.c[i] * n for i, n in enumerate(state.n)) / params.V,
        )
        return turbidity, state.R1, state.P, acid, sum(births) / params.V

    def branch(self, state: State, params: Params) -> Any:
        """The species that makes up nine tenths of the culture, or undecided, or extinct."""
        del params
        total = sum(state.n)
        label = jnp.int32(SPECIES)
        for i, n in enumerate(state.n):
            label = jnp.where(n >= 0.9 * total, i, label)
        return jnp.where(total < 0.5, SPECIES + 1, label).astype(jnp.int32)

    def _births(self, i: int, state: State, drive: Any, params: Params) -> Any:
        first, second = self._uptake(i, state, drive, params)
        return state.n[i] * (first + second)

    def _uptake(self, i: int, state: State, drive: Any, params: Params) -> tuple[Any, Any]:
        """Births per individual of species i that each resource pays for."""
        rate = params.mu[i] * jnp.exp(-(((drive.T - params.T[i]) / _WIDTH) ** 2) / 2)
        return (
            rate * params.w[i, 0] * state.R1 / (params.K[i, 0] + state.R1),
            rate * params.w[i, 1] * state.R2 / (params.K[i, 1] + state.R2),
        )
