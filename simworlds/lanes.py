"""Lanes: the compiled program behind every ensemble.

A *lane* is one clone under one protocol. A *chunk* is a fixed number of lanes of one instance, padded where
there are fewer, and a *round* is one chunk for each device of this process: a mesh over chunks, so that
clones and instances spread over devices alike. Each device runs the same local program on its own chunk,
whatever its neighbours do, so the number of devices changes no bit.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simworlds.integrate import advance, begin
from simworlds.keys import Noise, Words, bits, clone_words, normal_from
from simworlds.ports import Gauge

NEVER = np.int32(2**31 - 1)
# An accelerator wants many more threads than a core has lanes.
_ACCELERATOR_LANES = 128


class Lanes(NamedTuple):
    """What lanes are to do: arrays ``[lane]``."""

    levels: Any  # [tick, lane, drive]
    ticks: Any  # of the protocol
    clone: Any
    initial: Words
    process: Words
    sensor: Words
    start: Any  # of the window
    stop: Any
    nudge: Any


class Welford(NamedTuple):
    """Running mean and sum of squared departures (Welford 1962, doi:10.1080/00401706.1962.10490022)."""

    count: Any
    mean: Any
    square: Any

    @classmethod
    def of(cls, sensors: int, dtype: Any) -> "Welford":
        """Of nothing so far, for each of some sensors."""
        return cls(jnp.zeros((), dtype), *(jnp.zeros(sensors, dtype) for _ in range(2)))

    def add(self, value: Any, counted: Any) -> "Welford":
        """With one more value ``[sensor]``, if it counts."""
        count = self.count + counted
        step = value - self.mean
        mean = self.mean + jnp.where(counted, step / jnp.maximum(count, 1), 0)
        return Welford(count, mean, self.square + jnp.where(counted, step * (value - mean), 0))

    def sd(self) -> Any:
        """The sd of the values so far (ddof 0)."""
        return jnp.sqrt(self.square / jnp.maximum(self.count, 1))


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
    window: Welford
    branch: Any
    bad: Any


def width_of(world: Any) -> int:
    """Lanes of a chunk: fixed for a family and a kind of device."""
    return world.lanes if jax.default_backend() == "cpu" else world.lanes * _ACCELERATOR_LANES


def gauged(gauge: Gauge, raw: Sequence[Any], sensor: Words, tick: Any) -> Any:
    """A clone's readings ``[sensor]`` of a tick: raw sensors through the gauge, with addressed noise.

    Args:
        gauge: of the instance.
        raw: the tick's mean of each sensor, in family order.
        sensor: the clone's key of sensor noise.
        tick: the tick's number.
    """
    ports = jnp.arange(len(raw), dtype=jnp.uint32)
    word = bits(sensor, tick.astype(jnp.uint32), ports)
    noise = gauge.sigma * normal_from(word, gauge.offset.dtype)
    return gauge.offset + gauge.gain * jnp.stack(raw)[gauge.order] + noise


def _start(world: Any, params: Any, lane: Lanes, dtype: Any) -> _Clone:
    noise = Noise(clone_words(lane.initial, lane.clone), jnp.uint32(0))
    state = begin(world, params, noise, dtype, lane.nudge)
    return _Clone(state, Welford.of(len(world.sensors), dtype), jnp.int32(0), jnp.asarray(NEVER))


def _tick(world: Any, params: Any, gauge: Gauge, lane: Lanes, tick: Any, levels: Any, clone: _Clone) -> Any:
    """Advance one clone by a tick; returns it with its readings ``[sensor]``."""
    drive = world.physical(levels)
    process = clone_words(lane.process, lane.clone)
    state, raw = advance(world, params, clone.state, drive, process, tick)
    values = gauged(gauge, raw, clone_words(lane.sensor, lane.clone), tick)
    window = clone.window.add(values, (tick >= lane.start) & (tick < lane.stop))
    branch = jnp.where(tick + 1 == lane.stop, world.branch(world.scheme.seen(state), params), clone.branch)
    fine = jnp.all(jnp.isfinite(values)) | (tick >= lane.ticks)
    bad = jnp.where(fine, clone.bad, jnp.minimum(clone.bad, tick))
    return _Clone(state, window, branch, bad), values


_AXES = Lanes(None, 0, 0, Words(0, 0), Words(0, 0), Words(0, 0), 0, 0, 0)


def _run(world: Any, store: bool, chunk: Chunk) -> Outcome:
    """Run a chunk; with `store`, keep its readings."""
    params, gauge, lanes, last = chunk
    dtype = gauge.offset.dtype
    start = jax.vmap(lambda lane: _start(world, params, lane, dtype), in_axes=(_AXES,))
    step = jax.vmap(partial(_tick, world, params, gauge), in_axes=(_AXES, None, 0, 0))
    kept = jnp.zeros((*lanes.levels.shape[:2], len(world.sensors)) if store else (0,), dtype)

    def body(tick: Any, carry: Any) -> Any:
        clones, kept = carry
        clones, values = step(lanes, tick, lanes.levels[tick], clones)
        if store:
            kept = jax.lax.dynamic_update_index_in_dim(kept, values, tick, 0)
        return clones, kept

    clones, kept = jax.lax.fori_loop(0, last, body, (start(lanes), kept))
    return Outcome(clones.window.mean, jax.vmap(Welford.sd)(clones.window), clones.branch, clones.bad, kept)


_CHUNKS = PartitionSpec("chunk")


@lru_cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), ("chunk",))


@partial(jax.jit, static_argnums=(0, 1))
def run_round(world: Any, store: bool, chunks: Chunk) -> Outcome:
    """Run one chunk on each device; the trees' arrays have a first axis of devices."""

    def local(chunks: Chunk) -> Outcome:
        outcome = _run(world, store, jax.tree.map(lambda x: x[0], chunks))
        return jax.tree.map(lambda x: x[None], outcome)

    return jax.shard_map(local, mesh=_mesh(), in_specs=_CHUNKS, out_specs=_CHUNKS, check_vma=False)(chunks)


class Rounds:
    """Makes rounds out of chunks; keeps on the devices what the next round has in common with the last."""

    def __init__(self, world: Any, store: bool):
        self._world, self._store = world, store
        self._sharding = NamedSharding(_mesh(), _CHUNKS)
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
            self._key, self._kept = list(keys), jax.device_put(stacked, self._sharding)
        lanes = self._kept.lanes._replace(clone=jax.device_put(clones, self._sharding))
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
