"""Budgeted exploration: everything that an agent may touch, and nothing else.

A session shows ports, budget and history. It holds the instance in a private slot: that keeps honest code
honest, but code in the same process can reach it, so a benchmark that counts runs the agent elsewhere.
"""

import copy
import dataclasses
from typing import Any, NamedTuple, NoReturn

import numpy as np

from simworlds.ensemble import Request, simulate
from simworlds.errors import BudgetExceeded, Diverged, InvalidRequest, SimworldsError, Unanswerable
from simworlds.instance import Budget, Instance
from simworlds.protocol import is_whole, shown


class Experiment(NamedTuple):
    """One accepted run: the protocol as plain data, the readings ``[tick, sensor]``, and what was left."""

    protocol: list[dict[str, Any]]
    readings: np.ndarray
    ticks_left: int
    preparations_left: int


class Session:
    """A budgeted exploration of one anonymous world.

    Make one with ``instance.session()``. `run` prepares a fresh clone, drives it, and returns what the
    sensors read.
    """

    __slots__ = ("_history", "_instance", "_left")

    def __init__(self, instance: Instance, budget: Budget):
        if not isinstance(budget, Budget):
            raise InvalidRequest(f"`budget` must be a Budget, but is {shown(budget)}")
        for name, value in dataclasses.asdict(budget).items():
            if not is_whole(value) or value < 0:
                raise InvalidRequest(f"`{name}` must be a whole number of at least 0, but is {shown(value)}")
        self._instance = instance
        self._left = budget
        self._history: list[Experiment] = []

    @property
    def drives(self) -> tuple[str, ...]:
        """Names of the ports to drive; levels lie in [0, 1]."""
        return self._instance.drive_ports

    @property
    def sensors(self) -> tuple[str, ...]:
        """Names of the ports to read, in the order of the readings' columns."""
        return self._instance.sensor_ports

    @property
    def rest(self) -> dict[str, float]:
        """The level of each drive port at rest, where every run starts."""
        return dict(zip(self.drives, self._instance.rest.tolist(), strict=True))

    @property
    def horizon(self) -> int:
        """The most ticks that one run may last."""
        return self._instance.world.horizon

    @property
    def ticks_left(self) -> int:
        """Ticks that are left."""
        return self._left.ticks

    @property
    def preparations_left(self) -> int:
        """Runs that are left: each takes a fresh clone."""
        return self._left.preparations

    @property
    def history(self) -> tuple[Experiment, ...]:
        """All accepted runs, in order."""
        return tuple(e._replace(protocol=copy.deepcopy(e.protocol)) for e in self._history)

    def contracts(self) -> list[dict[str, Any]]:
        """The questions to answer, in the documented JSON form."""
        # Raised outside the handler: an error's context would name world and seed.
        try:
            return [contract.to_json() for contract in self._instance.contracts()]
        except Diverged:
            fault: SimworldsError = Diverged("the readings that the contracts rest on did not stay finite")
        except Unanswerable:
            fault = Unanswerable("no sensor port answers to any drive")
        raise fault

    def run(self, protocol: Any) -> np.ndarray:
        """Drive a fresh clone from rest and read it.

        Args:
            protocol: a list of segments ``{"ticks": n, "set": {port: level}}``.

        Returns:
            Readings ``[tick, sensor]``, float32. The k-th accepted run of a session gives the same readings
            whenever it is made.

        Raises:
            InvalidProtocol: with all faults listed; nothing is charged.
            BudgetExceeded: if it costs more than what is left; nothing is charged.
        """
        instance = self._instance
        parsed = instance.protocol(protocol)
        if self._left.preparations < 1:
            raise BudgetExceeded("no preparation is left; each run takes one")
        if parsed.ticks > self._left.ticks:
            raise BudgetExceeded(f"the protocol lasts {parsed.ticks} ticks, but {self._left.ticks} are left")
        request = Request(parsed, ("exploration", len(self._history)))
        readings = None
        try:
            readings = simulate(instance, [request], 1).values[0, 0]
        except Diverged:
            pass
        if readings is None:  # raised outside the handler: an error's context would name world and seed
            raise Diverged("the readings of this run did not stay finite; nothing was charged")
        readings.flags.writeable = False
        self._left = Budget(self._left.ticks - parsed.ticks, self._left.preparations - 1)
        self._history.append(
            Experiment(parsed.to_json(), readings, self._left.ticks, self._left.preparations)
        )
        return readings

    def __repr__(self) -> str:
        return (
            f"<Session drives {', '.join(self.drives)}; sensors {', '.join(self.sensors)}; "
            f"{self.ticks_left} ticks and {self.preparations_left} preparations left>"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a live session cannot be pickled or copied: it would carry the hidden world along")
