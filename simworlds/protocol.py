"""Protocols (schedules of drives) and readouts (port, window, statistic), as an agent writes them.

A protocol is a list of segments ``{"ticks": n, "set": {"u0": 0.8}}``. It starts from rest; a segment changes
the ports that it names and the others hold. It ends after its last segment.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from simworlds.errors import InvalidProtocol


class Segment(NamedTuple):
    """Hold levels for a number of ticks.

    Attributes:
        ticks: at least 1.
        set: level in [0, 1] by port name; ports that are absent hold.
    """

    ticks: int
    set: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """The segment as plain data."""
        return {"ticks": self.ticks, "set": dict(self.set)}


class Protocol(NamedTuple):
    """A checked protocol; `parse_protocol` makes one from plain data."""

    segments: tuple[Segment, ...]

    @property
    def ticks(self) -> int:
        """The protocol's length."""
        return sum(segment.ticks for segment in self.segments)

    def first(self, ticks: int) -> "Protocol":
        """The protocol's beginning: all of it if it is no longer than `ticks`."""
        kept, left = [], ticks
        for segment in self.segments:
            if left > 0:
                kept.append(segment._replace(ticks=min(segment.ticks, left)))
            left -= segment.ticks
        return Protocol(tuple(kept))

    def to_json(self) -> list[dict[str, Any]]:
        """The protocol as plain data."""
        return [segment.to_json() for segment in self.segments]

    def levels(self, ports: Sequence[str], rest: np.ndarray) -> np.ndarray:
        """The level of each port in each tick, ``[tick, port]``, from rest levels ``[port]``."""
        now = np.array(rest, dtype=np.float64)
        rows = []
        for segment in self.segments:
            for port, level in segment.set.items():
                now[ports.index(port)] = level
            rows.append(np.tile(now, (segment.ticks, 1)))
        return np.concatenate(rows)


def held(levels: np.ndarray, ticks: int) -> np.ndarray:
    """Levels ``[tick, port]`` continued by their last row: padding for shape, never read."""
    return np.pad(levels, ((0, ticks - len(levels)), (0, 0)), mode="edge")


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite real number (booleans are not)."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer (booleans and floats are not)."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)


def shown(value: Any) -> str:
    """A short form of a value for an error message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a long integer, or deep nesting
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _segment_faults(at: str, segment: Any, ports: Sequence[str], horizon: int) -> list[str]:
    if not isinstance(segment, Mapping):
        return [f"{at} must be an object with `ticks` and `set`, but is {shown(segment)}"]
    faults = [
        f"{at} has an unknown field {shown(k)}; allowed are `ticks` and `set`"
        for k in segment
        if k not in ("ticks", "set")
    ]
    ticks = segment.get("ticks")
    if not is_whole(ticks) or not 1 <= ticks <= horizon:
        faults.append(f"{at}: `ticks` must be a whole number from 1 to {horizon}, but is {shown(ticks)}")
    levels = segment.get("set", {})
    if not isinstance(levels, Mapping):
        return [*faults, f"{at}: `set` must be an object of port and level, but is {shown(levels)}"]
    for port, level in levels.items():
        if port not in ports:
            faults.append(f"{at}: there is no drive port {shown(port)}; the ports are {', '.join(ports)}")
        elif not is_number(level) or not 0 <= float(level) <= 1:
            faults.append(f"{at}: the level of {port} must be a number in [0, 1], but is {shown(level)}")
    return faults


def parse_protocol(data: Any, ports: Sequence[str], horizon: int) -> Protocol:
    """Check a protocol and give it its form.

    Args:
        data: a list of segments, or a `Protocol`.
        ports: names of the drive ports.
        horizon: the most ticks that a protocol may last.

    Raises:
        InvalidProtocol: with all faults listed.
    """
    if isinstance(data, Protocol):
        data = data.to_json()
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        raise InvalidProtocol(f"a protocol must be a list of segments, but is {shown(data)}")
    if not data:
        raise InvalidProtocol("a protocol must have at least one segment, but is empty")
    if len(data) > horizon:
        raise InvalidProtocol(f"a protocol may have at most {horizon} segments, but has {len(data)}")
    faults = [
        f for k, segment in enumerate(data) for f in _segment_faults(f"segment {k}", segment, ports, horizon)
    ]
    if faults:
        raise InvalidProtocol(faults)
    segments = tuple(
        Segment(int(s["ticks"]), {str(p): float(v) for p, v in s.get("set", {}).items()}) for s in data
    )
    protocol = Protocol(segments)
    if protocol.ticks > horizon:
        raise InvalidProtocol(f"a protocol may last at most {horizon} ticks, but lasts {protocol.ticks}")
    return protocol
