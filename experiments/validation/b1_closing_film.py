"""B1 against the energy of a bending disc: coexistence, stability, barriers, first passages."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of
from simworlds.catalogue import load
from simworlds.integrate import FirstPassage
from simworlds.keys import Noise, Words

WORLD: Any = load("B1")
HELFRICH = "Helfrich 1973, Fromherz 1983"
DEPTH = 20.0  # 4 pi kt / kT of the checks of the energy
AREA = 4 * np.pi  # at which R = 1
NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
CLONES, BLOCKS = 12000, 24  # clones are of six patches each
# (4 pi kt / kT, xi) and the mean time to close from flat in units of 1 / Mob: the catalogue's.
PASSAGES = {(10.0, 1.2): 0.44033, (20.0, 1.4): 0.27115}
# The world's own step where rims move fastest, Mob = 0.05; and a finer one. Both in units of 1 / Mob.
STEPS = (0.05 * WORLD.scheme.dt, 0.05 * WORLD.scheme.dt / 2.5)


def film(depth: float, xi: float, patches: int = 6) -> Any:
    """The reference film with 4 pi kt / kT = depth."""
    kt = depth / (4 * np.pi)
    return WORLD.limit(kt=kt, gam0=xi * kt, a_0=np.full(patches, AREA))


@jax.jit
def _rates(s: Any, params: Any) -> Any:
    start = WORLD.initial(params, Noise(Words(jnp.uint32(0), jnp.uint32(0)), jnp.uint32(0)))
    return WORLD.drift(start._replace(s=s), WORLD.physical(jnp.asarray(WORLD.rest)), params).s


def slope(s: Any, depth: float, xi: float) -> np.ndarray:
    """dE/ds in kT from the law's drift at rims ``[n]``, with Mob = 1."""
    with jax.enable_x64(True):
        return -np.asarray(_rates(jnp.asarray(s), jax.tree.map(jnp.asarray, film(depth, xi, len(s)))))


def energy(s: float, xi: float) -> float:
    """(E(s) - E(1)) / (4 pi kt): the law's drift integrated from the flat disc."""
    nodes = s + (1 - s) * (NODES + 1) / 2
    return float(-np.sum(WEIGHTS * slope(nodes, DEPTH, xi)) * (1 - s) / 2 / DEPTH)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing function, by bisection."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2


def coexistence() -> Measured:
    """The xi at which the closed patch's energy is the flat one's."""
    return Measured(root(lambda xi: -energy(0.0, xi), 0.5, 1.5))


def instability() -> Measured:
    """The xi at which the flat patch is no longer pressed against the wall."""
    return Measured(root(lambda xi: slope([1.0], DEPTH, xi)[0], 1.0, 3.0))


def top(xi: float) -> Measured:
    """The rim s* at the top of the energy."""
    return Measured(root(lambda s: -slope([s], DEPTH, xi)[0], 0.0, 1.0))


def barrier(xi: float, start: float) -> Measured:
    """The height of the energy's top over the flat (1) or the closed (0) patch, in units of 4 pi kt."""
    return Measured(energy(top(xi).value, xi) - energy(start, xi))


def formula(depth: float, xi: float) -> Measured:
    """int_0^1 dy e^{U(y)} int_y^1 dz e^{-U(z)} by Gauss-Legendre quadrature, U = E / kT."""

    def U(s: np.ndarray) -> np.ndarray:
        return depth * (1 - s * s + xi * (s - 1))

    y = (NODES + 1) / 2
    z = y[:, None] + (1 - y)[:, None] * y[None, :]
    inner = (np.exp(U(y)[:, None] - U(z)) * WEIGHTS).sum(1) * (1 - y) / 2
    return Measured(float(np.sum(WEIGHTS * inner) / 2))


def simulated(depth: float, xi: float, step: float) -> Measured:
    """The mean time to close from flat, in units of 1 / Mob.

    The share of open patches is integrated over three means; behind them it decays at the rate of the last
    half. Tick means hold it by the trapezoidal rule, so a patch counts as closing in the middle of a step.
    """
    ticks = 48
    scheme = FirstPassage(step, round(3 * formula(depth, xi).value / (ticks * step)))
    run = Run(WORLD, film(depth, xi), {"c_out": 1.0}, clones=CLONES, dtype=np.float32, scheme=scheme)
    retained = run.ticks(ticks)[..., 1].astype(np.float64)
    share = (1 - retained / (6 * AREA**1.5)).reshape(BLOCKS, -1, ticks).mean(1)
    third, fourth = share[:, 24:36].sum(1), share[:, 36:].sum(1)
    left = 1 - run.state.z.reshape(BLOCKS, -1).mean(1)
    return mean_of((share.sum(1) + left * 12 / np.log(third / fourth)) * scheme.tick_time)


def checks() -> Iterator[Check]:
    """All checks of B1."""
    check = partial(Check, "B1")
    yield check("xi at which flat and closed coexist", 1.0, HELFRICH, coexistence, 1e-9)
    yield check("xi at which flat loses its stability", 2.0, HELFRICH, instability, 1e-9)
    for xi in (0.7, 1.0, 1.5):
        close, opened = partial(barrier, xi, 1.0), partial(barrier, xi, 0.0)
        yield check(f"rim at the barrier, xi = {xi}", xi / 2, "xi / 2", partial(top, xi), 1e-9)
        yield check(f"barrier to close / 4 pi kt, xi = {xi}", (1 - xi / 2) ** 2, "(1 - xi/2)^2", close, 1e-9)
        yield check(f"barrier to open / 4 pi kt, xi = {xi}", xi**2 / 4, "xi^2 / 4", opened, 1e-9)
    yield check(
        "barrier / kt at coexistence",
        np.pi,
        "Fromherz 1983: pi kt",
        lambda: Measured(4 * np.pi * barrier(1.0, 1.0).value),
        1e-8,
    )
    for (depth, xi), published in PASSAGES.items():
        case = f"mean time to close, 4 pi kt / kT = {depth:g}, xi = {xi}"
        yield check(f"{case}: formula", published, "catalogue", partial(formula, depth, xi), 5e-6)
        for step, late in zip(STEPS, (0.01, 0.002), strict=True):
            # The scheme is late by second order of the step.
            yield check(
                f"{case}: simulated, step {step:g}",
                published,
                "formula",
                partial(simulated, depth, xi, step),
                late * published,
                slow=True,
            )
