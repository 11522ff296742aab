"""The definitions of section 1 of the scoring page: closed forms, published implementations, limits."""

import jax
import numpy as np
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st

import scoring
from scoring.quantile import _positions

EPS = np.finfo(np.float64).eps
POINT = np.ones(5)


def deterministic(draws, answers):
    """Scores of point answers to contracts whose draws are all the same."""
    ensemble = np.repeat(draws[:, None], 8, axis=1)
    return scoring.quantile_score(answers[:, None] * POINT[None, :], ensemble), scoring.fair_floor(ensemble)


finite = st.floats(-1e6, 1e6, allow_subnormal=False)


class TestDeterministicTruth:
    @settings(max_examples=100)
    @given(truth=finite, answer=finite, scale=st.floats(1e-3, 1e3))
    def test_point_answer_reduces_to_the_legacy_score(self, truth, answer, scale):
        score, floor = deterministic(np.array([truth]), np.array([answer]))
        error = abs(answer - truth)
        assert float(floor[0]) == 0
        assert abs(float(score[0]) - error) <= 2 * np.spacing(error)
        expected = np.exp(-error / scale)
        tolerance = 4 * EPS * (1 + error / scale)
        assert float(scoring.accuracy(score, floor, scale)[0]) == pytest.approx(expected, rel=tolerance)
        if expected > 1e-300:
            legacy = scoring.legacy_accuracy(np.array([answer]), np.full((1, 8), truth), scale)
            assert float(legacy[0]) == pytest.approx(expected, rel=tolerance)

    @pytest.mark.parametrize("clones", [4, 7, 8, 3000])
    def test_point_answer_costs_its_error_within_two_ulp(self, clones):
        rng = np.random.default_rng(1)
        truth, answer = rng.uniform(-2, 2, (2, 2000)) * 10.0 ** rng.integers(-6, 7, (2, 2000))
        score = np.asarray(scoring.quantile_score(answer[:, None] * POINT, np.tile(truth[:, None], clones)))
        error = np.abs(answer - truth)
        assert np.all(np.abs(score - error) <= 2 * np.spacing(error))

    @pytest.mark.parametrize("clones", [1, 2, 3, 16, 17, 5000])
    def test_floor_and_spreads_are_exactly_zero(self, clones):
        draws = np.full(clones, 0.1)
        branch = np.arange(clones) % 3
        assert float(scoring.fair_floor(draws)) == 0
        assert float(scoring.total_spread(draws)) == 0
        assert float(scoring.within_branch_spread(draws, branch)) == 0


class TestHonestPoint:
    @pytest.mark.parametrize("clones", [4, 8])
    def test_the_noise_of_a_gaussian_world_is_not_punished(self, clones):
        """The mean of 20,000 ensembles has a standard error below 0.001: margins of 4 and more."""
        draws = np.random.default_rng(2).normal(size=(20000, clones))
        scale = 3 * scoring.within_branch_spread(draws, np.zeros(draws.shape, int))
        score, floor = scoring.quantile_score(np.zeros((1, 5)), draws), scoring.fair_floor(draws)
        new = np.asarray(scoring.accuracy(score, floor, scale))
        legacy = np.asarray(scoring.legacy_accuracy(np.zeros(1), draws, scale))
        error = np.std(new - legacy) / np.sqrt(len(draws))
        assert new.mean() - 4 * new.std() / np.sqrt(len(draws)) > 0.9
        assert (new - legacy).mean() > 4.9 * error


class TestAgainstScoringrules:
    @pytest.mark.parametrize("clones", [4, 8, 16, 17, 40])
    def test_floor_is_the_leave_one_out_fair_crps(self, clones):
        draws = np.random.default_rng(3).normal(size=clones)
        loop = [
            scoringrules.crps_ensemble(draws[j], np.delete(draws, j), estimator="pwm", backend="numpy")
            for j in range(clones)
        ]
        assert float(scoring.fair_floor(draws)) == pytest.approx(np.mean(loop), rel=1e-13)

    def test_quantile_score_is_twice_its_mean_over_levels_and_draws(self):
        rng = np.random.default_rng(4)
        draws, quantiles = rng.normal(size=8), np.sort(rng.normal(size=5))
        losses = scoringrules.quantile_score(
            draws[None, :], quantiles[:, None], np.array(scoring.LEVELS)[:, None], backend="numpy"
        )
        assert float(scoring.quantile_score(quantiles, draws)) == pytest.approx(2 * losses.mean(), rel=1e-14)
        crps = scoringrules.crps_quantile(
            draws, np.tile(quantiles, (8, 1)), np.array(scoring.LEVELS), backend="numpy"
        )
        assert float(scoring.quantile_score(quantiles, draws)) == pytest.approx(np.mean(crps), rel=1e-14)

    @given(quantile=finite, outcome=finite, level=st.floats(0.01, 0.99))
    def test_pinball_loss(self, quantile, outcome, level):
        expected = scoringrules.quantile_score(outcome, quantile, level, backend="numpy")
        assert float(scoring.pinball_loss(quantile, outcome, level)) == pytest.approx(expected, rel=1e-14)


