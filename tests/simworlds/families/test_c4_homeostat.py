"""C4: what each flag, drive, sensor and parameter of the planet does.

Published values are measured in `experiments.validation.c4_homeostat`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.families.c4_homeostat import SIGMA, SOLAR, ZERO, State
from simworlds.keys import Words
from tests.simworlds.families.rows import Rows

WORLD = load("C4")
SPAN = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
NO_KEY = Words(jnp.uint32(0), jnp.uint32(0))
ROWS = 15
TICKS = 160
PLANET = WORLD.limit(seed=1e-4)
THREE = PLANET._replace(p=np.ones(3))
CALM = {"L": 1.0, "G": 0.0, "gam": 0.3, "dust": 0.0}

runs = Rows(WORLD, size=ROWS, ticks=TICKS, calm=CALM)


def elements(params):
    """The name of each element of each parameter, and the parameters in which it alone is changed."""
    for name, leaf in params._asdict().items():
        for at in np.ndindex(np.shape(leaf)):
            changed = np.array(leaf, float)
            changed[at] = 0.9 * changed[at]
            yield f"{name}{list(at)}", params._replace(**{name: changed})


class TestParameters:
    def test_each_element_moves_some_sensor(self):
        names, changed = zip(*elements(THREE._replace(seed=1e-3)), strict=True)
        drive = {"L": [1.0, 0.8]}
        _, read = runs((THREE._replace(seed=1e-3), drive), *((row, drive) for row in changed))
        moved = (np.abs(read[1:] - read[0]).max(axis=1) / SPAN).max(axis=1)
        assert len(names) == 14
        assert [name for name, size in zip(names, moved, strict=True) if size < 1e-3] == []

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        p, alb = np.stack([d.p for d in drawn]), np.stack([d.alb for d in drawn])
        assert (p[:, :2] == 1).all()
        assert set(p[:, 2].tolist()) == {0.0, 1.0}
        assert (np.abs(alb - [0.75, 0.25, 0.5]) <= 0.1 + 1e-6).all()
        seed, c = np.array([d.seed for d in drawn]), np.array([d.c for d in drawn])
        assert ((seed >= 3e-5) & (seed <= 1e-3)).all()
        assert ((c / 5.8 >= 0.2) & (c / 5.8 <= 5)).all()

    def test_a_kind_that_is_not_there_does_nothing(self):
        there, changed = PLANET, PLANET._replace(alb=np.array([0.75, 0.25, 0.1]), w=np.array([0.6, 0.4, 0.9]))
        states, read = runs((there, {}), (changed, {}))
        assert (states.a[2] == 0).all()
        assert (read[1] == read[0]).all()


class TestHomeostasis:
    def test_the_planet_cools_as_the_sun_warms(self):
        _, read = runs(*((PLANET, {"L": L}) for L in (0.8, 0.9, 1.0, 1.1, 1.2)))
        assert (np.diff(read[:, -1, 0]) < -0.5).all()
        _, bare = runs(*((PLANET._replace(p=np.zeros(3)), {"L": L}) for L in (0.8, 1.2)))
        assert np.diff(bare[:, -1, 0])[0] > 25

    def test_the_cover_collapses_at_once_and_comes_back_late(self):
        """Of the same sun the planet makes two climates, by whether life was there before."""
        _, read = runs((PLANET, {"L": [1.0, 1.3]}), (PLANET, {"L": [1.7, 1.3]}))
        (warm, hot), (alive, dead) = read[:, -1, 0], read[:, -1, 2]
        assert alive > 0.6
        assert dead < 0.02
        assert hot > warm + 20

    def test_a_grey_kind_lives_on_at_the_cost_of_the_others(self):
        states, _ = runs((PLANET, {}), (THREE, {}))
        assert (states.a[2][1] > 0).all()
        assert states.a[0][1, -1] + states.a[1][1, -1] < states.a[0][0, -1] + states.a[1][0, -1]

    def test_culling_thins_the_cover(self):
        _, read = runs(*((PLANET, {"gam": gam}) for gam in (0.2, 0.3, 0.4)))
        # x = gam / beta(17.5) with beta = 0.918375, less what seeds add.
        assert read[:, -1, 2] == pytest.approx(1 - np.array([0.2, 0.3, 0.4]) / 0.918375, abs=1e-3)


class TestClimate:
    BARE = PLANET._replace(p=np.zeros(3))

    @pytest.mark.parametrize("changes", [{}, {"L": 0.7}, {"G": 0.15}, {"dust": 0.2}])
    def test_a_bare_planet_radiates_what_it_absorbs(self, changes):
        d = CALM | changes
        _, read = runs((self.BARE, changes))
        T, albedo, cover, flux, infrared = read[0, -1]
        absorbed = SOLAR * d["L"] * (0.5 - d["dust"])
        assert albedo == pytest.approx(0.5 + d["dust"])
        assert (cover, infrared) == pytest.approx((0, 0.2), abs=1e-6)
        assert flux == pytest.approx(absorbed, rel=1e-4)
        assert pytest.approx((absorbed * (1 + d["G"]) / SIGMA) ** 0.25 - ZERO, abs=0.01) == T

    def test_heat_capacity_sets_the_pace(self):
        """From 22.5 degrees a dark sun cools the planet at sigma T^4 / c."""
        states, _ = runs(*((self.BARE._replace(c=c), {"L": 0.0}) for c in (2000.0, 4000.0)))
        fall = 22.5 - states.T[:, 0]
        assert fall == pytest.approx(SIGMA * (22.5 + ZERO) ** 4 / np.array([2000, 4000]), rel=0.01)

    def test_dust_does_not_tell_kinds_apart(self):
        """It enters the planet's balance alone: local temperatures differ by the ground's albedo only."""
        state = State(a=tuple(jnp.float32(x) for x in (0.3, 0.2, 0.1)), T=jnp.float32(20.0))
        clear, dusty = (
            WORLD.drift(state, WORLD.drive_type(L=1.0, G=0.0, gam=0.3, dust=dust), THREE)
            for dust in (0.0, 0.1)
        )
        assert clear.a == dusty.a
        assert (clear.T - dusty.T) * THREE.c == pytest.approx(0.1 * SOLAR, rel=1e-4)


class TestSensors:
    def test_they_read_what_they_say(self):
        state = State(a=tuple(jnp.float32(x) for x in (0.3, 0.2, 0.1)), T=jnp.float32(20.0))
        drive = WORLD.drive_type(L=1.0, G=0.1, gam=0.3, dust=0.05)
        albedo = 0.5 * 0.4 + 0.75 * 0.3 + 0.25 * 0.2 + 0.5 * 0.1 + 0.05
        infrared = 0.2 * 0.4 + 0.6 * 0.3 + 0.4 * 0.2 + 0.5 * 0.1
        flux = SIGMA * 293.15**4 / 1.1
        expected = (20.0, albedo, 0.6, flux, infrared)
        assert np.array(WORLD.read(state, drive, THREE)) == pytest.approx(expected, rel=1e-5)

    def test_derivatives_are_finite_where_nothing_grows(self):
        state = State(a=tuple(jnp.float32(x) for x in (0.0, 0.0, 0.0)), T=jnp.float32(80.0))
        drive = WORLD.drive_type(*(jnp.float32(x) for x in (1.0, 0.0, 0.3, 0.0)))
        slopes = jax.jacfwd(WORLD.drift, argnums=(0, 1))(state, drive, THREE)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))
