"""A3 Lattice conveyor: particles hop along tubes, each site holds one, and a slow bond hides among the bonds.

    enter    0 -> 1 at site 1        :  alpha            attach  0 -> 1 at any site :  Omega_A / N
    hop     10 -> 01 over bond b     :  h_b              detach  1 -> 0 at any site :  Omega_D / N
    leave    1 -> 0 at site N        :  beta             h_b = q at the slow bond, else 1

all times `speed`: an asymmetric exclusion process with exchange along N = 64 to 128 sites, in 16 tubes that
share their parameters and nothing else. In code, sites count from 0 and bonds from 0 (in) to N (out). A tick
is two units of time, the mean time of two free hops at speed 1. Currents are per tube and unit of time;
densities are means over thirds of the sites, cut at N / 3 and 2 N / 3, rounded down.

The mean-field relaxation has independent sites, with tau_b the flow over bond b:

    rho_i' = tau_i - tau_{i+1} + speed [Omega_A (1 - rho_i) - Omega_D rho_i] / N,
    tau_b  = speed h_b rho_{b-1} (1 - rho_b),    h_0 = alpha, h_N = beta, rho_{-1} = 1, rho_N = 0

Sources: MacDonald, Gibbs, Pipkin 1968 (doi:10.1002/bip.1968.360060102); Derrida, Evans, Hakim, Pasquier 1993
(doi:10.1088/0305-4470/26/7/011); Janowsky & Lebowitz 1992 (doi:10.1103/PhysRevA.45.618); Parmeggiani,
Franosch, Frey 2003 (doi:10.1103/PhysRevLett.90.086601).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import RK4, RandomSequential
from simworlds.integrate.lattice import WORD, half_full, occupied
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, LatticeWorld, OdeWorld, Relaxation, Sensor

TUBES = 16
WORDS = 4
SIZE = WORD * WORDS  # most sites


class Params(NamedTuple):
    """Parameters of an instance, scalars."""

    N: Any  # sites, a whole number
    slow: Any  # 1 if there is a slow bond, else 0
    q: Any  # the slow bond's rate
    at: Any  # its number: it leads from site at - 1 to site at


class State(NamedTuple):
    """The tubes."""

    cells: Any  # occupation, packed: a tuple of four arrays of words [16]
    entry: Any  # particles that came in over bond 0 in the last step, per tube and unit of time
    exit: Any  # particles that left over bond N likewise


class Profile(NamedTuple):
    """The mean-field state."""

    rho: Any  # occupation of each site, 0 from site N on [128]


def hop_rate(bond: Any, drive: Any, params: Params) -> Any:
    """The rate of each bond: alpha at bond 0, beta at bond N, q at the slow bond, else 1."""
    last, at = (x.astype(bond.dtype) for x in (params.N, params.at))
    inside = jnp.where(bond == at, 1 - params.slow * (1 - params.q), 1)
    return jnp.where(bond == 0, drive.alpha, jnp.where(bond == last, drive.beta, inside))


def thirds(params: Params) -> tuple[tuple[Any, Any], ...]:
    """Where the left, middle and right thirds of the sites start and stop."""
    # With 1/2 more, a quotient that is whole cannot be rounded below itself.
    cut, later = jnp.floor((params.N + 0.5) / 3), jnp.floor((2 * params.N + 0.5) / 3)
    return (jnp.zeros_like(cut), cut), (cut, later), (later, params.N)


class LatticeConveyor(LatticeWorld):
    """A3: the ends, or a hidden slow bond, decide what the whole tube does."""

    id = "A3"
    title = "Lattice conveyor"
    track = "A"
    phenomenon = "phases that the ends induce, a queue pinned at a hidden slow bond"
    drives = (
        Drive("alpha", 0.02, 1.0, rest=0.3),
        Drive("beta", 0.02, 1.0, rest=0.6),
        Drive("Omega_A", 0.0, 0.6, rest=0.0),
        Drive("Omega_D", 0.0, 0.6, rest=0.0),
        Drive("speed", 0.5, 2.0, rest=1 / 3),
    )
    sensors = (
        Sensor("exit current", 0.0, 0.6),
        Sensor("entry current", 0.0, 0.6),
        Sensor("density of the left third", 0.0, 1.0),
        Sensor("density of the middle third", 0.0, 1.0),
        Sensor("density of the right third", 0.0, 1.0),
    )
    # A sweep has room for the largest total rate, 2 (1 + 0.6 / N) (N + 1) / 2 at N = 128.
    scheme = RandomSequential(dt=0.5, substeps=4, attempts=130)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(20, 64),
        window=(8, 32),
        changes=(1, 3),
        ask={
            "exit current": 1.0,
            "entry current": 1.0,
            "density of the left third": 1.0,
            "density of the middle third": 1.0,
            "density of the right third": 1.0,
        },
        sd_share=0.2,
    )
    lanes = 32
    mean_fraction = 0.10
    sd_fraction = 0.05

    def draw(self, draws: Draws) -> Params:
        """Length; a slow bond (seven in ten) between a fifth and four fifths of it."""
        N = draws.integer(64, SIZE)
        values = (N, draws.chance(0.7), draws.uniform(0.3, 0.9), round(N * draws.uniform(0.2, 0.8)))
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """The exclusion process without a slow bond; without exchange if Omega_A = Omega_D = 0."""
        return Params(N=100.0, slow=0.0, q=1.0, at=50.0)._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A distribution: each site full with probability 1/2."""
        zero = jnp.zeros_like(params.N)
        return State(half_full(noise, params.N, TUBES, WORDS), zero, zero)

    def sites(self, params: Params) -> Any:
        return params.N

    def rates(self, bond: Any, drive: Any, params: Params) -> tuple[Any, Any, Any]:
        """h_b, Omega_A / N and Omega_D / N, times speed."""
        hop = hop_rate(bond, drive, params)
        exchange = drive.Omega_A / params.N, drive.Omega_D / params.N
        return drive.speed * hop, drive.speed * exchange[0], drive.speed * exchange[1]

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Currents, and densities."""
        densities = (occupied(state.cells, start, stop) / (stop - start) for start, stop in thirds(params))
        return state.exit, state.entry, *densities

    def relaxed(self) -> "MeanFieldConveyor":
        """The mean field of the lattice, in which sites are independent."""
        return _RELAXED


class MeanFieldConveyor(Relaxation, OdeWorld):
    """The mean field of A3, smooth in drives and parameters but for N and the slow bond's place.

    It starts half full and has no noise, so its sds are those of transients alone; the law's window means
    differ from its own by 0.01 to 0.02 of the nominal range (root mean square), most of all where a shock
    wanders, and at a slow bond, past which the law's current is higher.
    """

    law = LatticeConveyor()
    id = "A3-mean-field"
    discrete = ("N", "at")
    scheme = RK4(dt=0.25, substeps=8)

    def initial(self, params: Params, noise: Noise) -> Profile:
        """Each site half full."""
        return Profile(self._site(params) / 2)

    def drift(self, state: Profile, drive: Any, params: Params) -> Profile:
        """What hops in less what hops out, and exchange."""
        flow = self._flow(state, drive, params)
        exchange = drive.speed * (drive.Omega_A * (1 - state.rho) - drive.Omega_D * state.rho) / params.N
        return Profile(self._site(params) * (flow[:-1] - flow[1:] + exchange))

    def read(self, state: Profile, drive: Any, params: Params) -> tuple[Any, ...]:
        """Currents over the two ends, and densities."""
        flow = self._flow(state, drive, params)
        out = jnp.sum(flow * (jnp.arange(SIZE + 1) == params.N))
        site = jnp.arange(SIZE)
        densities = (
            jnp.sum(state.rho * ((site >= start) & (site < stop))) / (stop - start)
            for start, stop in thirds(params)
        )
        return out, flow[0], *densities

    def _site(self, params: Params) -> Any:
        """1 for each of the N sites, 0 beyond."""
        return (jnp.arange(SIZE) < params.N).astype(jnp.result_type(params.N))

    def _flow(self, state: Profile, drive: Any, params: Params) -> Any:
        """tau_b ``[129]``; those beyond bond N mean nothing."""
        h = hop_rate(jnp.arange(SIZE + 1), drive, params)
        before = jnp.concatenate([jnp.ones_like(state.rho[:1]), state.rho])
        behind = jnp.concatenate([state.rho, jnp.zeros_like(state.rho[:1])])
        return drive.speed * h * before * (1 - behind)


_RELAXED = MeanFieldConveyor()
