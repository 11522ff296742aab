"""Steps of adaptive length: an embedded Runge-Kutta pair, one attempt of a step at a time.

The pair is that of Tsitouras (2011, doi:10.1016/j.camwa.2011.06.002), fifth order with an error estimate of
fourth; the controller is the proportional-integral one of Hairer & Wanner (1996,
doi:10.1007/978-3-642-05221-7, section IV.2). Each sensor's mean over the tick is integrated along with the
state. Everything is for one clone; `simworlds.adaptive` batches.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

MOST_ATTEMPTS = 100_000  # a tick
# Stages 2 to 7; the last is the solution of fifth order, so that its slope begins the next step.
STAGES = (
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
)
# The solution of fifth order less that of fourth.
ERROR = (
    0.001780011052226,
    0.000816434459657,
    -0.007880878010262,
    0.144711007173263,
    -0.582357165452555,
    0.458082105929187,
    -1 / 66,
)
# The controller of Hairer & Wanner's codes: the exponents of the error of this step and of the last one.
_NOW, _BEFORE = 0.17, 0.04
_SAFETY, _LEAST, _MOST = 0.9, 0.2, 10.0
_LEAST_LOG_ERROR = float(np.log(1e-4))


class Status(IntEnum):
    """How a clone fares."""

    RUNNING = 0
    NOT_FINITE = 1
    TOO_SHORT = 2  # it needs steps below the precision of its dtype
    TOO_MANY = 3  # it needs more than `MOST_ATTEMPTS` of them in a tick


class Walk(NamedTuple):
    """Where a clone stands within a tick: what an attempt of a step changes."""

    state: Any
    means: tuple[Any, ...]  # the integral of each sensor since the tick's beginning, over the tick's length
    slope: Any  # of the state and of the means
    left: Any  # time to the tick's end
    size: Any  # the next step, if there is room
    last: Any  # logarithm of the last accepted step's error
    rejected: Any  # whether the last attempt was
    attempts: Any  # in this tick
    status: Any


class Tolerance(NamedTuple):
    """Relative tolerance, and the absolute one of numbers of the state."""

    rtol: Any
    atol: Any


def _apart(true: Any, function: Callable[..., Any], *args: Any) -> Any:
    """A function's results, made once where the compiler would make them again for each of their uses.

    XLA on CPU fuses a step into one kernel for each of its results, each of which makes the whole step: five
    times the work. A conditional is a border that no fusion crosses. `true` always is, which only we know.
    """
    if jax.default_backend() != "cpu":
        return function(*args)
    shapes = jax.eval_shape(function, *args)
    return jax.lax.cond(
        true, function, lambda *_: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes), *args
    )


def _combined(weights: Sequence[float], slopes: Sequence[Any]) -> Any:
    """A weighted sum of trees; weights of 0 are left out."""
    used = [(w, tree) for w, tree in zip(weights, slopes, strict=True) if w]

    def total(*leaves: Any) -> Any:
        return sum((w * x for (w, _), x in zip(used[1:], leaves[1:], strict=True)), used[0][0] * leaves[0])

    return jax.tree.map(total, *(tree for _, tree in used))


def rates(world: Any, params: Any, drive: Any, state: Any) -> Any:
    """The slopes of the state and of the means of the sensors over a tick."""
    per_tick = float(1 / world.scheme.tick_time)
    slopes = world.drift(state, drive, params)
    slopes = jax.tree.map(lambda x, v: jnp.broadcast_to(v, jnp.shape(x)).astype(x.dtype), state, slopes)
    dtype = jax.tree.leaves(state)[0].dtype
    read = world.read(state, drive, params)
    return slopes, tuple(per_tick * jnp.asarray(x, dtype) for x in read)


def _shifted(start: Any, size: Any, weights: Sequence[float], slopes: Sequence[Any]) -> Any:
    return jax.tree.map(lambda x, v: x + size * v, start, _combined(weights, slopes))


def _square_error(
    world: Any, tolerance: Tolerance, both: Any, size: Any, moved: Any, slopes: Sequence[Any]
) -> Any:
    """The mean square of the error over what is tolerated, over all numbers of the state and all sensors."""
    error = jax.tree.map(lambda v: size * v, _combined(ERROR, slopes))

    def of_state(x: Any, y: Any, e: Any) -> Any:
        ratio = e / (tolerance.atol + tolerance.rtol * jnp.maximum(jnp.abs(x), jnp.abs(y)))
        return jnp.sum(ratio * ratio)

    parts = jax.tree.leaves(jax.tree.map(of_state, both[0], moved[0], error[0]))
    for sensor, e in zip(world.sensors, error[1], strict=True):
        ratio = e / (tolerance.rtol * float(sensor.high - sensor.low))
        parts.append(ratio * ratio)
    count = sum(jnp.size(x) for x in jax.tree.leaves(both[0])) + len(world.sensors)
    return sum(parts[1:], parts[0]) / count


def begin_walk(world: Any, params: Any, drive: Any, state: Any) -> Walk:
    """A clone at its first tick's beginning; the first step to try is that of the family's fixed scheme."""
    slope = rates(world, params, drive, state)
    zero = jnp.zeros((), jax.tree.leaves(state)[0].dtype)
    return Walk(
        state=state,
        means=tuple(zero for _ in world.sensors),
        slope=slope,
        left=zero + world.scheme.tick_time,
        size=zero + world.scheme.dt,
        last=zero + _LEAST_LOG_ERROR,
        rejected=jnp.asarray(False),
        attempts=jnp.int32(0),
        status=jnp.int32(Status.RUNNING),
    )


def next_tick(world: Any, params: Any, drive: Any, state: Any, walk: Walk) -> Walk:
    """A clone that has come to a tick's end, at the beginning of the next one.

    Args:
        world: the family.
        params: its parameters.
        drive: physical values in the tick that begins.
        state: the state, with its angles wrapped.
        walk: where the clone stands.
    """
    return walk._replace(
        state=state,
        means=tuple(jnp.zeros_like(x) for x in walk.means),
        slope=rates(world, params, drive, state),
        left=jnp.full_like(walk.left, world.scheme.tick_time),
        attempts=jnp.zeros_like(walk.attempts),
    )


def attempt(world: Any, params: Any, tolerance: Tolerance, drive: Any, walk: Walk) -> Walk:
    """Try one step; a clone that stands at its tick's end, or has failed, stays as it is."""
    active = (walk.left > 0) & (walk.status == Status.RUNNING)
    ends = walk.size >= walk.left
    # What is left after one more step shall not be a sliver.
    size = jnp.where(ends, walk.left, jnp.minimum(walk.size, walk.left / 2))
    both, apart = (walk.state, walk.means), partial(_apart, tolerance.rtol > 0)

    def stage(slopes: Any, weights: Sequence[float]) -> Any:
        return rates(world, params, drive, _shifted(walk.state, size, weights, [s[0] for s in slopes]))

    def last_stage(slopes: Any) -> Any:
        moved = _shifted(both, size, STAGES[-1], slopes)
        return moved, rates(world, params, drive, moved[0])

    slopes = [walk.slope]
    for weights in STAGES[:-1]:
        slopes.append(apart(partial(stage, weights=weights), slopes))
    moved, slope = apart(last_stage, slopes)
    square = apart(partial(_square_error, world, tolerance, both, size), moved, [*slopes, slope])
    fine = square <= 1
    log_error = jnp.log(jnp.maximum(square, 1e-16)) / 2
    wanted = _next_size(walk, size, square, log_error)
    span = float(world.scheme.tick_time)
    accepted = active & fine
    short = active & ~fine & (wanted < 4 * float(jnp.finfo(size.dtype).eps) * span)
    why = jnp.where(jnp.isfinite(square), Status.TOO_SHORT, Status.NOT_FINITE)
    many = active & (walk.attempts >= MOST_ATTEMPTS)
    (state, means), slope = choose(accepted, (moved, slope), (both, walk.slope))
    return Walk(
        state=state,
        means=means,
        slope=slope,
        left=jnp.where(accepted, jnp.where(ends, 0, walk.left - size), walk.left),
        size=jnp.where(active, jnp.minimum(wanted, span), walk.size),
        last=jnp.where(accepted, jnp.maximum(log_error, _LEAST_LOG_ERROR), walk.last),
        rejected=jnp.where(active, ~fine, walk.rejected),
        attempts=walk.attempts + active,
        status=jnp.where(short, why, jnp.where(many, Status.TOO_MANY, walk.status)),
    )


def _next_size(walk: Walk, size: Any, square: Any, log_error: Any) -> Any:
    """The step to try next, after one whose mean square error was `square`."""
    fine = square <= 1
    factor = _SAFETY * jnp.exp(-_NOW * log_error + jnp.where(fine, _BEFORE * walk.last, 0))
    factor = jnp.clip(factor, _LEAST, jnp.where(fine & ~walk.rejected, _MOST, 1.0))
    wanted = size * jnp.where(jnp.isfinite(square), factor, _LEAST)
    # A step cut short by the tick's end says little against the longer one that was due.
    return jnp.where(fine & (size < walk.size), jnp.maximum(wanted, walk.size), wanted)


def choose(which: Any, new: Any, old: Any) -> Any:
    """The new or the old of a tree."""
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), new, old)
