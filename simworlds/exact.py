"""Exact simulation of jump laws: Gillespie's direct method, one event after another.

A law of reactions with propensities ``a_r(n)`` waits an exponential time of mean ``1 / sum_r a_r``; then
reaction r occurs with probability ``a_r / sum_r a_r`` (Gillespie 1977, doi:10.1021/j100540a008). There is no
step, hence no step error: this certifies tau-leaping, and it reproduces hitting probabilities, whose barriers
a leap overshoots. An event costs as much as a leap, so ensembles of whole cultures take the leaps.

The functions are for one run; ensembles of runs are in `simworlds.exact_ensemble`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from simworlds.keys import Words, bits, unit_interval
from simworlds.world import JumpWorld

Propensities = Callable[[Any], Any]
Stop = Callable[[Any], Any]


class Outcome(NamedTuple):
    """Where a run ended.

    Attributes:
        counts: the counts at its end.
        time: of the event that stopped it or left no reaction possible, else `until`.
        events: how many reactions occurred.
        finished: False if `max_events` came first; the other fields then hold the state so far.
    """

    counts: Float[Array, "species"]
    time: Float[Array, ""]
    events: Int[Array, ""]
    finished: Bool[Array, ""]


class Reactions(NamedTuple):
    """A jump law as the direct method takes it, on counts given as a tuple of scalars.

    Attributes:
        propensities: from counts to the rate of each reaction, at least 0.
        changes: what each reaction adds to each count, ``[reaction][count]``, as tuples or an array.
        settle: from counts, the time and what a walk carries along, after each reaction, to the counts and
            what it carries.
        stop: from counts to whether a walk ends there.
        most: reactions after which to give up.
    """

    propensities: Callable[[tuple[Any, ...]], Sequence[Any]]
    changes: Any
    settle: Callable[[tuple[Any, ...], Any, Any], tuple[Any, Any]] | None
    stop: Callable[[tuple[Any, ...]], Any] | None
    most: int


class Walk(NamedTuple):
    """Where the direct method stands.

    Attributes:
        counts: a tuple of scalars.
        armed: what `Reactions.settle` carries along.
        first: the step of the stream whose words the walk's first event takes.
        words: the two words that the next event takes.
        time: of the last reaction, since the walk's start.
        events: how many reactions occurred.
        over: whether it goes no further.
    """

    counts: tuple[Any, ...]
    armed: Any
    first: Any
    words: tuple[Any, Any]
    time: Any
    events: Any
    over: Any


def _words(stream: Words, step: Any) -> tuple[Any, Any]:
    step = step.astype(jnp.uint32)
    return bits(stream, step, jnp.uint32(0)), bits(stream, step, jnp.uint32(1))


def begin(reactions: Reactions, counts: tuple[Any, ...], armed: Any, stream: Words, first: Any) -> Walk:
    """A walk before its first event.

    Args:
        reactions: the law.
        counts: at the start.
        armed: what `Reactions.settle` carries along.
        stream: the words' key.
        first: the step of the stream to begin with, an int32.
    """
    zero = jnp.zeros((), counts[0].dtype)
    over = jnp.asarray(_stopped(reactions, counts))
    return Walk(counts, armed, first, _words(stream, first), zero, jnp.int32(0), over)


def event(reactions: Reactions, walk: Walk, stream: Words, start: Any, until: Any) -> Walk:
    """One event of a walk: a reaction, or its end. A walk that is over stays as it is.

    Args:
        reactions: the law.
        walk: before the event.
        stream: the words' key.
        start: the time at the walk's start, in which `Reactions.settle` is told the time.
        until: how long the walk lasts; another may take it up there, because waiting times have no memory.
    """
    dtype = walk.counts[0].dtype
    reach = list(accumulate(reactions.propensities(walk.counts)))
    absorbed = reach[-1] <= 0
    waited = -jnp.log(unit_interval(walk.words[0], dtype)) / jnp.where(absorbed, 1, reach[-1])
    time = walk.time + waited
    # What many read is what the walk carries on (`halted`) or was carried here (`words`), so that a compiler
    # of loops, which makes each carried value by itself, makes it once.
    halted = absorbed | (time > until) | walk.over | (walk.events >= reactions.most)
    mark = unit_interval(walk.words[1], dtype) * reach[-1]
    counts = _react(reactions.changes, walk.counts, [edge > mark for edge in reach[:-1]], halted)
    armed = walk.armed
    if reactions.settle is not None:
        settled = reactions.settle(counts, start + time, armed)
        counts, armed = jax.tree.map(partial(jnp.where, halted), (counts, armed), settled)
    events = walk.events + ~halted
    time = jnp.where(halted, walk.time, time)
    words = _words(stream, walk.first + events)
    return Walk(counts, armed, walk.first, words, time, events, halted | _stopped(reactions, counts))


def _stopped(reactions: Reactions, counts: tuple[Any, ...]) -> Any:
    return False if reactions.stop is None else reactions.stop(counts)


def finished(reactions: Reactions, walk: Walk) -> Any:
    """Whether a walk that is over came to its end; else it was given up."""
    return (walk.events < reactions.most) | _stopped(reactions, walk.counts)


def lasted(reactions: Reactions, walk: Walk, until: Any) -> Any:
    """How long a walk that is over lasted: less than `until` if nothing would happen in it any more.

    Args:
        reactions: the law.
        walk: one that is over.
        until: how long it was to last.
    """
    absorbed = sum(reactions.propensities(walk.counts)) <= 0
    early = absorbed | _stopped(reactions, walk.counts) | ~finished(reactions, walk)
    return jnp.where(early, walk.time, until)


def _react(changes: Any, counts: tuple[Any, ...], beyond: list[Any], idle: Any) -> tuple[Any, ...]:
    """The counts after the first reaction that lies beyond the mark, the last if none does."""
    moved = []
    for i, n in enumerate(counts):
        column = [change[i] for change in changes]
        change = column[-1]
        for this, here in zip(reversed(column[:-1]), reversed(beyond), strict=True):
            if not (isinstance(change, int | float) and this == change):
                change = jnp.where(here, jnp.asarray(this, n.dtype), change)
        moved.append(n + jnp.where(idle, 0, change).astype(n.dtype))
    return tuple(moved)


def direct_method(
    reactions: Reactions,
    counts: tuple[Any, ...],
    armed: Any,
    stream: Words,
    first: Any,
    *,
    start: Any = 0.0,
    until: Any,
) -> Walk:
    """Walk from reaction to reaction until a time, an outcome, or absorption; see `begin` and `event`."""
    return jax.lax.while_loop(
        lambda walk: ~walk.over,
        lambda walk: event(reactions, walk, stream, start, until),
        begin(reactions, counts, armed, stream, first),
    )


def never(counts: Any) -> Any:
    """An outcome that does not occur."""
    del counts
    return jnp.asarray(False)


def of_arrays(propensities: Propensities, stop: Stop, most: int, changes: Any) -> Reactions:
    """A law whose functions take arrays of counts ``[species]``."""
    return Reactions(
        lambda counts: list(propensities(jnp.stack(counts))),
        changes,
        None,
        None if stop is never else lambda counts: stop(jnp.stack(counts)),
        most,
    )


def of_world(law: JumpWorld, stop: Stop, most: int, params: Any, state: Any, drive: Any) -> Reactions:
    """A world's reactions under a constant drive, its continuous fields held as they are."""

    def propensities(counts: tuple[Any, ...]) -> Sequence[Any]:
        return law.propensities(state._replace(n=counts), drive, params)

    return Reactions(
        propensities, law.changes, None, None if stop is never else lambda n: stop(jnp.stack(n)), most
    )


