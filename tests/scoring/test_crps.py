"""Exact CRPS in three forms against scoringrules and quadrature, and what the five-level grid costs."""

from statistics import NormalDist

import numpy as np
import pytest
import scipy.integrate
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st

import scoring
from scoring import LEVELS

FIVE = np.array(LEVELS)
finite = st.floats(-100, 100, allow_subnormal=False)


def middles(number):
    return (np.arange(number) + 0.5) / number


def normal_quantiles(levels):
    return np.array([NormalDist().inv_cdf(level) for level in levels])


class TestNormal:
    @given(centre=finite, sd=st.floats(1e-3, 1e3), outcome=finite)
    def test_against_scoringrules(self, centre, sd, outcome):
        expected = scoringrules.crps_normal(outcome, centre, sd, backend="numpy")
        found = float(scoring.crps_normal(np.array(centre), np.array(sd), np.array(outcome)))
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12 * sd)

    def test_a_point_is_the_absolute_error_and_a_negative_spread_nothing(self):
        assert float(scoring.crps_normal(np.array(1.0), np.array(0.0), np.array(3.0))) == 2
        assert np.isnan(scoring.crps_normal(np.array(1.0), np.array(-1.0), np.array(3.0)))


class TestSamples:
    @pytest.mark.parametrize("members", [2, 8, 16, 17, 40])
    @pytest.mark.parametrize(("fair", "estimator"), [(True, "fair"), (False, "nrg")])
    def test_against_scoringrules(self, members, fair, estimator):
        rng = np.random.default_rng(members)
        samples, outcome = rng.normal(size=(7, members)), rng.normal(size=7)
        expected = scoringrules.crps_ensemble(outcome, samples, estimator=estimator, backend="numpy")
        np.testing.assert_allclose(
            scoring.crps_samples(samples, outcome, fair=fair), expected, rtol=1e-12, atol=1e-14
        )

    def test_one_member_has_no_fair_score_and_its_plain_one_is_the_error(self):
        one, outcome = np.array([2.0]), np.array(0.5)
        assert np.isnan(scoring.crps_samples(one, outcome))
        assert float(scoring.crps_samples(one, outcome, fair=False)) == 1.5


def by_quadrature(levels, quantiles, outcome):
    """Twice the pinball loss of the interpolated quantile function, by adaptive quadrature."""

    def loss(p):
        q = np.interp(p, levels, quantiles)
        return 2 * (outcome - q) * (p - (outcome < q))

    breaks = np.unique(np.concatenate([levels, np.interp(outcome, quantiles, levels)[None]]))
    edges = np.unique(np.concatenate([[0.0], breaks, [1.0]]))
    return sum(scipy.integrate.quad(loss, a, b)[0] for a, b in zip(edges, edges[1:], strict=False))


class TestQuantiles:
    @settings(max_examples=60)
    @given(seed=st.integers(0, 10_000), number=st.integers(1, 9), outcome=st.floats(-3, 3))
    def test_against_quadrature(self, seed, number, outcome):
        rng = np.random.default_rng(seed)
        levels = np.sort(rng.uniform(0.02, 0.98, number)) + 1e-3 * np.arange(number)
        quantiles = np.sort(rng.normal(size=number))
        found = float(scoring.crps_quantiles(quantiles, np.array(outcome), levels))
        assert found == pytest.approx(by_quadrature(levels, quantiles, outcome), rel=1e-8, abs=1e-9)

    @given(low=finite, width=st.floats(0.01, 100), outcome=finite)
    def test_two_quantiles_are_scoringrules_uniform_law_with_masses_at_its_ends(self, low, width, outcome):
        levels = np.array([0.2, 0.9])
        expected = scoringrules.crps_uniform(outcome, low, low + width, lmass=0.2, umass=0.1, backend="numpy")
        found = scoring.crps_quantiles(np.array([low, low + width]), np.array(outcome), levels)
        assert float(found) == pytest.approx(float(expected), rel=1e-9, abs=1e-9)

    @given(value=finite, outcome=finite)
    def test_a_point_answer_is_the_absolute_error(self, value, outcome):
        found = scoring.crps_quantiles(np.full(5, value), np.array(outcome), FIVE)
        assert float(found) == pytest.approx(abs(value - outcome), rel=1e-13)

    def test_approaches_the_normal_as_levels_grow_dense(self):
        outcome = np.linspace(-3, 3, 13)
        exact = scoring.crps_normal(np.zeros(13), np.ones(13), outcome)
        errors = []
        for number in (10, 100, 1000):
            levels = middles(number)
            quantiles = np.broadcast_to(normal_quantiles(levels), (13, number))
            found = scoring.crps_quantiles(quantiles, outcome, np.broadcast_to(levels, (13, number)))
            errors.append(float(np.abs(found - exact).max()))
        assert errors[0] > 3 * errors[1] > 9 * errors[2]
        assert errors[2] < 1e-4

    def test_never_negative_at_any_size(self):
        rng = np.random.default_rng(0)
        for size in (1e-300, 1e-9, 1.0, 1e9, 1e150):
            quantiles = np.sort(rng.normal(size=(50, 5)), axis=-1) * size
            score = scoring.crps_quantiles(
                quantiles, rng.normal(size=50) * size, np.broadcast_to(FIVE, (50, 5))
            )
            assert (np.asarray(score) >= 0).all()


