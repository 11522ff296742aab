"""A2: drift and diffusion of Brownian particles on a tilted periodic potential."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of
from simworlds.catalogue import load

WORLD: Any = load("A2")
STRATONOVICH = "Stratonovich 1958; catalogue"
REIMANN = "Reimann et al. 2001, doi:10.1103/PhysRevLett.87.010602"
PARTICLES, CLONES = 2048, 64
BURN_IN = 16
# How far the step may shift a mean, relative: halving it moves velocities by less.
STEP = 1e-3


def potential(x: np.ndarray, A: float) -> np.ndarray:
    """V = A [sin x + a2 sin(2 x + phi)] of the limit configuration."""
    params = WORLD.limit()
    return A * (np.sin(x) + params.a2 * np.sin(2 * x + params.phi))


def _passages(A: float, F: float, T: float) -> tuple[np.ndarray, np.ndarray]:
    """I+(x) and I-(x) on a grid: int_0^L dy exp{[+-V(x) -+ V(x -+ y) - y F] / T} / T."""
    x = np.linspace(0, 2 * np.pi, 256, endpoint=False)[:, None]
    node, weight = np.polynomial.legendre.leggauss(128)
    y, dy = np.pi * (node + 1), np.pi * weight
    here = potential(x, A)
    ahead = np.exp((here - potential(x - y, A) - y * F) / T) @ dy / T
    behind = np.exp((potential(x + y, A) - here - y * F) / T) @ dy / T
    return ahead, behind


def stratonovich(A: float, F: float, T: float) -> float:
    """<v> = L (1 - exp(-F L / T)) / int_0^L dx I+(x), mobility 1, L = 2 pi."""
    ahead, _ = _passages(A, F, T)
    return float((1 - np.exp(-2 * np.pi * F / T)) / ahead.mean())


def diffusion(A: float, F: float, T: float) -> float:
    """D = T <I+^2 I-> / <I+>^3, where <> is the mean over a period."""
    ahead, behind = _passages(A, F, T)
    return float(T * np.mean(ahead**2 * behind) / ahead.mean() ** 3)


def many(A: float, F: float, T: float) -> Run:
    """Clones of many particles in the limit configuration; followers stay where particles started."""
    params = WORLD.limit(slow=np.arange(PARTICLES) % 2.0, tau=1e9)
    drive = {"A": A, "F": F, "T": T}
    return Run(WORLD, params, drive, clones=CLONES, label=f"A2 {A} {F} {T}", dtype=np.float32)


def velocity(A: float, F: float, T: float) -> Measured:
    """The mean velocity over 50 time units of all particles."""
    run = many(A, F, T)
    run.ticks(BURN_IN)
    return mean_of(run.ticks(100)[:, :, 0].mean(1))


@cache
def _displacement(A: float, F: float, T: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean displacement over time and growth of its variance over twice the time, by clone.

    From 8 to 20 time units.
    """
    run, found = many(A, F, T), []
    for ticks in (BURN_IN, 24):
        run.ticks(ticks)
        away = run.state.x.astype(np.float64) - run.state.u
        found.append((away.mean(1), away.var(1, ddof=1)))
    (mean, variance), (later, wider) = found
    return (later - mean) / 12, (wider - variance) / 24


def displaced(which: int, A: float, F: float, T: float) -> Measured:
    """The drift (which = 0) or diffusion (1) of displacements, noise included."""
    return mean_of(_displacement(A, F, T)[which])


def checks() -> Iterator[Check]:
    """Every reference value of the catalogue."""
    for F, published in ((1.0, 0.266698), (-1.0, -0.369234)):
        at = (2.0, F, 1.0)
        formula = partial(lambda a: Measured(stratonovich(*a)), at)
        where = f"A = 2, F = {F:g}, T = 1"
        yield Check("A2", f"velocity, {where}, quadrature", published, STRATONOVICH, formula, 5e-7)
        law = partial(velocity, *at)
        tolerance = STEP * abs(published)
        yield Check("A2", f"velocity, {where}, law", published, STRATONOVICH, law, tolerance, slow=True)
    free = (0.0, 1.0, 1.0)
    for which, name in enumerate(("drift", "diffusion")):
        measure = partial(displaced, which, *free)
        yield Check("A2", f"{name} of free particles, F = T = 1", 1.0, "closed form", measure, slow=True)
    for at in ((2.0, 1.0, 1.0), (2.0, 2.0, 0.5)):
        where = "A = {:g}, F = {:g}, T = {:g}".format(*at)
        measure = partial(displaced, 1, *at)
        tolerance = STEP * diffusion(*at)
        yield Check("A2", f"diffusion, {where}", diffusion(*at), REIMANN, measure, tolerance, slow=True)
