"""A scheme for delay differential equations: Runge-Kutta steps over a ring of past nodes."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from simworlds.integrate.scheme import Params, Scheme, State, shift
from simworlds.keys import Noise


class Memory(NamedTuple):
    """The state now, and rings of what it was at the latest nodes, the node of step k at k modulo the length.

    Drives switch at nodes, and the slope jumps there: its limits from both sides are kept. What belongs to
    the newest node enters the rings a step later: a loop updates a ring in place if the new entry was carried
    into the step, and copies all of it if the entry comes of reading the ring.
    """

    state: Any
    arrival: Any  # the slope at the end of the step that reached this node
    departure: Any  # the slope at the start of that step, which left the node before
    value: Any  # ring of states
    left: Any  # ring of slopes on arrival
    right: Any  # ring of slopes on departure


class _Place(NamedTuple):
    """A delay in steps: whole nodes back, and the part of a step forward again."""

    ratio: Any
    nodes: Any
    theta: Any


class _Span(NamedTuple):
    """Three nodes a, b, c in a row, between which a delayed time passes during a step.

    At the step's start it is `theta` of a step past a, at its end `theta` past b.
    """

    ratio: Any
    theta: Any
    a: Any
    b: Any
    c: Any
    a_right: Any
    b_left: Any
    b_right: Any
    c_left: Any


class DelayRK4(Scheme):
    """The classical Runge-Kutta scheme for ``dx/dt = law.drift(x, drive, params, past)``, delays constant.

    ``past`` is a tuple with the state as it was at each of ``law.lags(params)`` ago, from the cubic Hermite
    interpolant through values and slopes at the nodes (Bellen & Zennaro 2003, Numerical Methods for Delay
    Differential Equations). Before the start the state was constant. Order four, for any delay of at least a
    step and for a delay of 0, with one reservation: where the slope jumped, by a switch of drives or by the
    start, a delay that is no whole number of steps sees the kink inside a step. The value at mid-step is then
    set such that Simpson's rule is exact for the kink, which leaves an error of order ``dt^3`` for each. A
    delay between 0 and a step reaches into the step that is being taken, where a parabola from the node to
    the stage stands for the interpolant: order two. Trajectories are continuous in the delays, so that
    derivatives with respect to them are of use: where kinks matter they are good to order ``dt^2``.

    The rings hold ``law.longest_lag``. A delay that is longer, or negative, makes the state NaN, which the
    ensemble reports as a divergence.
    """

    def length(self, law: Any) -> int:
        """Nodes of a ring: those that the longest delay spans, the next, and two for rounding."""
        return math.ceil(law.longest_lag / self.dt) + 3

    def start(self, law: Any, params: Params, state: State) -> Memory:
        """The state with a constant past."""
        del params
        length = self.length(law)
        kept = law.remembered(state)
        value = jax.tree.map(lambda x: jnp.broadcast_to(x, (length, *jnp.shape(x))), kept)
        still, none = jax.tree.map(jnp.zeros_like, (kept, value))
        return Memory(state, still, still, value, none, none)

    def seen(self, carried: Memory) -> State:
        """The state now."""
        return carried.state

    def wrap(self, law: Any, carried: Memory) -> Memory:
        """The state with its angles within a turn, and its past moved along by as many turns."""
        wrapped = law.wrap(carried.state)

        def move(ring: Any, before: Any, after: Any) -> Any:
            return ring if after is before else ring + (after - before)

        before, after = law.remembered(carried.state), law.remembered(wrapped)
        return carried._replace(state=wrapped, value=jax.tree.map(move, carried.value, before, after))

    def randoms(self, law: Any, params: Params, carried: Memory, drive: Any, noise: Noise) -> Any:
        """The step's number, which is the same for all clones: so rings are sliced, not gathered."""
        del law, params, carried, drive
        return noise.step.astype(jnp.int32)

    def step(self, law: Any, params: Params, carried: Memory, drive: Any, randoms: Any) -> Memory:
        """One step: four stages, and the slope at its end."""
        x, h, k = carried.state, self.dt, randoms
        now, length = law.remembered(x), self.length(law)
        value = _put(carried.value, now, jnp.mod(k, length))
        left = _put(carried.left, carried.arrival, jnp.mod(k, length))
        right = _put(carried.right, carried.departure, jnp.mod(k - 1, length))
        places = [self._place(law, lag) for lag in law.lags(params)]
        spans = [_span(value, left, right, k, place, length) for place in places]
        k1 = _like(law.drift(x, drive, params, tuple(_cubic(s, False, s.theta, h) for s in spans)), x)
        departure = law.remembered(k1)
        spans = [_departed(span, place, departure) for span, place in zip(spans, places, strict=True)]
        middle = [_middle(span, h) for span in spans]
        end = [_cubic(span, True, span.theta, h) for span in spans]

        def slope(stage: State, fraction: float, rings: list[State]) -> State:
            here = law.remembered(stage)
            past = (
                _within(span, ring, now, departure, here, fraction, h)
                for span, ring in zip(spans, rings, strict=True)
            )
            return _like(law.drift(stage, drive, params, tuple(past)), x)

        k2 = slope(shift(x, h / 2, k1), 0.5, middle)
        k3 = slope(shift(x, h / 2, k2), 0.5, middle)
        k4 = slope(shift(x, h, k3), 1.0, end)
        sixth = h / 6
        after = jax.tree.map(lambda x, a, b, c, d: x + sixth * (a + 2 * (b + c) + d), x, k1, k2, k3, k4)
        arrival = law.remembered(slope(after, 1.0, end))
        return Memory(after, arrival, departure, value, left, right)

    def _place(self, law: Any, lag: Any) -> _Place:
        # Parameters are rounded to single precision, so the longest lag itself may be a little longer.
        held = (lag >= 0) & (lag <= law.longest_lag * (1 + 1e-6))
        ratio = jnp.where(held, lag, jnp.nan) / self.dt
        # At least one node back: a delay of 0 then sees its own node from the left.
        nodes = jnp.maximum(jnp.ceil(ratio), 1)
        return _Place(ratio, nodes.astype(jnp.int32), nodes - ratio)


