"""Lanes: the compiled program behind every ensemble.

A *lane* is one clone under one protocol. A *chunk* is a fixed number of lanes of one instance, padded where
there are fewer, and a *round* is one chunk for each device of this process: a mesh over chunks, so that
clones and instances spread over devices alike. Each device runs the same local program on its own chunk,
whatever its neighbours do, so the number of devices changes no bit.
"""

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from simworlds.devices import on_devices, on_each
from simworlds.integrate import advance, begin
from simworlds.keys import Noise, Words, clone_words
from simworlds.ports import Gauge

NEVER = np.int32(2**31 - 1)
# An accelerator wants many more threads than a core has lanes.
_ACCELERATOR_LANES = 128


class Lanes(NamedTuple):
    """What lanes are to do: arrays ``[lane]``."""

    levels: Any  # [tick, lane, drive]
    ticks: Any  # of the protocol
    clone: Any
    initial: Words  # keys of the request's roles
    process: Words
    sensor: Words
    start: Any  # of the window
    stop: Any
    nudge: Any


class Welford(NamedTuple):
    """Running mean and sum of squared departures (Welford 1962, doi:10.1080/00401706.1962.10490022).

    A tuple of scalars, one a sensor: an array over sensors would be a short axis within each lane.
    """

    count: Any
    mean: tuple[Any, ...]
    square: tuple[Any, ...]

    @classmethod
    def of(cls, sensors: int, dtype: Any) -> "Welford":
        """Of nothing so far, for each of some sensors."""
        zeros = (jnp.zeros((), dtype),) * sensors
        return cls(jnp.zeros((), dtype), zeros, zeros)

    def add(self, values: Sequence[Any], counted: Any) -> "Welford":
        """With one more value of each sensor, if it counts."""
        count = self.count + counted
        share = 1 / jnp.maximum(count, 1)
        # Behind a protocol's end values may be infinite, so they are left out before they meet a factor of 0.
        steps = [jnp.where(counted, value - mean, 0) for value, mean in zip(values, self.mean, strict=True)]
        mean = tuple(mean + step * share for mean, step in zip(self.mean, steps, strict=True))
        more = [step * (value - now) for step, value, now in zip(steps, values, mean, strict=True)]
        square = tuple(q + jnp.where(counted, m, 0) for q, m in zip(self.square, more, strict=True))
        return Welford(count, mean, square)

    def sd(self) -> tuple[Any, ...]:
        """The sd of each sensor's values so far (ddof 0)."""
        return tuple(jnp.sqrt(square / jnp.maximum(self.count, 1)) for square in self.square)


class Outcome(NamedTuple):
    """What became of lanes: arrays ``[lane, sensor]`` and ``[lane]``, and readings if they were kept.

    `bad` is the first tick whose readings were not finite, else `NEVER`; `kept` is ``[tick, lane, sensor]``.
    """

    mean: Any
    sd: Any
    branch: Any
    bad: Any
    kept: Any


class Chunk(NamedTuple):
    """Lanes of one instance, and how many ticks they need."""

    params: Any
    gauge: Gauge
    lanes: Lanes
    last: Any


class _Clone(NamedTuple):
    """What one clone carries from tick to tick."""

    state: Any  # what the world's scheme carries
    eps: tuple[Any, ...]  # the noise of the next tick's readings: a carried buffer is written once
    window: Welford
    branch: Any
    bad: Any


def width_of(world: Any) -> int:
    """Lanes of a chunk: fixed for a family and a kind of device."""
    return world.lanes if jax.default_backend() == "cpu" else world.lanes * _ACCELERATOR_LANES


def sensor_noise(ports: int, sensor: Words, tick: Any, dtype: Any) -> tuple[Any, ...]:
    """Standard normals of a clone's readings of a tick, one a port; `sensor` is the clone's key."""
    noise = Noise(sensor, tick.astype(jnp.uint32))
    return tuple(noise.normal(port, dtype) for port in range(ports))


def gauged(gauge: Gauge, raw: Sequence[Any], eps: Sequence[Any]) -> tuple[Any, ...]:
    """A clone's readings of a tick in port order.

    Args:
        gauge: of the instance.
        raw: the tick's mean of each sensor, in family order.
        eps: the tick's `sensor_noise`.
    """
    readings = []
    for port in range(len(raw)):
        behind = raw[0] if len(raw) == 1 else jax.lax.select_n(gauge.order[port], *raw)
        readings.append(gauge.offset[port] + gauge.gain[port] * behind + gauge.sigma[port] * eps[port])
    return tuple(readings)


