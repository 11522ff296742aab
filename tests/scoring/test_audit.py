"""The audit of section 6: planted templates with and without the phenomenon, and the rank correlation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st

import scoring

KEY = jax.random.key(11)
Z = 4.9  # standard errors at alpha 1e-6


def planted(ratio, instances=40, clones=8, repeats=(), seed=0):
    """Draws whose instances have means of variance `ratio`, each with a spread of 1."""
    rng = np.random.default_rng(seed)
    means = np.sqrt(ratio) * rng.normal(size=(*repeats, instances, 1))
    return means + rng.normal(size=(*repeats, instances, clones))


class TestRatio:
    @pytest.mark.parametrize("ratio", [0.0, 0.25, 4.0])
    @pytest.mark.parametrize("clones", [4, 8])
    def test_is_the_planted_one_for_any_number_of_clones(self, ratio, clones):
        """Mean over 3,000 audits; the uncorrected ratio is too large by 1 / clones."""
        found = np.asarray(scoring.phenomenon_ratio(planted(ratio, clones=clones, repeats=(3000,))))
        error = Z * found.std() / np.sqrt(3000)
        # The mean of a ratio exceeds the ratio of means by about 2 / freedom of the spread.
        assert abs(found.mean() - ratio) < error + 2 * ratio / (40 * (clones - 1))
        assert error < 0.5 / clones or ratio > 1

    def test_is_not_floored(self):
        found = np.asarray(scoring.phenomenon_ratio(planted(0.0, repeats=(200,))))
        assert 0.3 < (found < 0).mean() < 0.8

    def test_by_hand(self):
        draws = planted(2.0, instances=5)
        variance = draws.mean(axis=1).var(ddof=1)
        noise = draws.var(axis=1, ddof=1).mean()
        assert float(scoring.phenomenon_ratio(draws)) == pytest.approx(
            (variance - noise / 8) / noise, rel=1e-12
        )

    def test_without_spread(self):
        apart = np.repeat(np.arange(5.0)[:, None], 8, axis=1)
        assert float(scoring.phenomenon_ratio(apart)) == np.inf
        assert float(scoring.phenomenon_ratio(np.full((5, 8), 0.1))) == 0

    @settings(max_examples=40)
    @given(shift=st.floats(-100, 100), unit=st.floats(1e-3, 1e3))
    def test_shift_and_unit_change_nothing(self, shift, unit):
        draws = planted(1.0, instances=6)
        for figure in (scoring.phenomenon_ratio, scoring.crps_advantage):
            assert float(figure(draws * unit + shift)) == pytest.approx(
                float(figure(draws)), rel=1e-8, abs=1e-9
            )


class TestAdvantage:
    def test_against_scoringrules_forecast_by_forecast(self):
        """Explicit forecasts: own draws without one for the instance, of two others for the climatology."""
        draws = planted(1.5, instances=4, clones=4)
        own = [
            scoringrules.crps_ensemble(row[j], np.delete(row, j), estimator="fair", backend="numpy")
            for row in draws
            for j in range(4)
        ]
        # A fair climatology of two members, from every pair of different other instances.
        pooled = [
            scoringrules.crps_ensemble(y, np.array([x, z]), estimator="fair", backend="numpy")
            for i in range(4)
            for a in range(4)
            for b in range(4)
            if len({i, a, b}) == 3
            for y in draws[i]
            for x in draws[a]
            for z in draws[b]
        ]
        found = scoring.crps_advantage(draws)
        assert float(found) == pytest.approx(1 - np.mean(own) / np.mean(pooled), rel=1e-12)

    def test_is_nought_on_average_without_phenomenon_and_one_without_spread(self):
        found = np.asarray(scoring.crps_advantage(planted(0.0, repeats=(1000,), instances=12, clones=4)))
        assert abs(found.mean()) < Z * found.std() / np.sqrt(1000)
        apart = np.repeat(np.arange(5.0)[:, None], 8, axis=1)
        assert float(scoring.crps_advantage(apart)) == 1
        assert float(scoring.crps_advantage(np.full((5, 8), 0.1))) == 0

    def test_of_gaussian_instances_is_known(self):
        """Distances go as standard deviations: 1 - 1 / sqrt(1 + A)."""
        found = float(scoring.crps_advantage(planted(3.0, instances=400)))
        assert found == pytest.approx(0.5, abs=0.03)


class TestSpearman:
    @settings(max_examples=60)
    @given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=12))
    def test_against_scipy_with_ties(self, pairs):
        x, y = np.array(pairs, float).T
        found = float(scoring.spearman(x, y, np.ones(len(x), bool)))
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-12)

    def test_items_that_do_not_count_are_left_out(self):
        rng = np.random.default_rng(3)
        x, y, where = rng.normal(size=9), rng.normal(size=9), rng.uniform(size=9) < 0.6
        expected = scipy.stats.spearmanr(x[where], y[where]).statistic
        spoilt = np.where(where, x, np.nan)
        assert float(scoring.spearman(spoilt, y, where)) == pytest.approx(expected, rel=1e-12)
        assert np.isnan(scoring.spearman(spoilt, y, np.ones(9, bool)))

    def test_infinite_figures_have_their_rank(self):
        x = np.array([1.0, 2.0, np.inf])
        assert float(scoring.spearman(x, x, np.ones(3, bool))) == 1

    def test_interval_over_items_against_scipy_s_spread(self):
        rng = np.random.default_rng(4)
        x = rng.normal(size=60)
        y = x + rng.normal(size=60)
        found = scoring.bootstrap_interval(
            (x, y), key=KEY, statistic=scoring.audit.spearman_of_pairs, resamples=1000
        )
        assert found.low < found.estimate < found.high
        expected = scipy.stats.bootstrap(
            (x, y),
            lambda a, b: scipy.stats.spearmanr(a, b).statistic,
            paired=True,
            vectorized=False,
            n_resamples=1000,
            rng=np.random.default_rng(0),
        )
        assert found.low == pytest.approx(expected.confidence_interval.low, abs=0.05)
        assert found.high == pytest.approx(expected.confidence_interval.high, abs=0.05)


@pytest.fixture(scope="module")
def found():
    ratios = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 0.0)
    draws = np.stack([planted(ratio, seed=seed) for seed, ratio in enumerate(ratios)])
    return jax.device_get(scoring.audit_templates(draws, key=KEY, resamples=500)), draws


class TestAudit:
    def test_planted_templates_and_their_flags(self, found):
        audit, draws = found
        assert audit.contains_zero.tolist() == [True, *[False] * 6, True]
        np.testing.assert_allclose(audit.ratio.estimate, scoring.phenomenon_ratio(draws), rtol=1e-12)
        np.testing.assert_allclose(audit.advantage.estimate, scoring.crps_advantage(draws), rtol=1e-12)
        assert (audit.ratio.low <= audit.ratio.estimate).all()
        assert (audit.ratio.estimate <= audit.ratio.high).all()
        assert (audit.instances, audit.clones, int(audit.counted)) == (40, 8, 6)

    def test_advantage_follows_the_ratio(self, found):
        audit, _ = found
        assert audit.rho.estimate >= 0.9
        assert audit.rho.low <= audit.rho.estimate <= audit.rho.high <= 1

    def test_fewer_than_six_templates_have_no_order(self):
        draws = np.stack([planted(ratio, seed=seed) for seed, ratio in enumerate((0.0, 1.0, 4.0))])
        audit = scoring.audit_templates(draws, key=KEY, resamples=100)
        assert int(audit.counted) == 2
        assert np.isnan(audit.rho).all()

    def test_a_template_without_phenomenon_is_flagged(self):
        """At least 90 % of planted null templates; their 95 % intervals contain 0 in 93 % or more."""
        draws = planted(0.0, repeats=(300,), instances=30, clones=8, seed=5)
        audit = scoring.audit_templates(draws, key=KEY, resamples=400)
        assert float(np.mean(audit.contains_zero)) > 0.85

    def test_nothing_that_is_not_finite_counts_as_a_phenomenon(self):
        draws = np.stack([planted(9.0, seed=seed) for seed in range(7)])
        for bad in (np.nan, np.inf):
            spoilt = draws.copy()
            spoilt[2, 3, 1] = bad
            audit = scoring.audit_templates(spoilt, key=KEY, resamples=50)
            assert bool(audit.contains_zero[2])
            assert not np.isfinite(audit.ratio.low[2])


class TestLaws:
    @pytest.mark.parametrize("figure", [scoring.phenomenon_ratio, scoring.crps_advantage])
    def test_batch_vmap_order_float32_and_gradient(self, figure):
        draws = planted(1.0, instances=8, clones=8, repeats=(2, 8))
        together = np.asarray(figure(draws))
        for place in np.ndindex(2, 8):
            assert together[place] == pytest.approx(float(figure(draws[place])), rel=1e-11)
        np.testing.assert_allclose(jax.vmap(figure)(draws), together, rtol=1e-11)
        rng = np.random.default_rng(6)
        moved = draws[:, :, rng.permutation(8)][..., rng.permutation(8)]
        np.testing.assert_allclose(figure(moved), together, rtol=1e-9)
        narrow = figure(draws.astype(np.float32))
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, together, rtol=1e-5, atol=1e-5)
        for start in (draws[0, 0], np.full((8, 8), 0.3)):
            assert np.isfinite(jax.grad(lambda d: figure(d))(jnp.asarray(start))).all()
