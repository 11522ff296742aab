"""Adaptive ensembles for spiky laws: each clone takes the steps that its own trajectory asks for.

The fixed steps of `simworlds.ensemble` are as short as the steepest spike needs, all the time. Here a lane
makes steps of unlike length by the embedded pair of Tsitouras (2011, doi:10.1016/j.camwa.2011.06.002), fifth
order with an error estimate of fourth, and a proportional-integral controller (Hairer & Wanner 1996,
doi:10.1007/978-3-642-05221-7, section IV.2). Lanes do not wait for each other: one whose clone has come to
the end of its protocol takes the next clone (`simworlds.refill`).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from simworlds.devices import on_each
from simworlds.ensemble import Askable, Progress, Request, Statistics, check_run, checked, plan_of
from simworlds.errors import Diverged, InvalidRequest, UnsupportedLaw
from simworlds.integrate import begin
from simworlds.integrate.tsitouras import (
    MOST_ATTEMPTS,
    Status,
    Tolerance,
    Walk,
    attempt,
    begin_walk,
    choose,
    next_tick,
)
from simworlds.keys import Noise, Words, bits, clone_words, normal_from
from simworlds.lanes import Lanes, Welford, in_turn
from simworlds.ports import Gauge
from simworlds.protocol import is_number, shown
from simworlds.refill import refill
from simworlds.world import OdeWorld

LANES = 256  # clones that advance side by side on a device
ROOM = 8192  # clones that a device takes at once
_ACCELERATOR = 64  # times as many of both on an accelerator
PROTOCOLS = 128  # requests that a device takes at once
ATTEMPTS = 4  # attempts of a step between two looks for a tick's end
LOOKS = 16  # such looks between two looks at the queue


class _Plan(NamedTuple):
    """What the clones of a request share: arrays ``[request, ...]``."""

    lanes: Lanes
    port: Any
    sd: Any


class _Task(NamedTuple):
    """What one clone of one request is to do: scalars."""

    request: Any
    ticks: Any
    sensor: Words
    port: Any
    start: Any
    stop: Any
    sd: Any


_REASONS = {
    Status.NOT_FINITE: "was no longer finite at",
    Status.TOO_SHORT: "needed steps too short for its dtype in",
    Status.TOO_MANY: f"needed more than {MOST_ATTEMPTS} steps in",
}


class _Job(NamedTuple):
    """What one clone of one request carries from step to step."""

    task: _Task
    drive: Any
    walk: Walk
    tick: Any
    window: Welford
    branch: Any


def _picked(values: Sequence[Any], index: Any) -> Any:
    """One of some scalars by a traced index, without a gather."""
    found = values[0]
    for k, value in enumerate(values[1:], 1):
        found = jnp.where(index == k, value, found)
    return found


def _reading(gauge: Gauge, means: Sequence[Any], task: _Task, tick: Any) -> Any:
    """The reading of the task's port: the one that `simworlds.ensemble` would give for these means."""
    ports = range(len(means))
    raw = _picked(means, _picked([gauge.order[k] for k in ports], task.port))
    offset, gain, sigma = (
        _picked([column[k] for k in ports], task.port) for column in (gauge.offset, gauge.gain, gauge.sigma)
    )
    word = bits(task.sensor, tick.astype(jnp.uint32), task.port.astype(jnp.uint32))
    return offset + gain * raw + sigma * normal_from(word, offset.dtype)


def _tick_end(world: Any, params: Any, gauge: Gauge, drives: Any, job: _Job) -> _Job:
    """Where a job stands at a tick's end: take the reading, wrap the angles, switch the drives."""
    task, walk = job.task, job.walk
    at_end = (walk.left <= 0) & (walk.status == Status.RUNNING) & (job.tick < task.ticks)
    counted = at_end & (job.tick >= task.start) & (job.tick < task.stop)
    window = job.window.add((_reading(gauge, walk.means, task, job.tick),), counted)
    tick = job.tick + 1
    state = world.wrap(walk.state)
    branch = jnp.where(at_end & (tick == task.stop), world.branch(state, params), job.branch)
    later = jnp.minimum(tick, task.ticks - 1)
    drive = jax.tree.map(lambda table: table[task.request, later], drives)
    fresh = next_tick(world, params, drive, state, walk)
    fresh = fresh._replace(left=jnp.where(tick < task.ticks, fresh.left, 0))  # behind the end nothing moves
    walk, drive = choose(at_end, (fresh, drive), (walk, job.drive))
    return _Job(task, drive, walk, job.tick + at_end, window, branch)