def _start(world: Any, params: Any, lane: Lanes, dtype: Any) -> _Clone:
    noise = Noise(clone_words(lane.initial, lane.clone), jnp.uint32(0))
    state = begin(world, params, noise, dtype, lane.nudge)
    ports = len(world.sensors)
    eps = sensor_noise(ports, lane.sensor, jnp.int32(0), dtype)
    return _Clone(state, eps, Welford.of(ports, dtype), jnp.int32(0), jnp.asarray(NEVER))


def _tick(world: Any, params: Any, gauge: Gauge, lane: Lanes, tick: Any, levels: Any, clone: _Clone) -> Any:
    """Advance one clone by a tick; returns it with its readings, one a port."""
    drive = world.physical(levels)
    state, raw = advance(world, params, clone.state, drive, lane.process, tick)
    values = gauged(gauge, raw, clone.eps)
    eps = sensor_noise(len(values), lane.sensor, tick + 1, values[0].dtype)
    window = clone.window.add(values, (tick >= lane.start) & (tick < lane.stop))
    branch = jnp.where(tick + 1 == lane.stop, world.branch(world.scheme.seen(state), params), clone.branch)
    fine = reduce(jnp.logical_and, [jnp.isfinite(value) for value in values]) | (tick >= lane.ticks)
    bad = jnp.where(fine, clone.bad, jnp.minimum(clone.bad, tick))
    return _Clone(state, eps, window, branch, bad), values


_AXES = Lanes(None, 0, 0, Words(0, 0), Words(0, 0), Words(0, 0), 0, 0, 0)


def _run(world: Any, store: bool, chunk: Chunk) -> Outcome:
    """Run a chunk; with `store`, keep its readings."""
    params, gauge, lanes, last = chunk
    # The clones' keys are derived once, not in every tick.
    keys = {role: clone_words(getattr(lanes, role), lanes.clone) for role in ("process", "sensor")}
    lanes = lanes._replace(**keys)
    dtype = gauge.offset.dtype
    start = jax.vmap(lambda lane: _start(world, params, lane, dtype), in_axes=(_AXES,))
    step = jax.vmap(partial(_tick, world, params, gauge), in_axes=(_AXES, None, 0, 0))
    kept = jnp.zeros((*lanes.levels.shape[:2], len(world.sensors)) if store else (0,), dtype)

    def body(tick: Any, carry: Any) -> Any:
        clones, kept = carry
        clones, values = step(lanes, tick, lanes.levels[tick], clones)
        if store:
            kept = jax.lax.dynamic_update_index_in_dim(kept, jnp.stack(values, -1), tick, 0)
        return clones, kept

    clones, kept = jax.lax.fori_loop(0, last, body, (start(lanes), kept))
    mean, sd = (jnp.stack(column, -1) for column in (clones.window.mean, jax.vmap(Welford.sd)(clones.window)))
    return Outcome(mean, sd, clones.branch, clones.bad, kept)


@partial(jax.jit, static_argnums=(0, 1))
def run_round(world: Any, store: bool, chunks: Chunk) -> Outcome:
    """Run one chunk on each device; the trees' arrays have a first axis of devices."""
    return on_each(lambda _, chunk: _run(world, store, chunk), (), chunks)


class Rounds:
    """Makes rounds out of chunks; keeps on the devices what the next round has in common with the last."""

    def __init__(self, world: Any, store: bool):
        self._world, self._store = world, store
        self._key: Any = None
        self._kept: Any = None

    def run(self, keys: Sequence[Any], make: Any, clones: np.ndarray) -> Outcome:
        """Start a round.

        Args:
            keys: of each device, what its chunk's content rests on but for the clones' numbers.
            make: from a key to its `Chunk`, on the host.
            clones: numbers of the clones ``[device, lane]``.
        """
        if self._key != list(keys):
            chunks = [make(key) for key in keys]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *chunks)
            self._key, self._kept = list(keys), on_devices(stacked)
        lanes = self._kept.lanes._replace(clone=on_devices(clones))
        return run_round(self._world, self._store, self._kept._replace(lanes=lanes))


def in_turn(started: Iterator[Any]) -> Iterator[Any]:
    """The items, each handed on when the next has been started: one is made while another runs."""
    waiting = None
    for item in started:
        if waiting is not None:
            yield waiting
        waiting = item
    if waiting is not None:
        yield waiting
