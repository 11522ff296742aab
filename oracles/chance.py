"""Random numbers for theories: bit by bit those of ``jax.random``, in a form that compiles into a step.

On a CPU ``jax.random`` runs the rounds of threefry as a loop, which the compiler fuses with nothing: in a
theory's step such draws cost more than the law, and they are most of what there is to compile. Here the
rounds are written out (`simworlds.keys.threefry2x32`). Keys are typed threefry keys, as everywhere.

Draws are marked for `KEEP`: a gradient that runs a step again takes them from the first run.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.scipy.special import erfinv

from simworlds.keys import Words, threefry2x32, typed_key

_NAME = "chance"
KEEP = jax.checkpoint_policies.save_only_these_names(_NAME)  # a policy of `jax.checkpoint`

_ONE = np.uint32(0x3F800000)  # the bits of 1.0
_LOW = float(np.nextafter(np.float32(-1), np.float32(0)))
_MOST_PRODUCTS = 10  # the mean up to which jax.random.poisson multiplies uniform numbers


def _blocks(key: jax.Array, count: int) -> Words:
    words = jax.random.key_data(key)
    counter = jnp.arange(count, dtype=jnp.uint32)
    return threefry2x32(Words(words[0], words[1]), Words(jnp.zeros_like(counter), counter))


def split(key: jax.Array, count: int = 2) -> jax.Array:
    """Keys ``[count]``, equal to ``jax.random.split(key, count)``."""
    return typed_key(_blocks(key, count))


def _uniform(key: jax.Array, count: int) -> jax.Array:
    """Numbers in [0, 1) ``[count]``, multiples of 2^-23."""
    block = _blocks(key, count)
    word = ((block.high ^ block.low) >> np.uint32(9)) | _ONE
    return jax.lax.bitcast_convert_type(word, jnp.float32) - 1


def normal(key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Standard normals, float32, equal to ``jax.random.normal(key, shape)``."""
    # Drawn in one row, whatever the shape: a loop over a short last axis is not vectorised.
    centred = jnp.maximum(_LOW, _uniform(key, math.prod(shape)) * 2.0 + _LOW)
    return checkpoint_name(float(np.sqrt(2)) * erfinv(centred), _NAME).reshape(shape)


def complex_normal(key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Complex normals of variance 1, equal to ``jax.random.normal(key, shape, jnp.complex64)``."""
    real, imaginary = split(key)
    return (normal(real, shape) + 1j * normal(imaginary, shape)) / np.complex64(np.sqrt(2))


def poisson(key: jax.Array, mean: float, shape: tuple[int, ...] = ()) -> jax.Array:
    """Poisson counts, int32, equal to ``jax.random.poisson(key, mean, shape)``, for means below 10.

    Raises:
        ValueError: if the mean is not above 0 and below 10.
    """
    if not 0 < mean < _MOST_PRODUCTS:
        raise ValueError(f"`mean` must be above 0 and below {_MOST_PRODUCTS}, but is {mean}")

    def unfinished(carry: Any) -> Any:
        return jnp.any(carry[2] > -mean)

    def multiply(carry: Any) -> Any:
        key, count, product = carry
        key, own = split(key)
        count = count + (product > -mean)
        return key, count, product + jnp.log(_uniform(own, math.prod(shape)).reshape(shape))

    start = key, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32)
    return jax.lax.while_loop(unfinished, multiply, start)[1] - 1
