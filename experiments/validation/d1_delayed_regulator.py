"""D1 against delay equations with known solutions: the method of steps, the linear equation, Mackey-Glass.

With few molecules the hump is linear, F(v) = v, so that b = -c and gam = a make ``x' = -a x - c x(t - tau)``.
"""

from collections.abc import Iterator
from functools import cache
from math import acos, factorial, floor, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.integrate import DelayRK4

WORLD: Any = load("D1")
FEW = 1e-3  # initial x at which the hump is linear: FEW^10 is nothing beside 1
STEPS = {3.5: 0.0651041667, 10.0: 0.0202411265}
ONSET, FREQUENCY = 4.708196, 0.387298
CYCLES = ((4.6, 0.0, 1e-3), (4.8, 0.088, 5e-4), (6.0, 0.3132, 5e-5))  # delay, peak to peak, tolerance


def steps_formula(t: float) -> Measured:
    """For u' = -u(t - 1), u = 1 up to 0: u(t) = sum of (-1)^k (t - k + 1)^k / k!, k <= floor(t) + 1."""
    return Measured(sum((-1) ** k * (t - k + 1) ** k / factorial(k) for k in range(floor(t) + 2)))


def steps_law(t: float) -> Measured:
    """The same by the world's law in its linear range, at a step of .05."""
    params = WORLD.limit(b=-1.0, gam=0.0, t1=1.0, x0=FEW)
    run = Run(WORLD, params, scheme=DelayRK4(dt=0.05, substeps=10))
    run.ticks(round(t / 0.5))
    return Measured(float(run.state.x[0]) / FEW)


def critical_delay(a: float, c: float) -> float:
    """The delay beyond which ``x' = -a x - c x(t - tau)``, c > a, oscillates ever more (Hayes 1950)."""
    return acos(-a / c) / sqrt(c**2 - a**2)


def slopes() -> tuple[float, float]:
    """The numbers a and c of the law in its limit configuration, linearised about the steady state x = 1."""
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, WORLD.limit())
        drive = WORLD.drive_type(u1=1.0, u2=1.0, I=0.0)
        start = Run(WORLD, params._replace(x0=jnp.float64(1.0))).state
        state = jax.tree.map(lambda x: jnp.asarray(x[0]), start)

        def rate(now: Any, then: Any) -> Any:
            past = (state._replace(x=then),) * 3
            return WORLD.drift(state._replace(x=now), drive, params, past).x

        a, c = jax.grad(rate, argnums=(0, 1))(state.x, state.x)
    return -float(a), -float(c)


def onset_formula() -> Measured:
    """The delay at which the Mackey-Glass steady state gives way, from the law's own slopes."""
    return Measured(critical_delay(*slopes()))


def frequency_formula() -> Measured:
    """The angular frequency there."""
    a, c = slopes()
    return Measured(sqrt(c**2 - a**2))


@cache
def neutral(a: float, c: float) -> tuple[float, float]:
    """Growth rate and angular frequency of the linear equation at its critical delay, by the law."""
    params = WORLD.limit(b=-c, gam=a, t1=critical_delay(a, c), x0=FEW)
    x = Run(WORLD, params).ticks(900)[0, :, 3]
    near, tick = sqrt(c**2 - a**2), WORLD.scheme.tick_time
    time = tick * (np.arange(900) + 0.5)

    def phasor(first: int) -> complex:
        at = slice(first, first + 300)
        basis = np.stack([np.cos(near * time[at]), -np.sin(near * time[at])], 1)
        real, imaginary = np.linalg.lstsq(basis, x[at], rcond=None)[0]
        return complex(real, imaginary)

    change = np.log(phasor(600) / phasor(200)) / (400 * tick)
    return float(change.real), near + float(change.imag)


@cache
def heights(delay: float, speed: float = 1.0, wait: float = 4000.0) -> np.ndarray:
    """The Mackey-Glass x over 400 time units after a wait, step by step; time runs at a speed."""
    params = WORLD.limit(b=0.2 * speed, gam=0.1 * speed, t1=delay / speed)
    run = Run(WORLD, params, scheme=DelayRK4(dt=0.05, substeps=1))
    run.ticks(round(wait / speed / 0.05))
    return run.ticks(round(400 / speed / 0.05))[0, :, 2] / (0.1 * speed)


def peak_to_peak(delay: float) -> Measured:
    """The height of the Mackey-Glass cycle."""
    return Measured(float(np.ptp(heights(delay))))


def step_error() -> Measured:
    """The largest difference of the Mackey-Glass x(200) between steps of .1, .05 and .025."""
    ends = []
    for dt in (0.1, 0.05, 0.025):
        run = Run(WORLD, WORLD.limit(), scheme=DelayRK4(dt=dt, substeps=round(2 / dt)))
        run.ticks(100)
        ends.append(float(run.state.x[0]))
    return Measured(float(np.ptp(ends)))


def doubling() -> Measured:
    """The delay from which on the cycle's maxima alternate; time runs twice as fast.

    Beyond it the square of their difference grows in proportion, so two delays give it.
    """

    def squared(delay: float) -> float:
        x = heights(delay, 2.0, 16000.0)
        rises = np.flatnonzero((x[:-1] < x.mean()) & (x[1:] >= x.mean()))
        peaks = [x[a:b].max() for a, b in zip(rises[:-1], rises[1:], strict=True)]
        return float(np.ptp(peaks)) ** 2

    near, far = squared(13.3), squared(13.4)
    return Measured(13.3 - 0.1 * near / (far - near))


def _linear() -> Iterator[Check]:
    for t, published in STEPS.items():
        source = "method of steps"
        yield Check(
            "D1",
            f"u({t:g}) of u' = -u(t - 1), formula",
            published,
            source,
            lambda t=t: steps_formula(t),
            6e-11,
        )
        yield Check(
            "D1", f"u({t:g}) of u' = -u(t - 1), law", published, source, lambda t=t: steps_law(t), 8e-9
        )
    for a, c in ((0.1, 0.4), (0.05, 0.2)):
        name = f"linear equation a = {a}, b = {c} at its critical delay"
        yield Check(
            "D1", f"{name}: growth rate", 0.0, "Hayes 1950", lambda a=a, c=c: Measured(neutral(a, c)[0]), 1e-6
        )
        frequency = sqrt(c**2 - a**2)
        yield Check(
            "D1",
            f"{name}: frequency",
            frequency,
            "Hayes 1950",
            lambda a=a, c=c: Measured(neutral(a, c)[1]),
            1e-6,
        )


def checks() -> Iterator[Check]:
    """The checks of D1."""
    yield from _linear()
    glass = "Mackey-Glass (.2, .1, 10)"
    source = "Mackey & Glass 1977, linear theory"
    yield Check("D1", f"{glass}: onset of cycles", ONSET, source, onset_formula, 6e-7)
    yield Check("D1", f"{glass}: frequency at onset", FREQUENCY, source, frequency_formula, 6e-7)
    for delay, published, tolerance in CYCLES:
        name = f"{glass}: peak to peak at delay {delay}"
        yield Check(
            "D1", name, published, "catalogue", lambda delay=delay: peak_to_peak(delay), tolerance, slow=True
        )
    yield Check("D1", f"{glass}: x(200) between steps .1, .05, .025", 0.0, "catalogue", step_error, 5e-10)
    farmer = "Farmer 1982, doi:10.1016/0167-2789(82)90042-2"
    yield Check("D1", f"{glass}: period doubling", 13.3, farmer, doubling, 0.06, slow=True)
