"""Winkler-style score of the 80 % interval of an answer; reported for every run, weight 0 by default."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scoring._reduce import mean
from scoring.quantile import accuracy

_PENALTY = 10  # 2 / alpha at alpha = 0.2: the interval reaches from level 0.1 to level 0.9


@jax.jit
def interval_width(
    low: Float[Array, "*#batch"], high: Float[Array, "*#batch"], draws: Float[Array, "*#batch clone"]
) -> Float[Array, "*batch"]:
    """Penalised width `W = (high - low) + 10 * mean_i(max(low - y_i, 0) + max(y_i - high, 0))`.

    Args:
        low: lower end of the interval.
        high: upper end of the interval.
        draws: truth draws.

    Returns:
        The width in units of the draws; lower is better.

    Source: Gneiting and Raftery (2007), equation 43, doi:10.1198/016214506000001437.
    """
    escape = jnp.maximum(low[..., None] - draws, 0) + jnp.maximum(draws - high[..., None], 0)
    return (high - low) + _PENALTY * mean(escape)


@jax.jit
def interval_score(
    low: Float[Array, "*#batch"],
    high: Float[Array, "*#batch"],
    draws: Float[Array, "*#batch clone"],
    scale: Float[Array, "*#batch"],
) -> Float[Array, "*batch"]:
    """Interval score `exp(-W / (10 * scale))`, with W from `interval_width`.

    Args:
        low: lower end of the interval.
        high: upper end of the interval.
        draws: truth draws.
        scale: scale of the contract.

    Returns:
        The score in [0, 1]; higher is better, 0 for a non-finite input or a scale that is not positive.

    Source: Gneiting and Raftery (2007), equation 43, doi:10.1198/016214506000001437; the exponential is the
    scoring page's.
    """
    width = interval_width(low, high, draws)
    return accuracy(width, jnp.zeros_like(width), _PENALTY * scale)
