"""D4: the notch, what the lock-in reads, the static shift, and the parameters.

The Duffing amplitudes and the response of two modes stand in `experiments/validation/d4_resonator.py`.
"""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.validation.d4_resonator import FORCE, TWO_MODES, WORLD, response
from experiments.validation.runs import Run
from simworlds.ensemble import Request, simulate


def settled(changes, drive, ticks=200):
    """A run that has come to rest, or to its cycle."""
    run = Run(WORLD, WORLD.limit(**changes), {"bias": 0.0, "c": 1.0} | drive)
    run.ticks(ticks)
    return run


class TestTwoModes:
    def test_the_latent_mode_cuts_a_notch(self):
        """At W = w2 the sensed mode nearly stands still; without coupling it does not."""
        assert abs(response(1.3, **TWO_MODES)) < abs(response(1.3, be=0.0)) / 2

    @pytest.mark.parametrize("W", [0.9, 1.6])
    def test_the_lock_in_reads_amplitude_and_phase(self, W):
        """x = Re H F exp(i phi), so on average I = F Re H, Q = -F Im H and s = |F H|^2 / 2."""
        expected = FORCE * response(W, **TWO_MODES)
        wanted = (expected.real, -expected.imag, 0.0, abs(expected) / np.sqrt(2))
        read = settled(TWO_MODES, {"F": FORCE, "W": W}).ticks(200)[0].mean(0)
        assert read == pytest.approx(wanted, abs=2e-3 * abs(expected))


class TestStaticShift:
    @pytest.mark.parametrize(
        "changes", [dict(g=0.3, al=0.15), dict(be=-0.3, b5=0.045, g=0.3), dict(w0=1.2, be=0.3)]
    )
    def test_a_bias_shifts_it_to_where_forces_balance(self, changes):
        bias = 0.4
        state = settled(changes, {"F": 0.0, "W": 1.0, "bias": bias}).state
        p, x = WORLD.limit(**changes), float(state.x[0])
        y = -(p.g * x + p.al * x**2) / p.w2**2
        assert float(state.y[0]) == pytest.approx(y, abs=1e-9)
        spring = p.w0**2 * x + p.be * x**3 + p.b5 * x**5
        assert spring + (p.g + 2 * p.al * x) * y == pytest.approx(-bias, abs=1e-9)
        assert float(state.shift[0]) == pytest.approx(x, abs=1e-6)

    def test_a_softening_spring_is_monotone(self):
        """The slope w0^2 + 3 be x^2 + 5 b5 x^4 has no root: (3 be)^2 < 4 w0^2 (5 b5)."""
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        softening = [p for p in drawn if p.be < 0]
        assert softening
        assert all(9 * p.be**2 < 20 * p.b5 * p.w0**2 for p in softening)
        assert all(p.b5 == 0 for p in drawn if p.be > 0)


SOFT = WORLD.limit(be=-0.2, b5=0.04, g=0.3, al=0.15)  # no parameter is 0


def readings(**changes):
    """Raw readings ``[tick, sensor]`` of the soft oscillator near its notch, with parameters replaced."""
    instance = WORLD.instance(0, redraws=0).canonical()
    levels = {"u0": 0.9, "u1": 0.42, "u2": 0.7, "u3": 0.0}
    request = Request(instance.protocol([{"ticks": 40, "set": levels}]), ("test",))
    params = jax.tree.map(np.float32, SOFT._replace(**changes))
    return simulate(dataclasses.replace(instance, params=params), [request], 1, noise=False).values[0, 0]


class TestParameters:
    @pytest.mark.parametrize("name", WORLD.limit()._fields)
    def test_each_moves_some_sensor(self, name):
        moved = readings(**{name: 1.2 * getattr(SOFT, name)}) - readings()
        span = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
        assert (np.abs(moved).max(0) / span).max() > 1e-3
