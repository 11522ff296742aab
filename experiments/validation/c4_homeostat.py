"""C4: Watson and Lovelock's planet: its cover and its temperature while daisies live, and without them."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run
from simworlds.catalogue import load

WORLD: Any = load("C4")
WATSON = "Watson & Lovelock 1983, doi:10.1111/j.1600-0889.1983.tb00031.x"
CATALOGUE = "catalogue"
# Of Watson and Lovelock's planet: sun, radiation, growth's curvature and optimum, albedos, local heating.
SOLAR, SIGMA, ZERO = 917.0, 5.67e-8, 273.15
CURVATURE, BEST = 0.003265, 22.5
LIGHT, DARK, HEATING = 0.75, 0.25, 20.0


def local_temperatures() -> tuple[float, float]:
    """Where light and dark daisies grow alike: T_w = To - qq (alb_w - alb_b) / 2, and as far above To."""
    apart = HEATING * (LIGHT - DARK) / 2
    return BEST - apart, BEST + apart


def cover(gam: float) -> float:
    """The cover while both live, 1 - gam / beta(T_w)."""
    return 1 - gam / (1 - CURVATURE * (BEST - local_temperatures()[0]) ** 2)


def temperature(L: float) -> float:
    """T while both live: T_w = qq (A - alb_w) + T gives A, and s L (1 - A) = sigma T^4 then T, by bisection.

    As A falls with T, the planet absorbs more than it sheds above that T, and less below.
    """
    low, high = -50.0, 80.0
    while high - low > 1e-12:
        T = (low + high) / 2
        A = LIGHT + (local_temperatures()[0] - T) / HEATING
        low, high = (low, T) if SOLAR * L * (1 - A) > SIGMA * (T + ZERO) ** 4 else (T, high)
    return (low + high) / 2


def seeded(L: float, seed: float, gam: float = 0.3) -> float:
    """The cover with seeds, to first order: x = [gam - seed (1 / a_w + 1 / a_b) / 2] / beta(T_w)."""
    bare = 1 - cover(gam)
    albedo = LIGHT + (local_temperatures()[0] - temperature(L)) / HEATING
    light = (albedo - 0.5 * bare - DARK * (1 - bare)) / (LIGHT - DARK)
    dark = 1 - bare - light
    return 1 - bare * (1 - seed * (1 / light + 1 / dark) / 2 / gam)


@cache
def rest(L: float, seed: float, alive: float = 1.0) -> Any:
    """The state after 1600 ticks from a fifth of the ground each (with `alive` 0, from bare ground)."""
    plain = WORLD.limit()
    run = Run(
        WORLD,
        plain._replace(seed=seed, p=alive * plain.p),
        {"L": L, "G": 0.0, "gam": 0.3, "dust": 0.0},
    )
    run.ticks(1600)
    return run.state


def covered(L: float, seed: float = 1e-9) -> Measured:
    """The cover of all kinds at rest."""
    return Measured(float(sum(a[0] for a in rest(L, seed).a)))


def warmth(L: float, alive: float = 1.0) -> Measured:
    """T at rest."""
    return Measured(float(rest(L, 1e-9, alive).T[0]))


def local(kind: int) -> Measured:
    """T_k at rest under L = 1."""
    state, params = rest(1.0, 1e-9), WORLD.limit()
    a = np.array([a[0] for a in state.a])
    albedo = 0.5 * (1 - a.sum()) + params.alb @ a
    return Measured(float(params.qq * (albedo - params.alb[kind]) + state.T[0]))


def checks() -> Iterator[Check]:
    """Formulas against published values, the law against formulas."""
    check = partial(Check, "C4")
    exact = cover(0.3)
    yield check("cover while both live: the formula", 0.673336, WATSON, partial(Measured, exact), 5e-7)
    for L in (0.75, 1.0, 1.25):
        yield check(f"cover at L = {L}", exact, WATSON, partial(covered, L), 1e-6)
    for L, published in ((0.75, 25.64), (1.25, 19.78)):
        T = temperature(L)
        yield check(f"temperature at L = {L}: the formula", published, CATALOGUE, partial(Measured, T), 5e-3)
        yield check(f"temperature at L = {L}", T, WATSON, partial(warmth, L), 1e-4)
    for kind, (name, T) in enumerate(zip(("light", "dark"), local_temperatures(), strict=True)):
        yield check(f"local temperature of {name} daisies", T, WATSON, partial(local, kind), 1e-4)
    bare = (SOLAR * 0.5 / SIGMA) ** 0.25 - ZERO
    yield check("bare planet at L = 1: the formula", 26.72, WATSON, partial(Measured, bare), 5e-3)
    yield check("bare planet at L = 1", bare, WATSON, partial(warmth, 1.0, 0.0), 1e-9)
    yield check("cover at L = 1.4: none is left", 0.0, CATALOGUE, partial(covered, 1.4), 1e-7)
    for L, published in ((1.0, None), (1.1, 0.67375)):
        name, more = f"cover at L = {L} with seed = 1e-4", seeded(L, 1e-4)
        if published is not None:
            yield check(f"{name}: the formula", published, CATALOGUE, partial(Measured, more), 5e-6)
        # The second order is about 1e-6.
        yield check(name, more, "first order in the seeds", partial(covered, L, 1e-4), 2e-6)
