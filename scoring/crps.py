"""Exact CRPS of an answer given as quantiles at any levels, as samples, or as a normal.

Contracts are scored on five levels; these kernels show what that grid costs. All are losses in units of the
outcome, lower is better, and NaN where an input is not finite, where quantiles cross or levels do not rise:
an accuracy made from NaN is 0 (`scoring.quantile.accuracy`).
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from scoring._reduce import mean
from scoring.quantile import fair_floor, pinball_loss


@jax.jit
def crps_normal(
    centre: Float[Array, "*#batch"], sd: Float[Array, "*#batch"], outcome: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """CRPS of a normal, `sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))` with `z = (outcome - centre) / sd`.

    Args:
        centre: mean of the normal.
        sd: its standard deviation, at least 0; 0 is a point, with the absolute error as its score.
        outcome: observed value.

    Returns:
        The score; NaN for a negative or non-finite input.

    Source: Gneiting, Raftery, Westveld and Goldman (2005), equation 5, doi:10.1175/MWR2904.1.
    """
    error = outcome - centre
    point = sd == 0
    unit = jnp.where(point, 1, sd)
    z = error / unit
    density = jnp.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    spread = unit * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
    usable = jnp.isfinite(error) & jnp.isfinite(sd) & (sd >= 0)
    return jnp.where(usable, jnp.where(point, jnp.abs(error), spread), jnp.nan)


@partial(jax.jit, static_argnames="fair")
def crps_samples(
    samples: Float[Array, "*#batch member"], outcome: Float[Array, "*#batch"], *, fair: bool = True
) -> Float[Array, "*batch"]:
    """CRPS of an ensemble: `mean_i abs(x_i - y) - sum_{i<j} abs(x_i - x_j) / D`.

    D is `n (n - 1)` for the fair estimator, that of the law that the members come from, whose expectation
    does not depend on n; and `n^2` for the plain one, that of the empirical distribution itself, which
    charges a small ensemble for being small.

    Args:
        samples: the ensemble, at least two members for the fair estimator (one gives NaN).
        outcome: observed value.
        fair: which estimator.

    Returns:
        The score; the fair one may be below 0.

    Source: Ferro (2014), doi:10.1002/qj.2270; Gneiting and Raftery (2007), equation 21,
    doi:10.1198/016214506000001437.
    """
    members = samples.shape[-1]
    distance = mean(jnp.abs(samples - outcome[..., None]))
    spread = fair_floor(samples)
    if fair:
        score = distance - spread if members > 1 else jnp.full_like(distance, jnp.nan)
    else:
        score = distance - spread * ((members - 1) / max(members, 1))
    return jnp.where(jnp.isfinite(score), score, jnp.nan)


def _rising(quantiles: Array, levels: Array) -> Array:
    """True where levels rise strictly inside [0, 1] and quantiles are finite and do not cross."""
    inside = jnp.all((levels >= 0) & (levels <= 1), axis=-1)
    ordered = jnp.all(jnp.diff(levels, axis=-1) > 0, axis=-1) & jnp.all(
        jnp.diff(quantiles, axis=-1) >= 0, axis=-1
    )
    return inside & ordered & jnp.all(jnp.isfinite(quantiles), axis=-1)


@jax.jit
def crps_grid(
    quantiles: Float[Array, "*#batch level"],
    outcome: Float[Array, "*#batch"],
    levels: Float[Array, "*#batch level"],
) -> Float[Array, "*batch"]:
    """Grid CRPS, twice the mean pinball loss over the levels: what a contract's score is, at `LEVELS`.

    It is not the CRPS of any distribution: for a perfect normal forecast it is 0.554 sd on the five levels,
    and 0.564 sd is the CRPS. It approaches the CRPS for levels `(k - 1/2) / K` as K grows.

    Args:
        quantiles: forecast quantiles.
        outcome: observed value.
        levels: level of each quantile, rising.

    Returns:
        The score; NaN where quantiles cross.

    Source: Laio and Tamea (2007), doi:10.5194/hess-11-1267-2007.
    """
    rank = max(quantiles.ndim, outcome.ndim + 1, levels.ndim)
    forecast, level = (each.reshape((1,) * (rank - each.ndim) + each.shape) for each in (quantiles, levels))
    seen = outcome.reshape((1,) * (rank - 1 - outcome.ndim) + outcome.shape)
    score = 2 * mean(pinball_loss(forecast, seen[..., None], level))
    return jnp.where(_rising(forecast, level) & jnp.isfinite(seen), score, jnp.nan)


@jax.jit
def crps_quantiles(
    quantiles: Float[Array, "*#batch level"],
    outcome: Float[Array, "*#batch"],
    levels: Float[Array, "*#batch level"],
) -> Float[Array, "*batch"]:
    """Exact CRPS of the distribution whose quantile function joins the given points by straight lines.

    `2 integral_0^1 pinball_p(Q(p), y) dp` with Q linear between levels and constant beyond the first and the
    last: all the mass below the first level sits at the first quantile, and so above the last. The
    integrand is quadratic on each side of y, so that Simpson's rule gives it exactly, as a sum of positive
    terms.

    Args:
        quantiles: forecast quantiles, one or more; a point answer has them all equal.
        outcome: observed value.
        levels: level of each quantile, strictly rising in [0, 1].

    Returns:
        The score, at least 0; `abs(error)` for a point answer; NaN where quantiles cross: they are no
        distribution, and are never sorted into one.

    Source: Gneiting and Ranjan (2011), equation 9, doi:10.1198/jbes.2010.08110.
    """
    rank = max(quantiles.ndim, outcome.ndim + 1, levels.ndim)
    forecast, level = (each.reshape((1,) * (rank - each.ndim) + each.shape) for each in (quantiles, levels))
    seen = outcome.reshape((1,) * (rank - 1 - outcome.ndim) + outcome.shape)
    good = _rising(forecast, level) & jnp.isfinite(seen)
    shape = jnp.broadcast_shapes(forecast.shape, level.shape, (*seen.shape, 1))
    value = jnp.broadcast_to(jnp.where(good[..., None], forecast, 0), shape)
    place = jnp.broadcast_to(level, shape)
    y = jnp.where(good, seen, 0)[..., None]
    left = jnp.concatenate([value[..., :1], value], axis=-1)
    right = jnp.concatenate([value, value[..., -1:]], axis=-1)
    start = jnp.concatenate([jnp.zeros_like(place[..., :1]), place], axis=-1)
    stop = jnp.concatenate([place, jnp.ones_like(place[..., :1])], axis=-1)
    rise = right - left
    flat = rise == 0
    part = jnp.where(flat, y >= left, jnp.clip((y - left) / jnp.where(flat, 1, rise), 0, 1))
    cross = start + part * (stop - start)

    def below(p: Array, share: Array) -> Array:
        return jnp.maximum(y - (left + rise * share), 0) * p

    def above(p: Array, share: Array) -> Array:
        return jnp.maximum(left + rise * share - y, 0) * (1 - p)

    def simpson(
        loss: Callable[[Array, Array], Array], ends: tuple[Array, Array], shares: tuple[Array, Array]
    ) -> Array:
        middle = loss((ends[0] + ends[1]) / 2, (shares[0] + shares[1]) / 2)
        return (ends[1] - ends[0]) / 6 * (loss(ends[0], shares[0]) + 4 * middle + loss(ends[1], shares[1]))

    none, whole = jnp.zeros_like(part), jnp.ones_like(part)
    loss = simpson(below, (start, cross), (none, part)) + simpson(above, (cross, stop), (part, whole))
    return jnp.where(good, 2 * jnp.sum(loss, axis=-1), jnp.nan)
