"""The adaptive path against closed forms; the certificate of every fixed step against the adaptive path."""

import dataclasses
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.validation.steps import (
    SINGLE,
    STEP,
    adaptive_error,
    adaptive_statistics,
    single_error,
    stepped_statistics,
)
from simworlds.catalogue import load, worlds
from simworlds.errors import Diverged, UnsupportedLaw
from simworlds.integrate import RK4, advance
from simworlds.keys import Noise, Words, key_for
from simworlds.reference import reference_readings, terms
from simworlds.world import Drive, Grammar, OdeWorld, Sensor

ODES = [world for world in worlds() if isinstance(world, OdeWorld)]
every_ode = pytest.mark.parametrize("world", ODES, ids=lambda world: world.id)


class Decay(NamedTuple):
    x: Any
    angle: Any


class Rate(NamedTuple):
    a: Any


class Decaying(OdeWorld):
    """x' = -a x b and angle' = 1, whose tick means are known."""

    id, title, track, phenomenon = "T1", "Decaying", "T", "none"
    drives = (Drive("b", 0.5, 1.5, rest=0.5),)
    sensors = (Sensor("x", 0.0, 1.0), Sensor("sine", -1.0, 1.0))
    scheme = RK4(dt=0.1, substeps=20)
    grammar = Grammar((1, 1), (2, 2), (2, 2), (1, 1), {"x": 1.0})

    def draw(self, draws):
        return Rate(np.float32(1.0))

    def limit(self, **changes):
        return Rate(1.0)._replace(**changes)

    def initial(self, params, noise):
        return Decay(jnp.ones_like(params.a), jnp.zeros_like(params.a))

    def drift(self, state, drive, params):
        return Decay(-params.a * drive.b * state.x, jnp.ones_like(state.angle))

    def read(self, state, drive, params):
        return state.x, jnp.sin(state.angle)

    def wrap(self, state):
        return state._replace(angle=jnp.mod(state.angle, 2 * np.pi))


class Exploding(Decaying):
    """x' = x^2, infinite after one time unit."""

    id, title = "T2", "Exploding"

    def drift(self, state, drive, params):
        return Decay(state.x**2, jnp.zeros_like(state.angle))


DECAYING, EXPLODING = Decaying(), Exploding()


class TestReadings:
    LEVELS = np.array([[0.0], [1.0], [0.5]])

    def decay(self, a=1.0, start=1.0):
        """Tick means of x: the integral of an exponential over each tick of 2 units."""
        means = []
        for rate in a * (0.5 + self.LEVELS[:, 0]):
            means.append(start * (1 - np.exp(-2 * rate)) / (2 * rate))
            start *= np.exp(-2 * rate)
        return means

    def test_means_are_those_of_the_closed_form(self):
        got = reference_readings(DECAYING, DECAYING.limit(), self.LEVELS)
        edges = np.cos(2 * np.arange(4))
        assert got.dtype == np.float64
        assert got[:, 0] == pytest.approx(self.decay(), abs=1e-9)
        assert got[:, 1] == pytest.approx((edges[:-1] - edges[1:]) / 2, abs=1e-9)

    def test_parameters_and_initial_state_are_the_callers(self):
        start = Decay(0.25, 1.0)
        got = reference_readings(DECAYING, DECAYING.limit(a=2.0), self.LEVELS, initial=start)
        assert got[:, 0] == pytest.approx(self.decay(2.0, 0.25), abs=1e-9)

    def test_the_tolerance_is_the_callers(self):
        exact = np.array(self.decay())
        loose = reference_readings(DECAYING, DECAYING.limit(), self.LEVELS, rtol=1e-3, atol=1e-3)
        assert 1e-9 < np.abs(loose[:, 0] - exact).max() < 1e-3

    def test_types_around_the_call_stay_as_they_are(self):
        reference_readings(DECAYING, DECAYING.limit(), self.LEVELS)
        assert jnp.ones(1).dtype == jnp.float32

    def test_a_divergence_names_world_and_tick(self):
        with pytest.raises(Diverged, match="world T2: the adaptive solve failed in tick 1"):
            reference_readings(EXPLODING, EXPLODING.limit(), self.LEVELS, initial=Decay(0.3, 0.0))

    @pytest.mark.parametrize("name", ["A4", "B2"])
    def test_noise_has_no_reference(self, name):
        world = load(name)
        levels = np.tile(world.rest, (2, 1))
        with pytest.raises(UnsupportedLaw, match=f"world {name} is no ordinary differential equation"):
            reference_readings(world, world.limit(), levels)


