"""Ensembles: the only place that batches, chunks and shards.

A *lane* is one clone under one protocol. Lanes are run in chunks of a fixed, padded width (`World.lanes` a
device), so that one compiled program serves a family whatever the seed, the protocol, the window, the channel
or the number of clones, and clone i's numbers never depend on who ran beside it. Several devices share a
chunk, each with the same local program.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from simworlds.errors import Diverged, InvalidRequest
from simworlds.integrate import advance, begin
from simworlds.keys import Noise, Words, bits, clone_words, normal_from, role_words
from simworlds.ports import Gauge
from simworlds.protocol import Protocol, held, is_whole

Progress = Callable[[int], None]
_NEVER = np.int32(2**31 - 1)
_MOST_CLONES = 2**24  # of a request, whose statistics are held in memory


class Readout(NamedTuple):
    """A sensor port, a window ``[start, stop)`` in ticks, and whether its sd is asked, not its mean."""

    port: int
    start: int
    stop: int
    sd: bool


@dataclasses.dataclass(frozen=True)
class Request:
    """A protocol to run on fresh clones, under a key purpose such as ``("truth", 3)``.

    `readout` is needed by `measure` and ignored by `simulate`. `nudge` is a relative displacement of the
    initial state, for studies of sensitivity.
    """

    protocol: Protocol
    purpose: tuple[int | str, ...]
    readout: Readout | None = None
    nudge: float = 0.0


class Statistics(NamedTuple):
    """What `measure` returns: arrays ``[request, clone]``."""

    values: np.ndarray
    branch: np.ndarray


class Readings(NamedTuple):
    """What `simulate` returns: values ``[request, clone, tick, sensor]``, and the branch at the end.

    Behind a protocol's end the values are NaN.
    """

    values: np.ndarray
    branch: np.ndarray


class _Lanes(NamedTuple):
    levels: Any  # [tick, lane, drive]
    ticks: Any  # [lane] and below
    clone: Any
    initial: Words
    process: Words
    sensor: Words
    port: Any
    start: Any
    stop: Any
    sd: Any
    nudge: Any


class _Welford(NamedTuple):
    count: Any
    mean: Any
    square: Any

    def add(self, value: Any, counted: Any) -> "_Welford":
        count = self.count + counted
        step = value - self.mean
        mean = self.mean + jnp.where(counted, step / jnp.maximum(count, 1), 0)
        return _Welford(count, mean, self.square + jnp.where(counted, step * (value - mean), 0))


class _Clone(NamedTuple):
    """What one clone carries from tick to tick."""

    state: Any  # what the world's scheme carries
    window: _Welford
    branch: Any
    bad: Any  # first tick whose readings were not finite


def _start(world: Any, params: Any, lane: _Lanes, dtype: Any) -> _Clone:
    noise = Noise(clone_words(lane.initial, lane.clone), jnp.uint32(0))
    state = begin(world, params, noise, dtype, lane.nudge)
    zero = jnp.zeros((), dtype)
    return _Clone(state, _Welford(zero, zero, zero), jnp.int32(0), jnp.asarray(_NEVER))


def _tick(world: Any, params: Any, gauge: Gauge, lane: _Lanes, tick: Any, levels: Any, clone: _Clone) -> Any:
    """Advance one clone by a tick; returns it with its gauged readings ``[sensor]``."""
    drive = world.physical(levels)
    process = clone_words(lane.process, lane.clone)
    state, raw = advance(world, params, clone.state, drive, process, tick)
    dtype = gauge.offset.dtype
    ports = jnp.arange(len(raw), dtype=jnp.uint32)
    word = bits(clone_words(lane.sensor, lane.clone), tick.astype(jnp.uint32), ports)
    values = gauge.offset + gauge.gain * jnp.stack(raw)[gauge.order] + gauge.sigma * normal_from(word, dtype)
    running = tick < lane.ticks
    counted = (tick >= lane.start) & (tick < lane.stop)
    window = clone.window.add(values[lane.port], counted)
    branch = jnp.where(tick + 1 == lane.stop, world.branch(world.scheme.seen(state), params), clone.branch)
    fine = jnp.all(jnp.isfinite(values)) | ~running
    bad = jnp.where(fine, clone.bad, jnp.minimum(clone.bad, tick))
    return _Clone(state, window, branch, bad), values


def _finish(lane: _Lanes, clone: _Clone) -> tuple[Any, Any, Any]:
    window = clone.window
    spread = jnp.sqrt(window.square / jnp.maximum(window.count, 1))
    return jnp.where(lane.sd, spread, window.mean), clone.branch, clone.bad


_LANE_AXES = _Lanes(1, 0, 0, Words(0, 0), Words(0, 0), Words(0, 0), 0, 0, 0, 0, 0)


def _run(world: Any, store: bool, params: Any, gauge: Gauge, lanes: _Lanes, last: Any) -> Any:
    """Run a chunk on one device for `last` ticks; with `store`, keep readings ``[tick, lane, sensor]``."""
    dtype = gauge.offset.dtype
    axes = _LANE_AXES._replace(levels=None)
    start = jax.vmap(lambda lane: _start(world, params, lane, dtype), in_axes=(axes,))
    step = jax.vmap(partial(_tick, world, params, gauge), in_axes=(axes, None, 0, 0))
    kept = jnp.zeros((*lanes.levels.shape[:2], len(world.sensors)) if store else (0,), dtype)

    def body(tick: Any, carry: Any) -> Any:
        clones, kept = carry
        clones, values = step(lanes, tick, lanes.levels[tick], clones)
        if store:
            kept = jax.lax.dynamic_update_index_in_dim(kept, values, tick, 0)
        return clones, kept

    clones, kept = jax.lax.fori_loop(0, last, body, (start(lanes), kept))
    return (*jax.vmap(_finish, in_axes=(axes, 0))(lanes, clones), kept)


@lru_cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("lane",))


@partial(jax.jit, static_argnums=(0, 1))
def _run_sharded(world: Any, store: bool, params: Any, gauge: Gauge, lanes: _Lanes, last: Any) -> Any:
    lane, tick_lane, whole = PartitionSpec("lane"), PartitionSpec(None, "lane"), PartitionSpec()
    lane_specs = jax.tree.map(lambda axis: tick_lane if axis else lane, _LANE_AXES)
    program = jax.shard_map(
        partial(_run, world, store),
        mesh=_mesh(),
        in_specs=(whole, whole, lane_specs, whole),
        out_specs=(lane, lane, lane, tick_lane if store else whole),
        check_vma=False,
    )
    return program(params, gauge, lanes, last)


def _plan(instance: Any, requests: Sequence[Request], dtype: Any) -> _Lanes:
    """What the lanes of each request share: `_Lanes` with requests in place of lanes, first in `levels`."""
    world = instance.world
    made = [instance.levels(request.protocol) for request in requests]
    filled = [held(rows, world.horizon) for rows in made]
    readouts = [r.readout or Readout(0, 0, r.protocol.ticks, sd=False) for r in requests]

    def words(role: str) -> Words:
        keys = [role_words(world.id, instance.seed, role, *request.purpose) for request in requests]
        return Words(np.array([key.high for key in keys]), np.array([key.low for key in keys]))

    return _Lanes(
        levels=np.stack(filled).astype(dtype),
        ticks=np.array([len(rows) for rows in made], np.int32),
        clone=np.zeros(len(requests), np.uint32),
        initial=words("initial"),
        process=words("process"),
        sensor=words("sensor"),
        port=np.array([readout.port for readout in readouts], np.int32),
        start=np.array([readout.start for readout in readouts], np.int32),
        stop=np.array([readout.stop for readout in readouts], np.int32),
        sd=np.array([readout.sd for readout in readouts], bool),
        nudge=np.array([request.nudge for request in requests], dtype),
    )


def _pick(plan: _Lanes, pairs: np.ndarray) -> _Lanes:
    """The lanes of pairs ``[lane, (request, clone)]``."""
    lanes = jax.tree.map(lambda column: column[pairs[:, 0]], plan)
    return lanes._replace(levels=np.moveaxis(lanes.levels, 0, 1), clone=pairs[:, 1].astype(np.uint32))


def _chunks(
    instance: Any, requests: Sequence[Request], clones: int, store: bool, dtype: Any
) -> Iterator[Any]:
    """Dispatch chunk after chunk and yield (pairs, results), one being built while another runs."""
    if not requests:
        return
    world = instance.world
    width = world.lanes * len(jax.devices())
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), instance.params)
    gauge = instance.gauge._replace(
        **{k: jnp.asarray(getattr(instance.gauge, k), dtype) for k in ("offset", "gain", "sigma")}
    )
    index = np.stack(np.divmod(np.arange(len(requests) * clones), clones), axis=1)
    plan = _plan(instance, requests, dtype)
    # Lanes of like length share a chunk: a chunk lasts as long as its longest protocol.
    index = index[np.argsort(-plan.ticks[index[:, 0]], kind="stable")]
    waiting = None
    for at in range(0, len(index), width):
        pairs = index[at : at + width]
        padded = np.concatenate([pairs, np.repeat(pairs[-1:], width - len(pairs), axis=0)])
        lanes = _pick(plan, padded)
        running = _run_sharded(world, store, params, gauge, lanes, np.max(lanes.ticks))
        if waiting is not None:
            yield waiting
        waiting = pairs, running
    if waiting is not None:
        yield waiting


def _check(instance: Any, requests: Sequence[Request], clones: Any) -> None:
    if not is_whole(clones) or not 1 <= int(clones) <= _MOST_CLONES:
        raise InvalidRequest(f"`clones` must be a whole number from 1 to {_MOST_CLONES}, but is {clones!r}")
    for request in requests:
        readout, ticks = request.readout, request.protocol.ticks
        if ticks > instance.world.horizon:
            raise InvalidRequest(f"a protocol may last {instance.world.horizon} ticks, but lasts {ticks}")
        if readout and not 0 <= readout.port < len(instance.sensor_ports):
            raise InvalidRequest(
                f"a readout's port must be from 0 to {len(instance.sensor_ports) - 1}, but is {readout.port}"
            )
        if readout and not (0 <= readout.start <= readout.stop - 2 and readout.stop <= ticks):
            raise InvalidRequest(
                f"a window must hold at least 2 ticks within 0..{ticks}, "
                f"but is [{readout.start}, {readout.stop})"
            )


def _refuse_divergence(instance: Any, pairs: np.ndarray, bad: Any) -> None:
    first = np.asarray(bad)[: len(pairs)]
    if np.any(first != _NEVER):
        lane = int(np.argmin(first))
        raise Diverged(
            f"world {instance.world.id}, seed {instance.seed}: "
            f"clone {pairs[lane, 1]} of request {pairs[lane, 0]} was no longer finite at tick {first[lane]}"
        )


def measure(
    instance: Any,
    requests: Sequence[Request],
    clones: int,
    *,
    noise: bool = True,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Statistics:
    """One statistic of each request on fresh clones, accumulated inside the loop: no trajectory is stored.

    Args:
        instance: the instance, god-mode side.
        requests: each with a readout.
        clones: clones of each request, numbered from 0.
        noise: whether readings carry sensor noise.
        dtype: of the simulation; float64 needs an x64 context around the call.
        progress: called with the number of clones that each chunk finished.

    Raises:
        InvalidRequest: before anything runs.
        Diverged: if a trajectory leaves the finite numbers; names world, seed, clone and tick.
    """
    _check(instance, requests, clones)
    if any(request.readout is None for request in requests):
        raise InvalidRequest("`measure` needs a readout in every request")
    source = instance if noise else dataclasses.replace(instance, gauge=instance.gauge.noise_free())
    values = np.empty((len(requests), clones), dtype)
    branch = np.empty((len(requests), clones), np.int32)
    for pairs, (value, label, bad, _) in _chunks(source, requests, clones, False, dtype):
        _refuse_divergence(instance, pairs, bad)
        values[pairs[:, 0], pairs[:, 1]] = np.asarray(value)[: len(pairs)]
        branch[pairs[:, 0], pairs[:, 1]] = np.asarray(label)[: len(pairs)]
        if progress:
            progress(len(pairs))
    return Statistics(values, branch)


def simulate(
    instance: Any,
    requests: Sequence[Request],
    clones: int,
    *,
    noise: bool = True,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Readings:
    """All readings of each request on fresh clones: for exploration, fits and plots.

    Arguments and errors are those of `measure`; readouts are ignored, and `Readings.branch` is that of the
    last tick.
    """
    _check(instance, requests, clones)
    source = instance if noise else dataclasses.replace(instance, gauge=instance.gauge.noise_free())
    whole = [dataclasses.replace(request, readout=None) for request in requests]
    longest = max((request.protocol.ticks for request in requests), default=0)
    values = np.full((len(requests), clones, longest, len(instance.world.sensors)), np.nan, dtype)
    branch = np.empty((len(requests), clones), np.int32)
    length = np.array([request.protocol.ticks for request in requests])
    for pairs, (_, label, bad, kept) in _chunks(source, whole, clones, True, dtype):
        _refuse_divergence(instance, pairs, bad)
        rows = np.moveaxis(np.asarray(kept)[:longest, : len(pairs)], 0, 1)
        beyond = np.arange(longest) >= length[pairs[:, 0], None]
        values[pairs[:, 0], pairs[:, 1]] = np.where(beyond[..., None], np.nan, rows)
        branch[pairs[:, 0], pairs[:, 1]] = np.asarray(label)[: len(pairs)]
        if progress:
            progress(len(pairs))
    return Readings(values, branch)
