"""Anonymous ports: labels in a drawn order, an affine gauge on each sensor, sensor noise.

An agent drives ``u0, u1 ...`` with levels in [0, 1] and reads ``y0, y1 ...`` as

    y = offset + gain * g(state) + sigma * eps,    offset ~ U(-1, 1),    gain ~ +-U(0.5, 2),

where g is the tick's mean of the sensor behind the port and sigma is 0.5 to 2 % of its declared nominal
range, in gauged units.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simworlds.keys import Draws

if TYPE_CHECKING:
    from simworlds.world import World


class Gauge(NamedTuple):
    """How raw sensors become readings: arrays ``[sensor]`` in port order."""

    order: Any  # index of the family's sensor behind each port
    offset: Any
    gain: Any
    sigma: Any

    def noise_free(self) -> "Gauge":
        """The same gauge without sensor noise."""
        return self._replace(sigma=np.zeros_like(self.sigma))


class Wiring(NamedTuple):
    """Which drive of the family stands behind each drive port, in port order."""

    drives: tuple[int, ...]


def draw_ports(world: "World", draws: Draws) -> tuple[Wiring, Gauge]:
    """The ports of an instance: a permutation of drives and sensors, and a gauge on each sensor."""
    drives = tuple(draws.permutation(len(world.drives)))
    order = draws.permutation(len(world.sensors))
    offset, gain, sigma = [], [], []
    for index in order:
        sensor = world.sensors[index]
        offset.append(draws.uniform(-1.0, 1.0))
        gain.append(draws.uniform(0.5, 2.0) * draws.choice((1.0, -1.0)))
        sigma.append(draws.uniform(0.005, 0.02) * (sensor.high - sensor.low) * abs(gain[-1]))
    numbers = (np.asarray(column, np.float32) for column in (offset, gain, sigma))
    return Wiring(drives), Gauge(np.asarray(order, np.int32), *numbers)


def canonical_ports(world: "World") -> tuple[Wiring, Gauge]:
    """Ports in the family's own order with the identity gauge and no noise, for audits."""
    n = len(world.sensors)
    zeros, ones = np.zeros(n, np.float32), np.ones(n, np.float32)
    return Wiring(tuple(range(len(world.drives)))), Gauge(np.arange(n, dtype=np.int32), zeros, ones, zeros)


def drive_names(n: int) -> tuple[str, ...]:
    """Names of the drive ports: u0, u1 ..."""
    return tuple(f"u{k}" for k in range(n))


def sensor_names(n: int) -> tuple[str, ...]:
    """Names of the sensor ports: y0, y1 ..."""
    return tuple(f"y{k}" for k in range(n))
