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

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from simworlds.errors import InvalidNetwork, InvalidRequest
from simworlds.exact import direct_method
from simworlds.expressions import Expression
from simworlds.integrate import TrapezoidLeap
from simworlds.keys import Noise, Words, clone_words, role_words
from simworlds.protocol import is_number

_FIELDS = ("species", "parameters", "reactions", "rules", "events", "boundary")
_CHUNK = 1024  # runs that advance together


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


class _Run(NamedTuple):
    counts: tuple[Any, ...]
    armed: tuple[Any, ...]  # whether each trigger is false
    used: Any  # numbers of the stream that are used up
    finished: Any


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

    def between(run: _Run, start: Any, end: Any, stream: Words) -> _Run:
        def settle(counts: Any, armed: Any, after: Any) -> Any:
            return network.fired(counts, start + after, armed)

        walk = direct_method(
            network.propensities,
            network.changes,
            run.counts,
            run.armed,
            stream,
            run.used,
            until=end - start,
            settle=settle if network.events else None,
            most=max_events,
        )
        return _Run(walk.counts, walk.armed, walk.used, run.finished & walk.finished)

    return _runs(network, times, runs, name, between)


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
    law = _Law(network)
    shortest = float(np.min(np.diff(_grid(network, times)), initial=np.inf))
    if not 0 < step < np.inf:
        raise InvalidRequest(f"`step` must be a positive number, but is {step!r}")
    leaps = max(1, int(np.ceil((shortest if np.isfinite(shortest) else 1.0) / step)))

    def between(run: _Run, start: Any, end: Any, stream: Words) -> _Run:
        span = (end - start) / leaps
        scheme = TrapezoidLeap(1.0, 1)

        def leap(k: Any, run: _Run) -> _Run:
            state = _Counts(run.counts)
            numbers = scheme.randoms(law, span, state, None, Noise(stream, run.used.astype(jnp.uint32)))
            counts = scheme.step(law, span, state, None, numbers).n
            counts, armed = network.fired(counts, start + (k + 1) * span, run.armed)
            return _Run(counts, armed, run.used + 1, run.finished)

        return jax.lax.fori_loop(0, leaps, leap, run)

    return _runs(network, times, runs, name, between)


def _grid(network: Network, times: Sequence[float] | np.ndarray) -> np.ndarray:
    """Readings and the times of events between them, increasing."""
    wanted = np.asarray(times, np.float64)
    if wanted.ndim != 1 or not len(wanted) or wanted[0] < 0 or np.any(np.diff(wanted) <= 0):
        raise InvalidRequest("`times` must increase, from 0 or later")
    stops = [t for t in network.breakpoints if 0 < t < wanted[-1]]
    return np.unique(np.concatenate([[0.0], wanted, stops]))


def _runs(
    network: Network, times: Sequence[float] | np.ndarray, runs: int, name: str, between: Any
) -> np.ndarray:
    grid = _grid(network, times)
    kept = np.searchsorted(grid, np.asarray(times, np.float64))
    role = role_words("network", 0, "process", name)
    devices = jax.devices()
    program = jax.jit(partial(_chunk, network, between))
    waiting = []
    for number, first in enumerate(range(0, runs, _CHUNK)):
        clones = np.arange(first, first + _CHUNK, dtype=np.uint32)
        inputs = jax.device_put((grid.astype(np.float32), clones, role), devices[number % len(devices)])
        waiting.append(program(*inputs))
    values = np.concatenate([np.asarray(v) for v, _ in waiting])[:runs]
    if not np.all(np.concatenate([np.asarray(done) for _, done in waiting])[:runs]):
        raise InvalidRequest("a run had more reactions between two readings than `max_events` allows")
    return values[:, kept].astype(np.float64)


def _chunk(network: Network, between: Any, grid: Any, clones: Any, role: Words) -> tuple[Any, Any]:
    """Readings ``[run, grid, output]`` of a chunk of runs, and whether each was finished."""

    def one(clone: Any) -> Any:
        stream = clone_words(role, clone)
        counts = tuple(jnp.float32(x) for x in network.start)
        # A trigger that is true at time 0 does not fire there.
        armed = network.fired(counts, grid[0], [jnp.asarray(False)] * len(network.events))[1]
        first = _Run(counts, armed, jnp.int32(0), jnp.asarray(True))

        def stretch(run: _Run, edges: Any) -> tuple[_Run, Any]:
            start, end = edges
            run = between(run, start, end, stream)
            counts, armed = network.fired(run.counts, end, run.armed)
            run = run._replace(counts=counts, armed=armed)
            return run, _outputs(network, counts, end)

        last, rows = jax.lax.scan(stretch, first, (grid[:-1], grid[1:]))
        return jnp.concatenate([_outputs(network, counts, grid[0])[None], rows]), last.finished

    return jax.vmap(one)(clones)


def _outputs(network: Network, counts: Any, t: Any) -> Any:
    values = network.values(counts, t)
    return jnp.stack([jnp.asarray(values[name], jnp.float32) for name in network.outputs])
