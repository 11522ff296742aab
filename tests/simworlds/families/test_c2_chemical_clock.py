"""C2: what stirring damps, equal cells, the instance's heat, and its parameters.

The Hopf point and the limit cycle stand in `experiments/validation/c2_chemical_clock.py`.
"""

import dataclasses

import numpy as np
import pytest

from experiments.validation.c2_chemical_clock import WORLD, spectrum
from simworlds.ensemble import Request, simulate

SEED = 0


class TestStirring:
    def test_it_damps_the_difference_alone(self):
        """The sum keeps its growth; the difference of X loses 2 sig, that of Y 2 sig q."""
        sig, q = 0.1, 0.5
        roots = spectrum(1.0, 2.1, sig, q=q)
        apart = np.array([[1.1 - 2 * sig, 1.0], [-2.1, -1.0 - 2 * sig * q]])
        for root in np.linalg.eigvals(apart):
            assert np.abs(roots - root).min() < 1e-7
        assert roots.real.max() == pytest.approx(0.05, abs=1e-7)


def readings(**changes):
    """Raw readings ``[tick, sensor]`` of a heated, oscillating instance, with parameters replaced."""
    instance = WORLD.instance(SEED, redraws=0).canonical()
    levels = {"u0": 0.6, "u1": 0.7, "u2": 0.1, "u3": 0.8}
    request = Request(instance.protocol([{"ticks": 40, "set": levels}]), ("test",))
    params = instance.params._replace(**{name: np.float32(x) for name, x in changes.items()})
    return simulate(dataclasses.replace(instance, params=params), [request], 1, noise=False).values[0, 0]


class TestParameters:
    def test_the_instance_is_heated(self):
        assert WORLD.instance(SEED, redraws=0).params.E > 0

    @pytest.mark.parametrize("name", WORLD.limit()._fields)
    def test_each_moves_some_sensor(self, name):
        moved = readings(**{name: 1.2 * getattr(WORLD.instance(SEED, redraws=0).params, name)}) - readings()
        span = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
        assert (np.abs(moved).max(0) / span).max() > 1e-3

    def test_equal_cells_stay_equal(self):
        assert np.all(readings(m=0, x1=1, x2=1)[:, 3] == 0)
