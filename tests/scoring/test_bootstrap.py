"""Bootstrap intervals against scipy's on the same resamples, their coverage, and clustered errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import scoring
from scoring.bootstrap import interval_of

KEY = jax.random.key(7)


def skewed(size=25, seed=0):
    return np.exp(np.random.default_rng(seed).normal(size=size))


def median(values):
    return jnp.median(values, axis=-1)


def correlation(pair):
    x, y = (each - jnp.mean(each, axis=-1, keepdims=True) for each in pair)
    return jnp.sum(x * y, axis=-1) / jnp.sqrt(jnp.sum(x**2, axis=-1) * jnp.sum(y**2, axis=-1))


class TestAgainstScipy:
    @pytest.mark.parametrize("method", ["bca", "percentile"])
    @pytest.mark.parametrize(
        ("ours", "theirs"), [(None, np.mean), (median, np.median)], ids=["mean", "median"]
    )
    @pytest.mark.parametrize("confidence", [0.95, 0.8])
    def test_ends_on_the_same_resamples(self, method, ours, theirs, confidence):
        data = skewed()
        chosen = {} if ours is None else {"statistic": ours}
        found = scoring.bootstrap_interval(
            data, key=KEY, resamples=999, confidence=confidence, method=method, **chosen
        )
        drawn = data[np.asarray(scoring.resample_indices(KEY, resamples=999, size=25))]
        # Scipy takes the distribution as it is when it is asked for no resamples of its own.
        given = scipy.stats.bootstrap((data,), theirs, n_resamples=9, rng=np.random.default_rng(0))
        given.bootstrap_distribution = theirs(drawn, axis=-1)
        result = scipy.stats.bootstrap(
            (data,),
            theirs,
            n_resamples=0,
            method=method,
            confidence_level=confidence,
            bootstrap_result=given,
        )
        assert float(found.low) == pytest.approx(result.confidence_interval.low, rel=1e-6)
        assert float(found.high) == pytest.approx(result.confidence_interval.high, rel=1e-6)
        assert float(found.standard_error) == pytest.approx(result.standard_error, rel=1e-6)
        assert float(found.estimate) == pytest.approx(theirs(data), rel=1e-12)

    def test_a_statistic_of_pairs(self):
        rng = np.random.default_rng(1)
        x = rng.normal(size=30)
        y = 0.6 * x + rng.normal(size=30)
        found = scoring.bootstrap_interval((x, y), key=KEY, statistic=correlation, resamples=500)
        index = np.asarray(scoring.resample_indices(KEY, resamples=500, size=30))
        given = scipy.stats.bootstrap(
            (x, y), lambda a, b: np.corrcoef(a, b)[0, 1], paired=True, vectorized=False, n_resamples=9
        )
        given.bootstrap_distribution = np.array([np.corrcoef(x[i], y[i])[0, 1] for i in index])
        result = scipy.stats.bootstrap(
            (x, y),
            lambda a, b: np.corrcoef(a, b)[0, 1],
            paired=True,
            vectorized=False,
            n_resamples=0,
            bootstrap_result=given,
        )
        np.testing.assert_allclose((found.low, found.high), result.confidence_interval, rtol=1e-6)


class TestResamples:
    def test_more_of_them_never_change_the_earlier_ones(self):
        few, many = (scoring.resample_indices(KEY, resamples=n, size=12) for n in (50, 80))
        np.testing.assert_array_equal(few, many[:50])

    def test_positions_are_even_and_independent(self):
        """Counts of 12 positions in 60,000 draws: chi-square below its point at 1e-6 (51.6 for 11)."""
        index = np.asarray(scoring.resample_indices(KEY, resamples=5000, size=12))
        counts = np.bincount(index.ravel(), minlength=12)
        assert ((counts - 5000) ** 2 / 5000).sum() < scipy.stats.chi2.isf(1e-6, 11)
        pairs = np.bincount(index[:, 0] * 12 + index[:, 1], minlength=144)
        assert ((pairs - 5000 / 144) ** 2 / (5000 / 144)).sum() < scipy.stats.chi2.isf(1e-6, 143)

    def test_another_key_another_interval_the_same_key_the_same(self):
        first, again = (scoring.bootstrap_interval(skewed(), key=KEY, resamples=200) for _ in range(2))
        other = scoring.bootstrap_interval(skewed(), key=jax.random.key(8), resamples=200)
        assert [float(x) for x in first] == [float(x) for x in again]
        assert float(first.low) != float(other.low)


class TestCoverage:
    @pytest.mark.parametrize(("method", "least"), [("bca", 0.90), ("percentile", 0.88)])
    def test_of_the_mean_of_a_skewed_law(self, method, least):
        """95 % intervals of 40 lognormals cover about 91 % (BCa) and 90 %; standard error 0.9 % of 1,000."""
        law = np.random.default_rng(2).normal(size=(1000, 40)) * 0.7
        keys = jax.random.split(KEY, 1000)
        interval = jax.vmap(
            lambda values, key: scoring.bootstrap_interval(values, key=key, resamples=500, method=method)
        )(np.exp(law), keys)
        inside = (interval.low <= np.exp(0.245)) & (np.exp(0.245) <= interval.high)
        assert least - 4.9 * 0.01 < float(inside.mean()) < 0.95 + 4.9 * 0.007


class TestDegenerate:
    @pytest.mark.parametrize("method", ["bca", "percentile"])
    def test_identical_samples_give_an_interval_of_no_width(self, method):
        found = scoring.bootstrap_interval(np.full(9, 0.1), key=KEY, method=method, resamples=100)
        assert [float(x) for x in found] == [0.1, 0.1, 0.1, 0.0]

    @pytest.mark.parametrize("method", ["bca", "percentile"])
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_what_is_not_finite_never_gives_a_finite_interval(self, bad, method):
        values = skewed()
        values[3] = bad
        found = scoring.bootstrap_interval(values, key=KEY, method=method, resamples=200)
        assert not (np.isfinite(found.low) and np.isfinite(found.high))

    def test_one_sample_has_no_interval(self):
        found = scoring.bootstrap_interval(np.array([2.0]), key=KEY, resamples=50)
        assert float(found.estimate) == 2
        assert np.isnan([found.low, found.high, found.standard_error]).all()

    def test_a_share_of_nought_is_finite_where_scipy_gives_nan(self):
        distribution = np.linspace(1, 2, 100)
        low, high = scoring.bca_ends(distribution, np.array(0.5), skewed())
        assert np.isfinite([low, high]).all()
        assert low <= high

    @pytest.mark.parametrize("setting", [{"method": "basic"}, {"resamples": 1}])
    def test_settings_that_make_no_sense_are_refused(self, setting):
        with pytest.raises(ValueError, match="`method` must be one of"):
            scoring.bootstrap_interval(skewed(), key=KEY, **setting)

    def test_nothing_and_unequal_samples_are_refused(self):
        with pytest.raises(ValueError, match="samples at least 1|samples 1"):
            scoring.bootstrap_interval(np.zeros(0), key=KEY)
        with pytest.raises(ValueError, match="`values` must have one number of samples"):
            scoring.bootstrap_interval((np.zeros(3), np.zeros(4)), key=KEY, statistic=correlation)


class TestLaws:
    def test_a_batch_equals_its_items_with_the_key_that_it_was_given(self):
        values = np.exp(np.random.default_rng(3).normal(size=(2, 8, 8)))
        together = scoring.bootstrap_interval(values, key=KEY, resamples=100)
        for place in np.ndindex(2, 8):
            alone = scoring.bootstrap_interval(values[place], key=KEY, resamples=100)
            np.testing.assert_allclose([x[place] for x in together], alone, rtol=1e-12)

    def test_gradient_to_the_samples_is_finite(self):
        def width(values):
            found = scoring.bootstrap_interval(values, key=KEY, resamples=100)
            return found.high - found.low

        for values in (skewed(10), np.full(10, 0.3)):
            assert np.isfinite(jax.grad(width)(jnp.asarray(values))).all()

    def test_float32_close_to_float64(self):
        wide = scoring.bootstrap_interval(skewed(), key=KEY, resamples=300)
        narrow = scoring.bootstrap_interval(skewed().astype(np.float32), key=KEY, resamples=300)
        assert narrow.low.dtype == np.float32
        np.testing.assert_allclose(narrow, wide, rtol=1e-5)

    def test_indices_give_what_values_give(self):
        data = jnp.asarray(skewed())
        found = jax.jit(lambda key: interval_of(lambda i: jnp.mean(data[i]), 25, key=key, resamples=100))(KEY)
        np.testing.assert_allclose(
            found, scoring.bootstrap_interval(data, key=KEY, resamples=100), rtol=1e-12
        )


class TestClusteredError:
    def test_one_sample_in_each_cluster_is_the_ordinary_error(self):
        values = np.random.default_rng(4).normal(size=(3, 20))
        error = scoring.clustered_standard_error(values, np.arange(20)[::-1].copy(), clusters=20)
        np.testing.assert_allclose(error, values.std(axis=-1, ddof=1) / np.sqrt(20), rtol=1e-12)

    def test_against_the_sum_by_hand(self):
        values, cluster = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([0, 0, 2, 2, 2])
        sums = [(values - 6.2)[cluster == g].sum() for g in (0, 2)]
        expected = np.sqrt(2 / 1 * np.sum(np.square(sums))) / 5
        error = scoring.clustered_standard_error(values, cluster, clusters=3)
        assert float(error) == pytest.approx(expected, rel=1e-12)

    def test_it_is_the_spread_of_the_mean_where_contracts_of_a_seed_move_together(self):
        """12 seeds of 8, a shared part of sd 1, own noise 0.5; the ordinary error is 2.5 times off."""
        rng = np.random.default_rng(5)
        values = rng.normal(size=(4000, 12, 1)) + 0.5 * rng.normal(size=(4000, 12, 8))
        flat = values.reshape(4000, 96)
        error = np.asarray(scoring.clustered_standard_error(flat, np.repeat(np.arange(12), 8), clusters=12))
        spread = flat.mean(axis=-1).std(ddof=1)
        assert np.sqrt(np.mean(error**2)) == pytest.approx(spread, rel=0.08)
        assert spread > 2 * (flat.std(axis=-1, ddof=1) / np.sqrt(96)).mean()

    def test_one_cluster_says_nothing_and_nan_stays_nan(self):
        zeros = np.zeros(4, int)
        assert np.isnan(scoring.clustered_standard_error(np.arange(4.0), zeros, clusters=2))
        spoilt = np.array([1.0, np.nan, 2.0, 3.0])
        assert np.isnan(scoring.clustered_standard_error(spoilt, np.arange(4), clusters=4))
        assert float(scoring.clustered_standard_error(np.full(4, 0.1), np.arange(4), clusters=4)) == 0

    def test_laws(self):
        values, cluster = np.random.default_rng(6).normal(size=(5, 8)), np.arange(8) % 3
        error = scoring.clustered_standard_error(values, cluster, clusters=3)
        order = np.random.default_rng(7).permutation(8)
        np.testing.assert_allclose(
            scoring.clustered_standard_error(values[:, order], cluster[order], clusters=3), error, rtol=1e-12
        )
        mapped = jax.vmap(lambda row: scoring.clustered_standard_error(row, cluster, clusters=3))(values)
        np.testing.assert_allclose(mapped, error, rtol=1e-12)
        narrow = scoring.clustered_standard_error(values.astype(np.float32), cluster, clusters=3)
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, error, rtol=1e-5)
        slope = jax.grad(lambda v: jnp.sum(scoring.clustered_standard_error(v, cluster, clusters=3)))
        assert np.isfinite(slope(jnp.ones((2, 8)))).all()
