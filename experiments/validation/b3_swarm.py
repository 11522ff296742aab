"""B3 against the linear stability of the Keller-Segel model, its stationary states and free diffusion.

The critical mass that is published for the plane belongs to another geometry and has no check here.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import jax
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of
from simworlds.catalogue import load
from simworlds.keys import Noise, clone_words, role_words

WORLD: Any = load("B3")
LENGTH, MASS = 20.0, 400.0
K = 2 * np.pi * np.arange(1, 11) / LENGTH
SHAPE = np.exp(-((np.arange(1, 11) / 8) ** 6))  # of the particles
REST = {"al": 0.05, "D": 1.0, "P": 0.0, "v0": 0.0}
KELLER_SEGEL = "Keller & Segel 1970, doi:10.1016/0022-5193(70)90092-5"
TICK = WORLD.scheme.tick_time


def critical(Dc: float = 1.0, delta: float = 0.5) -> float:
    """chi_c = D (Dc k1^2 + delta) / (al rho0) at D = 1, al = .05, rho0 = 20."""
    return REST["D"] * (Dc * K[0] ** 2 + delta) / (REST["al"] * MASS / LENGTH)


def swarm(x: np.ndarray, a: np.ndarray) -> Any:
    """A state with the particles at given places, and the signal 2 + sum_n a_n cos k_n x."""
    noise = Noise(clone_words(role_words("B3", 0, "initial"), 0), np.uint32(0))
    return WORLD.initial(WORLD.limit(), noise)._replace(x=x, c0=np.float64(2.0), a=a, b=np.zeros(len(K)))


def theory(chi: float) -> np.ndarray:
    """The matrix of mode 1 of density (over rho0) and signal about the uniform state, ``[2, 2]``."""
    return np.array([[-(K[0] ** 2), chi * K[0] ** 2], [1.0, -(K[0] ** 2) - 0.5]])


def matrix_of_law(chi: float) -> np.ndarray:
    """The same matrix from the law's own drift and diffusion, on an even lattice of particles.

    The density's entry is 2 <cos k1 x>; by Ito's rule, with a noise of amplitude b,
    <cos k1 x>' = -k1 <v sin k1 x> - k1^2 b^2 / 2 <cos k1 x>.
    """
    with jax.enable_x64(True):
        params = jax.tree.map(partial(np.asarray, dtype=float), WORLD.limit(chi=chi))
        drive = WORLD.drive_type(**REST)
        x = (np.arange(1024) + 0.5) * LENGTH / 1024
        params = params._replace(second=np.zeros(1024))
        none = np.zeros(len(K))
        one = none.copy()
        one[0] = 1.0

        def drift(x: Any, a: Any) -> Any:
            return jax.device_get(WORLD.drift(swarm(x, a), drive, params))

        lit, bunched = drift(x, one), x - 0.01 * np.sin(K[0] * x)
        b = float(np.mean(WORLD.diffusion(swarm(x, none), drive, params).x))
        density = 2 * np.mean(np.cos(K[0] * bunched))
        return np.array(
            [
                [-(K[0] ** 2) * b**2 / 2, -2 * K[0] * np.mean(lit.x * np.sin(K[0] * x))],
                [drift(bunched, none).a[0] / density, lit.a[0]],
            ]
        )


def larger_root(matrix: np.ndarray) -> float:
    """The growth rate: the larger eigenvalue."""
    return float(np.max(np.linalg.eigvals(matrix).real))


def law_threshold() -> Measured:
    """The chi at which the determinant of the law's own matrix is 0."""
    m = matrix_of_law(1.0)
    return Measured(m[0, 0] * m[1, 1] / (m[0, 1] * m[1, 0]))


def simulated_rate(chi: float, ticks: int) -> Measured:
    """The growth rate of a small bunching in an ensemble, from its growing eigenvector on.

    A run from the even lattice under the same noise is taken off, so that fluctuations cancel to first order.
    """
    clones, n, depth = 32, 8192, 0.02
    values, vectors = np.linalg.eig(theory(chi))
    growing = vectors[:, np.argmax(values)]
    x = (np.arange(n) + 0.5) * LENGTH / n
    ends = []
    for bunching in (depth, 0.0):
        start = x - bunching / K[0] * np.sin(K[0] * x)  # a density of 1 + depth cos k1 x
        a = np.zeros(len(K))
        a[0] = 2 * np.mean(np.cos(K[0] * start)) * growing[1] / growing[0] if bunching else 0.0
        params = WORLD.limit(chi=chi, second=np.zeros(n))
        run = Run(WORLD, params, REST, clones=clones, dtype=np.float32, state=swarm(start, a))
        run.ticks(ticks)
        ends.append(np.cos(K[0] * run.state.x.astype(float)).mean(1))
        if bunching:
            first = np.mean(np.cos(K[0] * start))
    mean, error = mean_of(ends[0] - ends[1])
    return Measured(np.log(mean / first) / (ticks * TICK), error / mean / (ticks * TICK))