def _begin(
    world: Any, params: Any, plan: _Plan, drives: Any, requests: Any, clones: Any, number: Any
) -> _Job:
    request, clone = requests[number], clones[number]
    mine = jax.tree.map(lambda column: column[request], plan.lanes._replace(levels=()))
    noise = Noise(clone_words(mine.initial, clone), jnp.uint32(0))
    dtype = mine.nudge.dtype
    state = begin(world, params, noise, dtype, mine.nudge)
    drive = jax.tree.map(lambda table: table[request, 0], drives)
    none = jnp.int32(0)
    sensor, port, sd = clone_words(mine.sensor, clone), plan.port[request], plan.sd[request]
    task = _Task(request, mine.ticks, sensor, port, mine.start, mine.stop, sd)
    return _Job(task, drive, begin_walk(world, params, drive, state), none, Welford.of(1, dtype), none)


def _result(job: _Job) -> tuple[Any, ...]:
    value = jnp.where(job.task.sd, job.window.sd()[0], job.window.mean[0])
    return value, job.branch, job.walk.status, job.tick


class _Chunk(NamedTuple):
    """Clones to run: their requests and numbers ``[device, room]``, and how many there are ``[device]``."""

    requests: Any
    clones: Any
    jobs: Any


@partial(jax.jit, static_argnums=(0, 1))
def _run(
    world: Any, lanes: int, params: Any, gauge: Gauge, tolerance: Tolerance, plan: _Plan, chunk: _Chunk
) -> Any:
    """Run a chunk, a queue on each device: values, branches, statuses and ticks ``[device, room]``."""

    def local(whole: Any, chunk: _Chunk) -> Any:
        params, gauge, tolerance, plan = whole
        # A table of physical values: in the loop, a gather would keep the map from being made in vectors.
        drives = world.physical(jnp.moveaxis(plan.lanes.levels, -1, 0))

        def step(job: _Job) -> _Job:
            def again(_: Any, walk: Walk) -> Walk:
                return attempt(world, params, tolerance, job.drive, walk)

            walk = jax.lax.fori_loop(0, ATTEMPTS, again, job.walk)
            return _tick_end(world, params, gauge, drives, job._replace(walk=walk))

        return refill(
            partial(_begin, world, params, plan, drives, chunk.requests, chunk.clones),
            step,
            lambda job: (job.tick >= job.task.ticks) | (job.walk.status != Status.RUNNING),
            _result,
            chunk.jobs,
            lanes=lanes,
            steps=LOOKS,
            room=len(chunk.requests),
        )

    return on_each(local, (params, gauge, tolerance, plan), chunk)


class _Batch(NamedTuple):
    """What a chunk serves ``[device, room]``: requests, clones, which are no padding, and what came of it."""

    request: np.ndarray
    clone: np.ndarray
    used: np.ndarray
    found: Any


