"""D3: what each channel, drive, sensor and parameter of the cell does.

Published values are measured in `experiments.validation.d3_excitable_cell`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.families.d3_excitable_cell import _linoid, _rates
from simworlds.keys import Noise, Words
from tests.simworlds.families.rows import Rows

WORLD = load("D3")
SPAN = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
NO_KEY = Words(jnp.uint32(0), jnp.uint32(0))
ROWS, TICKS = 24, 96
AXON = WORLD.limit()
CHANNELS = ("gA", "gM", "gC", "gh")
# No conductance is 0; two blockers, so that both values of y can be left.
MIXED = WORLD.limit(gA=4.0, gM=0.3, gC=0.5, gh=0.2, y=0.4)

runs = Rows(WORLD, size=ROWS, ticks=TICKS)


def rates(*rows):
    """The spike rate ``[row, tick]`` in Hz."""
    return runs(*rows)[1][..., 1]


class TestParameters:
    def test_each_moves_some_sensor(self):
        changed = [MIXED._replace(**{name: 0.8 * getattr(MIXED, name)}) for name in MIXED._fields]
        at = {"I": np.where(np.arange(TICKS) < 48, 15.0, -5.0), "B": 0.2}
        _, read = runs((MIXED, at), *((row, at) for row in changed))
        moved = (np.abs(read[1:] - read[0]).max(axis=1) / SPAN).max(axis=1)
        still = [name for name, size in zip(MIXED._fields, moved, strict=True) if size < 1e-3]
        assert still == []

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        hidden = np.array([[getattr(p, name) for name in CHANNELS] for p in drawn])
        assert ((hidden > 0).sum(1) == 1).all()
        assert (hidden > 0).any(0).all()
        assert {float(p.y) for p in drawn} == {0.0, 1.0}
        for name in ("tau_w", "tau_q", "tau_c"):
            assert all(50 <= getattr(p, name) <= 300 for p in drawn)

    def test_the_limit_has_no_hidden_channel(self):
        assert all(getattr(AXON, name) == 0 for name in CHANNELS)


class TestRates:
    """Opening rates of m and n have removable singularities at -40 and -55 mV."""

    @pytest.mark.parametrize("offset", [-0.2, -0.1, -0.0999, -1e-4, 0.0, 1e-6, 0.0999, 0.1001, 3.0, -8.0])
    def test_x_over_one_minus_exp_is_right_in_single_precision(self, offset):
        exact = offset / -np.expm1(-offset) if offset else 1.0
        assert float(_linoid(jnp.float32(offset))) == pytest.approx(exact, rel=2e-6)

    @pytest.mark.parametrize(("V", "gate"), [(-40.0, 0), (-55.0, 2)])
    def test_derivatives_at_the_singularities_are_finite_and_right(self, V, gate):
        value = lambda v: _rates(v)[gate][0]  # noqa: E731
        slope = float(jax.grad(value)(jnp.float32(V)))
        assert slope == pytest.approx(float(value(V + 0.5) - value(V - 0.5)), rel=1e-3)


class TestSpikes:
    def test_the_rate_sensor_counts_the_spikes(self):
        """Its integral, less what its filter still holds, against the rises of V through 0 step by step."""
        params = jax.tree.map(jnp.float32, AXON)
        rest = {d.name: jnp.float32(d.physical(d.rest)) for d in WORLD.drives}
        drive = WORLD.drive_type(**{**rest, "I": jnp.float32(10.0)})

        steps = round(300 / WORLD.scheme.dt)

        def step(state, _):
            state = WORLD.scheme.step(WORLD, params, state, drive, ())
            return state, (state.V, state.r)

        start = jax.tree.map(jnp.float32, WORLD.initial(params, Noise(NO_KEY, 0)))
        V, r = (
            np.asarray(x, float) for x in jax.jit(lambda s: jax.lax.scan(step, s, length=steps)[1])(start)
        )
        spikes = np.sum((V[:-1] < 0) & (V[1:] >= 0))
        counted = (r.sum() * WORLD.scheme.dt + WORLD.rate_time * r[-1]) / 1000
        assert spikes == 21
        assert counted == pytest.approx(spikes, abs=2e-2)

    def test_rest_stands_beside_firing(self):
        """At 8 uA/cm2 a cell led there slowly from rest stays silent, one led there from 20 fires."""
        up = np.minimum(np.arange(TICKS) / 6, 8.0)
        down = np.maximum(20 - np.arange(TICKS) / 5, 8.0)
        silent, firing = rates((AXON, {"I": up}), (AXON, {"I": down}))[:, -8:]
        assert silent.max() < 1e-3
        assert firing.min() > 30

    def test_too_much_current_blocks(self):
        """With sodium blocked by a third and much potassium outside, within the drives' ranges."""
        _, read = runs(*((AXON, {"I": current, "B": 0.3, "E_K": -65.0}) for current in (10.0, 40.0)))
        firing, blocked = read[:, -16:, 1]
        assert firing.min() > 20
        assert blocked.max() < 1
        assert read[1, -16:, 0].min() > -50

    def test_release_from_inhibition_makes_a_spike(self):
        inhibited = np.where(np.arange(TICKS) < 48, -10.0, 0.0)
        assert rates((AXON, {"I": inhibited}))[0, 48:56].max() > 20


