"""C2: the Brusselator's Hopf point, growth, limit cycle, its clock in a warm bath and its balance."""

import dataclasses
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
from simworlds.keys import Noise, Words

WORLD: Any = load("C2")
FINE = dataclasses.replace(WORLD.scheme.refined(4), substeps=1)  # a tick is one step
PRIGOGINE = "Prigogine & Lefever 1968, doi:10.1063/1.1668896"
CATALOGUE = "catalogue"
PERIOD = 7.1569199  # of B = 3, from an adaptive solve of the two equations at 1e-12; the catalogue has 7.1570
SETTLED = 600  # ticks; the slowest of the cycles attracts at the rate 0.05
KEPT = 60  # ticks


def spectrum(A: float, B: float, sig: float = 0.0, **changes: float) -> Any:
    """Eigenvalues of the law's Jacobian at X = A, Y = B / A in both cells."""
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, WORLD.limit(**changes))
        drive = WORLD.drive_type(*(jnp.float64(x) for x in (A, B, sig, 1.0)))
        still = WORLD.initial(params, Noise(Words(np.uint32(0), np.uint32(0)), np.uint32(0)))
        still = still._replace(x1=drive.A, y1=drive.B / drive.A, x2=drive.A, y2=drive.B / drive.A)
        flat, unravel = ravel_pytree(still)

        def rates(x: Any) -> Any:
            return ravel_pytree(WORLD.drift(unravel(x), drive, params))[0]

        if jnp.abs(rates(flat)).max() > 1e-13:
            raise ValueError("the law must stand still at X = A, Y = B / A")
        return np.linalg.eigvals(np.asarray(jax.jacfwd(rates)(flat)))


def _growth(A: float, B: float) -> float:
    """The growth rate of the oscillation: the mean of four, since double roots come with a spurious split."""
    roots = spectrum(A, B)
    clock = roots[np.abs(roots.imag) > 1e-3]
    if len(clock) != 4:
        raise ValueError(f"both cells must oscillate, but the eigenvalues are {roots}")
    return float(clock.real.mean())


def growth(A: float, B: float) -> Measured:
    """The growth rate of the oscillation by the law's Jacobian."""
    return Measured(_growth(A, B))


def hopf_point(A: float) -> Measured:
    """The B at which the growth rate changes its sign, by bisection."""
    low, high = 1 + 0.8 * A**2, 1 + 1.2 * A**2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _growth(A, middle) < 0 else (low, middle)
    return Measured((low + high) / 2)


def hopf_frequency(A: float) -> Measured:
    """The angular frequency at the Hopf point."""
    roots = spectrum(A, 1 + A**2)
    return Measured(float(np.abs(roots.imag[np.abs(roots.imag) > 1e-3]).mean()))


@cache
def cycle(A: float, B: float, E: float = 0.0, th_b: float = 1.0) -> np.ndarray:
    """Readings on the attractor, step by step: ``[step, sensor]``."""
    params, drive = WORLD.limit(E=E), {"A": A, "B": B, "sig": 0.0, "th_b": th_b}
    run = Run(WORLD, params, drive)
    run.ticks(SETTLED)
    end = jax.tree.map(lambda x: x[0], run.state)
    return Run(WORLD, params, drive, scheme=FINE, state=end).ticks(round(KEPT / FINE.dt))[0]


def height(*at: float) -> Measured:
    """Peak to peak of X."""
    return Measured(float(np.ptp(cycle(*at)[:, 0])))


def _crossings(x: np.ndarray) -> np.ndarray:
    """The steps at which X rises through A = 1, by interpolation."""
    before = np.flatnonzero((x[:-1] < 1) & (x[1:] >= 1))
    if len(before) < 3:
        raise ValueError("X does not oscillate")
    return before + (1 - x[before]) / (x[before + 1] - x[before])


def period(*at: float) -> Measured:
    """The mean time between upward crossings of X = A = 1."""
    return Measured(float(np.diff(_crossings(cycle(*at)[:, 0])).mean() * FINE.dt))


def decay(A: float, B: float) -> Measured:
    """The growth rate of small oscillations: tick means obey d[n+1] = 2 e^g cos(w) d[n] - e^2g d[n-1]."""
    run = Run(WORLD, WORLD.limit(), {"A": A, "B": B, "sig": 0.0, "th_b": 1.0})
    run.ticks(400)
    d = run.ticks(60)[0, :, 0] - A
    (_, minus), *_ = np.linalg.lstsq(np.stack([d[1:-1], d[:-2]], 1), d[2:], rcond=None)
    return Measured(float(np.log(-minus) / 2))


def balance() -> Measured:
    """<X^2 Y> of both cells over whole periods, by the heat that it makes."""
    readings = cycle(1.0, 3.0)
    first, *_, last = np.round(_crossings(readings[:, 0])).astype(int)
    return Measured(float(readings[first:last, 2].mean()))


def checks() -> Iterator[Check]:
    """Deterministic values in float64."""
    for A in (0.5, 1.0, 1.5):
        quantity = f"Hopf point B = 1 + A^2, A = {A:g}"
        yield Check("C2", quantity, 1 + A**2, PRIGOGINE, partial(hopf_point, A), 1e-9)
        yield Check("C2", f"omega = A at it, A = {A:g}", A, PRIGOGINE, partial(hopf_frequency, A), 1e-9)
    for B in (1.95, 2.05):
        quantity, rate = f"growth rate (B - 1 - A^2) / 2 by the Jacobian, A = 1, B = {B:g}", (B - 2) / 2
        yield Check("C2", quantity, rate, PRIGOGINE, partial(growth, 1.0, B), 1e-9)
    below = (1.0, 1.95)
    yield Check(
        "C2", "growth rate, simulated, A = 1, B = 1.95", -0.025, PRIGOGINE, partial(decay, *below), 1e-6
    )
    yield Check("C2", "peak to peak, A = 1, B = 1.95", 0.0, CATALOGUE, partial(height, *below), 1e-6)
    for B, top, tolerance in ((2.05, 0.528, 5e-4), (3.0, 3.3812, 5e-5)):
        yield Check(
            "C2", f"peak to peak, A = 1, B = {B:g}", top, CATALOGUE, partial(height, 1.0, B), tolerance
        )
    yield Check("C2", "period, A = 1, B = 2.05", 6.3016, CATALOGUE, partial(period, 1.0, 2.05), 5e-5)
    yield Check("C2", "period, A = 1, B = 3", PERIOD, "adaptive solve", partial(period, 1.0, 3.0), 2e-6)
    # Without heat of its own, temperature multiplies every rate by exp(E (1 - 1 / th)).
    warm, quicker = (1.0, 3.0, 2.0, 1.1), PERIOD / float(np.exp(2 * (1 - 1 / 1.1)))
    quantity = "period at E = 2, th_b = 1.1, A = 1, B = 3"
    yield Check("C2", quantity, quicker, "Arrhenius law", partial(period, *warm), 2e-6)
    # Over whole periods as much is made from B as is turned back, in each cell.
    yield Check("C2", "heat, 2 <X^2 Y> = 2 A B, A = 1, B = 3", 6.0, "balance of Y", balance, 1e-4)
