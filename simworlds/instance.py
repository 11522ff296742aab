"""An instance: one (world, seed), with its parameters, ports and budget drawn."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from simworlds.errors import InvalidSeed
from simworlds.keys import Draws
from simworlds.ports import Gauge, Wiring, canonical_ports, draw_ports, drive_names, sensor_names
from simworlds.protocol import Protocol, is_whole, parse_protocol, shown

if TYPE_CHECKING:
    from simworlds.contracts import Contract
    from simworlds.session import Session
    from simworlds.world import World


@dataclasses.dataclass(frozen=True)
class Budget:
    """What an explorer may spend: ticks of simulated time and preparations (fresh clones)."""

    ticks: int = 4096
    preparations: int = 32


@dataclasses.dataclass(frozen=True, eq=False)
class Instance:
    """One world that can be explored, asked about and simulated.

    This is the god-mode side; agents get a `Session`.

    Attributes:
        world: the family.
        seed: the public seed, or a sealed one (a string).
        params: the law's parameters, a NamedTuple of float32 arrays.
        gauge: how raw sensors become readings.
        wiring: which drive stands behind each port.
        redraws: how many earlier draws of this (world, seed) were not fit to be explored.
    """

    world: "World"
    seed: int | str
    params: Any
    gauge: Gauge
    wiring: Wiring
    redraws: int = 0

    @property
    def drive_ports(self) -> tuple[str, ...]:
        """Names of the ports to drive."""
        return drive_names(len(self.world.drives))

    @property
    def sensor_ports(self) -> tuple[str, ...]:
        """Names of the ports to read."""
        return sensor_names(len(self.world.sensors))

    @property
    def rest(self) -> np.ndarray:
        """The level of each drive port at rest, ``[port]``."""
        return self.world.rest[list(self.wiring.drives)]

    def protocol(self, data: Any) -> Protocol:
        """Check a protocol against this instance's ports and horizon.

        Raises:
            InvalidProtocol: with all faults listed.
        """
        return parse_protocol(data, self.drive_ports, self.world.horizon)

    def levels(self, protocol: Protocol) -> np.ndarray:
        """Levels in the family's own order of drives, ``[tick, drive]``."""
        by_port = protocol.levels(self.drive_ports, self.rest)
        return by_port[:, np.argsort(self.wiring.drives)]

    def session(self, budget: Budget | None = None) -> "Session":
        """A budgeted exploration of this instance that shows ports only."""
        from simworlds.session import Session

        return Session(self, budget or Budget())

    def contracts(self) -> "tuple[Contract, ...]":
        """The eight contracts of this (world, seed)."""
        from simworlds.contracts import contracts_of

        return contracts_of(self)

    def canonical(self) -> "Instance":
        """The same law behind ports in the family's order, with the identity gauge and no sensor noise."""
        wiring, gauge = canonical_ports(self.world)
        return dataclasses.replace(self, gauge=gauge, wiring=wiring)


def check_seed(seed: Any) -> int | str:
    """A seed in its plain form.

    Raises:
        InvalidSeed: if it is neither an integer from 0 to 2^63 - 1 nor a non-empty string.
    """
    if isinstance(seed, str) and seed:
        return seed
    if is_whole(seed) and 0 <= int(seed) < 2**63:
        return int(seed)
    raise InvalidSeed(
        f"a seed must be a whole number from 0 to 2^63 - 1 or a non-empty string, but is {shown(seed)}"
    )


def draw_instance(world: "World", seed: int | str, redraws: int = 0) -> Instance:
    """Draw an instance of a family at a seed, the first one or a later one.

    Raises:
        InvalidSeed: see `check_seed`.
    """
    seed = check_seed(seed)
    again = (redraws,) if redraws else ()
    params = world.draw(Draws.for_role(world.id, seed, "instance", "parameters", *again))
    wiring, gauge = draw_ports(world, Draws.for_role(world.id, seed, "instance", "ports", *again))
    return Instance(world, seed, params, gauge, wiring, redraws)
