"""A scheme for exponentials between switches: gates flip at exact times, so no step is too long."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from simworlds.integrate.scheme import Params, Scheme, State
from simworlds.keys import Words


@dataclasses.dataclass(frozen=True)
class EventMap(Scheme):
    """The exact event map of a switched linear system, a `simworlds.world.SwitchedWorld`.

    Between switches ``T x' = f - x``, with targets f that only gates, drives and parameters move, so that

        x(t) = f + (x(0) - f) exp(-t/T),    int x dt = f t + T (x(0) - x(t)),
        wait = T ln((f - x(0)) / (f - edge))

    A gate that is off waits for x to rise to its upper edge, one that is on for x to fall to its lower one.
    The gate that waits least flips, its x lands on the edge exactly, and gates that are due at the same time
    flip together; then targets are taken anew. States and the tick means of the fields `x`, `b` and `rate`
    are exact for any step, and so are those of sensors, which must be affine in the state.

    A step holds at most `most` switches. One that needs more (a gate that feeds back on itself without
    hysteresis switches without end) ends in NaN, which an ensemble reports as divergence.

    States depend continuously on parameters and drives but where a gate's x turns back at its very edge, so
    pathwise derivatives are exact almost everywhere. They flow in forward and in reverse mode, through a loop
    of `most` turns: a derivative costs a multiple of a plain run.

    Attributes:
        most: most switches a step, those of one instant counted once.
    """

    most: int = 32

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One step, without what moves once a tick."""
        del randoms
        return _through(self, law, params, carried, drive)[0]

    def tick(
        self, law: Any, params: Params, carried: State, drive: Any, key: Words, tick: Any
    ) -> tuple[State, tuple[Any, ...]]:
        """Advance one clone by one tick: the state at its end, and the sensors of its mean state."""
        del key, tick

        def body(_: Any, carry: Any) -> Any:
            state, total = carry
            state, area = _through(self, law, params, state, drive)
            return state, jax.tree.map(jnp.add, total, area)

        zeros = jax.tree.map(jnp.zeros_like, _moving(carried))
        state, total = jax.lax.fori_loop(0, self.substeps, body, (carried, zeros))
        x, b, rate = (area / self.tick_time for area in total)
        mean = law.read(state._replace(x=x, b=b, rate=rate), drive, params)
        return law.clocked(state, drive, params), mean


def _moving(state: State) -> tuple[Any, Any, Any]:
    return state.x, state.b, state.rate


def _turn(law: Any, params: Params, drive: Any, carry: Any) -> Any:
    """To the next switch or, without one, to the step's end: moves state, areas and the time that is left."""
    state, (area_x, area_b, area_rate), left = carry
    x, rate = state.x, state.rate
    on = state.b > 0.5  # whatever displaced the state, a gate is on or off
    b = on.astype(state.b.dtype)
    f, T = law.targets(state._replace(b=b), drive, params), law.times(params)
    low, high = law.edges(params)
    edge = jnp.where(on, low, high)
    beyond = jnp.where(on, edge - f, f - edge)  # how far behind the edge the target lies
    ahead = jnp.where(on, x - edge, edge - x)  # how far before it x is; rounding may put it behind
    due = beyond > 0
    ratio = jnp.maximum(ahead, 0) / jnp.where(due, beyond, 1)
    wait = jnp.where(due, T * jnp.log1p(ratio), jnp.inf)
    first = jnp.min(wait)
    switches = first < left
    h = jnp.where(switches, first, left)
    flips = due & (wait <= first) & switches
    moved = jnp.where(flips, edge, x - (f - x) * jnp.expm1(-h / T))
    tau = law.counter_time
    faded = rate * jnp.exp(-h / tau)
    area = (
        area_x + f * h + T * (x - moved),
        area_b + b * h,
        area_rate + tau * (rate - faded),
    )
    count = jnp.sum(flips.astype(rate.dtype))
    state = state._replace(x=moved, b=(on ^ flips).astype(b.dtype), rate=faded + count / tau)
    return state, area, jnp.where(switches, left - h, 0)


def _begin(scheme: EventMap, state: State) -> Any:
    return state, jax.tree.map(jnp.zeros_like, _moving(state)), jnp.full_like(state.rate, scheme.dt)


def _end(carry: Any) -> tuple[State, Any]:
    state, area, left = carry

    def known(value: Any) -> Any:
        return jnp.where(left > 0, jnp.nan, value)

    x, b, rate = (known(value) for value in _moving(state))
    return state._replace(x=x, b=b, rate=rate), jax.tree.map(known, area)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _through(scheme: EventMap, law: Any, params: Params, state: State, drive: Any) -> tuple[State, Any]:
    """The state after a step, and the integrals of x, b and rate over it; NaN after too many switches."""

    def running(carry: Any) -> Any:
        turns, (_, _, left) = carry
        return (left > 0) & (turns <= scheme.most)

    def body(carry: Any) -> Any:
        turns, moving = carry
        return turns + 1, _turn(law, params, drive, moving)

    return _end(jax.lax.while_loop(running, body, (jnp.int32(0), _begin(scheme, state)))[1])


def _bounded(scheme: EventMap, law: Any, params: Params, state: State, drive: Any) -> tuple[State, Any]:
    """The same through a loop of fixed length, which reverse mode can run backwards."""

    def body(carry: Any, _: Any) -> Any:
        running = carry[-1] > 0
        later = _turn(law, params, drive, carry)
        return jax.tree.map(lambda old, new: jnp.where(running, new, old), carry, later), None

    return _end(jax.lax.scan(body, _begin(scheme, state), length=scheme.most + 1)[0])


@_through.defjvp
def _derivative(scheme: EventMap, law: Any, primals: Any, tangents: Any) -> Any:
    return jax.jvp(partial(_bounded, scheme, law), primals, tangents)
