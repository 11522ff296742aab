"""Contracts: "under this protocol, what will this statistic be?" Their form, their grammar, their schema.

A contract in JSON:

    {"id": 3, "protocol": [{"ticks": 40, "set": {"u1": 0.25}}, ...], "port": "y2", "window": [100, 124],
    "statistic": "mean"}

The window is ``[start, stop)`` in ticks; the statistic is the mean, or the sd (ddof 0), of the port's
readings inside it. Each (world, seed) has eight contracts, a fixed function of the two.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simworlds.ensemble import Readout, Request
from simworlds.errors import InvalidContract, InvalidProtocol, Unanswerable
from simworlds.keys import Draws
from simworlds.protocol import Protocol, Segment, is_whole, shown

if TYPE_CHECKING:
    from simworlds.instance import Instance
    from simworlds.store import Store

CONTRACTS = 8
STATISTICS = ("mean", "sd")

CONTRACTS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "simworlds contracts",
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id", "protocol", "port", "window", "statistic"],
        "additionalProperties": False,
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "protocol": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["ticks"],
                    "additionalProperties": False,
                    "properties": {
                        "ticks": {"type": "integer", "minimum": 1},
                        "set": {
                            "type": "object",
                            "propertyNames": {"pattern": "^u[0-9]+$"},
                            "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1},
                        },
                    },
                },
            },
            "port": {"type": "string", "pattern": "^y[0-9]+$"},
            "window": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "minItems": 2,
                "maxItems": 2,
            },
            "statistic": {"enum": list(STATISTICS)},
        },
    },
}


class Contract(NamedTuple):
    """One question. `port` is a sensor port's name; `window` is ``(start, stop)`` in ticks."""

    id: int
    protocol: Protocol
    port: str
    window: tuple[int, int]
    statistic: str

    def to_json(self) -> dict[str, Any]:
        """The contract as plain data, in the documented form."""
        return {
            "id": self.id,
            "protocol": self.protocol.to_json(),
            "port": self.port,
            "window": list(self.window),
            "statistic": self.statistic,
        }

    def readout(self) -> Readout:
        """What the contract measures, as the ensemble takes it."""
        return Readout(int(self.port[1:]), *self.window, sd=self.statistic == "sd")

    def request(self, role: str) -> Request:
        """The contract as a request on fresh clones under a role."""
        return Request(self.protocol, (role, self.id), self.readout())


def parse_contract(data: Any, instance: "Instance") -> Contract:
    """Check a contract against an instance's ports and horizon.

    Raises:
        InvalidContract: with all faults listed.
    """
    fields = ("id", "protocol", "port", "window", "statistic")
    if not isinstance(data, Mapping):
        raise InvalidContract(f"a contract must be an object with {', '.join(fields)}, but is {shown(data)}")
    faults = [f"unknown field {shown(k)}; allowed are {', '.join(fields)}" for k in data if k not in fields]
    faults += [f"`{k}` is missing" for k in fields if k not in data]
    if faults:
        raise InvalidContract(faults)
    if not is_whole(data["id"]) or int(data["id"]) < 0:
        faults.append(f"`id` must be a whole number of at least 0, but is {shown(data['id'])}")
    if data["port"] not in instance.sensor_ports:
        faults.append(
            f"there is no sensor port {shown(data['port'])}; the ports are {', '.join(instance.sensor_ports)}"
        )
    if data["statistic"] not in STATISTICS:
        faults.append(
            f"`statistic` must be one of {', '.join(STATISTICS)}, but is {shown(data['statistic'])}"
        )
    protocol = None
    try:
        protocol = instance.protocol(data["protocol"])
    except InvalidProtocol as error:
        faults += error.faults
    faults += _window_faults(data["window"], protocol)
    if faults or protocol is None:
        raise InvalidContract(faults)
    start, stop = (int(edge) for edge in data["window"])
    return Contract(int(data["id"]), protocol, str(data["port"]), (start, stop), str(data["statistic"]))


def _window_faults(window: Any, protocol: Protocol | None) -> list[str]:
    if (
        not isinstance(window, Sequence)
        or isinstance(window, str)
        or len(window) != 2
        or not all(map(is_whole, window))
    ):
        return [f"`window` must be two whole numbers [start, stop], but is {shown(window)}"]
    start, stop = (int(edge) for edge in window)
    if start < 0 or stop - start < 2:
        return [f"`window` must start at tick 0 or later and hold at least 2 ticks, but is [{start}, {stop})"]
    if protocol is not None and stop > protocol.ticks:
        return [f"`window` must end by tick {protocol.ticks}, the end of the protocol, but ends at {stop}"]
    return []


def grammar_protocol(instance: "Instance", draws: Draws) -> Protocol:
    """A random protocol of the family's grammar, in the instance's ports."""
    world, grammar = instance.world, instance.world.grammar
    count = draws.integer(*grammar.segments)
    segments, used = [], 0
    for k in range(count):
        shortest, longest = grammar.ticks
        room = world.horizon - used - shortest * (count - k - 1)
        ticks = draws.integer(shortest, min(longest, room))
        used += ticks
        moved = draws.permutation(len(world.drives))[: draws.integer(*grammar.changes)]
        levels = {}
        for index in sorted(moved):
            low, high = grammar.levels.get(world.drives[index].name, (0.0, 1.0))
            levels[f"u{instance.wiring.drives.index(index)}"] = round(draws.uniform(low, high), 2)
        segments.append(Segment(ticks, dict(sorted(levels.items()))))
    return Protocol(tuple(segments))


def _draw_contract(
    instance: "Instance", draws: Draws, number: int, weights: Sequence[float], statistic: str
) -> Contract:
    protocol = grammar_protocol(instance, draws)
    ends = np.cumsum([segment.ticks for segment in protocol.segments])
    chosen = len(ends) - 1 if draws.chance(0.7) else draws.integer(min(1, len(ends) - 1), len(ends) - 1)
    stop = int(ends[chosen]) - draws.integer(0, protocol.segments[chosen].ticks // 4)
    length = draws.integer(*instance.world.grammar.window)
    port = draws.choice(instance.sensor_ports, weights)
    return Contract(number, protocol, port, (max(0, stop - length), stop), statistic)


def contracts_of(instance: "Instance", store: "Store | None" = None) -> tuple[Contract, ...]:
    """The eight contracts of an instance.

    Channels that answer to no drive (range below 10 sigma) are never asked about.

    Args:
        instance: the instance.
        store: where the calibration ensemble lies; the default store if None.

    Raises:
        Unanswerable: if no channel answers to any drive.
    """
    from simworlds.truth import calibrate

    ranges = calibrate(instance, store)
    world = instance.world
    names = [world.sensors[k].name for k in np.asarray(instance.gauge.order)]
    weights = [
        world.grammar.ask.get(name, 0.0) * lively for name, lively in zip(names, ranges.lively, strict=True)
    ]
    if not any(weights):
        raise Unanswerable(f"world {world.id}: no channel that may be asked about answers to any drive")
    draws = Draws.for_role(world.id, instance.seed, "contracts")
    kinds = ["sd" if draws.chance(world.grammar.sd_share) else "mean" for _ in range(CONTRACTS)]
    if len(set(kinds)) == 1:
        kinds[draws.integer(0, CONTRACTS - 1)] = "mean" if kinds[0] == "sd" else "sd"
    return tuple(_draw_contract(instance, draws, number, weights, kind) for number, kind in enumerate(kinds))
