"""Calibration of answers: coverage of the 80 % interval, and the PIT of the five quantiles."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scoring._reduce import total
from scoring.quantile import LEVELS

NOMINAL_COVERAGE = 0.8
# What each PIT bin holds of a calibrated answer.
BINS = tuple(np.diff((0.0, *LEVELS, 1.0)).round(12).tolist())


@jax.jit
def coverage(
    low: Float[Array, "*#batch"], high: Float[Array, "*#batch"], draws: Float[Array, "*#batch clone"]
) -> Float[Array, "*batch"]:
    """Share of the truth draws inside the interval, ends included.

    Args:
        low: lower end of the interval.
        high: upper end of the interval.
        draws: truth draws.

    Returns:
        The share in [0, 1]: 0.8 on average for a calibrated interval, 1 for a deterministic truth that is
        met; 0 for a non-finite end, and a non-finite draw is never inside.

    Source: Gneiting, Balabdaoui and Raftery (2007), doi:10.1111/j.1467-9868.2007.00587.x.
    """
    sound = (jnp.isfinite(low) & jnp.isfinite(high))[..., None]
    inside = sound & jnp.isfinite(draws) & (draws >= low[..., None]) & (draws <= high[..., None])
    return jnp.sum(inside, axis=-1).astype(draws.dtype) / max(draws.shape[-1], 1)


@jax.jit
def pit_shares(
    quantiles: Float[Array, "*#batch level"], draws: Float[Array, "*#batch clone"]
) -> Float[Array, "*batch bin"]:
    """Probability integral transform on the grid: the share of draws between each pair of quantiles.

    A draw that equals one quantile or several could lie in any bin that they border; it is split among
    those by their width (the nonrandomized PIT), so that an exact point answer to a deterministic truth is
    calibrated.

    Args:
        quantiles: forecast quantiles at `LEVELS`; a point answer repeats its mean five times.
        draws: truth draws.

    Returns:
        Shares of the six bins, below level 0.1 first, summing to 1: `BINS` on average for a calibrated
        answer. NaN for a non-finite input or no draws.

    Source: Czado, Gneiting and Held (2009), doi:10.1111/j.1541-0420.2009.01191.x.
    """
    y, q = draws[..., None, :], quantiles[..., :, None]
    reached, passed = q <= y, y <= q
    width = jnp.asarray(BINS, draws.dtype).reshape((1,) * (max(y.ndim, q.ndim) - 2) + (-1, 1))
    inner = reached[..., :-1, :] & passed[..., 1:, :]
    ends = BINS[0] * passed[..., 0, :] + BINS[-1] * reached[..., -1, :]
    whole = ends + total(jnp.swapaxes(inner * width[..., 1:-1, :], -1, -2))
    part = 1 / (jnp.where(whole > 0, whole, 1) * max(draws.shape[-1], 1))
    middle = total(inner * part[..., None, :])
    first, last = (total(end * part) for end in (passed[..., 0, :], reached[..., -1, :]))
    shares = jnp.concatenate([first[..., None], middle, last[..., None]], axis=-1) * width[..., 0]
    known = jnp.all(jnp.isfinite(draws), axis=-1) & jnp.all(jnp.isfinite(quantiles), axis=-1)
    return jnp.where(known[..., None] & (draws.shape[-1] > 0), shares, jnp.nan)
