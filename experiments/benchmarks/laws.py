"""The laws that benchmarks run: worlds like any other, through the real engine, but in no catalogue.

Their sensors read their first state variables, each through a gauge with sensor noise, so that a rival does
the same work: initial states from addressed noise, fixed steps, tick means by the trapezoidal rule, sensor
noise, and the mean and sd of a window.
"""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from simworlds.ensemble import Readout, Request
from simworlds.instance import Instance
from simworlds.integrate import RK4, Heun
from simworlds.keys import Draws, Noise
from simworlds.ports import Gauge, canonical_ports
from simworlds.protocol import Protocol, Segment
from simworlds.world import Drive, Grammar, OdeWorld, SdeWorld, Sensor, World

TICKS = 256
SIGMA = 0.01  # of the sensor noise of every port
_GRAMMAR = Grammar(segments=(1, 1), ticks=(1, TICKS), window=(2, TICKS), changes=(1, 1), ask={"x": 1.0})


class LorenzState(NamedTuple):
    """The three variables of Lorenz 1963."""

    x: Any
    y: Any
    z: Any


class LorenzParams(NamedTuple):
    """The Prandtl number and the aspect factor; rho is the drive."""

    sigma: Any
    beta: Any


class Lorenz63(OdeWorld):
    """Lorenz 1963 (doi:10.1175/1520-0469(1963)020<0130:DNF>2.0.CO;2), three state variables.

    ``x' = sigma (y - x),  y' = x (rho - z) - y,  z' = x y - beta z``, with rho driven from 0 to 40: level 0.7
    is the chaotic 28, level 0.25 the rho = 10 of two stable points. Initial states are standard normal about
    (1, 1, 20).
    """

    id, title, track, phenomenon = "lorenz-63", "Lorenz 63", "benchmark", "convection"
    drives = (Drive("rho", 0.0, 40.0, rest=0.25),)
    sensors = (Sensor("x", -20.0, 20.0), Sensor("y", -25.0, 25.0), Sensor("z", 0.0, 50.0))
    scheme = RK4(dt=0.01, substeps=20)
    grammar = _GRAMMAR
    lanes = 512  # a small state: a wide chunk still stays in cache
    mean_fraction = sd_fraction = 0.03
    horizon = TICKS

    def draw(self, draws: Draws) -> LorenzParams:
        """The usual parameters: no instance differs."""
        del draws
        return self.limit()

    def limit(self, **changes: Any) -> LorenzParams:
        """The usual parameters."""
        return LorenzParams(np.float32(10), np.float32(8 / 3))._replace(**changes)

    def initial(self, params: LorenzParams, noise: Noise) -> LorenzState:
        """Standard normals about (1, 1, 20)."""
        del params
        return LorenzState(1 + noise.normal(0), 1 + noise.normal(1), 20 + noise.normal(2))

    def drift(self, state: LorenzState, drive: Any, params: LorenzParams) -> LorenzState:
        """The law, term by term."""
        x, y, z = state
        return LorenzState(params.sigma * (y - x), x * (drive.rho - z) - y, x * y - params.beta * z)

    def read(self, state: LorenzState, drive: Any, params: LorenzParams) -> tuple[Any, ...]:
        """All three."""
        del drive, params
        return state.x, state.y, state.z


SITES = 40
Ring = namedtuple("Ring", [f"x{k}" for k in range(SITES)])


class Gain(NamedTuple):
    """The damping of Lorenz 96; the forcing is the drive."""

    damping: Any


