"""Ensembles of exact runs: the direct method on lanes that refill from a queue of runs.

Run i of an ensemble draws from the key that folding i into the ensemble's key gives, and event k of it takes
the words at ``(k, 0)`` and ``(k, 1)``: the numbers of `simworlds.exact`, one run after another, to the last
bit. They depend on i alone, not on how many runs there are, on lanes, on chunks, or on devices.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from simworlds.devices import on_each
from simworlds.errors import InvalidRequest
from simworlds.exact import (
    Outcome,
    Propensities,
    Reactions,
    Stop,
    Walk,
    begin,
    event,
    finished,
    lasted,
    never,
    of_arrays,
    of_world,
)
from simworlds.keys import Words, clone_words
from simworlds.protocol import is_whole
from simworlds.refill import refill
from simworlds.world import JumpWorld

# Runs side by side on a device: on a CPU, few enough that what they carry stays in the innermost cache.
_LANES = {"cpu": 128}
_LANES_ELSEWHERE = 4096
_CHUNK = 64  # runs of a chunk, for each lane: its last runs leave lanes idle
_STEPS = 64  # events between two looks at the queue
_STEPS_TO_A_READING = 16  # likewise, where runs wait for a look at each reading
_MOST_RUNS = 2**31 - 1


class Run(NamedTuple):
    """What a run carries from event to event.

    Attributes:
        walk: since the last reading.
        stream: the key of the run's words.
        row: the number of the next reading.
        start: the time of the last reading, in which `walk` began.
        lasts: how long the walk lasts.
        before: reactions before the walk.
    """

    walk: Walk
    stream: Words
    row: Any
    start: Any
    lasts: Any
    before: Any


class Process(abc.ABC):
    """A jump law with its start and its readings, for ensembles.

    Programs are compiled once a process, so one that equals another must be the same; what changes between
    ensembles is in `data`, a tree of arrays that each method receives.
    """

    @property
    @abc.abstractmethod
    def wakes(self) -> bool:
        """Whether a run in which no reaction is possible may go on after a reading."""

    @abc.abstractmethod
    def reactions(self, data: Any) -> Reactions:
        """The law."""

    @abc.abstractmethod
    def begin(self, data: Any, time: Any) -> tuple[tuple[Any, ...], Any]:
        """Counts at the start, and what walks carry along."""

    @abc.abstractmethod
    def arrive(self, data: Any, counts: tuple[Any, ...], armed: Any, time: Any) -> tuple[Any, Any]:
        """Counts and what walks carry along, after what the time of a reading does to them."""

    @abc.abstractmethod
    def read(self, reactions: Reactions, counts: tuple[Any, ...], time: Any, run: Run) -> Any:
        """A reading: a tree of scalars or small arrays."""


def run_process(
    process: Process,
    data: Any,
    role: Words,
    grid: np.ndarray,
    runs: int,
    *,
    lanes: int | None = None,
    steps: int | None = None,
) -> Any:
    """Exact runs of a process, on all devices.

    Args:
        process: the law.
        data: what its methods receive.
        role: the key under which run i has key ``clone_words(role, i)``.
        grid: the time of the start, then those of readings, increasing, in the type that time has in runs.
        runs: how many.
        lanes: runs side by side on a device; no result depends on it.
        steps: events between two looks at the queue; no result depends on it.

    Returns:
        The readings, NumPy arrays ``[run, time, ...]``.

    Raises:
        InvalidRequest: if the number of runs is no whole number from 1.
    """
    if not is_whole(runs) or not 1 <= int(runs) <= _MOST_RUNS:
        raise InvalidRequest(f"`runs` must be a whole number from 1 to {_MOST_RUNS}, but is {runs!r}")
    devices = jax.local_device_count()
    width = _LANES.get(jax.default_backend(), _LANES_ELSEWHERE) if lanes is None else lanes
    if steps is None:
        steps = _STEPS if len(grid) == 2 else _STEPS_TO_A_READING
    waiting = []
    for first, counts in _rounds(int(runs), width * _CHUNK, devices):
        chunks = _run_chunks(process, width, steps, data, role, grid, first, counts)
        waiting.append((chunks, counts))
    parts = [
        jax.tree.map(lambda x, k=k, n=n: np.asarray(x)[k, :n], chunks)
        for chunks, counts in waiting
        for k, n in enumerate(counts)
    ]
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def _rounds(runs: int, room: int, devices: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """First run and number of runs of each device's chunk, round after round, as even as can be."""
    rounds = -(-runs // (room * devices))
    edges = (np.arange(rounds * devices + 1) * runs // (rounds * devices)).reshape(-1)
    for k in range(0, rounds * devices, devices):
        at = edges[k : k + devices + 1]
        yield at[:-1].astype(np.uint32), np.diff(at).astype(np.int32)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _run_chunks(
    process: Process, lanes: int, steps: int, data: Any, role: Words, grid: Any, first: Any, counts: Any
) -> Any:
    """Readings ``[device, run, time, ...]`` of a chunk a device."""

    def local(whole: Any, share: Any) -> Any:
        return _run_chunk(process, lanes, steps, *whole, *share)

    return on_each(local, (data, role, grid), (first, counts))


def _run_chunk(
    process: Process, lanes: int, steps: int, data: Any, role: Words, grid: Any, first: Any, count: Any
) -> Any:
    """Readings ``[run, time, ...]`` of a chunk of runs, for as many as there is room."""
    reactions, rows = process.reactions(data), len(grid) - 1

    def begin_run(number: Any) -> Run:
        stream = clone_words(role, first + number)
        counts, armed = process.begin(data, grid[0])
        walk = begin(reactions, counts, armed, stream, jnp.int32(0))
        return Run(walk, stream, jnp.int32(0), grid[0], grid[1] - grid[0], jnp.int32(0))

    def step(run: Run) -> Run:
        return run._replace(walk=event(reactions, run.walk, run.stream, run.start, run.lasts))

    def due(run: Run) -> Any:
        return run.walk.over

    def arrived(run: Run) -> tuple[Any, Any, Any]:
        time = grid[run.row + 1]
        return *process.arrive(data, run.walk.counts, run.walk.armed, time), time

    def result(run: Run) -> Any:
        counts, _, time = arrived(run)
        return process.read(reactions, counts, time, run)

    def resume(run: Run) -> Run:
        counts, armed, time = arrived(run)
        row = jnp.minimum(run.row + 1, rows - 1)
        # The event that came too late has used up its words.
        walk = begin(reactions, counts, armed, run.stream, run.walk.first + run.walk.events + 1)
        lasts = grid[row + 1] - grid[row]
        onward = Run(walk, run.stream, row, time, lasts, run.before + run.walk.events)
        # What is given up, has its outcome, or can never react again stays as it is.
        still = ~finished(reactions, run.walk)
        if not process.wakes:
            still = still | (lasted(reactions, run.walk, run.lasts) < run.lasts)
        return jax.tree.map(partial(jnp.where, still), run._replace(row=row), onward)

    return refill(
        begin_run,
        step,
        due,
        result,
        count,
        lanes=lanes,
        steps=steps,
        room=lanes * _CHUNK,
        rows=rows,
        resume=resume,
    )


@dataclasses.dataclass(frozen=True)
class _Outcomes(Process):
    """A law without timed events, read as an `Outcome`; its data: counts at the start, and `law`'s values."""

    law: Callable[..., Reactions]
    fixed: tuple[Any, ...]

    @property
    def wakes(self) -> bool:
        return False

    def reactions(self, data: Any) -> Reactions:
        return self.law(*self.fixed, *data[1])

    def begin(self, data: Any, time: Any) -> tuple[tuple[Any, ...], Any]:
        del time
        return data[0], ()

    def arrive(self, data: Any, counts: tuple[Any, ...], armed: Any, time: Any) -> tuple[Any, Any]:
        del data, time
        return counts, armed

    def read(self, reactions: Reactions, counts: tuple[Any, ...], time: Any, run: Run) -> Outcome:
        del time
        past = run.start + lasted(reactions, run.walk, run.lasts)
        events = run.before + run.walk.events
        return Outcome(jnp.stack(counts), past, events, finished(reactions, run.walk))


def _outcomes(process: Process, counts: Any, values: Any, key: Any, until: Any, runs: int) -> Outcome:
    times = np.asarray(until, np.float64)
    grid = np.append(0.0, times)
    if times.ndim > 1 or not np.all(np.diff(grid) > 0):
        raise InvalidRequest(f"`until` must be a time above 0, or times that increase, but is {until!r}")
    words = jax.random.key_data(key)
    data = jax.tree.map(jnp.asarray, (tuple(counts), values))
    role = Words(words[0], words[1])
    ends = run_process(process, data, role, grid.astype(data[0][0].dtype), runs)
    return ends if times.ndim else jax.tree.map(lambda x: x[:, 0], ends)


def ssa_runs(
    law: JumpWorld,
    params: Any,
    state: Any,
    drive: Any,
    runs: int,
    *,
    key: PRNGKeyArray,
    until: Any = np.inf,
    stop: Stop = never,
    max_events: int = 1_000_000,
) -> Outcome:
    """Runs of a world's reactions under a constant drive: run i is that of `simworlds.exact.ssa`.

    Args:
        law: the family.
        params: see `simworlds.exact.ssa`, as for the other arguments.
        state: the state at the start, the same for all runs.
        drive: physical values.
        runs: how many.
        key: a typed threefry key; run i takes ``jax.random.fold_in(key, i)``.
        until: the time at which runs end, or increasing times at which to read them, of which the last ends
            them. A run that has its outcome before a reading is read as it ended.
        stop: from counts ``[species]`` to whether the run ends there; one function, for each new one is
            compiled anew.
        max_events: reactions between two readings after which a run ends unfinished.

    Returns:
        NumPy arrays with a first axis ``[run]``, or ``[run, time]`` where `until` is a list of times.

    Raises:
        InvalidRequest: if `until` does not increase from above 0, or `runs` is no whole number from 1.
    """
    process = _Outcomes(of_world, (law, stop, max_events))
    return _outcomes(process, state.n, (params, state, drive), key, until, runs)


def ssa_network_runs(
    propensities: Propensities,
    changes: Shaped[Array | np.ndarray, "reaction species"],
    counts: Float[Array | np.ndarray, "species"],
    runs: int,
    *,
    key: PRNGKeyArray,
    until: Any = np.inf,
    stop: Stop = never,
    max_events: int = 1_000_000,
) -> Outcome:
    """Runs of a reaction network given as arrays: run i is that of `simworlds.exact.ssa_network`.

    Arguments, results and errors are those of `ssa_runs`, and the law's those of `ssa_network`.
    """
    return _outcomes(
        _Outcomes(of_arrays, (propensities, stop, max_events)), counts, (changes,), key, until, runs
    )
