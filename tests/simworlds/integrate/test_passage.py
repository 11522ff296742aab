"""First passages against closed forms: survival before a wall that absorbs, rest before one that reflects."""

from functools import cache, partial
from math import erf, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.integrate import FirstPassage, SoftPassage, advance
from simworlds.integrate.passage import reached_zero, reflect
from simworlds.keys import clone_words, role_words
from simworlds.world import AbsorbingWorld

CLONES, ELEMENTS = 4096, 6
SIGMAS = 5.0  # alpha = 6e-7
STEPS = 20


class Walker(NamedTuple):
    x: Any
    z: Any


class Walk(NamedTuple):
    v: Any
    D: Any


class Walking(AbsorbingWorld):
    """dx = v dt + sqrt(2 D) dW on elements ``[M]``; z is the share that was absorbed."""

    id, title, track, phenomenon = "T1", "Walking", "T", "none"
    drives, sensors = (), ()
    absorbing = "x"
    wall = 1e3
    scheme = FirstPassage(dt=1 / STEPS, substeps=STEPS)

    def draw(self, draws):
        return Walk(np.float32(0.0), np.float32(0.5))

    def limit(self, **changes):
        return Walk(0.0, 0.5)._replace(**changes)

    def initial(self, params, noise):
        return Walker(jnp.ones(ELEMENTS), jnp.zeros(ELEMENTS))

    def drift(self, state, drive, params):
        return Walker(params.v * (1 - state.z), jnp.zeros_like(state.z))

    def diffusion(self, state, drive, params):
        return Walker(jnp.sqrt(2 * params.D) * jnp.where(state.z < 1, 1.0, 0.0), None)

    def landed(self, before, after, hit, drive, params):
        z = 1 - (1 - before.z) * (1 - jnp.asarray(hit, after.z.dtype))
        return Walker(jnp.where(z < 1, after.x, 0.0), z)

    def read(self, state, drive, params):
        return (jnp.mean(state.x),)


class Unbridged(FirstPassage):
    """The planted defect: a path is absorbed if a step ends below 0."""

    def randoms(self, law, params, carried, drive, noise):
        drawn, above, below = FirstPassage.randoms(self, law, params, carried, drive, noise)
        return drawn, above, jnp.full_like(below, 1 - 1e-7)


class WithoutBridge(Walking):
    scheme = Unbridged(dt=1 / STEPS, substeps=STEPS)


class Soft(Walking):
    scheme = SoftPassage(dt=1 / STEPS, substeps=STEPS)


@cache
def after_a_tick(world, v=0.0):
    """States ``[clone, element]`` after one time unit from x = 1 with D = 1/2."""
    params = Walk(jnp.float32(v), jnp.float32(0.5))
    key = role_words("T1", 0, "test", "passage")
    keys = jax.vmap(partial(clone_words, key))(jnp.arange(CLONES, dtype=jnp.uint32))
    start = world.initial(params, None)
    run = jax.jit(jax.vmap(lambda k: advance(world, params, start, (), k, jnp.int32(0))[0]))
    return jax.tree.map(np.asarray, run(keys))


def sigmas(alive, expected):
    error = sqrt(expected * (1 - expected) / alive.size)
    return abs(alive.mean() - expected) / error


def survival(v):
    """P(no passage of 0 by t = 1) from x = 1, D = 1/2: Bachelier's formula for drift v."""
    phi = lambda u: (1 + erf(u / sqrt(2))) / 2  # noqa: E731
    return phi(1 + v) - np.exp(-2 * v) * phi(v - 1)


class TestAbsorption:
    def test_the_formula_without_drift_is_the_error_function(self):
        assert survival(0.0) == pytest.approx(erf(1 / sqrt(2)), abs=1e-12)

    @pytest.mark.parametrize("v", [0.0, -0.7, 0.5])
    def test_survival_is_exact_at_a_coarse_step(self, v):
        assert sigmas(1 - after_a_tick(Walking(), v).z, survival(v)) < SIGMAS

    def test_without_the_bridge_too_many_survive(self):
        states = after_a_tick(WithoutBridge())
        assert sigmas(1 - states.z, survival(0.0)) > 3 * SIGMAS

    def test_what_is_absorbed_stays_where_it_is(self):
        states = after_a_tick(Walking())
        assert (states.x[states.z == 1] == 0).all()
        assert (states.x[states.z == 0] > 0).all()

    def test_elements_are_absorbed_by_themselves(self):
        z = after_a_tick(Walking()).z
        correlation = np.corrcoef(z.T)[np.triu_indices(ELEMENTS, 1)]
        assert np.abs(correlation).max() < SIGMAS / sqrt(CLONES)

    def test_without_noise_there_is_no_risk(self):
        chance = reached_zero(jnp.zeros(2), jnp.array([0.0, -1.0]), jnp.array([0.0, 1.0]))
        assert chance.tolist() == [0.0, 1.0]


class TestSoftPassage:
    def test_the_share_has_the_probability_for_its_mean(self):
        z = after_a_tick(Soft()).z
        assert abs(1 - z.mean() - survival(0.0)) < SIGMAS * z.std() / sqrt(z.size)

    def test_it_varies_less_than_the_outcome(self):
        assert after_a_tick(Soft()).z.std() < after_a_tick(Walking()).z.std()


class TestReflection:
    """Pressed against a wall at speed v, a path rests at a mean distance D / v, whatever the step."""

    @staticmethod
    def distance(put_back):
        rng = np.random.default_rng(20240501)
        v, D, dt, size = 1.0, 0.5, 0.5, 20000
        x = np.ones(size)
        for _ in range(40):
            end = x + v * dt + np.sqrt(2 * D * dt) * rng.standard_normal(size)
            x = np.asarray(put_back(x, end, 2 * D * dt, 1.0, rng.random(size)))
        return (1 - x).mean(), (1 - x).std() / sqrt(size)

    def test_the_mean_distance_is_exact(self):
        mean, error = self.distance(reflect)
        assert abs(mean - 0.5) < SIGMAS * error

    def test_folding_paths_back_would_show(self):
        mean, error = self.distance(lambda x, end, variance, wall, u: wall - np.abs(wall - end))
        assert abs(mean - 0.5) > 3 * SIGMAS * error

    def test_a_path_far_from_the_wall_is_left_alone(self):
        assert float(reflect(0.2, 0.3, 1e-4, 1.0, 0.5)) == pytest.approx(0.3, abs=1e-7)
