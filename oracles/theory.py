"""The interface of a theory, and the replay that turns one into answers.

A theory is a simulator of one clone: ``init(history, key=...) -> state`` and ``step(state, levels, key=...)
-> (state, readings)``, over the anonymous ports that an agent sees. It is replayed against a contract's
protocol and scored on the same statistics.
"""

import abc
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from oracles import chance


class History(NamedTuple):
    """What an explorer has seen, padded to one shape for every world and seed.

    Attributes:
        levels: ``[run, tick, port]``.
        readings: ``[run, tick, sensor]``.
        ticks: the length of each run ``[run]``, 0 for one that was not made; what lies behind means nothing.
    """

    levels: Any
    readings: Any
    ticks: Any

    def runs(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The runs without padding: levels ``[tick, port]`` and readings ``[tick, sensor]`` of each."""
        made = zip(self.levels, self.readings, self.ticks.tolist(), strict=True)
        return [(levels[:ticks], readings[:ticks]) for levels, readings, ticks in made if ticks]


NO_HISTORY = History((), (), ())


class Theory(eqx.Module):
    """A simulator over ports. A final subclass states `init` and `step` for one clone; only `replay` batches.

    `replays` is how many times it is run for each contract (1 for a theory without randomness), `fit_replays`
    how many times for each protocol in a fit (at least 2).
    """

    replays: ClassVar[int] = 64
    fit_replays: ClassVar[int] = 8

    @abc.abstractmethod
    def init(self, history: History, *, key: jax.Array) -> Any:
        """The state of a fresh clone before its first tick."""

    @abc.abstractmethod
    def step(self, state: Any, levels: jax.Array, *, key: jax.Array) -> tuple[Any, jax.Array]:
        """Advance by a tick under levels ``[port]``; returns the state and its readings ``[sensor]``."""


class Ports(eqx.Module):
    """What a compact oracle knows of the ports: which is which, gains, offsets and noise.

    Attributes:
        drives: position among the ports of each drive of the law ``[drive]``.
        sensors: the law's sensor behind each port ``[sensor]``.
        offset: of the gauge ``[sensor]``.
        gain: of the gauge ``[sensor]``.
        sigma: of the sensor noise, in gauged units ``[sensor]``.
    """

    drives: jax.Array
    sensors: jax.Array
    offset: jax.Array
    gain: jax.Array
    sigma: jax.Array

    def levels(self, levels: jax.Array) -> jax.Array:
        """Port levels in the law's order of drives."""
        return levels[self.drives]

    def readings(self, raw: Any, *, key: jax.Array) -> jax.Array:
        """The law's sensors (a sequence, in the law's order) as noisy readings ``[sensor]`` in port order."""
        values = jnp.stack([jnp.asarray(x, self.offset.dtype) for x in raw])[self.sensors]
        return self.offset + self.gain * values + self.sigma * chance.normal(key, values.shape)


class CompactTheory(Theory):
    """A compact oracle: a law in reduced form, its parameters, and the constants that its closure needs.

    The class attribute `world` names the family; `from_god` builds the theory from god-mode parameters. Its
    fields fall in four groups, which decide what a fit may change:

    Attributes:
        law: a NamedTuple of float arrays, taken from god mode, or fitted from the prior mean.
        ports: likewise (its index arrays are never fitted).
        closure: a NamedTuple of float scalars that god mode does not hold; each is the *logarithm* of a
            positive factor, 0 at the start, and is always fitted.
        structure: whatever is neither (flags, wiring): a NamedTuple of arrays, never fitted.
    """

    world: ClassVar[str]
    law: eqx.AbstractVar[Any]
    ports: eqx.AbstractVar[Ports]
    closure: eqx.AbstractVar[Any]
    structure: eqx.AbstractVar[Any]

    @classmethod
    @abc.abstractmethod
    def from_god(cls, params: Any, ports: Ports) -> "CompactTheory":
        """The theory of an instance from its god-mode parameters (a NamedTuple of arrays)."""


def god_ports(gauge: Any, wiring: Any) -> Ports:
    """An instance's gauge and wiring as a theory's `Ports`."""
    numbers = (np.asarray(getattr(gauge, k), np.float32) for k in ("offset", "gain", "sigma"))
    return Ports(*map(jnp.asarray, (np.argsort(wiring.drives), np.asarray(gauge.order), *numbers)))


def replay(theory: Theory, levels: jax.Array, history: History, keys: jax.Array, replays: int) -> jax.Array:
    """Run a theory under several protocols.

    Args:
        theory: the theory.
        levels: ``[protocol, tick, port]``.
        history: what its owner has seen; it is given to `init`.
        keys: one typed key a protocol, ``[protocol]``.
        replays: runs of each protocol.

    Returns:
        Readings ``[protocol, replay, tick, sensor]``. Differentiable; memory for the gradient is one state
        and the random numbers of a tick, for each tick.
    """

    def one(rows: jax.Array, key: jax.Array) -> jax.Array:
        first, later = chance.split(key)
        step_keys = chance.split(later, rows.shape[0])

        @partial(jax.checkpoint, policy=chance.KEEP)
        def tick(state: Any, inputs: Any) -> Any:
            return theory.step(state, inputs[0], key=inputs[1])

        return jax.lax.scan(tick, theory.init(history, key=first), (rows, step_keys))[1]

    def protocol(rows: jax.Array, key: jax.Array) -> jax.Array:
        return jax.vmap(one, in_axes=(None, 0))(rows, chance.split(key, replays))

    return jax.vmap(protocol)(levels, keys)


def window_statistics(readings: jax.Array, port: Any, start: Any, stop: Any, sd: Any) -> jax.Array:
    """The statistic of each contract from its replays.

    Args:
        readings: ``[contract, replay, tick, sensor]``.
        port: sensor index ``[contract]``.
        start: first tick of the window ``[contract]``.
        stop: the tick behind its last ``[contract]``.
        sd: whether the sd (ddof 0) is asked, not the mean ``[contract]``.

    Returns:
        ``[contract, replay]``.
    """

    def one(rows: jax.Array, port: Any, start: Any, stop: Any, sd: Any) -> jax.Array:
        values = jnp.take(rows, port, axis=-1)
        tick = jnp.arange(values.shape[-1])
        inside = ((tick >= start) & (tick < stop)).astype(values.dtype)[None, :]
        mean = jnp.sum(inside * values, -1) / jnp.sum(inside)
        square = jnp.sum(inside * (values - mean[:, None]) ** 2, -1) / jnp.sum(inside)
        return jnp.where(sd, jnp.sqrt(square + 1e-12), mean)

    return jax.vmap(one)(readings, port, start, stop, sd)
