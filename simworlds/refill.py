"""Jobs of unlike length on a fixed number of lanes: a lane that has finished takes the next job of a queue.

A `jax.vmap` of a while loop lasts as long as its longest element, and every other element waits. Here a pass
advances all lanes by a few steps; then lanes whose job is finished hand in its result and begin another. The
result of a job depends on its number alone, never on its lane or on what ran before.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class _Lanes(NamedTuple):
    """Where the lanes stand between two passes."""

    carried: Any  # what each lane's job carries
    number: Any  # each lane's job; at least `jobs` once the queue is empty
    row: Any  # results that this job has handed in
    given: Any  # jobs that have been given to lanes
    kept: Any  # all results so far


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
    rows: int = 1,
    resume: Callable[[Any], Any] | None = None,
) -> Any:
    """Run jobs, numbered from 0, to their ends; to be called under `jax.jit`.

    All functions are for one job, and batched here. A job may hand in several results on its way, such as
    its state at some times: `finished` then says that the next one is due, and `resume` goes on from there.

    Args:
        begin: from a job's number (uint32 scalar, below `room`) to what the job carries.
        step: advances what a job carries; must leave a finished one as it is.
        finished: whether a job has come to its end, or to where a result is due. Every job must, if only
            because it counts its steps.
        result: from what a finished job carries to a tree of scalars or small arrays.
        jobs: how many, at most `room`; may be traced.
        lanes: jobs that run side by side.
        steps: steps between two looks at the queue.
        room: the length of the results' first axis.
        rows: results of each job.
        resume: from what a job carries when it hands in a result to what it carries on with; with one row,
            none is needed.

    Returns:
        The results, ``[room, ...]``, or ``[room, rows, ...]`` where `resume` is given; behind `jobs` they
        are zeros.
    """
    jobs = jnp.asarray(jobs, jnp.int32)
    begin_all, step_all = jax.vmap(begin), jax.vmap(step)
    result_all, due_all = jax.vmap(result), jax.vmap(finished)
    resume_all = None if resume is None else jax.vmap(resume)

    def job(number: Any) -> Any:
        return begin_all(jnp.minimum(number, room - 1).astype(jnp.uint32))

    def advance(carried: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, c: step_all(c), carried)

    def working(at: _Lanes) -> Any:
        return jnp.any(at.number < jobs)

    def one_pass(at: _Lanes) -> _Lanes:
        carried = advance(at.carried)
        due = due_all(carried) & (at.number < jobs)
        # A lane with nothing to hand in writes behind the end, where nothing is kept.
        place = jnp.where(due, at.number * rows + at.row, room * rows)
        kept = jax.tree.map(lambda k, x: k.at[place].set(x, mode="drop"), at.kept, result_all(carried))
        row = at.row + due
        free = due & (row == rows)
        if resume_all is not None and rows > 1:
            carried = _choose(due & ~free, resume_all(carried), carried)
        later = at.given + jnp.cumsum(free, dtype=jnp.int32) - 1
        number = jnp.where(free, later, at.number)
        carried = _choose(free, job(number), carried)
        given = at.given + jnp.sum(free, dtype=jnp.int32)
        return _Lanes(carried, number, jnp.where(free, 0, row), given, kept)

    number = jnp.arange(lanes, dtype=jnp.int32)
    carried = job(number)
    shapes = jax.eval_shape(result_all, carried)
    kept = jax.tree.map(lambda s: jnp.zeros((room * rows, *s.shape[1:]), s.dtype), shapes)
    start = _Lanes(carried, number, jnp.zeros_like(number), jnp.int32(lanes), kept)
    kept = jax.lax.while_loop(working, one_pass, start).kept
    if resume is None:
        return kept
    return jax.tree.map(lambda k: k.reshape(room, rows, *k.shape[1:]), kept)


def _choose(which: Any, new: Any, old: Any) -> Any:
    """Lane by lane, the new or the old of a tree of arrays ``[lane, ...]``."""
    return jax.tree.map(
        lambda a, b: jnp.where(which.reshape(which.shape + (1,) * (b.ndim - 1)), a, b), new, old
    )
