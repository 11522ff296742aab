"""Jobs of unlike length on a fixed number of lanes: a lane that has finished takes the next job of a queue.

A `jax.vmap` of a while loop lasts as long as its longest element, and every other element waits. Here a pass
advances all lanes by a few steps; then lanes whose job is finished hand in its result and begin another. The
result of a job depends on its number alone, never on its lane or on what ran before.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def refill(
    begin: Callable[[Any], Any],
    step: Callable[[Any], Any],
    finished: Callable[[Any], Any],
    result: Callable[[Any], Any],
    jobs: Any,
    *,
    lanes: int,
    steps: int,
    room: int,
) -> Any:
    """Run jobs, numbered from 0, to their ends; to be called under `jax.jit`.

    All functions are for one job, and batched here.

    Args:
        begin: from a job's number (uint32 scalar, below `room`) to what the job carries.
        step: advances what a job carries; must leave a finished one as it is.
        finished: whether a job has come to its end. Every job must, if only because it counts its steps.
        result: from what a finished job carries to a tree of scalars or small arrays.
        jobs: how many, at most `room`; may be traced.
        lanes: jobs that run side by side.
        steps: steps between two looks at the queue.
        room: the length of the results' first axis.

    Returns:
        The results, ``[room, ...]``; behind `jobs` they are zeros.
    """
    jobs = jnp.asarray(jobs, jnp.int32)
    begin_all, step_all = jax.vmap(begin), jax.vmap(step)
    number = jnp.arange(lanes, dtype=jnp.int32)
    carried = begin_all(jnp.minimum(number, room - 1).astype(jnp.uint32))
    shapes = jax.eval_shape(lambda c: jax.vmap(result)(c), carried)
    kept = jax.tree.map(lambda s: jnp.zeros((room, *s.shape[1:]), s.dtype), shapes)

    def working(loop: Any) -> Any:
        number = loop[1]
        return jnp.any(number < jobs)

    def one_pass(loop: Any) -> Any:
        carried, number, given, kept = loop
        carried = jax.lax.fori_loop(0, steps, lambda _, c: step_all(c), carried)
        free = jax.vmap(finished)(carried) & (number < jobs)
        # A lane that is still at work writes behind the end, where nothing is kept.
        place = jnp.where(free, number, room)
        kept = jax.tree.map(lambda k, x: k.at[place].set(x, mode="drop"), kept, jax.vmap(result)(carried))
        later = given + jnp.cumsum(free, dtype=jnp.int32) - 1
        number = jnp.where(free, later, number)
        fresh = begin_all(jnp.minimum(number, room - 1).astype(jnp.uint32))
        carried = jax.tree.map(
            lambda new, old: jnp.where(free.reshape(free.shape + (1,) * (old.ndim - 1)), new, old),
            fresh,
            carried,
        )
        return carried, number, given + jnp.sum(free, dtype=jnp.int32), kept

    loop = carried, number, jnp.int32(lanes), kept
    return jax.lax.while_loop(working, one_pass, loop)[3]
