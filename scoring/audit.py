"""Does a contract measure the phenomenon? Variance between instances against the spread inside them.

Draws are [template, instance, clone]: a fixed template, asked of many instances. Intervals resample
instances, the same ones for every template, since instances are what was drawn; templates stay fixed.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from scoring._reduce import mean, total
from scoring.bootstrap import CONFIDENCE, RESAMPLES, Interval, interval_of
from scoring.quantile import total_spread

FEWEST_TEMPLATES = 6  # below this many a rank correlation says little


def _ratio(centre: Array, square: Array, clones: int) -> Array:
    """`A` from each instance's mean and squared spread, [*batch, instance] both."""
    instances = centre.shape[-1]
    noise = mean(square)
    around = centre - mean(centre)[..., None]
    variance = total(around**2) / max(instances - 1, 1) - noise / clones
    ratio = variance / jnp.where(noise > 0, noise, 1)
    # Without any spread the ratio is infinite where instances differ, and 0 where they do not.
    bare = jnp.where(variance > 0, jnp.inf, jnp.where(variance == 0, 0, jnp.nan))
    return jnp.where(noise > 0, ratio, bare)


@jax.jit
def phenomenon_ratio(draws: Float[Array, "*batch instance clone"]) -> Float[Array, "*batch"]:
    """The audit's ratio `A = Var_instances(mu) / mean_instances(s^2)`.

    The variance of the ensemble means has `instances - 1` degrees of freedom and is corrected for the finite
    ensembles: `mean(s^2) / n` is subtracted, so that A is 0 on average where the truth does not depend on the
    instance. It is not floored at 0: it would be biased upwards.

    Args:
        draws: truth draws of one template on each instance, at least two of both.

    Returns:
        A, without unit; much above 1 where instance-level structure decides the truth, near 0 (below it by
        chance) where nothing does. Without any spread: +inf, or 0 for one truth everywhere; NaN for a
        non-finite draw.

    Source: the scoring page of the laboratory; the correction is that of the one-way random-effects model,
    Searle, Casella and McCulloch (1992), Variance Components, doi:10.1002/9780470316856.
    """
    return _ratio(mean(draws), total_spread(draws) ** 2, draws.shape[-1])


@jax.jit
def pair_distances(draws: Float[Array, "*batch instance clone"]) -> Float[Array, "*batch instance other"]:
    """Mean absolute difference between a draw of one instance and a draw of another.

    On the diagonal, between two different draws of the same instance (the fair estimator).

    Args:
        draws: truth draws of one template on each instance, at least two clones.

    Returns:
        The distances, in units of the draws. Work grows as the square of all draws; memory is held by the
        instance.

    Source: Ferro (2014), doi:10.1002/qj.2270, for the diagonal.
    """
    instances, clones = draws.shape[-2:]

    def row(first: Array) -> Array:
        gap = jnp.abs(first[..., None, :, None] - draws[..., :, None, :])
        return jnp.mean(gap, axis=(-2, -1))

    between = jnp.moveaxis(lax.map(row, jnp.moveaxis(draws, -2, 0)), 0, -2)
    fair = jnp.where(jnp.eye(instances, dtype=bool), clones / max(clones - 1, 1), 1).astype(draws.dtype)
    return between * fair.reshape((1,) * (draws.ndim - 2) + fair.shape)


def _advantage(distance: Array, weight: Array) -> Array:
    """`1 - within / between` from distances [*batch, instance, other] and how often each instance counts."""
    diagonal = jnp.diagonal(distance, axis1=-2, axis2=-1)
    within = jnp.einsum("...i,i->...", diagonal, weight) / jnp.sum(weight)
    pairs = weight[:, None] * weight[None, :] * (1 - jnp.eye(len(weight), dtype=distance.dtype))
    between = jnp.einsum("...ij,ij->...", distance, pairs) / jnp.sum(pairs)
    return jnp.where(
        between > 0, 1 - within / jnp.where(between > 0, between, 1), jnp.where(between == 0, 0, jnp.nan)
    )


@jax.jit
def crps_advantage(draws: Float[Array, "*batch instance clone"]) -> Float[Array, "*batch"]:
    """CRPS advantage of knowing the instance over a pooled climatology.

    `1 - CRPS_instance / CRPS_climatology`, both fair. An ensemble that predicts itself, one draw left out,
    has `CRPS_instance = W / 2`, W the mean absolute difference of two draws of one instance. The
    climatology that pools all other instances has `CRPS_climatology = B - B / 2 = B / 2`, B that of draws
    of two different instances.

    Args:
        draws: truth draws of one template on each instance, at least two of both.

    Returns:
        The advantage `1 - W / B`: 1 where the instance decides all, 0 on average where it decides nothing
        (and where no draw differs); NaN for a non-finite draw or a single instance.

    Source: the scoring page of the laboratory; Gneiting and Raftery (2007), equation 21,
    doi:10.1198/016214506000001437, for the CRPS as a difference of distances.
    """
    return _advantage(pair_distances(draws), jnp.ones(draws.shape[-2], draws.dtype))


