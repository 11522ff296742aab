"""C1: what each flag, drive, sensor and parameter of the cascade does.

Published values are measured in `experiments.validation.c1_relay`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.families.c1_relay import State
from simworlds.keys import Words
from tests.simworlds.families.rows import Rows

WORLD = load("C1")
SPAN = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
NO_KEY = Words(jnp.uint32(0), jnp.uint32(0))
ROWS = 18
# Open, with feedback: the closed reaction's losses and feedback switched on, no parameter 0.
OPEN = WORLD.limit(fb=1.0, kl=0.3, kd=0.4, k=2.0, kr=0.8, Ks=0.5, KI=0.6)

runs = Rows(WORLD, size=ROWS, ticks=48)


class TestParameters:
    def test_each_moves_some_sensor(self):
        changed = [OPEN._replace(**{name: 0.8 * getattr(OPEN, name)}) for name in OPEN._fields]
        _, read = runs((OPEN, {"th": 35.0}), *((row, {"th": 35.0}) for row in changed))
        moved = (np.abs(read[1:] - read[0]).max(axis=1) / SPAN).max(axis=1)
        still = [name for name, size in zip(OPEN._fields, moved, strict=True) if size < 1e-3]
        assert still == []

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        column = {name: np.array([getattr(p, name) for p in drawn]) for name in OPEN._fields}
        for name in ("K1", "K2", "J1", "J2"):
            assert ((column[name] >= 0.02) & (column[name] <= 1)).all()
        assert set(column["fb"].tolist()) == {0.0, 1.0}
        assert (column["kr"] < column["k"]).all()  # so that the second stage can switch
        assert ((column["Q10"] >= 1.5) & (column["Q10"] <= 2.5)).all()
        assert column["a"] + column["b"] == pytest.approx(1, abs=1e-6)
        # The step is stable: no relaxation of a saturated stage is faster than 2.78 / dt.
        pace = column["Q10"] ** 1.5
        fastest = np.stack([2 * column["v1"] / column["K1"], 2 / column["K2"], column["k"] / column["J1"]])
        assert (WORLD.scheme.dt * pace * fastest).max() < 1.5


class TestCascade:
    def test_the_second_stage_is_a_switch_on_the_first(self):
        """With J = .02 its share passes from below 10 % to above 90 % within 40 % of its input."""
        sharp = OPEN._replace(fb=0.0, K1=1.0, K2=1.0, J1=0.02, J2=0.02)
        states, _ = runs(*((sharp, {"u": u, "V2": 1.0}) for u in np.linspace(0.2, 1.2, 11)))
        w1, w2 = states.w1[:, -1], states.w2[:, -1]
        assert (np.diff(w1) > 0).all()
        assert (np.diff(w2) > 0).all()
        assert (w2[w1 < 0.8 * 0.4] < 0.1).all()
        assert (w2[w1 > 1.2 * 0.4] > 0.9).all()

    def test_a_signal_starves_its_own_reaction(self):
        """The second stage consumes the fuel, so that a signal leaves little of what rests without it."""
        states, _ = runs((OPEN._replace(fb=0.0), {"u": 0.0}), (OPEN._replace(fb=0.0), {"u": 2.0}))
        assert states.S[1, -1] < 0.3 * states.S[0, -1]
        assert states.S[0, -1] == pytest.approx(1 / 0.3, abs=0.1)  # F / kl
        assert states.S[1, -1] + states.P[1, -1] * OPEN.kd / OPEN.kl == pytest.approx(1 / 0.3, abs=0.02)

    def test_feedback_holds_the_product_down(self):
        strong = {"u": 2.0, "F": 2.0}
        states, _ = runs((OPEN._replace(fb=0.0), strong), (OPEN, strong), (OPEN._replace(KI=1e3), strong))
        off, on, weak = states.P[:, -1]
        assert on < 0.8 * off
        assert weak == pytest.approx(off, rel=1e-3)

    def test_without_feed_everything_runs_out(self):
        states, read = runs((OPEN, {"F": 0.0, "u": 0.0}))
        assert states.S[0, -1] < 1e-2
        assert states.P[0, -1] < 1e-2
        assert 0 <= read[0, -1, 3] < 1e-2


class TestTemperature:
    def test_it_speeds_up_all_reactions_alike(self):
        """Without feed, two ticks at 25 degrees are one tick at 35 with Q10 = 2."""
        states, _ = runs((OPEN, {"F": 0.0, "th": 25.0}), (OPEN, {"F": 0.0, "th": 35.0}))
        for field in State._fields:
            slow, fast = getattr(states, field)
            assert fast[:24] == pytest.approx(slow[1::2], abs=1e-4)

    def test_the_feed_does_not_follow_it(self):
        """At rest F = q (kl S + kd P), so that warmth lowers fuel and product."""
        states, _ = runs(*((OPEN._replace(fb=0.0), {"th": th}) for th in (25.0, 40.0)))
        for k, q in enumerate((1, 2**1.5)):
            spent = q * (OPEN.kl * states.S[k, -1] + OPEN.kd * states.P[k, -1])
            assert spent == pytest.approx(1.0, abs=2e-3)


class TestSensors:
    def test_they_read_what_they_say(self):
        state = State(*(jnp.float32(x) for x in (0.3, 0.6, 2.0, 0.5)))
        drive = WORLD.drive_type(F=1.0, u=1.5, V2=1.0, th=35.0)
        p = OPEN._replace(a=0.7, b=0.2)
        P, S, light, heat = WORLD.read(state, drive, p)
        assert (P, S) == (0.5, 2.0)
        assert light == pytest.approx(0.7 * 0.3 + 0.2 * 0.6)
        V1 = 1.5 / (1 + (0.5 / p.KI) ** p.h)
        fuel = V1 * 0.7 / (p.K1 + 0.7) + p.k * 0.3 * 0.4 / (p.J1 + 0.4) + p.Vs * 0.6 * 2 / (p.Ks + 2)
        assert heat == pytest.approx(2 * fuel, rel=1e-6)

    def test_derivatives_are_finite_where_there_is_no_product(self):
        state = State(*(jnp.float32(x) for x in (0.5, 0.5, 1.0, 0.0)))
        drive = WORLD.drive_type(*(jnp.float32(x) for x in (1.0, 1.0, 1.0, 25.0)))
        params = jax.tree.map(jnp.float32, OPEN._replace(h=1.0))
        slopes = jax.jacfwd(WORLD.drift, argnums=(0, 1, 2))(state, drive, params)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))
