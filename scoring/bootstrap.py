"""Bootstrap intervals (percentile and BCa) and standard errors clustered by seed.

Samples are on the last axis, leading axes are batch. A key is typed and passed in; resample number r draws
its indices under `fold_in(key, r)`, so that asking for more resamples never changes the earlier ones.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Int, Key, PyTree

from scoring._reduce import mean, total
from scoring.quantile import total_spread

RESAMPLES = 2000
CONFIDENCE = 0.95
METHODS = ("bca", "percentile")
_AT_A_TIME = 64  # resamples held in memory together


class Interval(NamedTuple):
    """An estimate with its bootstrap interval.

    Attributes:
        estimate: the statistic of the sample itself.
        low: lower end.
        high: upper end.
        standard_error: standard deviation of the statistic over resamples.
    """

    estimate: Array
    low: Array
    high: Array
    standard_error: Array


@partial(jax.jit, static_argnames=("resamples", "size"))
def resample_indices(key: Key[Array, ""], *, resamples: int, size: int) -> Int[Array, "resample sample"]:
    """Positions of every resample, drawn with replacement.

    Args:
        key: typed key; consumed here.
        resamples: number of resamples.
        size: number of samples, at least one.

    Returns:
        Integers 0 to `size - 1`; row r depends on the key, r and `size` alone.

    Source: Efron (1979), doi:10.1214/aos/1176344552.
    """
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(resamples))
    return jax.vmap(lambda each: jax.random.randint(each, (size,), 0, size))(keys)


def _quantile(distribution: Array, level: Array) -> Array:
    """Linear quantile [*batch] at a level [*batch]; infinities that sit side by side stay what they are."""
    last = distribution.shape[-1] - 1
    ordered = jnp.sort(distribution, axis=-1)
    place = jnp.clip(level, 0, 1) * last
    below = jnp.clip(jnp.floor(place), 0, last)
    index = jnp.where(jnp.isnan(below), 0, below).astype(jnp.int32)
    left = jnp.take_along_axis(ordered, index[..., None], axis=-1)[..., 0]
    right = jnp.take_along_axis(ordered, jnp.minimum(index + 1, last)[..., None], axis=-1)[..., 0]
    part = place - below
    mixed = jnp.where((part == 0) | (left == right), left, left + part * (right - left))
    return jnp.where(jnp.isnan(level) | jnp.isnan(ordered[..., -1]), jnp.nan, mixed)


@partial(jax.jit, static_argnames="confidence")
def percentile_ends(
    distribution: Float[Array, "*batch resample"], *, confidence: float = CONFIDENCE
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Percentile interval: the quantiles of the bootstrap distribution at (1 - confidence) / 2 and beyond.

    Args:
        distribution: the statistic of each resample.
        confidence: coverage that is aimed at, in (0, 1).

    Returns:
        Lower and upper end; NaN where a resample's statistic is NaN.

    Source: Efron (1981), doi:10.2307/3314608.
    """
    tail = jnp.full(distribution.shape[:-1], (1 - confidence) / 2, distribution.dtype)
    return _quantile(distribution, tail), _quantile(distribution, 1 - tail)


