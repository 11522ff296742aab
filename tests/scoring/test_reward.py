"""Rewards of the design tasks: the formula, its laws, and what is refused before anything runs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scoring
from scoring.reward import check_prediction, score_prediction

SIGMA = np.array([0.1, 2.0, 30.0])


def case(batch=(), seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(*batch, 6, 3)) * SIGMA
    prediction = target + rng.normal(size=target.shape) * SIGMA
    return prediction.astype(dtype), target.astype(dtype), np.broadcast_to(SIGMA, (*batch, 3)).astype(dtype)


def worth(prediction, target, sigma):
    return scoring.mse_reward(scoring.normalised_mse(prediction, target, sigma))


class TestFormula:
    def test_by_hand(self):
        prediction, target, sigma = case()
        error = np.mean(((prediction - target) / sigma) ** 2)
        assert float(scoring.normalised_mse(prediction, target, sigma)) == pytest.approx(error, rel=1e-12)
        assert float(worth(prediction, target, sigma)) == pytest.approx(1 / (1 + error), rel=1e-12)
        np.testing.assert_allclose(
            scoring.rmse(prediction, target), np.sqrt(np.mean((prediction - target) ** 2, axis=0)), rtol=1e-12
        )

    def test_perfect_is_one_and_one_sigma_off_everywhere_is_half(self):
        _, target, sigma = case()
        assert float(worth(target, target, sigma)) == 1
        assert float(worth(target + sigma, target, sigma)) == pytest.approx(0.5, rel=1e-12)

    @given(unit=st.floats(1e-6, 1e6), shift=st.floats(-1e3, 1e3))
    def test_units_and_origin_of_an_output_do_not_matter(self, unit, shift):
        prediction, target, sigma = case()
        moved = worth(prediction * unit + shift, target * unit + shift, sigma * unit)
        tolerance = 1e-9 + 1e-12 * abs(shift) / (unit * 0.1)
        assert float(moved) == pytest.approx(float(worth(prediction, target, sigma)), rel=tolerance)


class TestLaws:
    @pytest.mark.parametrize("batch", [(6,), (2, 3)])
    def test_a_batch_equals_its_items(self, batch):
        inputs = case(batch)
        together, roots = worth(*inputs), scoring.rmse(*inputs[:2])
        for place in np.ndindex(batch):
            item = [each[place] for each in inputs]
            assert float(together[place]) == pytest.approx(float(worth(*item)), rel=1e-13)
            np.testing.assert_allclose(roots[place], scoring.rmse(*item[:2]), rtol=1e-13)

    def test_jit_vmap_and_gradients(self):
        inputs = case((4,))
        np.testing.assert_allclose(jax.jit(jax.vmap(worth))(*inputs), worth(*inputs), rtol=1e-13)
        prediction, target, sigma = (jnp.asarray(each) for each in case())
        for start in (prediction, target):
            slope = jax.grad(lambda p: worth(p, target, sigma) + jnp.sum(scoring.rmse(p, target)))(start)
            assert np.isfinite(slope).all()

    def test_the_order_of_rows_does_not_matter(self):
        prediction, target, sigma = case()
        order = np.random.default_rng(1).permutation(6)
        assert float(worth(prediction[order], target[order], sigma)) == pytest.approx(
            float(worth(prediction, target, sigma)), rel=1e-13
        )

    def test_float32(self):
        narrow = worth(*case((20,), dtype=np.float32))
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, worth(*case((20,))), rtol=1e-5)


class TestNothingBadPays:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, -1e308])
    @pytest.mark.parametrize("which", [0, 1])
    def test_in_an_entry(self, bad, which):
        inputs = list(case())
        inputs[which][2, 1] = bad
        assert float(worth(*inputs)) == 0
        assert not float(scoring.rmse(*inputs[:2])[1]) < 1e300

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0, 5e-324])
    def test_in_a_scale(self, bad):
        prediction, target, sigma = case()
        sigma = sigma.copy()
        sigma[1] = bad
        assert float(worth(prediction, target, sigma)) == 0

    @pytest.mark.parametrize("error", [np.nan, np.inf, -np.inf, -0.5, -1.0])
    def test_as_an_error(self, error):
        assert float(scoring.mse_reward(np.asarray(error))) == 0

    @pytest.mark.parametrize("shape", [(0, 3), (6, 0)])
    def test_an_empty_matrix(self, shape):
        empty = np.zeros(shape)
        assert float(worth(empty, empty, np.ones(shape[1]))) == 0


BAD = {
    "short": (np.zeros((5, 3)), r"shape \(6, 3\), but has shape \(5, 3\)"),
    "flat": (np.zeros(18), r"but has shape \(18,\)"),
    "ragged": ([[1.0, 2.0], [1.0]], "but its rows are not alike|but is of dtype"),
    "text": ([["1"] * 3] * 6, "but is of dtype"),
    "complex": (np.zeros((6, 3), complex), "but is of dtype complex128"),
    "boolean": (np.zeros((6, 3), bool), "but is of dtype bool"),
    "object": ([[None] * 3] * 6, "but is of dtype object"),
    "nothing": (None, "but is of dtype object"),
    "NaN": (np.where(np.arange(18).reshape(6, 3) == 7, np.nan, 0), r"but is nan at \[2, 1\]"),
    "infinity": (np.where(np.arange(18).reshape(6, 3) == 4, -np.inf, 0), r"but is -inf at \[1, 1\]"),
    "long integer": ([[10**400] * 3] * 6, "but is of dtype object|rows are not alike"),
}


class TestRefusals:
    @pytest.mark.parametrize(("prediction", "message"), BAD.values(), ids=BAD)
    def test_before_anything_runs(self, prediction, message):
        with pytest.raises(ValueError, match=message):
            check_prediction(prediction, 6, 3)

    def test_what_is_right_comes_back_in_float64(self):
        checked = check_prediction([[1, 2, 3]] * 6, 6, 3)
        assert checked.dtype == np.float64
        assert checked.shape == (6, 3)

    def test_target_and_scales_are_checked_too(self):
        with pytest.raises(ValueError, match="`target` must be finite"):
            score_prediction(np.zeros((2, 3)), np.full((2, 3), np.nan), np.ones(3))
        with pytest.raises(ValueError, match="`sigma` must be 3 finite numbers above 0"):
            score_prediction(np.zeros((2, 3)), np.zeros((2, 3)), [1.0, 0.0, 1.0])

    def test_a_report_is_plain_json(self):
        prediction, target, sigma = case()
        report = score_prediction(prediction, target, sigma)
        plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
        assert plain["rows"] == 6
        assert plain["reward"] == pytest.approx(float(worth(prediction, target, sigma)), rel=1e-13)
        prediction[0, 0] = 1e308
        far = score_prediction(prediction, target, sigma)
        json.dumps(far.to_json(), allow_nan=False)
        assert (far.reward, far.nmse) == (0, None)
