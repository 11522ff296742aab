"""A1 Compensation magnet: two spin lattices, mostly opposed, share a moment and heat their host.

    rate(s -> -s) = [1 - s tanh(h / T)] / (2 tau0)
    h_A = J_AA m_A + p J_AB m_B + mu_A H,      h_B = J_BB m_B + p J_AB m_A + mu_B H
    T' = -(T - T_bath) / tau_T - (E / N)' / C_L,      T_bath = th T_c
    E / N = -(J_AA m_A^2 + J_BB m_B^2) / 2 - p J_AB m_A m_B - H (mu_A m_A + mu_B m_B)
    T_c = [J_AA + J_BB + sqrt((J_AA - J_BB)^2 + 4 J_AB^2)] / 2

for N spins s = +-1 in each of the lattices A and B, with means m_A and m_B; a spin feels the mean without
itself, so an up-spin sees m - 1/N in its own lattice and a down-spin m + 1/N. Flips heat the host by what
they release at fixed H and p; work done by H and p heats nothing. Energies are in units of J_AA, temperatures
too; a tick is one time unit. The variance meter follows the moment M through two filters of 10 ticks:

    tau M_s' = M - M_s,      tau v' = (M - M_s)^2 - v

Below T_c the lattices are ordered. With J_AB < 0 they oppose each other: the moment M vanishes at a
compensation temperature below T_c, at which both are ordered.

Sources: Weiss 1907; Neel 1948 (doi:10.1051/anphys/194812030137); Glauber 1963 (doi:10.1063/1.1703954);
Griffiths, Weng, Langer 1966 (doi:10.1103/PhysRev.149.301).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import SpinLeap
from simworlds.keys import Draws, Noise, binomial_from
from simworlds.world import Drive, Grammar, JumpWorld, Sensor


class Params(NamedTuple):
    """Parameters of an instance: scalars."""

    N: Any  # spins of each lattice
    J_AA: Any  # coupling within lattice A
    J_BB: Any  # coupling within lattice B
    J_AB: Any  # coupling between the lattices; negative where they oppose each other
    mu_A: Any  # moment of a spin of lattice A
    mu_B: Any  # moment of a spin of lattice B
    tau0: Any  # relaxation time of a lone spin
    tau_T: Any  # relaxation time of the host's temperature
    C_L: Any  # heat capacity of the host per pair of spins
    m_A: Any  # initial mean of lattice A
    m_B: Any  # initial mean of lattice B


class State(NamedTuple):
    """Counts (up and down in A, up and down in B), temperature, smoothed moment and variance: scalars."""

    n: Any
    T: Any
    smooth: Any
    variance: Any


def means(state: State, params: Params) -> tuple[Any, Any]:
    """m_A and m_B."""
    up_A, down_A, up_B, down_B = state.n
    return (up_A - down_A) / params.N, (up_B - down_B) / params.N


def moment(state: State, params: Params) -> Any:
    """M = mu_A m_A + mu_B m_B."""
    m_A, m_B = means(state, params)
    return params.mu_A * m_A + params.mu_B * m_B


class Magnet(JumpWorld):
    """A1: two orders hide in one moment, whose sign turns at the compensation temperature."""

    id = "A1"
    title = "Compensation magnet"
    track = "A"
    phenomenon = "two opposed orders cancel at a compensation temperature; hysteresis, magnetocaloric heat"
    drives = (
        Drive("th", 0.3, 1.8, rest=0.4, unit="T_c"),
        Drive("H", -0.4, 0.4, rest=0.6),
        Drive("p", 0.7, 1.3, rest=0.5),
    )
    sensors = (
        Sensor("net moment", -0.9, 0.9),
        Sensor("contrast", 0.0, 1.5),
        Sensor("heat flow", -0.15, 0.15),
        Sensor("lattice temperature", 0.4, 2.0),
        Sensor("running variance", 0.0, 0.2),
    )
    scheme = SpinLeap(dt=0.1, substeps=10)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(16, 56),
        window=(8, 32),
        changes=(1, 3),
        ask={
            "net moment": 1.5,
            "contrast": 1.0,
            "heat flow": 0.6,
            "lattice temperature": 0.4,
            "running variance": 0.5,
        },
        # Contracts keep to temperatures at which there is order, or not far from it.
        levels={"th": (0.0, 0.7)},
    )
    changes = ((-1, 1, 0, 0), (1, -1, 0, 0), (0, 0, -1, 1), (0, 0, 1, -1))
    discrete = ("N",)
    mean_fraction = 0.10
    sd_fraction = 0.05
    filter_time = 10.0

    def draw(self, draws: Draws) -> Params:
        """Opposed lattices in four instances of five, parallel ones else; B is the weaker coupled one."""
        opposed = draws.chance(0.8)
        J_AB = draws.uniform(-0.9, -0.5) if opposed else draws.uniform(0.3, 0.9)
        side = draws.choice((1.0, -1.0))
        values = Params(
            N=draws.integer(1000, 4000),
            J_AA=1.0,
            J_BB=draws.uniform(0.2, 0.6),
            J_AB=J_AB,
            mu_A=1.0,
            mu_B=draws.uniform(1.1, 1.5),
            tau0=draws.uniform(0.5, 2.0),
            tau_T=draws.uniform(1.0, 10.0),
            C_L=draws.uniform(0.5, 3.0),
            m_A=side * draws.uniform(0.4, 0.9),
            m_B=side * np.sign(J_AB) * draws.uniform(0.4, 0.9),
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """The Curie-Weiss model: lattice A alone, J = mu = T_c = 1, in a host that flips do not heat."""
        plain = Params(
            N=100.0,
            J_AA=1.0,
            J_BB=0.0,
            J_AB=0.0,
            mu_A=1.0,
            mu_B=0.0,
            tau0=1.0,
            tau_T=1.0,
            C_L=1e9,
            m_A=0.0,
            m_B=0.0,
        )
        return plain._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A distribution: independent spins of means m_A and m_B; the bath's rest temperature."""
        N = params.N
        up_A = binomial_from(noise.uniform(0, jnp.result_type(N)), N, (1 + params.m_A) / 2)
        up_B = binomial_from(noise.uniform(1, jnp.result_type(N)), N, (1 + params.m_B) / 2)
        th = self.drives[0]
        state = State(
            n=(up_A, N - up_A, up_B, N - up_B),
            T=th.physical(th.rest) * self.critical_temperature(params),
            smooth=jnp.zeros_like(up_A),
            variance=jnp.zeros_like(up_A),
        )
        return state._replace(smooth=moment(state, params))

    def propensities(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Flips of A down and up, flips of B down and up."""
        up_A, down_A, up_B, down_B = state.n
        m_A, m_B = means(state, params)
        own = 1 / params.N
        beta = 1 / state.T
        across = drive.p * params.J_AB
        rest_A = across * m_B + params.mu_A * drive.H
        rest_B = across * m_A + params.mu_B * drive.H
        return (
            up_A * (1 - jnp.tanh(beta * (params.J_AA * (m_A - own) + rest_A))) / (2 * params.tau0),
            down_A * (1 + jnp.tanh(beta * (params.J_AA * (m_A + own) + rest_A))) / (2 * params.tau0),
            up_B * (1 - jnp.tanh(beta * (params.J_BB * (m_B - own) + rest_B))) / (2 * params.tau0),
            down_B * (1 + jnp.tanh(beta * (params.J_BB * (m_B + own) + rest_B))) / (2 * params.tau0),
        )

    def energy(self, state: State, drive: Any, params: Params) -> Any:
        """E / N."""
        m_A, m_B = means(state, params)
        within = (params.J_AA * m_A**2 + params.J_BB * m_B**2) / 2
        return -within - drive.p * params.J_AB * m_A * m_B - drive.H * moment(state, params)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The bath's part of the temperature, and the variance meter."""
        off = moment(state, params) - state.smooth
        return State(
            n=tuple(jnp.zeros_like(n) for n in state.n),
            T=-(state.T - drive.th * self.critical_temperature(params)) / params.tau_T,
            smooth=off / self.filter_time,
            variance=(off**2 - state.variance) / self.filter_time,
        )

    def landed(self, before: State, after: State, drive: Any, params: Params) -> State:
        """The heat of the flips at fixed H and p; it holds for expected flips, too."""
        heat = self.energy(before, drive, params) - self.energy(after, drive, params)
        return after._replace(T=after.T + heat / params.C_L)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """M, m_A^2 + m_B^2 / 2 (blind to signs), C_L (T - T_bath) / tau_T, T, and v."""
        m_A, m_B = means(state, params)
        flow = params.C_L * (state.T - drive.th * self.critical_temperature(params)) / params.tau_T
        return moment(state, params), m_A**2 + m_B**2 / 2, flow, state.T, state.variance

    def critical_temperature(self, params: Params) -> Any:
        """T_c at p = 1 and H = 0, below which the lattices are ordered (Neel 1948)."""
        p = params
        return (p.J_AA + p.J_BB + jnp.sqrt((p.J_AA - p.J_BB) ** 2 + 4 * p.J_AB**2)) / 2