class Lorenz96(OdeWorld):
    """Lorenz 1996 on a ring of 40 sites, as 40 scalars (doi:10.1017/CBO9780511617652.004).

    ``x_k' = (x_{k+1} - x_{k-2}) x_{k-1} - d x_k + F`` with damping d = 1 and F driven from 0 to 16: level 0.5
    is the chaotic 8, level 0.05 the F = 0.8 of a stable uniform state. Initial states are standard normal.
    """

    id, title, track, phenomenon = "lorenz-96", "Lorenz 96", "benchmark", "weather on a ring"
    drives = (Drive("F", 0.0, 16.0, rest=0.5),)
    sensors = tuple(Sensor(f"x{k}", -10.0, 15.0) for k in range(3))
    scheme = RK4(dt=0.025, substeps=8)
    grammar = _GRAMMAR
    lanes = 64
    mean_fraction = sd_fraction = 0.03
    horizon = TICKS

    def draw(self, draws: Draws) -> Gain:
        """The usual damping: no instance differs."""
        del draws
        return self.limit()

    def limit(self, **changes: Any) -> Gain:
        """The usual damping, 1."""
        return Gain(np.float32(1))._replace(**changes)

    def initial(self, params: Gain, noise: Noise) -> Any:
        """Standard normals."""
        del params
        return Ring(*(noise.normal(k) for k in range(SITES)))

    def drift(self, state: Any, drive: Any, params: Gain) -> Any:
        """The law, site by site."""
        x, d = state, params.damping
        slopes = [(x[(k + 1) % SITES] - x[k - 2]) * x[k - 1] - d * x[k] + drive.F for k in range(SITES)]
        return Ring(*slopes)

    def read(self, state: Any, drive: Any, params: Gain) -> tuple[Any, ...]:
        """The first three sites."""
        del drive, params
        return state.x0, state.x1, state.x2


class Pair(NamedTuple):
    """Two variables."""

    x: Any
    y: Any


class WellParams(NamedTuple):
    """The amplitudes of the noise, and the pace at which y follows x."""

    bx: Any
    by: Any
    pace: Any


class DoubleWell(SdeWorld):
    """A noisy double well and a variable that follows it, stochastic Heun in two variables.

    ``dx = (x - x^3 + a) dt + bx dW1,  dy = pace (x - y) dt + by dW2`` with a tilt a driven from -1 to 1, and
    initial states standard normal. A tick is 10 steps: 100 ticks are 1,000 steps with 2,000 normals.
    """

    id, title, track, phenomenon = "double-well", "Double well", "benchmark", "escape over a barrier"
    drives = (Drive("a", -1.0, 1.0, rest=0.5),)
    sensors = (Sensor("x", -2.0, 2.0), Sensor("y", -2.0, 2.0))
    scheme = Heun(dt=0.02, substeps=10)
    grammar = _GRAMMAR
    lanes = 512
    mean_fraction = sd_fraction = 0.03
    horizon = 100

    def draw(self, draws: Draws) -> WellParams:
        """The usual parameters: no instance differs."""
        del draws
        return self.limit()

    def limit(self, **changes: Any) -> WellParams:
        """Noise of 0.5 and 0.2, pace 1."""
        return WellParams(np.float32(0.5), np.float32(0.2), np.float32(1))._replace(**changes)

    def initial(self, params: WellParams, noise: Noise) -> Pair:
        """Standard normals."""
        del params
        return Pair(noise.normal(0), noise.normal(1))

    def drift(self, state: Pair, drive: Any, params: WellParams) -> Pair:
        """The law, term by term."""
        x, y = state
        return Pair(x - x * x * x + drive.a, params.pace * (x - y))

    def diffusion(self, state: Pair, drive: Any, params: WellParams) -> Pair:
        """Both have noise."""
        del state, drive
        return Pair(params.bx, params.by)

    def read(self, state: Pair, drive: Any, params: WellParams) -> tuple[Any, ...]:
        """Both."""
        del drive, params
        return state.x, state.y


def bench_instance(world: World, *, seed: int = 0) -> Instance:
    """A world's limit behind ports in its own order, with unit gauges and sensor noise of `SIGMA`."""
    wiring, gauge = canonical_ports(world)
    n = len(world.sensors)
    noisy = Gauge(gauge.order, gauge.offset, gauge.gain, np.full(n, SIGMA, np.float32))
    return Instance(world, seed, world.limit(), noisy, wiring)


def bench_request(world: World, level: float, *, ticks: int = 0, sd: bool = False, port: int = 0) -> Request:
    """One drive level for `ticks` (0: the horizon), and a statistic of one port over the second half."""
    ticks = ticks or world.horizon
    protocol = Protocol((Segment(ticks, {"u0": level}),))
    return Request(protocol, ("benchmark",), Readout(port, ticks // 2, ticks, sd))


def with_lanes(world: World, lanes: int) -> World:
    """The same world with another chunk width a device."""
    return type(f"{type(world).__name__}Lanes{lanes}", (type(world),), {"lanes": lanes})()