class TestGrid:
    def test_is_scoringrules_and_the_contracts_score(self):
        rng = np.random.default_rng(1)
        quantiles, draws = np.sort(rng.normal(size=5)), rng.normal(size=8)
        each = scoring.crps_grid(np.broadcast_to(quantiles, (8, 5)), draws, np.broadcast_to(FIVE, (8, 5)))
        expected = scoringrules.crps_quantile(draws, np.tile(quantiles, (8, 1)), FIVE, backend="numpy")
        np.testing.assert_allclose(each, expected, rtol=1e-13)
        assert float(np.mean(each)) == pytest.approx(
            float(scoring.quantile_score(quantiles, draws)), rel=1e-13
        )

    def test_what_the_grid_costs_a_perfect_gaussian_forecast(self):
        """Expected pinball loss of a true quantile is the density there, hence the mean over the levels.

        Five levels give 0.554 sd, the CRPS is 0.564 sd (1 / sqrt(pi)): the grid is 1.8 % lenient.
        """
        outcome = normal_quantiles(middles(4001))
        quantiles = normal_quantiles(LEVELS)
        grid = scoring.quantile_score(quantiles, outcome)
        law = NormalDist()
        assert float(grid) == pytest.approx(0.4 * sum(law.pdf(q) for q in quantiles), abs=1e-4)
        assert float(grid) == pytest.approx(0.554, abs=5e-4)
        exact = scoring.crps_normal(np.zeros(4001), np.ones(4001), outcome).mean()
        assert float(exact) == pytest.approx(np.pi**-0.5, abs=1e-4)
        assert float(exact) == pytest.approx(0.564, abs=5e-4)
        shape = (4001, 5)
        joined = scoring.crps_quantiles(
            np.broadcast_to(quantiles, shape), outcome, np.broadcast_to(FIVE, shape)
        )
        assert float(exact) < float(joined.mean()) == pytest.approx(0.569, abs=1e-3)

    @pytest.mark.parametrize(("number", "error"), [(5, 0.0139), (9, 0.0048), (19, 0.0012), (99, 5.3e-5)])
    def test_more_levels_cost_less(self, number, error):
        law = NormalDist()
        levels = middles(number)
        cost = -(np.pi**-0.5) + 2 * np.mean([law.pdf(law.inv_cdf(level)) for level in levels])
        assert cost == pytest.approx(error, rel=0.05)


class TestNothingBadCounts:
    @pytest.mark.parametrize("kernel", ["crps_quantiles", "crps_grid"])
    @pytest.mark.parametrize(
        ("quantiles", "levels"),
        [
            ([0.0, 2.0, 1.0, 3.0, 4.0], LEVELS),
            ([0.0, np.nan, 1.0, 3.0, 4.0], LEVELS),
            ([0.0, 0.5, 1.0, 3.0, np.inf], LEVELS),
            ([0.0, 1.0, 2.0, 3.0, 4.0], (0.1, 0.5, 0.25, 0.75, 0.9)),
            ([0.0, 1.0, 2.0, 3.0, 4.0], (0.1, 0.1, 0.5, 0.75, 0.9)),
            ([0.0, 1.0, 2.0, 3.0, 4.0], (-0.1, 0.25, 0.5, 0.75, 1.1)),
            ([0.0, 1.0, 2.0, 3.0, 4.0], (0.1, np.nan, 0.5, 0.75, 0.9)),
        ],
    )
    def test_in_quantiles_or_levels(self, kernel, quantiles, levels):
        assert np.isnan(getattr(scoring, kernel)(np.array(quantiles), np.array(1.5), np.array(levels)))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_in_the_outcome_or_the_samples(self, bad):
        outcome = np.array(bad)
        assert np.isnan(scoring.crps_quantiles(FIVE, outcome, FIVE))
        assert np.isnan(scoring.crps_normal(np.array(0.0), np.array(1.0), outcome))
        assert np.isnan(scoring.crps_samples(np.arange(4.0), outcome))
        assert np.isnan(scoring.crps_samples(np.array([0.0, bad, 1.0]), np.array(0.0)))
        assert float(scoring.accuracy(scoring.crps_quantiles(FIVE, outcome, FIVE), 0.0, 1.0)) == 0
