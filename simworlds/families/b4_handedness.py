"""B4 Handedness: two mirror-image molecules grow from an achiral one; which hand prevails, noise decides.

    A -> D  at  ka d a / V + kn (1 + e) a,      A -> L  at  ka l a / V + kn (1 - e) a,      e = g + bias
    D -> A  at  kd d,      L -> A  at  kd l,      D + L -> 2 A  at  kx d l / V
    ka = k (1 + y s),      kx = k x s

for counts a, d, l of N molecules in all. Stirring s either crushes crystals, whose splinters grow (y > 0, x =
0), or brings the hands together, which destroy each other (Frank's antagonism; x > 0, y = 0). Time is in
units of the life of a product at kd = 1, a tick is `scheme.tick_time` of them. A polarimeter that is blind to
the hand locks in on the rotation's modulus:

    tau R' = |d - l| / N - R

While kx = 0 and e = 0, with alpha = V kn / ka and theta = V kd / ka, the stationary law is, exactly,

    P(a, d, l) ~ theta^a / a!  Gamma(d + alpha) / d!  Gamma(l + alpha) / l!

so that d among d + l is beta-binomial: w = (d - l) / (d + l) has <w^2> = 1 / (2 alpha + 1) where many
molecules are left, and two peaks, one a hand, if alpha < 1. Its memory lasts N / (2 alpha kd).

Sources: Frank 1953 (doi:10.1016/0006-3002(53)90082-1); Kondepudi, Kaufman, Singh 1990
(doi:10.1126/science.250.4983.975); Jafarpour, Biancalani, Goldenfeld 2015
(doi:10.1103/PhysRevLett.115.158101); Kirman 1993 (doi:10.2307/2118498).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import TrapezoidLeap
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, JumpWorld, Sensor

_CLEAR = 0.5  # |w| from which on one hand has prevailed


class Params(NamedTuple):
    """Parameters of an instance: scalars."""

    N: Any  # molecules
    k: Any  # rate of autocatalysis without stirring
    kn: Any  # rate at which a product forms by itself
    x: Any  # antagonism that stirring brings; 0 without
    y: Any  # growth that stirring brings; 0 without
    bias: Any  # leaning of spontaneous formation towards D
    tau: Any  # time constant of the lock-in


class State(NamedTuple):
    """Counts (achiral, D, L), and the lock-in's filter: scalars."""

    n: Any
    lock: Any


class Handedness(JumpWorld):
    """B4: a racemic mean of one-handed cultures; bimodality vanishes as spontaneous formation gains."""

    id = "B4"
    title = "Handedness"
    track = "B"
    phenomenon = "noise makes one hand prevail, either one; noise-induced bistability vanishes at alpha = 1"
    drives = (
        Drive("V", 6.0, 60.0, rest=0.3, log=True),
        Drive("kd", 0.5, 2.0, rest=0.5, log=True),
        Drive("s", 0.0, 1.0, rest=0.0),
        Drive("g", -0.5, 0.5, rest=0.5),
    )
    sensors = (
        Sensor("rotation", -1.0, 1.0),
        Sensor("products", 0.0, 1.0),
        Sensor("modulus of the rotation", 0.0, 1.0),
        Sensor("heat", 0.0, 3.0),
    )
    scheme = TrapezoidLeap(dt=0.02, substeps=100)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(20, 64),
        window=(8, 32),
        changes=(1, 3),
        ask={"rotation": 1.6, "products": 0.8, "modulus of the rotation": 1.2, "heat": 0.8},
        sd_share=0.2,
    )
    changes = ((-1, 1, 0), (-1, 0, 1), (1, -1, 0), (1, 0, -1), (2, -1, -1))
    branches = ("laevo", "racemic", "dextro")
    discrete = ("N",)
    mean_fraction = 0.10
    sd_fraction = 0.05

    def draw(self, draws: Draws) -> Params:
        """Antagonism in six instances of ten, growth by stirring in the others."""
        antagonism = draws.chance(0.6)
        x, y = draws.uniform(0.1, 0.5), draws.uniform(0.4, 1.0)
        values = Params(
            N=draws.integer(60, 120),
            k=draws.uniform(0.8, 1.25),
            kn=draws.uniform(0.02, 0.05),
            x=x * antagonism,
            y=y * (1 - antagonism),
            bias=draws.uniform(-0.05, 0.05),
            tau=draws.uniform(2.0, 10.0),
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """Noise-induced bistability alone: no stirring, no bias, alpha = V kn, theta = V kd."""
        return Params(N=100.0, k=1.0, kn=0.5, x=0.0, y=0.0, bias=0.0, tau=1.0)._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: achiral molecules alone."""
        del noise
        zero = jnp.zeros_like(params.N)
        return State(n=(params.N + zero, zero, zero), lock=zero)

    def propensities(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """A -> D, A -> L, D -> A, L -> A, D + L -> 2 A."""
        a, d, l = state.n
        ka = params.k * (1 + params.y * drive.s)
        kx = params.k * params.x * drive.s
        e = drive.g + params.bias
        return (
            (ka * d / drive.V + params.kn * (1 + e)) * a,
            (ka * l / drive.V + params.kn * (1 - e)) * a,
            drive.kd * d,
            drive.kd * l,
            kx * d * l / drive.V,
        )

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The lock-in; counts move by reactions."""
        modulus = jnp.sqrt(self._rotation(state, params) ** 2 + 1e-12)
        still = tuple(jnp.zeros_like(n) for n in state.n)
        return State(n=still, lock=(modulus - state.lock) / params.tau)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """(d - l) / N, (d + l) / N, R, and reactions per molecule and time."""
        _, d, l = state.n
        rates = self.propensities(state, drive, params)
        return self._rotation(state, params), (d + l) / params.N, state.lock, sum(rates) / params.N

    def branch(self, state: State, params: Params) -> Any:
        """Laevo or dextro if w = (d - l) / (d + l) is beyond 1/2, else racemic."""
        del params
        _, d, l = state.n
        bound = _CLEAR * (d + l)
        return (1 + (d - l > bound) - (l - d > bound)).astype(jnp.int32)

    def _rotation(self, state: State, params: Params) -> Any:
        _, d, l = state.n
        return (d - l) / params.N
