"""Preparation contracts: the score of a policy, and the arithmetic of the certificate of a band."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, gammaln
from jaxtyping import Array, Bool, Float, Int

CONFIDENCE = 0.95
NULL_BOUND = 0.2  # the null policy may succeed this often at most, by its upper bound
GOD_SHARE = 0.8  # at least one god-mode policy must succeed this often
FEWEST_CLONES = 64


@jax.jit
def ended_in_band(
    final: Float[Array, "*batch clone"], low: Float[Array, "*#batch"], high: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Score of a preparation contract: the fraction of clones that end the release window in band.

    Args:
        final: noise-free channel at the end of the release window; NaN for a clone that is void.
        low: lower end of the band, inside it.
        high: upper end of the band, inside it.

    Returns:
        The fraction in [0, 1]. A clone that is not finite failed and stays in the denominator; without clones
        it is 0.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    inside = (final >= low[..., None]) & (final <= high[..., None]) & jnp.isfinite(final)
    return jnp.sum(inside, axis=-1).astype(final.dtype) / max(final.shape[-1], 1)


@jax.jit
def held_in_band(
    window: Float[Array, "*batch clone tick"], low: Float[Array, "*#batch"], high: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Fraction of clones that stay in band through the whole release window; reported beside the score.

    Args:
        window: noise-free channel at each tick of the release window; NaN where a clone is void.
        low: lower end of the band, inside it.
        high: upper end of the band, inside it.

    Returns:
        The fraction in [0, 1], at most that of `ended_in_band`; 0 without clones or ticks.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    low, high = low[..., None, None], high[..., None, None]
    inside = jnp.all((window >= low) & (window <= high) & jnp.isfinite(window), axis=-1)
    held = jnp.sum(inside, axis=-1).astype(window.dtype) / max(window.shape[-2], 1)
    return held if window.shape[-1] else jnp.zeros_like(held)


def _beta_root(level: Array, a: Array, b: Array) -> Array:
    """The x in (0, 1) at which `betainc(a, b, x)` is `level`, by halving the bracket to the last bit."""
    steps = 4 + jnp.finfo(level.dtype).nmant + 12

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        left = betainc(a, b, middle) < level
        return jnp.where(left, middle, low), jnp.where(left, high, middle)

    low, high = lax.fori_loop(0, steps, halve, (jnp.zeros_like(level), jnp.ones_like(level)))
    return (low + high) / 2


@jax.custom_jvp
def _beta_quantile(level: Array, a: Array, b: Array) -> Array:
    return _beta_root(level, a, b)


@_beta_quantile.defjvp
def _beta_quantile_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    # dx / dlevel = 1 / density(x). Counts are integers: nothing flows to a and b.
    level, a, b = primals
    x = _beta_quantile(level, a, b)
    log_density = (a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x) + gammaln(a + b) - gammaln(a) - gammaln(b)
    return x, tangents[0] * jnp.exp(-log_density)


def _broadcast(successes: Array, trials: Array, confidence: Array | float) -> tuple[Array, Array, Array]:
    level = jnp.asarray(confidence)
    shape = jnp.broadcast_shapes(successes.shape, trials.shape, level.shape)
    k, n, level = (jnp.broadcast_to(each.astype(level.dtype), shape) for each in (successes, trials, level))
    return k, n, level


@jax.jit
def clopper_pearson_upper(
    successes: Int[Array, "*#batch"],
    trials: Int[Array, "*#batch"],
    confidence: Float[Array, "*#batch"] | float = CONFIDENCE,
) -> Float[Array, "*batch"]:
    """One-sided exact upper bound on a success rate.

    The p with `P(X <= successes; trials, p) = 1 - confidence`: the quantile at `confidence` of a beta law
    with parameters `successes + 1` and `trials - successes`.

    Args:
        successes: number of successes, 0 to `trials`.
        trials: number of independent trials.
        confidence: one-sided, in (0, 1); the bound has its dtype and is differentiable in it.

    Returns:
        The bound in (0, 1]: 1 where all succeeded or nothing was tried; NaN for counts that cannot be.

    Source: Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    k, n, level = _broadcast(successes, trials, confidence)
    possible = (k >= 0) & (k <= n) & (level > 0) & (level < 1)
    inner = possible & (k < n)
    bound = _beta_quantile(
        jnp.where(inner, level, 0.5), jnp.where(inner, k + 1, 1), jnp.where(inner, n - k, 1)
    )
    return jnp.where(possible, jnp.where(inner, bound, 1), jnp.nan)


@jax.jit
def clopper_pearson_lower(
    successes: Int[Array, "*#batch"],
    trials: Int[Array, "*#batch"],
    confidence: Float[Array, "*#batch"] | float = CONFIDENCE,
) -> Float[Array, "*batch"]:
    """One-sided exact lower bound on a success rate, the p with `P(X >= successes) = 1 - confidence`.

    Args:
        successes: number of successes, 0 to `trials`.
        trials: number of independent trials.
        confidence: one-sided, in (0, 1); the bound has its dtype and is differentiable in it.

    Returns:
        The bound in [0, 1): 0 where none succeeded; NaN for counts that cannot be.

    Source: Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    # The mirror image, on the failures: so both bounds are found where the beta law is resolved best.
    return 1 - clopper_pearson_upper(trials - successes, trials, confidence)


@partial(jax.jit, static_argnames="fewest")
def certified(
    null_successes: Int[Array, "*#batch"],
    n: Int[Array, "*#batch"],
    god_successes: Int[Array, "*#batch"],
    m: Int[Array, "*#batch"],
    *,
    fewest: int = FEWEST_CLONES,
) -> Bool[Array, "*batch"]:
    """Whether a band makes a contract: doing nothing fails, and some policy succeeds.

    Args:
        null_successes: clones on which the null policy (every drive at rest) ended in band.
        n: clones that the null policy ran on.
        god_successes: clones on which the best god-mode policy ended in band.
        m: clones that it ran on; fresh ones, not those that it was chosen on.
        fewest: least number of clones for either.

    Returns:
        True where `clopper_pearson_upper(null_successes, n, 0.95)` is at most 0.2, `god_successes / m` is at
        least 0.8, and both ran on enough clones. Impossible counts are never certified.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    upper = clopper_pearson_upper(null_successes, n)
    # In integers: 0.8 m is no floating-point number.
    solved = (5 * god_successes >= 4 * m) & (god_successes <= m)
    return (upper <= NULL_BOUND) & solved & (n >= fewest) & (m >= fewest)
