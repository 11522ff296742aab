"""Derivatives of ensemble statistics: against central differences, in both modes, never silently zero."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.runs import Run
from experiments.validation.steps import SLOPE, slope_error
from simworlds.catalogue import load, worlds
from simworlds.errors import InvalidRequest, UnsupportedLaw
from simworlds.gradients import FORWARD_UP_TO, MODES, mode_for, value_and_grad, window_statistics
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


def some_levels(world, ticks=4):
    return jnp.tile(jnp.asarray(world.rest), (ticks, 1))


@pytest.mark.parametrize(
    "world",
    [load("C2"), pytest.param(load("B4").relaxed(), marks=pytest.mark.validation)],
    ids=["C2", "B4 relaxed"],
)
def test_both_modes_are_the_slope_of_central_differences(world, x64):
    params = jax.tree.map(jnp.float64, world.instance(0, redraws=0).params)
    levels, name = some_levels(world), params._fields[0]
    shape = jnp.shape(getattr(params, name))

    @jax.jit
    def figure(free):
        factor, offset = free["factor"], free["offset"]
        changed = params._replace(**{name: getattr(params, name) * factor * jnp.ones(shape)})
        found = window_statistics(world, changed, levels + offset[None], (1, 4))
        return jnp.sum(found.mean) + jnp.sum(found.sd)

    free = {"factor": jnp.float64(1.0), "offset": jnp.zeros(levels.shape[1])}
    found = {mode: jax.jit(value_and_grad(figure, mode=mode))(free) for mode in ("forward", "reverse")}
    for value, gradient in found.values():
        assert float(value) == pytest.approx(float(figure(free)), rel=1e-12)
        for k in range(levels.shape[1]):
            step = 1e-6 * jnp.eye(levels.shape[1])[k]
            apart = [figure(free | {"offset": free["offset"] + sign * step}) for sign in (1, -1)]
            slope = float(apart[0] - apart[1]) / 2e-6
            assert float(gradient["offset"][k]) == pytest.approx(slope, rel=1e-5, abs=1e-7)
        assert float(jnp.abs(gradient["offset"]).max()) > 1e-3
    for a, b in zip(*(jax.tree.leaves(gradient) for _, gradient in found.values()), strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-9, abs=1e-12)


class TestRule:
    FREE = NamedTuple("Free", [("a", Any), ("b", Any)])(jnp.float32(2.0), jnp.arange(3.0))

    @staticmethod
    def loss(free, scale=1.0):
        return scale * (free.a**2 + jnp.sum(free.b * free.a))

    @pytest.mark.parametrize(
        ("options", "mode"),
        [
            ({}, "forward"),
            ({"forward_up_to": 4}, "forward"),
            ({"forward_up_to": 3}, "reverse"),
            ({"forward_up_to": 0}, "reverse"),
            ({"mode": "forward", "forward_up_to": 0}, "forward"),
            ({"mode": "reverse"}, "reverse"),
            ({"trajectories": 64}, "forward"),
            ({"trajectories": 65}, "reverse"),
            ({"mode": "forward", "trajectories": 65}, "forward"),
        ],
    )
    def test_the_number_of_free_numbers_decides_unless_told(self, options, mode):
        """Reverse mode turns a scan over; forward mode leaves it as it is."""

        def walk(free):
            return jax.lax.scan(lambda x, b: (x * b, None), free.a, free.b)[0]

        if "mode" not in options:
            assert mode_for(self.FREE, **options) == mode
        text = str(jax.make_jaxpr(value_and_grad(walk, **options))(self.FREE))
        assert ("reverse=True" in text) == (mode == "reverse")

    @pytest.mark.parametrize("mode", MODES)
    def test_a_gradient_is_a_tree_like_the_first_argument(self, mode):
        value, gradient = value_and_grad(self.loss, mode=mode)(self.FREE, 2.0)
        assert float(value) == pytest.approx(2 * (4 + 6))
        assert float(gradient.a) == pytest.approx(2 * (4 + 3))
        np.testing.assert_allclose(gradient.b, [4, 4, 4])

    def test_the_rule_is_the_stated_one(self):
        assert mode_for(jnp.zeros(FORWARD_UP_TO)) == "forward"
        assert mode_for(jnp.zeros(FORWARD_UP_TO + 1)) == "reverse"
        assert mode_for(jnp.zeros(1), 10**6) == "forward"
        assert mode_for(jnp.zeros(2), 10**6) == "reverse"

    def test_nothing_to_differentiate_gives_the_value(self):
        assert value_and_grad(lambda free: jnp.float32(3.0))(()) == (3.0, ())

    def test_random_numbers_are_drawn_once_in_forward_mode(self):
        def noisy(x):
            return jnp.sum(x) * jnp.sum(jax.random.normal(jax.random.key(0), (16,)))

        text = jax.jit(value_and_grad(noisy, mode="forward")).lower(jnp.ones(4)).as_text()
        assert "tensor<16xf32>" in text
        assert "tensor<4x16xf32>" not in text

    def test_bad_arguments_are_refused(self):
        with pytest.raises(
            InvalidRequest, match="`mode` must be one of auto, forward, reverse, but is 'sideways'"
        ):
            value_and_grad(self.loss, mode="sideways")
        with pytest.raises(InvalidRequest, match="`trajectories` must be at least 1, but is 0"):
            value_and_grad(self.loss, trajectories=0)
        with pytest.raises(InvalidRequest, match="`forward_up_to` must be at least 0, but is -1"):
            value_and_grad(self.loss, forward_up_to=-1)
        with pytest.raises(InvalidRequest, match="free numbers must be floats, but there is a leaf of int32"):
            value_and_grad(jnp.sum)(jnp.arange(3))


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
