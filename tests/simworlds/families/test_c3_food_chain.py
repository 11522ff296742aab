"""C3: what each flag, drive, sensor and parameter of the food chain does.

Published values are measured in `experiments.validation.c3_food_chain`.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.families.c3_food_chain import State
from simworlds.keys import Words
from tests.simworlds.families.rows import Rows

WORLD = load("C3")
SPAN = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
NO_KEY = Words(jnp.uint32(0), jnp.uint32(0))
ROWS = 22
# A chain that cycles on rich food, no parameter but the flags 0.
CYCLING = WORLD.limit(dc=0.01, c0=0.02, dp=0.03, p0=0.02)
DEFENDED = CYCLING._replace(df=1.0)

runs = Rows(WORLD, size=ROWS, ticks=256)


class TestParameters:
    def test_each_moves_some_sensor(self):
        changed = [DEFENDED._replace(**{name: 0.8 * getattr(DEFENDED, name)}) for name in DEFENDED._fields]
        changed[DEFENDED._fields.index("lg")] = DEFENDED._replace(lg=0.2)
        _, read = runs((DEFENDED, {"S": 3.0}), *((row, {"S": 3.0}) for row in changed))
        moved = (np.abs(read[1:] - read[0]).max(axis=1) / SPAN).max(axis=1)
        still = [name for name, size in zip(DEFENDED._fields, moved, strict=True) if size < 1e-3]
        assert still == []

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        column = {name: np.array([getattr(p, name) for p in drawn]) for name in CYCLING._fields}
        ranges = dict(mu=(0.8, 1.5), K=(0.1, 0.5), g=(0.7, 1.2), H=(0.2, 1), e=(0.4, 0.8), dp=(0, 0.1))
        for name, (low, high) in ranges.items():
            assert ((column[name] >= low) & (column[name] <= high)).all(), name
        assert set(column["df"].tolist()) == {0.0, 1.0}
        assert (column["lg"] == 0).all()
        # Grazers can live at rest: they gain more from plenty of algae than they lose.
        rest = WORLD.physical(WORLD.rest)
        assert (column["e"] * column["g"] > 1.2 * (rest.D + column["dp"])).all()


class TestEnrichment:
    def test_more_food_starts_cycles(self):
        """The swing of the last 80 days is none on poor food, and wide on rich."""
        _, read = runs(*((CYCLING, {"S": S}) for S in (0.5, 1.0, 4.0)))
        swing = np.ptp(read[:, -80:, 0], axis=1)
        assert swing[0] < 0.02
        assert swing[1] < 0.2
        assert swing[2] > 1.0

    def test_a_defence_calms_them(self):
        _, read = runs((CYCLING, {"S": 2.0}), (DEFENDED, {"S": 2.0}), (DEFENDED._replace(dz=0.0), {"S": 2.0}))
        swing = np.ptp(read[:, -80:, 1], axis=1)
        assert swing[1] < 0.2 * swing[0]
        assert (read[2] == read[0]).all()

    def test_the_defence_lags_behind_the_grazers(self):
        """z follows P / (Pz + P) with a delay of about tz: it peaks some days after the grazers do."""
        weak = DEFENDED._replace(dz=0.05)
        states, _ = runs((weak, {"S": 4.0}))
        P, z = states.P[0, -150:], states.z[0, -150:]
        lags = [np.corrcoef(P[: len(P) - k], z[k:])[0, 1] for k in range(8)]
        assert 2 <= np.argmax(lags) <= weak.tz

    def test_without_defence_its_parameters_do_nothing(self):
        _, read = runs((CYCLING, {}), (CYCLING._replace(dz=0.1, Pz=0.9, tz=2.0), {}))
        assert (read[1] == read[0]).all()


class TestDrives:
    def test_strong_dilution_washes_the_grazers_out(self):
        states, _ = runs((WORLD.limit(), {"D": 0.5}), (WORLD.limit(), {"D": 0.15}))
        assert states.P[0, -1] < 1e-3 < 0.1 < states.P[1, -1]

    def test_algae_grow_with_light_and_shrink_with_warmth(self):
        poor = {"S": 0.8, "D": 0.2}
        changes = ({}, {"I": 0.6}, {"th": 1.4})
        states, _ = runs(*((CYCLING, {**poor, **change}) for change in changes))
        nutrient, algae = states.R[:, -1], states.C[:, -1]
        assert nutrient[1] > 1.2 * nutrient[0]
        assert algae[2] < 0.8 * algae[0]

    def test_logistic_algae_fill_their_capacity_and_leave_the_nutrient(self):
        alone = WORLD.limit(lg=1.0, g=0.0)
        states, _ = runs((alone, {"S": 2.0, "D": 0.0}))
        assert states.C[0, -1] == pytest.approx(2.0, abs=1e-3)
        assert states.R[0] == pytest.approx(0.5)


class TestSensors:
    def test_they_read_what_they_say(self):
        state = State(*(jnp.float32(x) for x in (0.4, 0.9, 0.3, 0.5, 0.7, 1.2)))
        read = WORLD.read(state, WORLD.physical(WORLD.rest), CYCLING._replace(px=0.25))
        assert np.array(read) == pytest.approx([0.9 + 0.25 * 0.7, 0.3, 0.4, 1.2])

    def test_dead_pigment_is_what_grazers_leave(self):
        """Without other losses X' = (1 - e) eat, and the grazers' gain is P' = e eat."""
        lossless = WORLD.limit(kx=0.0)
        states, _ = runs((lossless, {"D": 0.0}))
        gained, left = np.ptp(states.P[0, [0, 40]]), np.ptp(states.X[0, [0, 40]])
        assert left == pytest.approx(gained * (1 - lossless.e) / lossless.e, rel=1e-3)

    def test_oxygen_balances_growth_and_respiration(self):
        """Algae that only grow give it off, those that only respire take it up; neither leaves saturation."""
        silent, quick = dict(oc=0.0, op=0.0), dict(ka=2.0)
        rows = (WORLD.limit(om=0.0, **silent), WORLD.limit(**silent, **quick), WORLD.limit(om=0.0, **quick))
        states, _ = runs(*((row, {}) for row in rows))
        assert states.O[0] == pytest.approx(1.0)
        assert (states.O[1] > 1).all()
        assert (states.O[2] < 1).all()
        assert (states.O[2] > 0).all()
