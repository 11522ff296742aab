"""Ensembles: the only place that batches, chunks and shards.

A *lane* is one clone under one protocol. Lanes are run in chunks of a fixed, padded width (`World.lanes` a device), so that
one compiled program serves a family whatever the seed, the protocol, the window, the channel or the number of clones, and
clone i's numbers never depend on who ran beside it. Several devices share a chunk, each with the same local program.
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
from simworlds.integrate import advance
from simworlds.keys import Noise, Words, bits, clone_words, normal_from, role_words
from simworlds.ports import Gauge
from simworlds.protocol import Protocol, is_whole

Progress = Callable[[int], None]
_NEVER = np.int32(2**31 - 1)


class Readout(NamedTuple):
    """What is measured: a sensor port, a window ``[start, stop)`` in ticks, and whether the sd is asked, not the mean."""

    port: int
    start: int
    stop: int
    sd: bool


@dataclasses.dataclass(frozen=True)
class Request:
    """A protocol to run on fresh clones, under a key purpose such as ``("truth", 3)``.

    `readout` is needed by `measure` and ignored by `simulate`.
    """

    protocol: Protocol
    purpose: tuple[int | str, ...]
    readout: Readout | None = None


class Statistics(NamedTuple):
    """What `measure` returns: arrays ``[request, clone]``."""

    values: np.ndarray
    branch: np.ndarray


class Readings(NamedTuple):
    """What `simulate` returns: values ``[request, clone, tick, sensor]``, NaN behind a protocol's end; branch at its end."""

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

    state: Any
    window: _Welford
    branch: Any
    bad: Any  # first tick whose readings were not finite


def _start(world: Any, params: Any, lane: _Lanes, dtype: Any) -> _Clone:
    noise = Noise(clone_words(lane.initial, lane.clone), jnp.uint32(0))
    state = jax.tree.map(lambda x: jnp.asarray(x, dtype), world.initial(params, noise))
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
    branch = jnp.where(tick + 1 == lane.stop, world.branch(state, params), clone.branch)
    fine = jnp.all(jnp.isfinite(values)) | ~running
    bad = jnp.where(fine, clone.bad, jnp.minimum(clone.bad, tick))
    return _Clone(state, window, branch, bad), values


def _finish(lane: _Lanes, clone: _Clone) -> tuple[Any, Any, Any]:
    window = clone.window
    spread = jnp.sqrt(window.square / jnp.maximum(window.count, 1))
    return jnp.where(lane.sd, spread, window.mean), clone.branch, clone.bad


_LANE_AXES = _Lanes(1, 0, 0, Words(0, 0), Words(0, 0), Words(0, 0), 0, 0, 0, 0)


def _run(world: Any, store: bool, params: Any, gauge: Gauge, lanes: _Lanes, last: Any) -> Any:
    """Run a chunk of lanes on one device for `last` ticks; with `store`, keep readings ``[tick, lane, sensor]``."""
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


def _build(instance: Any, requests: Sequence[Request], pairs: np.ndarray, dtype: Any) -> tuple[_Lanes, int]:
    """The lanes of one chunk from pairs ``[lane, (request, clone)]``, and the ticks that the longest one needs."""
    world = instance.world
    levels = np.zeros((world.horizon, len(pairs), len(world.drives)), dtype)
    rows: dict[str, list[Any]] = {name: [] for name in ("ticks", "port", "start", "stop", "sd")}
    words: dict[str, list[Words]] = {"initial": [], "process": [], "sensor": []}
    made = {int(r): instance.levels(requests[r].protocol) for r in np.unique(pairs[:, 0])}
    roles = {
        (r, role): role_words(world.id, instance.seed, role, *requests[r].purpose)
        for r in made
        for role in words
    }
    for lane, r in enumerate(pairs[:, 0].tolist()):
        request, ticks = requests[r], len(made[r])
        levels[:ticks, lane] = made[r]
        levels[ticks:, lane] = made[r][-1]
        readout = request.readout or Readout(0, 0, ticks, sd=False)
        for name, value in zip(
            rows, (ticks, readout.port, readout.start, readout.stop, readout.sd), strict=True
        ):
            rows[name].append(value)
        for role in words:
            words[role].append(roles[r, role])
    keys = {
        role: Words(
            np.array([w.high for w in column], np.uint32), np.array([w.low for w in column], np.uint32)
        )
        for role, column in words.items()
    }
    numbers = {k: np.array(v, bool if k == "sd" else np.int32) for k, v in rows.items()}
    return _Lanes(levels=levels, clone=pairs[:, 1].astype(np.uint32), **keys, **numbers), max(rows["ticks"])


def _chunks(
    instance: Any, requests: Sequence[Request], clones: int, store: bool, dtype: Any
) -> Iterator[Any]:
    """Dispatch chunk after chunk and yield (pairs, results); one chunk is in flight while another is built."""
    world = instance.world
    width = world.lanes * len(jax.devices())
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), instance.params)
    gauge = instance.gauge._replace(
        **{k: jnp.asarray(getattr(instance.gauge, k), dtype) for k in ("offset", "gain", "sigma")}
    )
    index = np.stack(np.divmod(np.arange(len(requests) * clones), clones), axis=1)
    # Lanes of like length share a chunk: a chunk lasts as long as its longest protocol.
    length = np.array([request.protocol.ticks for request in requests])
    index = index[np.argsort(-length[index[:, 0]], kind="stable")]
    waiting = None
    for at in range(0, len(index), width):
        pairs = index[at : at + width]
        padded = np.concatenate([pairs, np.repeat(pairs[-1:], width - len(pairs), axis=0)])
        lanes, last = _build(instance, requests, padded, dtype)
        running = _run_sharded(world, store, params, gauge, lanes, jnp.int32(last))
        if waiting is not None:
            yield waiting
        waiting = pairs, running
    if waiting is not None:
        yield waiting


def _check(instance: Any, requests: Sequence[Request], clones: Any) -> None:
    if not is_whole(clones) or not 1 <= int(clones) <= 2**31:
        raise InvalidRequest(f"`clones` must be a whole number from 1 to 2^31, but is {clones!r}")
    for request in requests:
        readout, ticks = request.readout, request.protocol.ticks
        if ticks > instance.world.horizon:
            raise InvalidRequest(f"a protocol may last {instance.world.horizon} ticks, but lasts {ticks}")
        if readout and not (0 <= readout.start <= readout.stop - 2 and readout.stop <= ticks):
            raise InvalidRequest(
                f"a window must hold at least 2 ticks within 0..{ticks}, but is [{readout.start}, {readout.stop})"
            )


def _refuse_divergence(instance: Any, pairs: np.ndarray, bad: Any) -> None:
    first = np.asarray(bad)[: len(pairs)]
    if np.any(first != _NEVER):
        lane = int(np.argmin(first))
        raise Diverged(
            f"world {instance.world.id}, seed {instance.seed}: clone {pairs[lane, 1]} of request {pairs[lane, 0]} "
            f"was no longer finite at tick {first[lane]}"
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

    Arguments and errors are those of `measure`; readouts are ignored, and `Readings.branch` is that of the last tick.
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
