"""Differentiable ensemble statistics, for forward mode (``jax.jacfwd``) and reverse mode (``jax.grad``)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simworlds.errors import InvalidRequest, UnsupportedLaw
from simworlds.integrate import advance, begin
from simworlds.keys import Noise, clone_words, role_words
from simworlds.world import World


class WindowStatistics(NamedTuple):
    """Of each clone and raw sensor, over a window of ticks: arrays ``[clone, sensor]``."""

    mean: Float[Array, "clone sensor"]
    sd: Float[Array, "clone sensor"]


def window_statistics(
    world: World,
    params: Any,
    levels: Float[Array, "tick drive"],
    window: tuple[int, int],
    *,
    clones: int = 1,
    seed: int | str = 0,
) -> WindowStatistics:
    """Mean and sd (ddof 0) of each raw sensor over a window, as a differentiable function.

    A pure function of `params` and `levels`: use it under ``jax.jit``, forward mode (``jax.jacfwd``) for a
    few inputs, reverse mode (``jax.grad``; memory grows by one state a tick) for many. The noise is fixed, so
    a derivative is that of these trajectories, whose expectation is that of the ensemble.

    Args:
        world: a smooth family, or the `relaxed()` one of a family that jumps.
        params: parameters, as `World.draw` or `World.limit` gives them; their dtype is the simulation's.
        levels: levels in family order.
        window: ``[start, stop)`` in ticks.
        clones: how many.
        seed: names the noise.

    Raises:
        UnsupportedLaw: if the law jumps, so that its derivatives would be zero or wrong.
        InvalidRequest: if the window is not within the ticks, or holds fewer than two.
    """
    if not world.scheme.smooth:
        raise UnsupportedLaw(
            f"world {world.id} moves by jumps, through which derivatives are zero or wrong; "
            "use its relaxation, `world.relaxed()`"
        )
    start, stop = window
    ticks = len(levels)
    if not 0 <= start <= stop - 2 <= ticks - 2:
        raise InvalidRequest(
            f"a window must hold at least 2 ticks within 0..{ticks}, but is [{start}, {stop})"
        )
    params = jax.tree.map(jnp.asarray, params)
    dtype = jnp.result_type(*jax.tree.leaves(params), levels)
    initial, process = (role_words(world.id, seed, role, "gradient") for role in ("initial", "process"))

    def one(clone: Any) -> Any:
        carried = begin(world, params, Noise(clone_words(initial, clone), jnp.uint32(0)), dtype)
        key = clone_words(process, clone)

        @jax.checkpoint
        def tick(carried: Any, inputs: Any) -> Any:
            k, row = inputs
            return advance(world, params, carried, world.physical(row), key, k)

        rows = (jnp.arange(stop), levels[:stop])
        readings = jnp.stack(jax.lax.scan(tick, carried, rows)[1], axis=-1)[start:]
        middle = readings.mean(0, keepdims=True)
        # The root is smooth at 0: a channel that stands still has an sd of 1e-12 and a derivative of 0.
        return middle[0], jnp.sqrt(jnp.mean((readings - middle) ** 2, 0) + 1e-24)

    return WindowStatistics(*jax.vmap(one)(jnp.arange(clones, dtype=jnp.uint32)))