def _outcome(reactions: Reactions, counts: Any, key: Any, until: Any) -> Outcome:
    words = jax.random.key_data(key)
    walk = direct_method(reactions, tuple(counts), (), Words(words[0], words[1]), jnp.int32(0), until=until)
    time = lasted(reactions, walk, until)
    return Outcome(jnp.stack(walk.counts), time, walk.events, finished(reactions, walk))


@partial(jax.jit, static_argnames=("propensities", "stop", "max_events"))
def ssa_network(
    propensities: Propensities,
    changes: Shaped[Array | np.ndarray, "reaction species"],
    counts: Float[Array, "species"],
    *,
    key: PRNGKeyArray,
    until: Any = np.inf,
    stop: Stop = never,
    max_events: int = 1_000_000,
) -> Outcome:
    """Run a reaction network given as arrays until a time, an outcome, or absorption.

    Args:
        propensities: from counts ``[species]`` to the rate of each reaction ``[reaction]``, at least 0.
        changes: what each reaction adds to the counts.
        counts: at the start, whole numbers as floats.
        key: a typed threefry key; event k takes its words at ``(k, 0)`` and ``(k, 1)``, so it serves one run.
        until: the time at which the run ends.
        stop: from counts to whether the run ends there.
        max_events: after which the run ends unfinished.
    """
    reactions = of_arrays(propensities, stop, max_events, changes)
    return _outcome(reactions, jnp.asarray(counts), key, until)


@partial(jax.jit, static_argnames=("law", "stop", "max_events"))
def ssa(
    law: JumpWorld,
    params: Any,
    state: Any,
    drive: Any,
    *,
    key: PRNGKeyArray,
    until: Any = np.inf,
    stop: Stop = never,
    max_events: int = 1_000_000,
) -> Outcome:
    """Run a world's reactions under a constant drive with its continuous fields held as they are.

    That is exact where those fields do not move the propensities, or do not move themselves.

    Args:
        law: the family.
        params: parameters, as `World.draw` or `World.limit` gives them.
        state: the state at the start.
        drive: physical values, as `World.physical` gives them.
        key: see `ssa_network`, as for the other arguments.
        until: the time at which the run ends, in the world's units.
        stop: from counts ``[species]`` to whether the run ends there.
        max_events: after which the run ends unfinished.
    """
    reactions = of_world(law, stop, max_events, params, state, drive)
    return _outcome(reactions, tuple(jnp.asarray(n) for n in state.n), key, until)
