"""The reference exploration of a (world, seed): what the reference rungs have seen."""

from typing import NamedTuple

import numpy as np

from oracles.theory import History
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.instance import Budget, Instance
from simworlds.keys import Draws
from simworlds.protocol import Protocol, Segment
from simworlds.store import Store, address_of, code_digest

_REST_SHARE = 0.25


class Exploration(NamedTuple):
    """Readings of all runs, in `history`; the first `rest_runs` of them are at rest."""

    rest_runs: int
    history: History


def _protocols(instance: Instance, budget: Budget) -> tuple[list[Protocol], int]:
    """A quarter of the ticks at rest, the others in random grammar protocols, as far as the budget goes."""
    horizon = instance.world.horizon
    rest_runs = max(1, min(round(budget.ticks * _REST_SHARE) // horizon, budget.preparations - 1))
    protocols = [Protocol((Segment(horizon, {}),))] * rest_runs
    left = budget.ticks - rest_runs * horizon
    for k in range(budget.preparations - rest_runs):
        draws = Draws.for_role(instance.world.id, instance.seed, "reference", "protocol", k)
        protocol = grammar_protocol(instance, draws)
        if protocol.ticks > left:
            break
        protocols.append(protocol)
        left -= protocol.ticks
    return protocols, rest_runs


def reference_exploration(instance: Instance, store: Store, budget: Budget | None = None) -> Exploration:
    """Explore under role ``reference``, at the standard budget if none is given; cached."""
    budget = budget or Budget()
    protocols, rest_runs = _protocols(instance, budget)

    def compute() -> dict[str, np.ndarray]:
        requests = [Request(protocol, ("reference", k)) for k, protocol in enumerate(protocols)]
        return {"values": simulate(instance, requests, 1).values[:, 0]}

    rule = {"budget": [budget.ticks, budget.preparations], "rule": code_digest(__name__)}
    values = store.fetch(address_of(instance, "reference", **rule), compute)["values"]
    shape = (budget.preparations, instance.world.horizon)
    levels = np.zeros((*shape, len(instance.drive_ports)), np.float32)
    readings = np.zeros((*shape, len(instance.sensor_ports)), np.float32)
    ticks = np.zeros(budget.preparations, np.int32)
    for k, protocol in enumerate(protocols):
        ticks[k] = protocol.ticks
        levels[k, : protocol.ticks] = protocol.levels(instance.drive_ports, instance.rest)
        readings[k, : protocol.ticks] = values[k, : protocol.ticks]
    return Exploration(rest_runs, History(levels, readings, ticks))