class TestFairFloor:
    @pytest.mark.parametrize("clones", [3, 4, 8, 64])
    def test_expectation_does_not_depend_on_the_number_of_draws(self, clones):
        """1/sqrt(pi) for a standard normal; alpha 1e-6 (4.9 standard errors), sees half the bias of 1/n^2."""
        floor = np.asarray(scoring.fair_floor(np.random.default_rng(5).normal(size=(20000, clones))))
        error = floor.std() / np.sqrt(len(floor))
        expected = np.pi**-0.5
        assert 4.9 * error < 0.5 * expected / clones
        assert abs(floor.mean() - expected) < 4.9 * error
        plain = floor.mean() * (clones - 1) / clones
        assert abs(plain - expected) > 4.9 * error

    def test_a_million_draws_in_float32(self):
        draws = np.random.default_rng(6).normal(size=10**6).astype(np.float32) + np.float32(10)
        exact = np.sort(draws.astype(np.float64))
        weight = 2 * np.arange(1, 10**6 + 1) - 10**6 - 1
        expected = np.sum(weight * exact) / (10**6 * (10**6 - 1))
        floor = scoring.fair_floor(draws)
        assert floor.dtype == np.float32
        assert float(floor) == pytest.approx(expected, rel=2e-6)

    @pytest.mark.parametrize("clones", [15, 16, 17, 18])
    def test_pairs_and_spacings_agree(self, clones):
        draws = np.random.default_rng(7).normal(size=clones)
        pairs = np.abs(draws[:, None] - draws[None, :]).sum() / (2 * clones * (clones - 1))
        assert float(scoring.fair_floor(draws)) == pytest.approx(pairs, rel=1e-13)


class TestSpread:
    @pytest.mark.parametrize("clones", [8, 16, 17, 50])
    def test_within_branches_is_the_pooled_standard_deviation(self, clones):
        rng = np.random.default_rng(8)
        branch = rng.integers(0, 4, clones)
        draws = 10.0 * branch + rng.normal(size=clones)
        parts = [draws[branch == b] for b in np.unique(branch)]
        squares = sum(((part - part.mean()) ** 2).sum() for part in parts)
        spread = scoring.within_branch_spread(draws, branch)
        assert float(spread) == pytest.approx(np.sqrt(squares / (clones - len(parts))), rel=1e-12)
        assert int(scoring.branch_count(branch)) == len(parts)

    def test_total_is_the_sample_standard_deviation(self):
        draws = np.random.default_rng(9).normal(size=(5, 8))
        np.testing.assert_allclose(scoring.total_spread(draws), draws.std(axis=1, ddof=1), rtol=1e-13)

    @pytest.mark.parametrize("clones", [4, 16, 20])
    def test_zero_where_every_branch_has_one_draw(self, clones):
        draws = np.random.default_rng(10).normal(size=clones)
        assert float(scoring.within_branch_spread(draws, np.arange(clones), labels=clones)) == 0
        assert int(scoring.branch_count(np.arange(clones), labels=clones)) == clones

    @pytest.mark.parametrize("label", [-1, 16])
    @pytest.mark.parametrize("clones", [8, 20])
    def test_a_label_out_of_range_gives_nan(self, label, clones):
        branch = np.zeros(clones, int)
        branch[2] = label
        assert np.isnan(scoring.within_branch_spread(np.ones(clones), branch))

    def test_a_million_draws_in_float32(self):
        rng = np.random.default_rng(11)
        branch = rng.integers(0, 3, 10**6)
        draws = (branch + 0.1 * rng.normal(size=10**6)).astype(np.float32)
        spread, total = scoring.within_branch_spread(draws, branch), scoring.total_spread(draws)
        assert float(spread) == pytest.approx(0.1, rel=1e-2)
        assert float(total) == pytest.approx(draws.std(dtype=np.float64), rel=1e-5)
        wide = scoring.within_branch_spread(draws.astype(np.float64), branch)
        assert float(spread) == pytest.approx(float(wide), rel=1e-5)

    @pytest.mark.parametrize("size", [1e-30, 1e30])
    def test_squares_stay_inside_float32(self, size):
        draws = np.float32(size) * np.array([1, 2, 3, 4], np.float32)
        spread = scoring.within_branch_spread(draws, np.zeros(4, int))
        assert float(spread) == pytest.approx(size * np.std([1, 2, 3, 4], ddof=1), rel=1e-6)

    def test_the_larger_of_spread_and_fraction_is_the_scale(self):
        scale = scoring.contract_scale(np.array([0.1, 1.0]), 0.1, np.array([4.0, 4.0]))
        np.testing.assert_allclose(scale, [0.4, 3.0])


