"""How far the laws of the drawn numbers are from what they stand for: enumerated, not sampled.

A float32 number is a function of one of 2^23 equally likely uniform numbers. So the exact law of a count or
of a normal comes from pushing all of them through `simworlds.keys`, and its errors have no noise.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import ndtri

from simworlds.keys import INVERSION_MEAN, binomial_from, normal_from, poisson_from, unit_interval

CELLS = 2**23
LEVELS = (1e-2, 1e-3, 1e-4, 1e-6)
INVERSION, EXPANSION = "inversion", "expansion"


class Errors(NamedTuple):
    """How far an enumerated law of a count is from the true one.

    Attributes:
        mean: of the mean, in true standard deviations.
        variance: relative.
        skew: absolute.
        kurtosis: of the fourth standardised moment, relative.
        distribution: the largest error of the distribution function.
        variation: the total variation distance.
        lower: relative errors of the lower tails ``P(X <= q)`` at `LEVELS`; None where a law has no q whose
            true tail is within a factor of two of the level.
        upper: the same of the upper tails ``P(X > q)``.
    """

    mean: float
    variance: float
    skew: float
    kurtosis: float
    distribution: float
    variation: float
    lower: tuple[float | None, ...]
    upper: tuple[float | None, ...]


class Bounds(NamedTuple):
    """The largest errors that a method may have; tails in the order of `LEVELS`, infinite if unresolved."""

    mean: float
    variance: float
    skew: float
    kurtosis: float
    distribution: float
    tails: tuple[float, ...]


# The last level holds eight uniform numbers: its tail comes out in steps of an eighth, and is not bounded.
BOUNDS = {
    INVERSION: Bounds(1e-5, 1e-4, 1e-3, 1e-3, 1e-6, (1e-4, 1e-3, 0.01, math.inf)),
    EXPANSION: Bounds(5e-5, 3e-4, 1e-3, 3e-3, 1.5e-4, (0.01, 0.12, 0.25, math.inf)),
}


class Row(NamedTuple):
    """One law: its name, the method that draws it, its errors, and those that are beyond their bounds."""

    law: str
    method: str
    errors: Errors
    beyond: tuple[str, ...]


class Study(NamedTuple):
    """What the study found.

    Attributes:
        poisson: a row for each mean.
        binomial: a row for each pair of trials and probability.
        rare: the mean of a Poisson count over the mean that was asked for, where that is small.
        normal: of each quantity of a normal the exact value and that of the enumerated law.
    """

    poisson: list[Row]
    binomial: list[Row]
    rare: dict[float, float]
    normal: dict[str, tuple[float, float]]

    @property
    def beyond(self) -> list[Row]:
        """The laws that are beyond the bounds of their method."""
        return [row for row in (*self.poisson, *self.binomial) if row.beyond]


SHOWN_MEANS = (0.01, 0.5, 3.0, 5.9, 6.0, 6.1, 8.0, 12.0, 20.0, 50.0, 200.0, 1e3, 1e4, 1e6)
SHOWN_TRIALS = (
    (10, 0.5),
    (12, 0.5),
    (13, 0.5),
    (100, 0.5),
    (20, 0.29),
    (20, 0.31),
    (60, 0.099),
    (61, 0.1),
    (600, 0.05),
    (1000, 0.7),
    (5000, 0.999),
    (200, 1e-4),
    (200, 0.9999),
    (10**6, 1e-5),
    (10**6, 0.5),
)
RARE_MEANS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 2e-8)


def all_means() -> list[float]:
    """The means on which the bounds are held: those shown, and a grid that is fine where the methods meet."""
    grid = [*np.geomspace(0.01, INVERSION_MEAN, 16), *np.geomspace(INVERSION_MEAN + 1e-3, 60, 32)]
    return sorted({*SHOWN_MEANS, *(float(f"{mean:.4g}") for mean in grid)})


def all_trials() -> list[tuple[int, float]]:
    """The binomials on which the bounds are held: those shown, and a grid about the border of the methods."""
    chances = (0.003, 0.03, 0.1, 0.2, 0.35, 0.45, 0.5, 0.6, 0.8)
    successes = (0.5, 3.0, 5.9, 6.3, 8.0, 12.0, 30.0)
    grid = {(math.ceil(mean / min(p, 1 - p)), p) for p in chances for mean in successes}
    return sorted({*SHOWN_TRIALS, *grid})


@cache
def every_uniform() -> jax.Array:
    """All float32 numbers that `simworlds.keys.unit_interval` can give, ``[CELLS]``."""
    return unit_interval(np.arange(CELLS, dtype=np.uint32) << np.uint32(9))


def count_errors(counts: Any, law: Any) -> Errors:
    """The errors of equally likely counts against a frozen law of ``scipy.stats``.

    Args:
        counts: whole numbers as an array of any shape, all equally likely.
        law: the true law.
    """
    drawn = np.ravel(counts)
    if np.any(drawn[1:] < drawn[:-1]):  # those of all uniforms come in order
        drawn = np.sort(drawn)
    # Beyond 1e-9 of the true law there is nothing to compare but what was drawn there.
    low = min(int(drawn[0]), int(law.ppf(1e-9)))
    high = max(int(drawn[-1]), int(law.isf(1e-9)))
    k = np.arange(low, high + 1)
    share = np.diff(np.searchsorted(drawn, np.append(k - 0.5, high + 0.5).astype(drawn.dtype))) / len(drawn)
    mean, variance, skew, kurtosis = _shape(share, k)
    true = [float(x) for x in law.stats("mvsk")]
    below, above = law.cdf(k), law.sf(k)
    outside = float(law.cdf(low - 1) + law.sf(high))
    found = np.cumsum(share)
    rest = np.append(np.cumsum(share[::-1])[::-1][1:], 0)
    return Errors(
        mean=float(mean - true[0]) / math.sqrt(true[1]),
        variance=variance / true[1] - 1,
        skew=skew - true[2],
        kurtosis=kurtosis / (3 + true[3]) - 1,
        distribution=float(np.abs(found - below).max()),
        variation=float(np.abs(share - law.pmf(k)).sum() + outside) / 2,
        lower=tuple(_tail(found, below, level) for level in LEVELS),
        upper=tuple(_tail(rest, above, level) for level in LEVELS),
    )


def _shape(share: np.ndarray, k: np.ndarray) -> tuple[float, float, float, float]:
    """Mean, variance, skew and fourth standardised moment of a law on whole numbers."""
    mean = float(share @ k)
    second, third, fourth = (float(share @ (k - mean) ** power) for power in (2, 3, 4))
    return mean, second, third / second**1.5, fourth / second**2


def _tail(found: np.ndarray, true: np.ndarray, level: float) -> float | None:
    """The relative error of the tail whose true probability is nearest to a level, in the ratio."""
    inside = np.flatnonzero((true > level / 2) & (true < level * 2))
    if not len(inside):
        return None
    nearest = inside[np.argmin(np.abs(np.log(true[inside] / level)))]
    return float(found[nearest] / true[nearest] - 1)


def beyond_bounds(errors: Errors, bounds: Bounds) -> tuple[str, ...]:
    """The names of the errors that are beyond their bounds."""
    names = [name for name in bounds._fields[:-1] if abs(getattr(errors, name)) > getattr(bounds, name)]
    for side in ("lower", "upper"):
        for error, level, most in zip(getattr(errors, side), LEVELS, bounds.tails, strict=True):
            if error is not None and abs(error) > most:
                names.append(f"{side} tail at {level:g}")
    return tuple(names)


def poisson_name(mean: float) -> str:
    """How the table names a Poisson law."""
    return f"{mean:.5g}"


def binomial_name(trials: int, probability: float) -> str:
    """How the table names a binomial law."""
    return f"{trials:,}, {probability:g}"


def poisson_row(mean: float) -> Row:
    """The errors of Poisson counts of the mean that float32 holds."""
    asked = float(np.float32(mean))
    method = INVERSION if asked <= INVERSION_MEAN else EXPANSION
    errors = count_errors(poisson_from(every_uniform(), jnp.float32(mean)), stats.poisson(asked))
    return Row(poisson_name(mean), method, errors, beyond_bounds(errors, BOUNDS[method]))


def binomial_row(trials: int, probability: float) -> Row:
    """The errors of binomial counts with the probability that float32 holds."""
    asked = float(np.float32(probability))
    method = INVERSION if trials * min(asked, 1 - asked) <= INVERSION_MEAN else EXPANSION
    counts = binomial_from(every_uniform(), jnp.float32(trials), jnp.float32(probability))
    errors = count_errors(counts, stats.binom(trials, asked))
    return Row(binomial_name(trials, probability), method, errors, beyond_bounds(errors, BOUNDS[method]))


def rare_means() -> dict[float, float]:
    """The mean of a Poisson count over the mean that was asked for: a rare event is missed by the cells."""
    counts = {mean: poisson_from(every_uniform(), jnp.float32(mean)) for mean in RARE_MEANS}
    return {mean: float(np.mean(np.asarray(drawn, np.float64))) / mean for mean, drawn in counts.items()}


@cache
def normal_rows() -> dict[str, tuple[float, float]]:
    """Moments, tails and distance of float32 normals: (of the standard normal, of the enumerated law)."""
    z = np.sort(np.asarray(normal_from(np.arange(CELLS, dtype=np.uint32) << np.uint32(9)), np.float64))
    rows, power = {}, np.ones_like(z)
    for k in range(1, 7):
        power *= z
        rows[f"moment {k}"] = (float(stats.norm.moment(k)), float(power.mean()))
    exact = ndtri((np.arange(CELLS) + 0.5) / CELLS)
    rows["largest relative error of the quantile"] = (0.0, float(np.abs(z / exact - 1).max()))
    steps = np.arange(CELLS + 1) / CELLS
    true = stats.norm.cdf(z)
    distance = float(max(np.abs(true - steps[:-1]).max(), np.abs(true - steps[1:]).max()))
    rows["distance of Kolmogorov and Smirnov"] = (0.0, distance)
    rows |= {f"P(Z > {q:g})": (float(stats.norm.sf(q)), float(np.mean(z > q))) for q in (3, 4, 5, 5.2, 5.5)}
    rows["largest, float32"] = (math.inf, float(z[-1]))
    with jax.enable_x64(True):
        rows["largest, float64"] = (math.inf, float(normal_from(np.uint32(2**32 - 1), np.float64)))
    return rows


def random_study(
    *,
    means: Sequence[float] | None = None,
    trials: Sequence[tuple[int, float]] | None = None,
    done: Callable[[], None] = lambda: None,
) -> Study:
    """Enumerate the laws of all means and binomials, of rare events, and of the normal.

    Args:
        means: of the Poisson laws; `all_means` by default.
        trials: pairs of trials and probability; `all_trials` by default.
        done: called after each law.
    """

    def rows(row: Callable[..., Row], cases: Iterable[tuple[Any, ...]]) -> list[Row]:
        found = []
        for case in cases:
            found.append(row(*case))
            done()
        return found

    poisson = rows(poisson_row, [(mean,) for mean in (all_means() if means is None else means)])
    binomial = rows(binomial_row, all_trials() if trials is None else trials)
    return Study(poisson, binomial, rare_means(), normal_rows())
