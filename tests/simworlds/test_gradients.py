"""Derivatives of ensemble statistics: against central differences, in both modes, never silently zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.runs import Run
from experiments.validation.steps import SLOPE, slope_error
from simworlds.catalogue import load, worlds
from simworlds.errors import InvalidRequest, UnsupportedLaw
from simworlds.gradients import window_statistics
from simworlds.integrate import advance, begin
from simworlds.keys import Noise, Words, binomial_from, key_for, poisson_from

JUMPS = [world for world in worlds() if not world.scheme.smooth]
NO_NOISE = Noise(Words(np.uint32(1), np.uint32(2)), np.uint32(0))


@pytest.mark.validation
@pytest.mark.parametrize("world", list(worlds()), ids=lambda world: world.id)
def test_derivatives_agree_with_central_differences(world):
    assert slope_error(world) < SLOPE


@pytest.mark.parametrize("name", ["A4", "C2"])
def test_they_agree_for_a_noisy_and_a_smooth_world(name):
    assert slope_error(load(name), ticks=8) < SLOPE


def test_a_wrong_derivative_would_be_seen(monkeypatch):
    """The same comparison for a statistic whose derivative is cut off along the parameters."""
    from experiments.validation import steps

    def cut(world, params, levels, window, **more):
        return window_statistics(world, jax.lax.stop_gradient(params), levels, window, **more)

    monkeypatch.setattr(steps, "window_statistics", cut)
    assert slope_error(load("C2"), ticks=8) > 100 * SLOPE


def test_reverse_mode_is_forward_mode(x64):
    world = load("C2")
    params = jax.tree.map(jnp.float64, world.instance(0, redraws=0).params)
    levels = jnp.tile(jnp.asarray(world.rest), (8, 1))

    def figure(params, levels):
        return window_statistics(world, params, levels, (2, 8)).mean[0, 0]

    reverse = jax.jit(jax.grad(figure, argnums=(0, 1)))(params, levels)
    forward = jax.jit(jax.jacfwd(figure, argnums=(0, 1)))(params, levels)
    for a, b in zip(jax.tree.leaves(reverse), jax.tree.leaves(forward), strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-9, abs=1e-12)
    assert np.abs(np.asarray(reverse[1])).max() > 0


class TestJumps:
    @pytest.mark.parametrize("world", JUMPS, ids=lambda world: world.id)
    def test_a_derivative_through_jumps_is_refused(self, world):
        """Through the engine's own tick, where it would be zero or wrong without a word."""
        params = jax.tree.map(jnp.asarray, world.limit())
        params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
        levels = jnp.asarray(world.rest, jnp.float32)

        def reading(levels):
            start = begin(world, params, NO_NOISE, jnp.float32)
            return advance(world, params, start, world.physical(levels), Words(0, 0), jnp.int32(0))[1][0]

        jax.eval_shape(reading, levels)  # without a derivative it runs
        with pytest.raises(UnsupportedLaw, match=f"world {world.id} moves by jumps.*world.relaxed"):
            jax.eval_shape(jax.grad(reading), levels)
        with pytest.raises(UnsupportedLaw, match="use its relaxation"):
            window_statistics(world, params, jnp.tile(levels, (4, 1)), (0, 4))

    @pytest.mark.parametrize("world", JUMPS, ids=lambda world: world.id)
    def test_each_has_a_relaxation_with_the_same_ports(self, world):
        relaxed = world.relaxed()
        assert relaxed.scheme.smooth
        assert relaxed is world.relaxed()
        assert (relaxed.drives, relaxed.sensors, relaxed.horizon) == (
            world.drives, world.sensors, world.horizon,
        )  # fmt: skip
        assert type(relaxed).__doc__ or type(relaxed).__mro__[1].__doc__
        assert relaxed.relaxed() is relaxed

    def test_a_smooth_world_is_its_own_relaxation(self):
        assert load("D4").relaxed() is load("D4")

    def test_a_diffusion_limit_keeps_what_the_law_keeps(self):
        """Molecules of B4 turn into one another: their number stays, and none falls below 0."""
        relaxed = load("B4").relaxed()
        run = Run(relaxed, relaxed.limit(N=60.0), {"V": 6.0}, clones=16)
        run.ticks(20)
        assert np.sum(run.state.n, axis=0) == pytest.approx(60.0)
        assert np.min(run.state.n) >= 0

    def test_expected_counts_have_the_right_derivative(self):
        """The mean over uniform numbers of the derivative is that of the mean: 1, and n."""
        u = jax.random.uniform(key_for("T", 0, "test", "counts"), (20_000,), minval=1e-6, maxval=1 - 1e-6)
        slopes = jax.vmap(jax.grad(lambda m, u: poisson_from(u, m)), in_axes=(None, 0))(7.0, u)
        assert abs(float(slopes.mean()) - 1) < 5 * float(slopes.std()) / np.sqrt(len(u))
        slopes = jax.vmap(jax.grad(lambda p, u: binomial_from(u, jnp.float32(30), p)), in_axes=(None, 0))(
            0.3, u
        )
        assert abs(float(slopes.mean()) - 30) < 5 * float(slopes.std()) / np.sqrt(len(u))


@pytest.mark.parametrize("window", [(0, 1), (-1, 3), (2, 9), (3, 2)])
def test_a_bad_window_is_refused(window):
    world = load("C2")
    with pytest.raises(InvalidRequest, match="a window must hold at least 2 ticks within 0..8"):
        window_statistics(world, world.limit(), jnp.tile(jnp.asarray(world.rest), (8, 1)), window)
