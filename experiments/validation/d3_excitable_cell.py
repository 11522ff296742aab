"""D3: rest, Hopf currents, the knee of the firing branch, and spike times of the Hodgkin-Huxley axon."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.integrate import RK4
from simworlds.keys import Noise, Words

WORLD: Any = load("D3")
AXON = {"E_K": -77.0, "B": 0.0, "T": 6.3}
HASSARD = "Hassard 1978, doi:10.1016/0022-5193(78)90168-6; catalogue"
RINZEL = "Rinzel & Miller 1980, doi:10.1016/0025-5564(80)90109-1; catalogue"
TICK = WORLD.scheme.tick_time


@cache
def _spectrum() -> Any:
    """A function from a current to the fixed point, a state as a vector, and the law's eigenvalues there."""
    params = jax.tree.map(jnp.float64, WORLD.limit())
    start = WORLD.initial(params, Noise(Words(np.uint32(0), np.uint32(0)), np.uint32(0)))
    flat, unravel = ravel_pytree(start)

    def rates(vector: Any, current: Any) -> Any:
        drive = WORLD.drive_type(I=current, **{k: jnp.float64(v) for k, v in AXON.items()})
        return ravel_pytree(WORLD.drift(unravel(vector), drive, params))[0]

    slope = jax.jacfwd(rates)

    @jax.jit
    def at(current: Any) -> tuple[Any, Any]:
        newton = lambda _, x: x - jnp.linalg.solve(slope(x, current), rates(x, current))  # noqa: E731
        point = jax.lax.fori_loop(0, 60, newton, flat)
        return point, slope(point, current)

    return at


def rest() -> Measured:
    """V of the fixed point without current."""
    with jax.enable_x64(True):
        return Measured(float(_spectrum()(jnp.float64(0.0))[0][0]))


def growth(current: float) -> float:
    """The largest real part of the eigenvalues at the fixed point, per ms."""
    return float(np.linalg.eigvals(np.asarray(_spectrum()(jnp.float64(current))[1])).real.max())


def hopf(low: float, high: float) -> Measured:
    """The current between two at which the growth changes sign."""
    with jax.enable_x64(True):
        sign = np.sign(growth(low))
        if np.sign(growth(high)) == sign:
            raise ValueError(f"stability does not change from {low} to {high}")
        while high - low > 1e-7:
            middle = (low + high) / 2
            low, high = (middle, high) if np.sign(growth(middle)) == sign else (low, middle)
    return Measured((low + high) / 2)


def axon(current: float, **options: Any) -> Run:
    """The axon from rest at V = -65 mV under a step of current."""
    return Run(WORLD, WORLD.limit(), {"I": current, **AXON}, **options)


def spikes(run: Run, ticks: int) -> float:
    """The spikes in so many ticks: the rate's filter, integrated, counts each once."""
    before = run.state.r[0]
    rate = run.ticks(ticks)[0, :, 1]
    return (rate.sum() * TICK + WORLD.rate_time * (run.state.r[0] - before)) / 1000


def early(current: float) -> Measured:
    """Spikes in the first 500 ms of a step from rest."""
    return Measured(spikes(axon(current), 100))


def lasting(current: float) -> Measured:
    """Spikes from 500 to 1000 ms of a step from rest over those of the first 500 ms."""
    run = axon(current)
    first, second = (spikes(run, 100) for _ in range(2))
    return Measured(second / first)


def knee() -> Measured:
    """Where firing that is followed down ends: from 6.3 to 6.27 by 0.005, then by 0.001 a second."""
    run = axon(6.3)
    run.ticks(200)
    for current in (*np.arange(6.295, 6.27, -0.005), *np.arange(6.27, 6.2, -0.001)):
        run.drive(I=current)
        run.ticks(150)
        if spikes(run, 50) < 1:
            return Measured(current + 0.0005)
    raise ValueError("the axon still fires at 6.2")


def potential(current: float, duration: float, refinement: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Times and V from rest, a step apart: V = f + tau f' of the low-passed potential f between steps."""
    dt = WORLD.scheme.dt / refinement
    f = axon(current, scheme=RK4(dt, 1)).ticks(round(duration / dt))[0, :, 0]
    V = (f[1:] + f[:-1]) / 2 + WORLD.filter_time * np.diff(f) / dt
    return dt * np.arange(1, len(f)), V


def crossings(times: np.ndarray, values: np.ndarray, level: float) -> np.ndarray:
    """When the values rise through a level."""
    at = np.flatnonzero((values[:-1] < level) & (values[1:] >= level))
    share = (level - values[at]) / (values[at + 1] - values[at])
    return times[at] + share * (times[at + 1] - times[at])


@cache
def train() -> np.ndarray:
    """When V rises through 0 in the first 300 ms of a step to 10 uA/cm2."""
    return crossings(*potential(10.0, 300.0), 0.0)


def last_spike() -> Measured:
    """The time of the last of these spikes."""
    return Measured(float(train()[-1]))


def interval() -> Measured:
    """The mean of the last ten intervals."""
    return Measured(float(np.diff(train())[-10:].mean()))


def count() -> Measured:
    """The spikes of the same 300 ms by the rate sensor."""
    return Measured(spikes(axon(10.0), 60))


def checks() -> Iterator[Check]:
    """Every reference value of the catalogue."""
    yield Check("D3", "rest, mV", -64.9964, "catalogue", rest, 5e-5)
    yield Check("D3", "lower Hopf current, uA/cm2", 9.7754, HASSARD, partial(hopf, 9.0, 11.0), 5e-5)
    yield Check("D3", "upper Hopf current, uA/cm2", 154.5224, HASSARD, partial(hopf, 140.0, 170.0), 5e-5)
    yield Check("D3", "knee of the firing branch, uA/cm2", 6.26, RINZEL, knee, 5e-3, slow=True)
    yield Check("D3", "spikes after a step to 6.2", 3.0, "catalogue", partial(early, 6.2), 1e-3)
    yield Check("D3", "second half second v first, 6.2", 0.0, "catalogue", partial(lasting, 6.2), 1e-3)
    yield Check("D3", "second half second v first, 6.3", 1.0, "catalogue", partial(lasting, 6.3), 0.05)
    yield Check("D3", "spikes in 300 ms at 10, by the sensor", 21.0, "catalogue", count, 1e-3)
    yield Check("D3", "last of these spikes, ms", 294.92, "catalogue", last_spike, 5e-3)
    yield Check("D3", "interval at 10, ms", 14.64, "catalogue", interval, 5e-3)
