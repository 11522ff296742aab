"""Exact simulation of jump laws: Gillespie's direct method, one event after another.

A law of reactions with propensities ``a_r(n)`` waits an exponential time of mean ``1 / sum_r a_r``; then
reaction r occurs with probability ``a_r / sum_r a_r`` (Gillespie 1977, doi:10.1021/j100540a008). There is no
step, hence no step error: this certifies tau-leaping, and it reproduces hitting probabilities, whose barriers
a leap overshoots. An event costs as much as a leap, so ensembles of whole cultures take the leaps.

The functions are for one run; `jax.vmap` over keys gives an ensemble, which lasts as long as its longest run.
"""

from collections.abc import Callable
from functools import partial
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


def _simulate(
    propensities: Propensities, changes: Any, start: Any, key: Any, until: Any, stop: Stop, most: int
) -> Outcome:
    words = jax.random.key_data(key)
    stream = Words(words[0], words[1])
    counts = jnp.asarray(start)
    changes = jnp.asarray(changes, counts.dtype)

    def running(run: Outcome) -> Any:
        return ~run.finished & (run.events < most)

    def event(run: Outcome) -> Outcome:
        noise = Noise(stream, run.events.astype(jnp.uint32))
        reach = jnp.cumsum(propensities(run.counts))
        absorbed = reach[-1] <= 0
        wait = -jnp.log(noise.uniform(0, counts.dtype)) / jnp.where(absorbed, 1, reach[-1])
        late = ~absorbed & (run.time + wait > until)
        idle = absorbed | late
        chosen = jnp.argmax(reach > noise.uniform(1, counts.dtype) * reach[-1])
        moved = jnp.where(idle, run.counts, run.counts + changes[chosen])
        time = jnp.where(absorbed, run.time, jnp.minimum(run.time + wait, until))
        return Outcome(moved, time, run.events + ~idle, idle | stop(moved))

    zero = jnp.zeros((), counts.dtype)
    first = Outcome(counts, zero, jnp.int32(0), jnp.asarray(stop(counts)))
    return jax.lax.while_loop(running, event, first)


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
    return _simulate(propensities, changes, counts, key, until, stop, max_events)


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

    return _simulate(propensities, np.array(law.changes), start, key, until, stop, max_events)
