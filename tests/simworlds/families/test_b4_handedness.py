"""B4: conservation, symmetry, what stirring and polarised light do, the sensors, each parameter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.families.b4_handedness import State
from simworlds.integrate import advance
from simworlds.keys import Draws, Noise, Words, role_words

WORLD = load("B4")
SENSORS = [sensor.name for sensor in WORLD.sensors]
SIGMAS = 4
CLONES = 256
PLAIN = WORLD.limit(N=80.0, kn=0.03)


def counts(params, ticks=60, label="test", **drive):
    """Counts ``[clone, 3]`` after some ticks."""
    run = Run(WORLD, params, drive, clones=CLONES, label=label, dtype=np.float32)
    run.ticks(ticks)
    return np.stack(run.state.n, -1)


def excess(n):
    return (n[:, 1] - n[:, 2]) / (n[:, 1] + n[:, 2])


def state(*n, lock=0.0):
    return State(tuple(jnp.float32(x) for x in n), jnp.float32(lock))


def drive(V=20.0, kd=1.0, s=0.0, g=0.0):
    return WORLD.drive_type(*(jnp.float32(x) for x in (V, kd, s, g)))


class TestLaw:
    @pytest.mark.parametrize("s", [0.0, 1.0])
    def test_molecules_are_conserved_and_never_negative(self, s):
        n = counts(PLAIN._replace(x=0.5, y=1.0), V=6.0, kd=2.0, s=s)
        assert (n.sum(1) == 80).all()
        assert (n >= 0).all()
        assert (n == np.round(n)).all()

    def test_mirror_images_have_mirrored_rates(self):
        params = PLAIN._replace(x=0.3)
        a, b, c, d, e = WORLD.propensities(state(30, 40, 10), drive(s=0.5, g=0.2), params)
        mirrored = WORLD.propensities(state(30, 10, 40), drive(s=0.5, g=-0.2), params)
        assert np.array(mirrored) == pytest.approx(np.array((b, a, d, c, e)), rel=1e-6)
        assert a != pytest.approx(b)

    def test_a_culture_takes_either_hand_though_none_is_favoured(self):
        w = excess(counts(PLAIN, V=6.0))
        assert abs(w.mean()) < SIGMAS * w.std() / np.sqrt(CLONES)
        assert np.mean(np.abs(w) > 0.5) > 0.6
        share = np.mean(w > 0)
        assert abs(share - 0.5) < SIGMAS * 0.5 / np.sqrt(CLONES)

    def test_more_feed_makes_it_racemic_and_leaves_the_mean_alone(self):
        w = excess(counts(PLAIN, V=60.0))
        assert abs(w.mean()) < SIGMAS * w.std() / np.sqrt(CLONES)
        assert np.mean(np.abs(w) > 0.5) < 0.5

    @pytest.mark.parametrize(("x", "y"), [(0.4, 0.0), (0.0, 1.0)])
    def test_stirring_takes_one_hand_further(self, x, y):
        params = PLAIN._replace(x=x, y=y)
        still, stirred = (np.abs(excess(counts(params, V=40.0, s=s))) for s in (0.0, 1.0))
        error = np.sqrt((still.var() + stirred.var()) / CLONES)
        assert stirred.mean() - still.mean() > SIGMAS * error

    def test_without_either_way_it_does_nothing(self):
        assert (counts(PLAIN, s=0.0) == counts(PLAIN, s=1.0)).all()

    @pytest.mark.parametrize(("bias", "g"), [(0.0, 0.5), (0.5, 0.0)])
    def test_polarised_light_and_bias_favour_a_hand_alike(self, bias, g):
        # Leaning e shifts the mean of w to e, exactly, as flows in and out of the products balance.
        w = excess(counts(PLAIN._replace(bias=bias), ticks=100, V=40.0, g=g))
        assert abs(w.mean() - 0.5) < SIGMAS * w.std() / np.sqrt(CLONES)


class TestSensors:
    def test_they_read_what_they_claim(self):
        at = state(20, 45, 15, lock=0.25)
        rates = WORLD.propensities(at, drive(s=1.0), PLAIN)
        read = WORLD.read(at, drive(s=1.0), PLAIN)
        assert np.array(read) == pytest.approx(np.array((30 / 80, 60 / 80, 0.25, sum(rates) / 80)))

    def test_the_lock_in_is_blind_to_the_hand_and_settles_at_the_modulus(self):
        right, left = (WORLD.drift(state(20, *n), drive(), PLAIN).lock for n in ((45, 15), (15, 45)))
        assert right == left
        assert WORLD.drift(state(20, 45, 15, lock=30 / 80), drive(), PLAIN).lock == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize(
        ("n", "name"),
        [((0, 61, 20), "dextro"), ((0, 20, 61), "laevo"), ((0, 60, 20), "racemic"), ((80, 0, 0), "racemic")],
    )
    def test_branches(self, n, name):
        assert WORLD.branches[int(WORLD.branch(state(*n), PLAIN))] == name


class TestParameters:
    @pytest.mark.parametrize("name", PLAIN._fields)
    def test_each_moves_a_sensor(self, name):
        params = PLAIN._replace(x=0.3, y=0.5, bias=0.5)
        params = jax.tree.map(jnp.float32, params)
        value = getattr(params, name)
        other = params._replace(**{name: jnp.round(1.5 * value) if name == "N" else 1.5 * value})
        assert np.abs(self.readings(params) - self.readings(other)).max() > 1e-3

    @staticmethod
    @jax.jit
    def readings(params):
        """Readings ``[tick, sensor]`` of a stirred clone; all parameters meet the same noise."""
        first, later = (Words(*(jnp.uint32(x) for x in role_words("B4", 0, "test", part))) for part in "ab")
        start = WORLD.initial(params, Noise(first, jnp.uint32(0)))

        def tick(carried, t):
            carried, read = advance(WORLD, params, carried, drive(s=1.0), later, t)
            return carried, jnp.stack(read)

        return jax.lax.scan(tick, start, jnp.arange(24, dtype=jnp.int32))[1]

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.draw(Draws.for_role("B4", seed, "test", "ranges")) for seed in range(64)]
        rows = {name: np.array([getattr(p, name) for p in drawn]) for name in drawn[0]._fields}
        for name, low, high in (("N", 60, 120), ("k", 0.8, 1.25), ("kn", 0.02, 0.05), ("tau", 2, 10)):
            assert rows[name].min() >= low
            assert rows[name].max() <= high
        assert np.abs(rows["bias"]).max() <= 0.05
        antagonism = rows["x"] > 0
        assert (antagonism == (rows["y"] == 0)).all()
        assert abs(antagonism.mean() - 0.6) < SIGMAS * np.sqrt(0.24 / 64)  # six in ten
        alpha = (
            rows["kn"] / rows["k"] * np.array([[drive_.low, drive_.high] for drive_ in WORLD.drives[:1]]).T
        )
        assert (alpha[0] < 1).all()  # so feed carries most instances through alpha = 1
        assert np.mean(alpha[1] > 1) > 0.8