class TestTerms:
    @every_ode
    def test_an_adaptive_solver_agrees_with_the_fixed_step(self, world, x64):
        """Eight ticks at one set of levels and eight at another, as a function of time."""
        params = jax.tree.map(jnp.float64, world.instance(0, redraws=0).params)
        state = world.initial(params, Noise(Words(np.uint32(0), np.uint32(0)), np.uint32(0)))
        low, high = (jnp.clip(world.rest + shift, 0.1, 0.7) for shift in (-0.1, 0.3))
        half = 8 * world.scheme.tick_time
        law = world.terms(params, lambda t: jnp.where(t < half, low, high))
        control = diffrax.ClipStepSizeController(diffrax.PIDController(rtol=1e-9, atol=1e-9), jump_ts=[half])
        solution = diffrax.diffeqsolve(
            law, diffrax.Tsit5(), 0.0, 2 * half, None, state, stepsize_controller=control, max_steps=100_000
        )
        adaptive = world.wrap(jax.tree.map(lambda x: x[-1], solution.ys))

        @jax.jit
        def tick(state, levels):
            return advance(world, params, state, world.physical(levels), Words(0, 0), jnp.int32(0))[0]

        for levels in (low, high):
            for _ in range(8):
                state = tick(state, levels)
        for expected, got in zip(jax.tree.leaves(state), jax.tree.leaves(adaptive), strict=True):
            assert np.asarray(got) == pytest.approx(np.asarray(expected), rel=1e-4, abs=1e-6)

    def test_noise_has_the_worlds_amplitude(self):
        """Uncoupled oscillators diffuse by 2 D t; the conductor's phase, without noise, moves by nu t."""
        world = load("A4")
        params = jax.tree.map(jnp.float32, world.limit())
        levels = jnp.array([0.0, 1.0, 0.0, 0.75], jnp.float32)
        zero = jnp.zeros((), jnp.float32)
        start = world.initial(params, Noise(Words(np.uint32(1), np.uint32(2)), np.uint32(0)))
        start = start._replace(phi=zero)
        solve = jax.jit(
            lambda: (
                diffrax.diffeqsolve(
                    world.terms(params, lambda t: levels), diffrax.Heun(), 0.0, 4.0, 0.125, start
                ).ys
            )
        )
        end = jax.tree.map(lambda x: np.asarray(x[-1], float), solve())
        assert end.phi == pytest.approx(4 * 1.0, rel=1e-5)
        share = np.sum((end.th - np.asarray(start.th)) ** 2) / (2 * 1.2 * 4)
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], len(end.th))
        assert low < share < high
        assert not low < share / 2.5 < high  # an amplitude of sqrt(5 D) would be seen

    def test_the_path_is_the_keys(self):
        world = load("A4")
        first, again, other = (
            terms(world, world.limit(), lambda t: world.rest, key=key).terms[1].control
            for key in (None, None, key_for("A4", 0, "test", "path"))
        )
        assert eqx.tree_equal(first, again)
        assert not eqx.tree_equal(first, other)

    def test_jumps_have_no_terms(self):
        world = load("B2")
        with pytest.raises(UnsupportedLaw, match="world B2 is neither an ordinary nor a stochastic"):
            world.terms(world.limit(), lambda t: world.rest)


class TestStepCertificate:
    """Window statistics at a family's step against adaptive solves, in shares of nominal ranges.

    `simworlds validate` does the same over more instances.
    """

    FEW = dict(seeds=1, count=2)

    @every_ode
    def test_statistics_at_the_worlds_step_are_those_of_the_law(self, world):
        assert adaptive_error(world, **self.FEW) < STEP

    @every_ode
    def test_single_precision_is_near(self, world):
        assert single_error(world, **self.FEW) < SINGLE

    @pytest.mark.parametrize("name", ["C2", "D4"])
    def test_half_the_step_is_nearer_and_too_long_a_step_is_found(self, name):
        world = load(name)
        error = adaptive_error(world, **self.FEW)
        assert adaptive_error(world, refinement=2, **self.FEW) < error / 2 + 1e-7
        fields = {
            "scheme": dataclasses.replace(
                world.scheme, dt=8 * world.scheme.dt, substeps=world.scheme.substeps // 8
            )
        }
        long = type("Long", (type(world),), fields)()
        assert adaptive_error(long, **self.FEW) > max(STEP, 20 * error)

    @pytest.mark.validation
    @every_ode
    def test_both_hold_over_many_instances(self, world):
        """All but one statistic in a thousand: where two outcomes part, any error may grow."""
        adaptive = adaptive_statistics(world, 24, 4)
        for dtype, tolerance in ((np.float64, STEP), (np.float32, SINGLE)):
            error = np.abs(stepped_statistics(world, 1, dtype, 24, 4) - adaptive)
            assert np.mean(error > tolerance) < 1e-3
            assert error.max() < 3e-2
