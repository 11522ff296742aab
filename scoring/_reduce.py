"""Reductions over the last axis that stay accurate in float32 at a million members."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

_BLOCK = 1024
_UNROLLED = 16


def total(values: Float[Array, "*batch clone"]) -> Float[Array, "*batch"]:
    """Sum over the last axis, in blocks: rounding grows with the block length, not with the member count.

    Args:
        values: any floats, members last.

    Returns:
        The sums, in the dtype of `values`.
    """
    members = values.shape[-1]
    if 0 < members <= _UNROLLED:
        # One after the other, the sum is an elementwise expression over the batch: the compiler computes it
        # without storing `values`, in vector instructions along the batch.
        return sum((values[..., member] for member in range(1, members)), start=values[..., 0])
    if members <= _BLOCK:
        return jnp.sum(values, axis=-1)
    blocks = -(-members // _BLOCK)
    width = [(0, 0)] * (values.ndim - 1) + [(0, blocks * _BLOCK - members)]
    folded = jnp.pad(values, width).reshape(*values.shape[:-1], blocks, _BLOCK)
    # Without the barrier the compiler may merge the two sums into one long running sum.
    return total(lax.optimization_barrier(jnp.sum(folded, axis=-1)))


def mean(values: Float[Array, "*batch clone"]) -> Float[Array, "*batch"]:
    """Mean over the last axis, taken around the first member: exact for identical members.

    Args:
        values: any floats, members last.

    Returns:
        The means, in the dtype of `values`; NaN for no members.
    """
    if values.shape[-1] == 0:
        return jnp.full(values.shape[:-1], jnp.nan, values.dtype)
    anchor = lax.stop_gradient(values[..., :1])
    return anchor[..., 0] + total(values - anchor) / values.shape[-1]


def root_mean_square(
    residual: Float[Array, "*batch clone"], freedom: Float[Array, "*#batch"] | int
) -> Float[Array, "*batch"]:
    """`sqrt(sum residual^2 / freedom)`, with a zero gradient where every residual is zero.

    Args:
        residual: deviations from a centre, members last.
        freedom: degrees of freedom, at least 1.

    Returns:
        The spreads, in the dtype of `residual`.
    """
    # In units of the largest residual, the squares stay inside the range of float32. The cap keeps the unit's
    # reciprocal, which the compiler multiplies by, a normal number: a subnormal one is flushed to 0.
    largest = lax.stop_gradient(jnp.max(jnp.abs(residual), axis=-1, initial=0))
    cap = float(jnp.finfo(residual.dtype).max) / 8
    unit = jnp.where(largest > 0, jnp.minimum(largest, cap), 1)
    square = total((residual / unit[..., None]) ** 2) / freedom
    zero = square == 0
    return jnp.where(zero, 0, unit * jnp.sqrt(jnp.where(zero, 1, square)))