def _batches(
    instance: Any, requests: Sequence[Request], clones: int, first: int, noise: bool, tolerance: Tolerance
) -> Iterator[_Batch]:
    """Start chunk after chunk."""
    devices, more = jax.local_device_count(), 1 if jax.default_backend() == "cpu" else _ACCELERATOR
    lanes, room = LANES * more, ROOM * more
    # Long protocols go first, so that no lane is left with a long one when a queue runs out.
    order = sorted(range(len(requests)), key=lambda k: -requests[k].protocol.ticks)
    for begin_at in range(0, len(order), PROTOCOLS):
        group = np.array(order[begin_at : begin_at + PROTOCOLS])
        padded = [requests[k] for k in np.pad(group, (0, PROTOCOLS - len(group)), mode="edge")]
        made = plan_of(instance, padded, noise, tolerance.rtol.dtype)
        port, _, _, sd = np.array([request.readout for request in padded], np.int32).T
        plan = _Plan(made.lanes, port, sd.astype(bool))
        total = len(group) * clones
        for at in range(0, total, devices * room):
            number = at + np.arange(devices * room)
            # Each device takes one clone in so many, so that queues are alike.
            row, clone, used = (
                x.reshape(room, devices).T
                for x in (*np.divmod(np.minimum(number, total - 1), clones), number < total)
            )
            jobs = np.sum(used, axis=1, dtype=np.int32)
            chunk = _Chunk(row.astype(np.int32), (clone + first).astype(np.uint32), jobs)
            found = _run(instance.world, lanes, made.params, made.gauge, tolerance, plan, chunk)
            yield _Batch(group[row], clone, used, found)


def _check_tolerance(name: str, value: Any, least: float) -> None:
    if not is_number(value) or not least <= float(value) <= 0.1:
        raise InvalidRequest(f"`{name}` must be a number from {least:.1e} to 0.1, but is {shown(value)}")


def measure_adaptive(
    instance: Any,
    asked: Sequence[Askable],
    clones: int,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    first: int = 0,
    noise: bool = True,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Statistics:
    """One statistic of each contract on fresh clones, as `simworlds.measure` gives it, by adaptive steps.

    Clones, initial states, drives, gauges, sensor noise, windows and branches are those of `measure`; only
    the integration differs. A step never crosses a tick's end, where drives switch, and its length carries
    over to the next tick. Tick means are integrated along with the state.

    A step is accepted if the root mean square, over all numbers x of the state and all sensors, of the error
    estimate over its tolerance is at most 1. The tolerance is ``atol + rtol |x|`` for a number of the state,
    in its own unit, and `rtol` times the nominal range for a step's share of a sensor's tick mean. Errors of
    steps add up: at the defaults, statistics of the catalogue's families are within 1e-4 of nominal ranges. A
    clone's steps depend on that clone alone.

    Args:
        instance: the instance of a family of ordinary differential equations.
        asked: contracts, or requests with a readout.
        clones: clones of each, numbered from `first`.
        rtol: relative tolerance, at least eight roundings of the dtype; float32 gains little below 1e-6.
        atol: absolute tolerance of the state.
        first: number of the first clone.
        noise: whether readings carry sensor noise.
        dtype: of the simulation; float64 needs an x64 context around the call.
        progress: called with the number of clones that each chunk finished.

    Raises:
        UnsupportedLaw: if the law is not an ordinary differential equation.
        InvalidRequest: before anything runs.
        Diverged: if a trajectory leaves the finite numbers or needs steps too short or too many; names world,
            seed, clone, request and tick.
    """
    world = instance.world
    if not isinstance(world, OdeWorld):
        raise UnsupportedLaw(
            f"world {world.id} is no ordinary differential equation; `measure` runs every world"
        )
    check_run(clones, first, dtype)
    requests = checked(instance, asked)
    _check_tolerance("rtol", rtol, 8 * float(np.finfo(dtype).eps))
    _check_tolerance("atol", atol, float(np.finfo(dtype).tiny))
    tolerance = Tolerance(np.asarray(rtol, dtype), np.asarray(atol, dtype))
    values = np.empty((len(requests), clones), dtype)
    branch = np.empty((len(requests), clones), np.int32)
    for batch in in_turn(_batches(instance, requests, clones, first, noise, tolerance)):
        value, label, status, tick = (np.asarray(x)[batch.used] for x in batch.found)
        request, clone = batch.request[batch.used], batch.clone[batch.used]
        if np.any(status != Status.RUNNING):
            k = int(np.argmax(status != Status.RUNNING))
            raise Diverged(
                f"world {world.id}, seed {instance.seed}: clone {clone[k] + first} of request {request[k]} "
                f"{_REASONS[Status(status[k])]} tick {tick[k]}"
            )
        values[request, clone], branch[request, clone] = value, label
        if progress:
            progress(len(request))
    return Statistics(values, branch)