def _ranks(values: Array, where: Array) -> Array:
    smaller = values[..., None, :] < values[..., :, None]
    equal = values[..., None, :] == values[..., :, None]
    counted = where[..., None, :]
    return jnp.sum((smaller + 0.5 * equal) * counted, axis=-1).astype(values.dtype) + 0.5


@jax.jit
def spearman(
    x: Float[Array, "*batch item"], y: Float[Array, "*batch item"], where: Bool[Array, "*batch item"]
) -> Float[Array, "*batch"]:
    """Spearman's rank correlation, ties at their mean rank: Pearson's correlation of the ranks.

    Args:
        x: first figure of each item.
        y: second figure of each item; infinities have their rank.
        where: items that count.

    Returns:
        The correlation in [-1, 1]; NaN for fewer than two items, all alike, or a NaN among those that count.

    Source: Spearman (1904), doi:10.2307/1412159; Kendall (1945), doi:10.1093/biomet/33.3.239, for ties.
    """
    number = jnp.sum(where, axis=-1).astype(x.dtype)

    def centred(values: Array) -> Array:
        return jnp.where(where, _ranks(values, where) - (number[..., None] + 1) / 2, 0)

    first, second = centred(x), centred(y)
    product = jnp.sum(first * second, axis=-1)
    square = jnp.sum(first**2, axis=-1) * jnp.sum(second**2, axis=-1)
    known = (square > 0) & ~jnp.any(where & (jnp.isnan(x) | jnp.isnan(y)), axis=-1)
    rho = jnp.clip(product / jnp.sqrt(jnp.where(known, square, 1)), -1, 1)
    return jnp.where(known, rho, jnp.nan)


def spearman_of_pairs(pairs: tuple[Array, Array]) -> Array:
    """Spearman's correlation of (x, y), a statistic for `scoring.bootstrap.bootstrap_interval` over items.

    A resample of one item over and over has no order; it counts as 0.
    """
    rho = spearman(*pairs, jnp.ones(pairs[0].shape, bool))
    broken = jnp.any(jnp.isnan(pairs[0]) | jnp.isnan(pairs[1]), axis=-1)
    return jnp.where(jnp.isnan(rho) & ~broken, 0, rho)


class Audit(NamedTuple):
    """Audit of several templates.

    Attributes:
        ratio: `phenomenon_ratio` and its interval over instances, [template].
        advantage: `crps_advantage` and its interval, [template].
        contains_zero: True where the interval of the ratio contains 0: the template may measure nothing, and
            carries no order, [template].
        rho: Spearman's correlation of ratio and advantage over the templates whose interval excludes 0, with
            its interval over instances, that choice of templates held fixed; NaN below six templates.
        counted: number of these templates.
        instances: number of instances: the denominator of all.
        clones: number of draws of each.
    """

    ratio: Interval
    advantage: Interval
    contains_zero: Bool[Array, " template"]
    rho: Interval
    counted: Int[Array, ""]
    instances: int | Array
    clones: int | Array


@partial(jax.jit, static_argnames=("resamples", "confidence", "fewest"))
def audit_templates(
    draws: Float[Array, "template instance clone"],
    *,
    key: Key[Array, ""],
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    fewest: int = FEWEST_TEMPLATES,
) -> Audit:
    """Audits templates on the same instances; BCa intervals over instances.

    Args:
        draws: truth draws, in canonical ports with the identity gauge.
        key: typed key; consumed here.
        resamples: number of bootstrap resamples of the instances.
        confidence: of the intervals.
        fewest: least number of templates for the rank correlation.

    Returns:
        The audit. In a resample, pairs of copies of one instance are no pair of different instances and are
        left out of the climatology; a resample without any such pair counts as no advantage.

    Source: the scoring page of the laboratory; Efron (1987), doi:10.1080/01621459.1987.10478410.
    """
    instances, clones = draws.shape[-2:]
    centre, square, distance = mean(draws), total_spread(draws) ** 2, pair_distances(draws)

    def ratio(positions: Array) -> Array:
        return _ratio(centre[:, positions], square[:, positions], clones)

    def advantage(positions: Array) -> Array:
        weight = jnp.sum(positions[None, :] == jnp.arange(instances)[:, None], axis=-1).astype(draws.dtype)
        alone = jnp.sum(weight > 0) < 2
        return jnp.where(alone & jnp.all(jnp.isfinite(distance)), 0, _advantage(distance, weight))

    # The three share their resamples: the key's only use is to draw that one set of positions.
    over = partial(interval_of, size=instances, key=key, resamples=resamples, confidence=confidence)
    ratios, advantages = over(ratio), over(advantage)
    zero = ~((ratios.low > 0) | (ratios.high < 0))
    counted = jnp.sum(~zero)

    def order(positions: Array) -> Array:
        rho = spearman(ratio(positions), advantage(positions), ~zero)
        return jnp.where(jnp.isnan(rho) & (counted >= fewest), 0, rho)

    rho = over(order)
    enough = counted >= fewest
    rho = Interval(*(jnp.where(enough, figure, jnp.nan) for figure in rho))
    return Audit(ratios, advantages, zero, rho, counted, instances, clones)
