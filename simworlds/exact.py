"""Exact simulation of jump laws: Gillespie's direct method, one event after another.

A law of reactions with propensities ``a_r(n)`` waits an exponential time of mean ``1 / sum_r a_r``; then
reaction r occurs with probability ``a_r / sum_r a_r`` (Gillespie 1977, doi:10.1021/j100540a008). There is no
step, hence no step error: this certifies tau-leaping, and it reproduces hitting probabilities, whose barriers
a leap overshoots. An event costs as much as a leap, so ensembles of whole cultures take the leaps.

The functions are for one run; `jax.vmap` over keys gives an ensemble, which lasts as long as its longest run.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from simworlds.keys import Noise, Words
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


class Walk(NamedTuple):
    """Where the direct method stands.

    Attributes:
        counts: a tuple of scalars.
        armed: what `settle` carries along.
        used: numbers of the stream that are used up; the next event takes its words at this step.
        time: since the walk's start.
        events: how many reactions occurred in it.
        finished: whether it came to its end; False if `most` events came first.
    """

    counts: tuple[Any, ...]
    armed: Any
    used: Any
    time: Any
    events: Any
    finished: Any


def direct_method(
    propensities: Callable[[tuple[Any, ...]], Sequence[Any]],
    changes: Any,
    counts: tuple[Any, ...],
    armed: Any,
    stream: Words,
    used: Any,
    *,
    until: Any,
    settle: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
    stop: Callable[[tuple[Any, ...]], Any] | None = None,
    most: int,
) -> Walk:
    """Walk from reaction to reaction until a time, an outcome, or absorption.

    Args:
        propensities: from counts to the rate of each reaction.
        changes: what each reaction adds to each count, ``[reaction][count]``, as tuples or an array.
        counts: at the start.
        armed: what `settle` carries along.
        stream: the words' key.
        used: the step of the stream to begin with.
        until: when to end; a walk may be taken up there, because waiting times have no memory.
        settle: from counts, what is carried and the time, after each reaction, to counts and what is carried.
        stop: from counts to whether to end there.
        most: reactions after which to give up.
    """

    def running(walk: Walk) -> Any:
        return ~walk.finished & (walk.events < most)

    def event(walk: Walk) -> Walk:
        noise = Noise(stream, walk.used.astype(jnp.uint32))
        dtype = walk.counts[0].dtype
        reach = list(accumulate(propensities(walk.counts)))
        absorbed = reach[-1] <= 0
        time = walk.time - jnp.log(noise.uniform(0, dtype)) / jnp.where(absorbed, 1, reach[-1])
        idle = absorbed | (time > until)
        mark = noise.uniform(1, dtype) * reach[-1]
        beyond = [edge > mark for edge in reach]
        chosen = [beyond[0], *(now & ~before for before, now in pairwise(beyond))]
        moved = []
        for i, n in enumerate(walk.counts):
            for r, this in enumerate(chosen):
                if isinstance(changes, tuple) and changes[r][i] == 0:
                    continue
                n = n + jnp.where(this & ~idle, jnp.asarray(changes[r][i], dtype), 0)
            moved.append(n)
        counts, carried = tuple(moved), walk.armed
        now = jnp.where(absorbed, walk.time, jnp.minimum(time, until))
        if settle is not None:
            counts, carried = settle(counts, carried, now)
        finished = idle if stop is None else idle | stop(counts)
        return Walk(counts, carried, walk.used + 1, now, walk.events + ~idle, finished)

    zero = jnp.zeros((), counts[0].dtype)
    ended = jnp.asarray(False) if stop is None else jnp.asarray(stop(counts))
    return jax.lax.while_loop(running, event, Walk(counts, armed, used, zero, jnp.int32(0), ended))


def _outcome(
    propensities: Propensities, changes: Any, start: Any, key: Any, until: Any, stop: Stop, most: int
) -> Outcome:
    words = jax.random.key_data(key)
    walk = direct_method(
        lambda counts: list(propensities(jnp.stack(counts))),
        changes,
        tuple(jnp.asarray(start)),
        (),
        Words(words[0], words[1]),
        jnp.int32(0),
        until=until,
        stop=lambda counts: stop(jnp.stack(counts)),
        most=most,
    )
    return Outcome(jnp.stack(walk.counts), walk.time, walk.events, walk.finished)


def _never(counts: Any) -> Any:
    del counts
    return jnp.asarray(False)


@partial(jax.jit, static_argnames=("propensities", "stop", "max_events"))
def ssa_network(
    propensities: Propensities,
    changes: Shaped[Array | np.ndarray, "reaction species"],
    counts: Float[Array, "species"],
    *,
    key: PRNGKeyArray,
    until: Any = np.inf,
    stop: Stop = _never,
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
    return _outcome(propensities, changes, counts, key, until, stop, max_events)


@partial(jax.jit, static_argnames=("law", "stop", "max_events"))
def ssa(
    law: JumpWorld,
    params: Any,
    state: Any,
    drive: Any,
    *,
    key: PRNGKeyArray,
    until: Any = np.inf,
    stop: Stop = _never,
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
    start = jnp.stack(state.n)

    def propensities(counts: Any) -> Any:
        return jnp.stack(law.propensities(state._replace(n=tuple(counts)), drive, params))

    return _outcome(propensities, law.changes, start, key, until, stop, max_events)