@cache
def aggregate(chi: float = 1.0, c_s: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The stationary aggregate about 0 on a grid: places and density (mean 1).

    rho ~ exp(chi c / D), or (1 + c/c_s)^(chi c_s / D) where the response saturates; c follows from rho.
    """
    x = np.linspace(0, LENGTH, 1024, endpoint=False)
    waves = np.cos(K[:, None] * x)
    rho = 1 + 0.5 * waves[0]
    for _ in range(5000):
        a = 2 * SHAPE * (waves @ rho) / len(x) / (K**2 + 0.5)
        c = 1 / 0.5 + a @ waves
        height = chi * c if c_s is None else chi * c_s * np.log1p(c / c_s)
        new = np.exp(height - height.max())
        rho = 0.7 * rho + 0.3 * new / new.mean()
    return x, rho


def order_of(chi: float, c_s: float | None = None) -> float:
    """|rho_k1| of the stationary aggregate."""
    x, rho = aggregate(chi, c_s)
    return float(np.mean(rho * np.cos(K[0] * x)))


def simulated_order(chi: float, c_s: float | None = None, n: int = 4096) -> Measured:
    """The order of clones that were put into the stationary aggregate and left alone."""
    x, rho = aggregate(chi, c_s)
    share = np.append(0, np.cumsum(rho) / rho.sum())
    places = np.interp((np.arange(n) + 0.5) / n, share, np.append(x, LENGTH))
    a = 2 * SHAPE * np.cos(K[:, None] * places).mean(1) / (K**2 + 0.5)
    saturating = {} if c_s is None else {"sat": 1.0, "c_s": c_s}
    params = WORLD.limit(chi=chi, second=np.zeros(n), **saturating)
    run = Run(WORLD, params, REST, clones=16, dtype=np.float32, state=swarm(places, a))
    return mean_of(run.ticks(80)[:, 40:, 4].mean(1))


def free_order() -> Measured:
    """N <|rho_k|^2> over the first ten modes of swarms without chemotaxis."""
    run = Run(WORLD, WORLD.limit(chi=0.0), REST, clones=4096, dtype=np.float32)
    run.ticks(16)
    x = run.state.x.astype(float)
    power = [np.abs(np.exp(1j * k * x).mean(1)) ** 2 for k in K]
    return mean_of(x.shape[1] * np.mean(power, axis=0))


def free_spread(ticks: int = 10) -> Measured:
    """The variance of displacements without chemotaxis over that of diffusion, 2 D t."""
    run = Run(WORLD, WORLD.limit(chi=0.0), {**REST, "D": 0.7}, clones=2048, dtype=np.float32)
    last, moved = run.state.x.astype(float), 0.0
    for _ in range(ticks):
        run.ticks(1)
        now = run.state.x.astype(float)
        moved, last = moved + (now - last + LENGTH / 2) % LENGTH - LENGTH / 2, now
    return mean_of(np.asarray(moved) ** 2 / (2 * 0.7 * ticks * TICK))


def total_signal(**drive: float) -> Measured:
    """The integral of the signal after a long time, of a swarm that gathers."""
    readings = Run(WORLD, WORLD.limit(), {**REST, **drive}).ticks(160)
    return Measured(float(readings[0, -1, 3]))


def checks() -> Iterator[Check]:
    """The rows of B3; D = Dc = 1, delta = .5, al = .05, rho0 = 20, L = 20 unless said."""
    formula = "chi_c = D (Dc k1^2 + delta) / (al rho0)"
    yield Check("B3", "threshold, formula", 0.598696, KELLER_SEGEL, lambda: Measured(critical()), 5e-7)
    # The shape of the particles takes 4e-6 off the signal in mode 1.
    yield Check("B3", "threshold of the law's linearisation", critical(), formula, law_threshold, 5e-6)
    yield Check(
        "B3",
        "growth rate at chi = 1, formula",
        0.052796,
        "catalogue; larger root of the 2 x 2 matrix",
        lambda: Measured(larger_root(theory(1.0))),
        5e-7,
    )
    for chi in (1.0, 0.3):
        rate = larger_root(theory(chi))
        yield Check(
            "B3",
            f"growth rate of the law's linearisation at chi = {chi:g}",
            rate,
            "larger root of the 2 x 2 matrix",
            lambda chi=chi: Measured(larger_root(matrix_of_law(chi))),
            1e-6,
        )
        yield Check(
            "B3",
            f"growth rate of simulated swarms at chi = {chi:g}",
            rate,
            "larger root of the 2 x 2 matrix",
            lambda chi=chi: simulated_rate(chi, 30),
            slow=True,
        )
    for chi, c_s in ((1.0, None), (2.0, 4.0)):
        response = "" if c_s is None else f", saturating at c_s = {c_s:g}"
        yield Check(
            "B3",
            f"order of the stationary aggregate at chi = {chi:g}{response}",
            order_of(chi, c_s),
            "rho ~ exp(chi c / D)" if c_s is None else "rho ~ (1 + c / c_s)^(chi c_s / D)",
            lambda chi=chi, c_s=c_s: simulated_order(chi, c_s),
            slow=True,
        )
    yield Check("B3", "N <|rho_k|^2> at chi = 0", 1.0, "independent particles", free_order)
    yield Check("B3", "<dx^2> / 2 D t at chi = 0", 1.0, "free diffusion", free_spread)
    yield Check("B3", "total signal", 0.05 * MASS / 0.5, "al N / delta", total_signal, 1e-6)
    yield Check(
        "B3",
        "total signal at P = 4",
        (0.05 * MASS + 4) / 0.5,
        "(al N + P) / delta",
        lambda: total_signal(P=4.0),
        1e-6,
    )
