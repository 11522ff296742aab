"""Coverage of the 80 % interval and the PIT on the five levels."""

from statistics import NormalDist

import numpy as np
import pytest

import scoring
from scoring import BINS, LEVELS

FIVE = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
Z = 4.9  # standard errors at alpha 1e-6


class TestCoverage:
    def test_of_an_honest_interval_is_four_fifths(self):
        draws = np.random.default_rng(0).normal(size=(50_000, 8))
        share = np.asarray(scoring.coverage(FIVE[:1], FIVE[-1:], draws))
        assert abs(share.mean() - 0.8) < Z * np.sqrt(0.16 / draws.size)

    def test_ends_are_inside(self):
        draws = np.array([0.0, 1.0, 2.0, 3.0])
        assert float(scoring.coverage(np.array(1.0), np.array(2.0), draws)) == 0.5
        assert float(scoring.coverage(np.array(1.0), np.array(1.0), np.ones(8))) == 1

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_nothing_that_is_not_finite_is_covered(self, bad):
        draws = np.array([0.0, bad, 0.5, 1.0])
        assert float(scoring.coverage(np.array(-1.0), np.array(2.0), draws)) == 0.75
        for low, high in ((bad, 1.0), (-1.0, bad)):
            assert float(scoring.coverage(np.array(low), np.array(high), np.zeros(4))) == 0
        assert float(scoring.coverage(np.array(0.0), np.array(1.0), np.zeros(0))) == 0


class TestPit:
    def test_an_honest_forecast_fills_the_bins_by_their_width(self):
        draws = np.random.default_rng(1).normal(size=400_000)
        shares = np.asarray(scoring.pit_shares(FIVE, draws))
        width = np.array(BINS)
        assert (np.abs(shares - width) < Z * np.sqrt(width * (1 - width) / draws.size)).all()
        assert shares.sum() == pytest.approx(1, rel=1e-12)

    @pytest.mark.parametrize(
        ("change", "ends"), [(0.5, 1), (2.0, -1)], ids=["too narrow fills the ends", "too wide empties them"]
    )
    def test_a_wrong_width_shows_at_the_ends(self, change, ends):
        draws = np.random.default_rng(2).normal(size=20_000)
        shares = np.asarray(scoring.pit_shares(change * FIVE, draws))
        assert np.sign(shares[0] - 0.1) == np.sign(shares[-1] - 0.1) == ends
        assert abs(shares[0] - 0.1) > 0.05

    def test_counts_by_hand(self):
        quantiles = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
        shares = scoring.pit_shares(quantiles, np.array([-1.0, 0.5, 0.6, 5.0]))
        np.testing.assert_allclose(shares, [0.25, 0.5, 0, 0, 0, 0.25])

    def test_a_draw_on_a_quantile_is_split_by_width(self):
        quantiles = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
        np.testing.assert_allclose(scoring.pit_shares(quantiles, np.array([0.0])), [0.4, 0.6, 0, 0, 0, 0])
        np.testing.assert_allclose(scoring.pit_shares(quantiles, np.array([2.0])), [0, 0, 0.5, 0.5, 0, 0])
        tied = np.array([0.0, 0.0, 0.0, 3.0, 4.0])
        np.testing.assert_allclose(
            scoring.pit_shares(tied, np.zeros(1)), np.array([0.1, 0.15, 0.25, 0.25, 0, 0]) / 0.75
        )

    def test_an_exact_point_answer_to_a_deterministic_truth_is_calibrated(self):
        np.testing.assert_allclose(scoring.pit_shares(np.full(5, 0.3), np.full(8, 0.3)), BINS)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_has_no_shares_for_what_is_not_finite(self, bad):
        assert np.isnan(scoring.pit_shares(FIVE, np.array([0.0, bad]))).all()
        spoilt = FIVE.copy()
        spoilt[1] = bad
        assert np.isnan(scoring.pit_shares(spoilt, np.zeros(4))).all()
        assert np.isnan(scoring.pit_shares(FIVE, np.zeros(0))).all()
