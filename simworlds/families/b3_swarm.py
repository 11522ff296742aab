"""B3 Swarm: particles on a ring climb the signal that they release, and gather where noise decides.

    dx_i = [chi_i c_x(x_i) / (1 + sat c(x_i) / c_s) + v0] dt + sqrt(2 D) dW_i
    c_t  = Dc c_xx - delta c + al rho + P g(x - x_p),      rho = (400 / N) sum_i q_i S(x - x_i)

on a ring of length L = 20, with chi_i = chi, q_i = 1 for the first type of particle and chi_i = chi r_chi,
q_i = r_al for the second. Lengths and times are dimensionless; a tick is half a time unit. The N = 128
particles weigh as much as 400, so the mean density is rho0 = 20 whatever N; g is a Gaussian of integral 1 and
standard deviation 1.

The signal is kept by its Fourier modes, c(x) = c0 + sum_n a_n cos k_n x + b_n sin k_n x with
k_n = 2 pi n / L, n = 1 to 10. The particles' shape S has the coefficients exp(-(n/8)^6): it leaves long waves
as they are and takes out those shorter than a particle. As there is no grid, no particle feels a force of its
own.

A uniform swarm is unstable to mode n where chi al rho0 > D (Dc k_n^2 + delta). Local densities are read
through bells ((1 + cos k_1 (x - x_w)) / 2)^28, whose width is 2 at half height.

Sources: Keller & Segel 1970 (doi:10.1016/0022-5193(70)90092-5); Childress & Percus 1981; Hillen & Painter
2009 (doi:10.1007/s00285-008-0201-3).
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.elementary import sincos
from simworlds.integrate import Heun
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, SdeWorld, Sensor

SIZE = 128
LENGTH = 20.0
MASS = 400.0
WAVES = tuple(2 * math.pi * n / LENGTH for n in range(1, 11))
SHAPE = tuple(math.exp(-((n / 8) ** 6)) for n in range(1, 11))
WINDOWS = 3
_BELL = math.comb(56, 28) / 2**56  # mean over the ring of a bell
_SITES = 16  # where the branch looks for aggregates
_DENSE = 2.0  # of an aggregate, relative to the mean density


class Params(NamedTuple):
    """Parameters of an instance. N is the number of particles, taken from `second`."""

    second: Any  # 1 for particles of the second type, 0 for the first [N]
    chi: Any  # sensitivity of the first type
    r_chi: Any  # sensitivity of the second type, relative to chi
    r_al: Any  # signal production of the second type, relative to al
    Dc: Any  # diffusion constant of the signal
    delta: Any  # decay rate of the signal
    sat: Any  # 1 if the response saturates, 0 if not
    c_s: Any  # signal at which it is halved
    x_p: Any  # place of the pulse
    x_w: Any  # centres of the windows [3]


class State(NamedTuple):
    """Places [N], the signal's mean (scalar), and its cosine and sine coefficients [10]."""

    x: Any
    c0: Any
    a: Any
    b: Any


def bell(c: Any, s: Any, centre: Any) -> Any:
    """((1 + cos k_1 (x - centre)) / 2)^28, given the cosine and sine of k_1 x."""
    turn = centre * WAVES[0]
    p = (1 + c * jnp.cos(turn) + s * jnp.sin(turn)) / 2
    p4 = (p * p) ** 2
    p8 = p4 * p4
    return p4 * p8 * (p8 * p8)