@partial(jax.jit, static_argnames="confidence")
def bca_ends(
    distribution: Float[Array, "*batch resample"],
    estimate: Float[Array, "*batch"],
    jackknife: Float[Array, "*batch sample"],
    *,
    confidence: float = CONFIDENCE,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Bias-corrected and accelerated interval.

    With z0 the normal quantile of the share of resamples below the estimate (ties count half) and
    `a = sum d_i^3 / (6 (sum d_i^2)^(3/2))`, `d_i = mean(jackknife) - jackknife_i`, the ends are the quantiles
    of the distribution at `Phi(z0 + (z0 + z) / (1 - a (z0 + z)))`, z the normal quantile of each tail.

    Args:
        distribution: the statistic of each resample.
        estimate: the statistic of the sample.
        jackknife: the statistic without each sample in turn.
        confidence: coverage that is aimed at, in (0, 1).

    Returns:
        Lower and upper end, as `scipy.stats.bootstrap` on the same resamples. Where every resample lies on
        one side, half a resample is assumed on the other (scipy gives NaN); where all are equal, both ends
        are the estimate.

    Source: Efron (1987), doi:10.1080/01621459.1987.10478410.
    """
    resamples = distribution.shape[-1]
    share = jnp.mean(
        jnp.where(distribution == estimate[..., None], 0.5, distribution < estimate[..., None]), axis=-1
    ).astype(distribution.dtype)
    bias = ndtri(jnp.clip(share, 0.5 / resamples, 1 - 0.5 / resamples))
    deviation = mean(jackknife)[..., None] - jackknife
    largest = jnp.max(jnp.abs(deviation), axis=-1)
    unit = jnp.where(largest > 0, largest, 1)
    deviation = deviation / unit[..., None]
    square, cube = total(deviation**2), total(deviation**3)
    acceleration = jnp.where(square > 0, cube / (6 * jnp.where(square > 0, square, 1) ** 1.5), 0)
    # A jackknife without a finite deviation says nothing about the skew; the bias correction stands alone.
    acceleration = jnp.where(jnp.isfinite(acceleration), acceleration, 0)
    normal = ndtri(jnp.asarray((1 - confidence) / 2, distribution.dtype))

    def end(tail: Array) -> Array:
        moved = bias + tail
        return _quantile(distribution, ndtr(bias + moved / (1 - acceleration * moved)))

    broken = jnp.isnan(estimate)
    return jnp.where(broken, jnp.nan, end(normal)), jnp.where(broken, jnp.nan, end(-normal))


def interval_of(
    of_indices: Callable[[Array], Array],
    size: int,
    *,
    key: Key[Array, ""],
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    method: str = "bca",
) -> Interval:
    """Bootstrap interval of a statistic given as a function of sample positions; call it inside a jit.

    Args:
        of_indices: from positions [sample] to the statistic [*batch], for any number of positions.
        size: number of samples; below two, the ends and the standard error are NaN.
        key: typed key; consumed here.
        resamples: number of resamples.
        confidence: coverage that is aimed at, in (0, 1).
        method: "bca" or "percentile".

    Returns:
        The interval, [*batch] each.

    Raises:
        ValueError: for another method, fewer than two resamples, or no sample.
    """
    if method not in METHODS or resamples < 2 or size < 1:
        got = f"{method!r}, {resamples} and {size}"
        raise ValueError(
            f"`method` must be one of {METHODS}, `resamples` at least 2, samples 1, but are {got}"
        )
    everyone = jnp.arange(size)
    estimate = of_indices(everyone)
    if size < 2:
        nothing = jnp.full_like(estimate, jnp.nan)
        return Interval(estimate, nothing, nothing, nothing)
    indices = resample_indices(key, resamples=resamples, size=size)
    drawn = jnp.moveaxis(lax.map(of_indices, indices, batch_size=_AT_A_TIME), 0, -1)
    error = total_spread(drawn)
    if method == "percentile":
        low, high = percentile_ends(drawn, confidence=confidence)
        return Interval(estimate, low, high, error)
    rest = np.arange(size - 1)[None, :]
    without = jnp.asarray(rest + (rest >= np.arange(size)[:, None]))
    left_out = jnp.moveaxis(lax.map(of_indices, without, batch_size=_AT_A_TIME), 0, -1)
    low, high = bca_ends(drawn, estimate, left_out, confidence=confidence)
    return Interval(estimate, low, high, error)


@partial(jax.jit, static_argnames=("statistic", "resamples", "confidence", "method"))
def bootstrap_interval(
    values: PyTree[Any],
    *,
    key: Key[Array, ""],
    statistic: Callable[[Any], Array] = mean,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    method: str = "bca",
) -> Interval:
    """Bootstrap interval of the mean, or of any statistic over the last axis.

    Args:
        values: [*batch, sample], or a tree of such arrays that are resampled together (pairs, say).
        key: typed key: the same key gives the same interval. Under `vmap`, give each item its own.
        statistic: from `values` to [*batch], over the last axis; a function that stays the same object, since
            each new one is compiled.
        resamples: number of resamples.
        confidence: coverage that is aimed at, in (0, 1).
        method: "bca" or "percentile".

    Returns:
        Estimate, ends and standard error. NaN ends for fewer than two samples, or where a resample's
        statistic is NaN: an interval is never narrow because something failed.

    Raises:
        ValueError: for another method, fewer than two resamples, or no sample.

    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapters 13 and 14,
    doi:10.1201/9780429246593.
    """
    sizes = {leaf.shape[-1] for leaf in jax.tree.leaves(values)}
    if len(sizes) != 1:
        raise ValueError(f"`values` must have one number of samples, but have {sorted(sizes)}")

    def of_indices(positions: Array) -> Array:
        return statistic(jax.tree.map(lambda leaf: jnp.take(leaf, positions, axis=-1), values))

    return interval_of(
        of_indices, sizes.pop(), key=key, resamples=resamples, confidence=confidence, method=method
    )


@partial(jax.jit, static_argnames="clusters")
def clustered_standard_error(
    values: Float[Array, "*batch sample"], cluster: Int[Array, " sample"], *, clusters: int
) -> Float[Array, "*batch"]:
    """Standard error of the mean when samples of one cluster (contracts of one seed) move together.

    `sqrt(G / (G - 1) sum_g (sum_{i in g} (x_i - mean))^2) / N` with G the clusters that occur. With one
    sample in each it is the ordinary `s / sqrt(N)`.

    Args:
        values: samples.
        cluster: cluster of each sample, integers 0 to `clusters - 1`.
        clusters: number of clusters that can occur.

    Returns:
        The standard error; NaN where fewer than two clusters occur: nothing is known then.

    Source: Liang and Zeger (1986), doi:10.1093/biomet/73.1.13; Cameron and Miller (2015),
    doi:10.3368/jhr.50.2.317.
    """
    member = (cluster[None, :] == jnp.arange(clusters)[:, None]).astype(values.dtype)
    occurring = jnp.sum(jnp.any(member > 0, axis=-1)).astype(values.dtype)
    residual = values - mean(values)[..., None]
    largest = lax.stop_gradient(jnp.max(jnp.abs(residual), axis=-1))
    unit = jnp.where(largest > 0, largest, 1)
    sums = jnp.einsum("...i,gi->...g", residual / unit[..., None], member, precision="highest")
    square = total(sums**2) * occurring / jnp.maximum(occurring - 1, 1)
    root = jnp.where(square == 0, 0, jnp.sqrt(jnp.where(square == 0, 1, square)))
    return jnp.where(occurring < 2, jnp.nan, unit * root / values.shape[-1])