class TestDrives:
    def test_warmth_makes_every_gate_faster(self):
        cold, warm = rates((AXON, {"I": 12.0, "T": 3.0}), (AXON, {"I": 12.0, "T": 10.0}))[:, -20:].mean(1)
        assert warm > 1.3 * cold

    def test_the_blocker_acts_on_the_channel_that_y_says(self):
        rows = [(AXON._replace(y=y), {"I": 15.0, "B": B}) for y, B in ((1.0, 0.0), (1.0, 0.6), (0.0, 0.6))]
        free, sodium, potassium = runs(*rows)[1][:, -20:].mean(1)
        assert free[1] > 50
        assert sodium[1] < 1
        assert potassium[0] > free[0] + 3

    def test_potassium_outside_depolarises(self):
        low, high = runs((AXON, {"E_K": -85.0}), (AXON, {"E_K": -73.0}))[1][:, -1, 0]
        assert high > low + 2


class TestHiddenChannels:
    @pytest.mark.parametrize("name", ["gM", "gC"])
    def test_slow_potassium_channels_adapt(self, name):
        plain, adapting = rates((AXON, {"I": 15.0}), (AXON._replace(**{name: 2.0}), {"I": 15.0}))
        assert adapting[4:12].mean() > 25
        assert adapting[-24:].mean() < adapting[4:12].mean() / 2
        assert plain[-24:].mean() > plain[4:12].mean()

    def test_the_a_type_channel_holds_back_spikes(self):
        """After inhibition the first spike comes later, so its tick's mean rate is smaller; one is all."""
        released = {"I": np.where(np.arange(TICKS) < 40, -5.0, 14.0)}
        plain, held_back = rates((AXON, released), (AXON._replace(gA=12.0), released))
        assert 0 < held_back[40] < plain[40] / 2
        assert held_back[41] > 30
        assert held_back[-16:].max() < 0.1
        assert plain[-16:].min() > 30

    def test_the_h_current_answers_inhibition_slowly(self):
        """Under inhibition the potential dips and comes back: the sag."""
        inhibition = {"I": np.where(np.arange(TICKS) < 20, 0.0, -8.0)}
        plain, sagging = runs(*((AXON._replace(gh=g), inhibition) for g in (0.0, 0.5)))[1][..., 0]
        assert sagging[-1] > sagging[20:40].min() + 0.5
        assert plain[-1] < plain[24:40].min() + 0.5


class TestSensors:
    def test_heat_is_the_sodium_that_came_in_whatever_the_pumps_speed(self):
        rows = ((AXON._replace(tau_p=tau), {"I": 20.0}) for tau in (20.0, 40.0))
        quick, slow = runs(*rows)[1][:, -40:, 3].mean(1)
        assert quick == pytest.approx(slow, rel=0.01)
        assert quick > 50

    def test_calcium_is_the_share_of_time_spent_depolarised(self):
        """About a millisecond a spike."""
        read = runs((AXON, {"I": 15.0}))[1][0, -20:]
        assert read[:, 2].mean() == pytest.approx(read[:, 1].mean() / 1000 * 1.3, rel=0.3)