class Swarm(SdeWorld):
    """B3: whether aggregates form, where, and whether they follow a pulse or a drift."""

    id = "B3"
    title = "Swarm"
    track = "B"
    phenomenon = (
        "a uniform swarm gathers into aggregates whose place noise decides; they merge or follow a pulse"
    )
    drives = (
        Drive("al", 0.03, 0.08, rest=0.4),
        Drive("D", 0.5, 1.5, rest=0.5),
        Drive("P", 0.0, 10.0, rest=0.0),
        Drive("v0", 0.0, 1.0, rest=0.0),
    )
    sensors = (
        Sensor("density in window 1", 0.0, 120.0),
        Sensor("density in window 2", 0.0, 120.0),
        Sensor("density in window 3", 0.0, 120.0),
        Sensor("total signal", 0.0, 90.0),
        Sensor("spectral order", 0.0, 1.0),
    )
    scheme = Heun(dt=0.05, substeps=10)
    grammar = Grammar(
        segments=(2, 4),
        ticks=(32, 96),
        window=(8, 32),
        changes=(1, 2),
        ask={
            "density in window 1": 1.0,
            "density in window 2": 1.0,
            "density in window 3": 1.0,
            "total signal": 0.5,
            "spectral order": 1.5,
        },
    )
    branches = ("in window 1", "in window 2", "in window 3", "elsewhere", "uniform")
    lanes = 64
    mean_fraction = 0.10
    sd_fraction = 0.05

    def draw(self, draws: Draws) -> Params:
        """Sensitivities from 0.8 to 2 times the threshold at rest; each flag in half of the instances."""
        Dc, delta = draws.uniform(0.5, 2.0), draws.uniform(0.25, 1.0)
        saturating, mixed = draws.chance(0.5), draws.chance(0.5)
        share = draws.uniform(0.25, 0.6) * mixed
        r_chi = draws.uniform(0.2, 0.7) if mixed else 1.0
        r_al = draws.uniform(0.3, 1.7) if mixed else 1.0
        fed = 0.05 * MASS / LENGTH  # al rho0 at rest
        c_s = draws.uniform(1.0, 4.0) * fed / delta
        # The threshold at rest, given what the flags take from the swarm's response.
        critical = (Dc * WAVES[0] ** 2 + delta) / fed / (1 - share + share * r_chi * r_al)
        critical = critical * (1 + fed / delta / c_s if saturating else 1.0)
        start = draws.uniform(0.0, LENGTH)
        gaps = [draws.uniform(4.0, 8.0) for _ in range(WINDOWS)]
        values = Params(
            second=(np.arange(SIZE) < round(SIZE * share)),
            chi=critical * draws.uniform(0.8, 2.0),
            r_chi=r_chi,
            r_al=r_al,
            Dc=Dc,
            delta=delta,
            sat=saturating,
            c_s=c_s,
            x_p=draws.uniform(0.0, LENGTH),
            x_w=np.mod(start + np.cumsum(gaps), LENGTH),
        )
        return Params(*(np.asarray(value, np.float32) for value in values))

    def limit(self, **changes: Any) -> Params:
        """The Keller-Segel model with D = Dc = 1, delta = .5, al = .05, rho0 = 20; chi = 1 is unstable."""
        plain = Params(
            second=np.zeros(SIZE),
            chi=1.0,
            r_chi=1.0,
            r_al=1.0,
            Dc=1.0,
            delta=0.5,
            sat=0.0,
            c_s=1.0,
            x_p=0.0,
            x_w=np.array([0.0, 5.0, 10.0]),
        )
        return plain._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A distribution: places independent and uniform on the ring; no signal yet."""
        zero = jnp.zeros_like(params.chi)
        x = LENGTH * noise.uniform(jnp.arange(params.second.shape[0], dtype=jnp.uint32))
        modes = jnp.zeros(len(WAVES), x.dtype)
        return State(x=x, c0=zero, a=modes, b=modes)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """Velocities of the particles, and the signal's modes."""
        p = params
        dtype = state.a.dtype
        k, shape = jnp.asarray(WAVES, dtype), jnp.asarray(SHAPE, dtype)
        s, c = sincos(state.x * WAVES[0])
        q = 1 + p.second * (p.r_al - 1)
        fed, fed_a, fed_b = self._spectrum(q, c, s)
        signal, slope = self._signal(state, c, s)
        chi = p.chi * (1 + p.second * (p.r_chi - 1))
        loss = p.Dc * k * k + p.delta
        # rho has the mean rho0 <q> and the coefficients 2 rho0 S_n <q cos k_n x>; so has g, with 1 / L.
        rho0 = MASS / LENGTH
        pulse = 2 * drive.P / LENGTH * jnp.exp(-k * k / 2)
        return State(
            x=chi * slope / (1 + p.sat * signal / p.c_s) + drive.v0,
            c0=-p.delta * state.c0 + drive.al * rho0 * fed + drive.P / LENGTH,
            a=-loss * state.a + 2 * drive.al * rho0 * shape * fed_a + pulse * jnp.cos(k * p.x_p),
            b=-loss * state.b + 2 * drive.al * rho0 * shape * fed_b + pulse * jnp.sin(k * p.x_p),
        )

    def diffusion(self, state: State, drive: Any, params: Params) -> State:
        """sqrt(2 D) on every particle."""
        del params
        return State(x=jnp.sqrt(2 * drive.D) * jnp.ones_like(state.x), c0=None, a=None, b=None)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Densities in the windows, the signal's integral L c0, and |rho_k1| = |<exp(i k_1 x)>|."""
        del drive
        s, c = sincos(state.x * WAVES[0])
        rho0 = MASS / LENGTH
        local = [rho0 / _BELL * jnp.mean(bell(c, s, params.x_w[w])) for w in range(WINDOWS)]
        order = jnp.sqrt(jnp.mean(c) ** 2 + jnp.mean(s) ** 2 + 1e-12)
        return (*local, LENGTH * state.c0, order)

    def wrap(self, state: State) -> State:
        """Places within one turn."""
        return state._replace(x=jnp.mod(state.x, LENGTH))

    def branch(self, state: State, params: Params) -> Any:
        """The window with the densest place in it, if that is twice as dense as the mean; else if any is."""
        s, c = sincos(state.x * WAVES[0])
        within = [jnp.mean(bell(c, s, params.x_w[w])) / _BELL for w in range(WINDOWS)]
        sites = jnp.arange(_SITES, dtype=c.dtype)[:, None] * (LENGTH / _SITES)
        around = jnp.mean(bell(c[None, :], s[None, :], sites), axis=1) / _BELL
        most = jnp.stack(within)
        outside = jnp.where(jnp.max(around) > _DENSE, WINDOWS, WINDOWS + 1)
        return jnp.where(jnp.max(most) > _DENSE, jnp.argmax(most), outside).astype(jnp.int32)

    def _spectrum(self, q: Any, c: Any, s: Any) -> tuple[Any, Any, Any]:
        """<q>, <q cos k_n x> and <q sin k_n x>, by powers of exp(i k_1 x)."""
        re, im, cosines, sines = q * c, q * s, [], []
        for _ in WAVES:
            cosines.append(jnp.mean(re))
            sines.append(jnp.mean(im))
            re, im = re * c - im * s, re * s + im * c
        return jnp.mean(q), jnp.stack(cosines), jnp.stack(sines)

    def _signal(self, state: State, c: Any, s: Any) -> tuple[Any, Any]:
        """The signal c and its slope c_x at each particle, by Horner's rule in z = exp(i k_1 x)."""
        re = im = slope_re = slope_im = jnp.zeros_like(c)
        for n in reversed(range(len(WAVES))):
            re, im = re + state.a[n], im - state.b[n]
            re, im = re * c - im * s, re * s + im * c
            slope_re, slope_im = slope_re + WAVES[n] * state.b[n], slope_im + WAVES[n] * state.a[n]
            slope_re, slope_im = slope_re * c - slope_im * s, slope_re * s + slope_im * c
        return state.c0 + re, slope_re
