"""Reaction networks given as data: exact simulation and tau-leaping of any of them.

A network is plain data, in the form in which the Discrete Stochastic Model Test Suite states its processes
(Evans, Gillespie, Wilkinson 2008, doi:10.1093/bioinformatics/btm566):

    {"species": {"P": 100, "P2": 0}, "parameters": {"k1": 0.001, "k2": 0.01},
     "reactions": [{"name": "Dimerisation", "propensity": "k1*P*(P-1)/2", "change": {"P": -2, "P2": 1}},
                   {"name": "Disassociation", "propensity": "k2*P2", "change": {"P": 2, "P2": -1}}],
     "rules": {"y": "P + 2*P2"}, "events": [{"trigger": "t >= 25", "assign": {"P": 100, "P2": 0}}],
     "boundary": []}

Rules define names by expressions of species, parameters and earlier rules. An event assigns when its trigger
turns from false to true; a trigger may compare the time ``t`` with constants, and compare species. What it
triggers by time is exact: runs stop there. Boundary species are not changed by reactions.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from simworlds.devices import on_each
from simworlds.errors import InvalidNetwork, InvalidRequest
from simworlds.exact import Reactions, finished
from simworlds.exact_ensemble import Process, Run, run_process
from simworlds.expressions import Expression
from simworlds.integrate import TrapezoidLeap
from simworlds.keys import Noise, Words, clone_words, role_words
from simworlds.protocol import is_number

_FIELDS = ("species", "parameters", "reactions", "rules", "events", "boundary")
_CHUNK = 1024  # runs that leap together


class Event(NamedTuple):
    """Assignments, by species, made when a trigger turns true."""

    trigger: Expression
    assign: dict[str, Expression]


class Network:
    """A checked reaction network; see the module for its form.

    Args:
        data: the network as plain data. Further fields are ignored.

    Raises:
        InvalidNetwork: with all faults listed.
    """

    def __init__(self, data: Mapping[str, Any]):
        missing = [name for name in ("species", "reactions") if not data.get(name)]
        if missing:
            raise InvalidNetwork(
                f"a network needs {' and '.join(missing)}; its fields are {', '.join(_FIELDS)}"
            )
        self.species = {str(k): _number(v, f"species {k}") for k, v in data["species"].items()}
        self.parameters = {
            str(k): _number(v, f"parameter {k}") for k, v in data.get("parameters", {}).items()
        }
        boundary = {str(s) for s in data.get("boundary") or ()}
        self.rules = {k: Expression(v, f"rule {k}") for k, v in (data.get("rules") or {}).items()}
        names = [str(r.get("name", k)) for k, r in enumerate(data["reactions"])]
        self.rates = [
            Expression(r.get("propensity", ""), f"propensity of {n}")
            for n, r in zip(names, data["reactions"], strict=True)
        ]
        changes = [dict(r.get("change") or {}) for r in data["reactions"]]
        self.events = [_event(k, event) for k, event in enumerate(data.get("events") or ())]
        self._check(changes, names, boundary)
        self.changes = tuple(
            tuple(0 if s in boundary else int(change.get(s, 0)) for s in self.species) for change in changes
        )

    def _check(self, changes: list[dict[str, Any]], names: list[str], boundary: set[str]) -> None:
        faults = [f"boundary names no species {s!r}" for s in sorted(boundary - set(self.species))]
        known = {"t", *self.species, *self.parameters}
        for name, rule in self.rules.items():
            faults += _unknown(rule, known)
            known.add(name)
        for name, change, rate in zip(names, changes, self.rates, strict=True):
            faults += _unknown(rate, known - {"t"})
            faults += [
                f"the change of {name} names no species {s!r}" for s in change if s not in self.species
            ]
            faults += [
                f"the change of {name} is no whole number: {c!r}"
                for c in change.values()
                if not is_number(c) or c != int(c)
            ]
        for k, event in enumerate(self.events):
            faults += _unknown(event.trigger, known)
            for target, value in event.assign.items():
                faults += _unknown(value, known)
                if target not in self.species:
                    faults.append(f"event {k} assigns to no species {target!r}")
        if faults:
            raise InvalidNetwork(faults)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What runs report: species, then rules."""
        return (*self.species, *self.rules)

    @property
    def start(self) -> tuple[float, ...]:
        """The counts at time 0."""
        return tuple(self.species.values())

    @property
    def breakpoints(self) -> list[float]:
        """The times that triggers compare ``t`` with."""
        return sorted(set().union(*(e.trigger.thresholds("t", self.parameters) for e in self.events)))

    def values(self, counts: Sequence[Any], t: Any = 0.0) -> dict[str, Any]:
        """All names and what they stand for at some counts and time."""
        found = {"t": t, **self.parameters, **dict(zip(self.species, counts, strict=True))}
        for name, rule in self.rules.items():
            found[name] = rule(found)
        return found

    def propensities(self, counts: Sequence[Any]) -> tuple[Any, ...]:
        """The rate of each reaction, at least 0."""
        values, like = self.values(counts), counts[0]
        return tuple(jnp.maximum(jnp.broadcast_to(rate(values), jnp.shape(like)), 0) for rate in self.rates)

    def fired(self, counts: Sequence[Any], t: Any, armed: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
        """Counts after the events whose triggers turned true, and whether each trigger is false now.

        Args:
            counts: before the events.
            t: the time.
            armed: whether each trigger was false before.
        """
        order = list(self.species)
        now, waiting = tuple(counts), list(armed)
        for _ in self.events:  # what one assigns may trigger another
            values, after, fired = self.values(now, t), list(now), []
            for event, was_false in zip(self.events, waiting, strict=True):
                fired.append(was_false & jnp.asarray(event.trigger(values)))
                for target, value in event.assign.items():
                    i = order.index(target)
                    after[i] = jnp.where(fired[-1], value(values), after[i])
            now = tuple(after)
            values = self.values(now, t)
            waiting = [
                ~jnp.asarray(event.trigger(values)) | (was_false & ~this)
                for event, was_false, this in zip(self.events, waiting, fired, strict=True)
            ]
        return now, tuple(waiting)


def _number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidNetwork(f"{what} must be a number, but is {value!r}") from None
    if not np.isfinite(number):
        raise InvalidNetwork(f"{what} must be finite, but is {value!r}")
    return number


def _event(number: int, data: Mapping[str, Any]) -> Event:
    assign = {k: Expression(v, f"event {number}, {k}") for k, v in (data.get("assign") or {}).items()}
    return Event(Expression(data.get("trigger", ""), f"trigger of event {number}"), assign)


def _unknown(expression: Expression, known: set[str]) -> list[str]:
    return [
        f"{expression.where} names {name!r}, which is unknown" for name in sorted(expression.names - known)
    ]


class _Counts(NamedTuple):
    n: Any


class _Law:
    """A network in the form that tau-leaping takes, its time in units of `params`."""

    def __init__(self, network: Network):
        self.network, self.changes = network, network.changes

    def propensities(self, state: _Counts, drive: Any, params: Any) -> tuple[Any, ...]:
        del drive
        return tuple(params * rate for rate in self.network.propensities(state.n))

    def drift(self, state: _Counts, drive: Any, params: Any) -> _Counts:
        del drive, params
        return _Counts(tuple(jnp.zeros_like(x) for x in state.n))

    def landed(self, before: _Counts, after: _Counts, drive: Any, params: Any) -> _Counts:
        del before, drive, params
        return after


@dataclasses.dataclass(frozen=True)
class _Exact(Process):
    """A network for ensembles of exact runs; a reading: the outputs, and whether the run was not given up."""

    network: Network
    most: int

    @property
    def wakes(self) -> bool:
        return bool(self.network.events)

    def reactions(self, data: Any) -> Reactions:
        del data
        network = self.network
        settle = network.fired if network.events else None
        return Reactions(network.propensities, network.changes, settle, None, self.most)

    def begin(self, data: Any, time: Any) -> tuple[tuple[Any, ...], Any]:
        del data
        return _start(self.network, time)

    def arrive(self, data: Any, counts: tuple[Any, ...], armed: Any, time: Any) -> tuple[Any, Any]:
        del data
        return self.network.fired(counts, time, armed)

    def read(self, reactions: Reactions, counts: tuple[Any, ...], time: Any, run: Run) -> tuple[Any, Any]:
        return _outputs(self.network, counts, time), finished(reactions, run.walk)


def exact_runs(
    network: Network,
    times: Sequence[float] | np.ndarray,
    runs: int,
    *,
    name: str = "network",
    max_events: int = 10_000_000,
) -> Float[np.ndarray, "run time output"]:
    """Runs of a network by Gillespie's direct method, read at some times.

    Args:
        network: the network.
        times: at which to read, from 0, increasing; at the time of an event, its values are those after it.
        runs: how many.
        name: names the random numbers.
        max_events: reactions between two readings after which a run is given up.

    Raises:
        InvalidRequest: if the times do not increase from 0 or later, or a run was given up.
    """
    grid, kept = _grid(network, times)
    values = np.empty((runs, len(grid), len(network.outputs)))
    values[:, 0] = _first_row(network)
    if len(grid) > 1:
        process = _Exact(network, max_events)
        values[:, 1:], finished = run_process(process, (), _role(name), grid, runs)
        if not np.all(finished):
            raise InvalidRequest("a run had more reactions between two readings than `max_events` allows")
    return values[:, kept]


def leap_runs(
    network: Network,
    times: Sequence[float] | np.ndarray,
    runs: int,
    *,
    step: float = 0.1,
    name: str = "network",
) -> Float[np.ndarray, "run time output"]:
    """Runs of a network by tau-leaping of weak order two; see `exact_runs`.

    Args:
        network: the network.
        times: at which to read.
        runs: how many.
        step: the longest leap; leaps are as even as can be between readings.
        name: names the random numbers.
    """
    grid, kept = _grid(network, times)
    shortest = float(np.min(np.diff(grid), initial=np.inf))
    if not 0 < step < np.inf:
        raise InvalidRequest(f"`step` must be a positive number, but is {step!r}")
    leaps = max(1, int(np.ceil((shortest if np.isfinite(shortest) else 1.0) / step)))
    devices, waiting = jax.local_device_count(), []
    for first in range(0, runs, devices * _CHUNK):
        clones = first + np.arange(devices * _CHUNK, dtype=np.uint32).reshape(devices, _CHUNK)
        waiting.append(_leap_chunks(network, leaps, grid, _role(name), clones))
    rows = np.concatenate([part for chunks in waiting for part in np.asarray(chunks)])
    return rows[:runs, kept].astype(np.float64)


def _grid(network: Network, times: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Time 0, readings and the times of events before the last one, increasing, and where readings are."""
    wanted = np.asarray(times, np.float64)
    if wanted.ndim != 1 or not len(wanted) or wanted[0] < 0 or np.any(np.diff(wanted) <= 0):
        raise InvalidRequest("`times` must increase, from 0 or later")
    stops = [t for t in network.breakpoints if 0 < t < wanted[-1]]
    grid = np.unique(np.concatenate([[0.0], wanted, stops]))
    return grid.astype(np.float32), np.searchsorted(grid, wanted)


def _role(name: str) -> Words:
    return role_words("network", 0, "process", name)


def _start(network: Network, time: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Counts at the start, and whether each trigger is false: one that is true there does not fire."""
    counts = tuple(jnp.float32(x) for x in network.start)
    return counts, network.fired(counts, time, [jnp.asarray(False)] * len(network.events))[1]


@partial(jax.jit, static_argnums=0)
def _first_row(network: Network) -> Any:
    """The outputs ``[output]`` at time 0."""
    return _outputs(network, _start(network, 0.0)[0], 0.0)


@partial(jax.jit, static_argnums=(0, 1))
def _leap_chunks(network: Network, leaps: int, grid: Any, role: Words, clones: Any) -> Any:
    """Readings ``[device, run, grid, output]`` of a chunk of runs a device; `clones` is ``[device, run]``."""
    return on_each(partial(_leap_chunk, network, leaps), (grid, role), clones)


def _leap_chunk(network: Network, leaps: int, whole: tuple[Any, Words], clones: Any) -> Any:
    """Readings ``[run, grid, output]`` of runs by number, with so many leaps between two times."""
    grid, role = whole
    law, scheme = _Law(network), TrapezoidLeap(1.0, 1)

    def one(clone: Any) -> Any:
        stream = clone_words(role, clone)

        def stretch(run: Any, edges: Any) -> tuple[Any, Any]:
            start, end = edges
            span = (end - start) / leaps

            def leap(k: Any, run: Any) -> Any:
                counts, armed, used = run
                state = _Counts(counts)
                numbers = scheme.randoms(law, span, state, None, Noise(stream, used.astype(jnp.uint32)))
                counts = scheme.step(law, span, state, None, numbers).n
                return *network.fired(counts, start + (k + 1) * span, armed), used + 1

            counts, armed, used = jax.lax.fori_loop(0, leaps, leap, run)
            counts, armed = network.fired(counts, end, armed)
            return (counts, armed, used), _outputs(network, counts, end)

        first = (*_start(network, grid[0]), jnp.int32(0))
        rows = jax.lax.scan(stretch, first, (grid[:-1], grid[1:]))[1]
        return jnp.concatenate([_outputs(network, first[0], grid[0])[None], rows])

    return jax.vmap(one)(clones)


def _outputs(network: Network, counts: Any, t: Any) -> Any:
    values = network.values(counts, t)
    return jnp.stack([jnp.asarray(values[name], jnp.float32) for name in network.outputs])