class TestInvertedCdf:
    def test_positions_are_those_of_numpy_for_any_number_of_draws(self):
        levels = (*scoring.LEVELS, 0.0, 1.0, 1 / 3, 0.29, 0.57)
        for members in range(1, 301):
            expected = np.quantile(np.arange(members), levels, method="inverted_cdf")
            np.testing.assert_array_equal(_positions(members, levels), expected, err_msg=str(members))

    @pytest.mark.parametrize("clones", [1, 8, 10, 20, 256])
    def test_equals_numpy(self, clones):
        draws = np.random.default_rng(12).normal(size=(3, clones))
        expected = np.moveaxis(np.quantile(draws, scoring.LEVELS, axis=-1, method="inverted_cdf"), 0, -1)
        np.testing.assert_array_equal(scoring.inverted_cdf(draws), expected)

    def test_nan_is_not_sorted_away(self):
        assert np.isnan(scoring.inverted_cdf(np.array([1.0, np.nan, 2.0, 3.0]))).all()


class TestLeaveOneOut:
    def test_a_fixed_answer_against_an_explicit_loop(self):
        rng = np.random.default_rng(13)
        draws, quantiles = rng.normal(size=6), np.sort(rng.normal(size=5))
        expected = []
        for j in range(6):
            rest = np.delete(draws, j)
            score = scoring.quantile_score(quantiles, rest)
            expected.append(scoring.accuracy(score, scoring.fair_floor(rest), 1.5))
        result = scoring.leave_one_out_accuracy(quantiles, draws, 1.5)
        assert float(result) == pytest.approx(np.mean(expected), rel=1e-13)

    def test_replication_against_an_explicit_loop(self):
        draws = np.random.default_rng(14).normal(size=6)
        expected = []
        for j in range(6):
            rest = np.delete(draws, j)
            score = scoring.quantile_score(draws[j] * POINT, rest)
            expected.append(scoring.accuracy(score, scoring.fair_floor(rest), 1.5))
        assert float(scoring.replication_expectation(draws, 1.5)) == pytest.approx(
            np.mean(expected), rel=1e-13
        )

    def test_one_replication_of_a_gaussian_world_scores_about_four_fifths(self):
        """Standard error 0.001 over 4,000 ensembles; the definitions state 0.82 for fresh draws."""
        draws = np.random.default_rng(15).normal(size=(4000, 8))
        scale = 3 * scoring.within_branch_spread(draws, np.zeros(draws.shape, int))
        assert float(scoring.replication_expectation(draws, scale).mean()) == pytest.approx(0.83, abs=0.01)


class TestAccuracyAndExcess:
    def test_a_score_below_the_floor_is_perfect_but_its_excess_is_negative(self):
        assert float(scoring.accuracy(0.4, 0.5, 2.0)) == 1
        assert float(scoring.excess(0.4, 0.5, 2.0)) == pytest.approx(-0.05)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_anything_not_finite_earns_nothing(self, bad, place):
        inputs = [0.4, 0.5, 2.0]
        inputs[place] = bad
        assert float(scoring.accuracy(*inputs)) == 0
        assert float(scoring.excess(*inputs)) == np.inf

    @pytest.mark.parametrize("scale", [0.0, -1.0])
    def test_a_scale_that_is_not_positive_earns_nothing(self, scale):
        assert float(scoring.accuracy(0.5, 0.5, scale)) == 0
        assert float(scoring.excess(0.5, 0.5, scale)) == np.inf

    @pytest.mark.parametrize("score", [1e300, -1e300])
    def test_an_excess_that_overflows_is_never_a_good_one(self, score):
        assert float(scoring.excess(score, 0.0, 1e-20)) == np.inf

    def test_missing_answers_are_charged_the_dynamic_range(self):
        assert float(scoring.missing_excess(4.0, 0.5, 0.5)) == 7

    @settings(max_examples=50)
    @given(
        seed=st.integers(0, 1000),
        shift=st.floats(-100, 100),
        factor=st.floats(1e-3, 1e3),
    )
    def test_shift_and_unit_change_no_accuracy(self, seed, shift, factor):
        rng = np.random.default_rng(seed)
        draws, quantiles, branch = rng.normal(size=8), np.sort(rng.normal(size=5)), rng.integers(0, 2, 8)

        def figures(draws, quantiles, dynamic_range):
            tau = scoring.within_branch_spread(draws, branch)
            scale = scoring.contract_scale(tau, 0.1, dynamic_range)
            score, floor = scoring.quantile_score(quantiles, draws), scoring.fair_floor(draws)
            interval = scoring.interval_score(quantiles[0], quantiles[-1], draws, scale)
            legacy = scoring.legacy_accuracy(quantiles[2], draws, scale)
            return [
                scoring.accuracy(score, floor, scale),
                scoring.excess(score, floor, scale),
                interval,
                legacy,
            ]

        moved = figures(factor * draws + shift, factor * quantiles + shift, factor * 4.0)
        # Rounding of the shifted values, in units of the draws' spread, is all that may remain.
        tolerance = 1e-12 + 100 * EPS * abs(shift) / factor
        np.testing.assert_allclose(moved, figures(draws, quantiles, 4.0), rtol=tolerance, atol=tolerance)


def test_every_public_function_names_its_source():
    kernels = [name for name in scoring.__all__ if isinstance(getattr(scoring, name), type(jax.jit(abs)))]
    assert len(kernels) >= 16
    for name in kernels:
        text = getattr(scoring, name).__doc__
        assert "Args:" in text, name
        assert "Returns:" in text, name
        assert "Source:" in text or name == "branch_count", name