def _put(ring: State, new: State, slot: Any) -> State:
    def one(r: Any, x: Any) -> Any:
        return jax.lax.dynamic_update_index_in_dim(r, x, slot, 0, allow_negative_indices=False)

    return jax.tree.map(one, ring, new)


def _get(ring: State, slot: Any) -> State:
    def one(r: Any) -> Any:
        return jax.lax.dynamic_index_in_dim(r, slot, keepdims=False, allow_negative_indices=False)

    return jax.tree.map(one, ring)


def _span(value: State, left: State, right: State, k: Any, place: _Place, length: int) -> _Span:
    slots = [jnp.mod(k - place.nodes + i, length) for i in range(3)]
    a, b, c = (_get(value, slot) for slot in slots)
    a_right, b_right = (_get(right, slot) for slot in slots[:2])
    b_left, c_left = (_get(left, slot) for slot in slots[1:])
    return _Span(place.ratio, place.theta, a, b, c, a_right, b_left, b_right, c_left)


def _departed(span: _Span, place: _Place, departure: State) -> _Span:
    """The span with the slope at the start of this step, which a delay of one step needs."""
    newest = place.nodes == 1

    def one(old: Any, new: Any) -> Any:
        return jnp.where(newest, new, old)

    return span._replace(b_right=jax.tree.map(one, span.b_right, departure))


def _like(slope: State, state: State) -> State:
    """The slope in the shape and type of the state, as rings hold it."""
    return jax.tree.map(lambda v, x: jnp.broadcast_to(v, jnp.shape(x)).astype(x.dtype), slope, state)


def _cubic(span: _Span, second: bool, s: Any, h: float) -> State:
    """The state at `s` of a step past a, or past b: the cubic through values and slopes at both ends."""
    ends = (
        (span.b, span.b_right, span.c, span.c_left) if second else (span.a, span.a_right, span.b, span.b_left)
    )
    r = 1 - s

    def one(x: Any, v: Any, y: Any, w: Any) -> Any:
        return r * r * ((1 + 2 * s) * x + s * h * v) + s * s * ((1 + 2 * r) * y - r * h * w)

    return jax.tree.map(one, *ends)


def _middle(span: _Span, h: float) -> State:
    """The delayed state at mid-step, set such that Simpson's rule is exact for a kink inside the step.

    The delayed time passes b when `theta` of the step is left. A kink of unit slope there integrates to
    ``theta^2 / 2`` steps squared, of which Simpson's rule sees ``(4 max(theta - 1/2, 0) + theta) / 6``; the
    value at mid-step counts 4/6.
    """
    theta = span.theta
    missed = theta * theta / 2 - (4 * jnp.maximum(theta - 0.5, 0) + theta) / 6

    def one(early: Any, late: Any, left: Any, right: Any) -> Any:
        return jnp.where(theta < 0.5, early, late) + 1.5 * h * missed * (right - left)

    early, late = _cubic(span, False, theta + 0.5, h), _cubic(span, True, theta - 0.5, h)
    return jax.tree.map(one, early, late, span.b_left, span.b_right)


def _within(span: _Span, ring: State, x: State, k1: State, stage: State, fraction: float, h: float) -> State:
    """The delayed state of a stage: from the rings, or within the step if the delay is that short.

    Within it, a parabola leaves x with slope k1 and meets the stage at `fraction` of the step: a delay of 0
    gives the stage itself.
    """
    ahead = fraction - span.ratio
    bend = (ahead / fraction) ** 2

    def one(past: Any, x: Any, k1: Any, stage: Any) -> Any:
        near = x + ahead * h * k1 + bend * (stage - x - fraction * h * k1)
        return jnp.where(ahead > 0, near, past)

    return jax.tree.map(one, ring, x, k1, stage)
