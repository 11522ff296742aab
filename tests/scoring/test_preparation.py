"""Preparation contracts: the fraction of clones, exact bounds, and the certificate of a band."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

import scoring
from scoring.preparation import CONFIDENCE


def upper(k, n, confidence=CONFIDENCE):
    return scoring.clopper_pearson_upper(np.asarray(k), np.asarray(n), np.asarray(confidence))


def lower(k, n, confidence=CONFIDENCE):
    return scoring.clopper_pearson_lower(np.asarray(k), np.asarray(n), np.asarray(confidence))


class TestFraction:
    def test_counts_clones_that_end_in_band_ends_included(self):
        final = np.array([[0.0, 0.2, 0.5, 0.8, 1.0], [0.3, np.nan, np.inf, -np.inf, 0.5]])
        low, high = np.full(2, 0.2), np.full(2, 0.8)
        np.testing.assert_allclose(scoring.ended_in_band(final, low, high), [0.6, 0.4])

    def test_held_is_at_most_ended(self):
        window = np.random.default_rng(0).uniform(size=(3, 5, 7))
        low, high = np.full(3, 0.1), np.full(3, 0.95)
        ended = scoring.ended_in_band(window[..., -1], low, high)
        held = scoring.held_in_band(window, low, high)
        assert (np.asarray(held) <= np.asarray(ended)).all()
        expected = ((window >= 0.1) & (window <= 0.95)).all(axis=-1).mean(axis=-1)
        np.testing.assert_allclose(held, expected)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_void_clone_fails_and_stays_in_the_denominator(self, bad):
        ends = np.array(-np.inf), np.array(np.inf)
        assert float(scoring.ended_in_band(np.array([0.5, bad, 0.5, 0.5, 0.5]), *ends)) == 0.8
        window = np.full((5, 4), 0.5)
        window[2, 1] = bad
        assert float(scoring.held_in_band(window, *ends)) == 0.8

    def test_nothing_run_earns_nothing(self):
        ends = np.array(0.0), np.array(1.0)
        assert float(scoring.ended_in_band(np.zeros(0), *ends)) == 0
        assert float(scoring.held_in_band(np.zeros((0, 3)), *ends)) == 0
        assert float(scoring.held_in_band(np.zeros((5, 0)), *ends)) == 0


class TestClopperPearson:
    def test_every_count_up_to_100_against_the_beta_law(self):
        k, n = (grid[np.tril_indices(101)] for grid in np.meshgrid(np.arange(101), np.arange(101)))
        for confidence in (0.95, 0.5, 0.999):
            high = np.where(k == n, 1.0, beta.ppf(confidence, k + 1, np.maximum(n - k, 1)))
            low = np.where(k == 0, 0.0, beta.ppf(1 - confidence, np.maximum(k, 1), n - k + 1))
            np.testing.assert_allclose(upper(k, n, confidence), high, rtol=0, atol=1e-10)
            np.testing.assert_allclose(lower(k, n, confidence), low, rtol=0, atol=1e-10)

    @pytest.mark.parametrize(("k", "n"), [(0, 10**6), (3, 10**6), (5 * 10**5, 10**6), (999_999, 10**6)])
    def test_large_counts(self, k, n):
        assert float(upper(k, n)) == pytest.approx(beta.ppf(0.95, k + 1, n - k), abs=1e-10)
        assert float(lower(k, n)) == pytest.approx(beta.ppf(0.05, max(k, 1e-300), n - k + 1), abs=1e-10)

    @settings(max_examples=60)
    @given(n=st.integers(1, 400), share=st.floats(0, 1), confidence=st.floats(0.5, 0.9999))
    def test_the_bound_is_where_the_binomial_tail_is_what_is_left(self, n, share, confidence):
        k = min(int(share * n), n - 1)
        bound = float(upper(k, n, confidence))
        assert binom.cdf(k, n, bound) == pytest.approx(1 - confidence, abs=1e-9)
        assert float(lower(n - k, n, confidence)) == pytest.approx(1 - bound, abs=1e-15)

    def test_it_covers_at_least_95_percent_at_every_rate(self):
        rates = np.linspace(0.001, 0.999, 400)
        bounds = np.asarray(upper(np.arange(65), np.full(65, 64)))
        chance = binom.pmf(np.arange(65)[:, None], 64, rates)
        assert ((bounds[:, None] >= rates) * chance).sum(axis=0).min() >= 0.95

    def test_ends_and_counts_that_cannot_be(self):
        assert float(upper(5, 5)) == 1
        assert float(lower(0, 5)) == 0
        assert (float(upper(0, 0)), float(lower(0, 0))) == (1, 0)
        for k, n in ((-1, 5), (6, 5), (0, -1)):
            assert np.isnan(upper(k, n))
            assert np.isnan(lower(k, n))
        for confidence in (0.0, 1.0, np.nan, -1.0):
            assert np.isnan(upper(1, 5, confidence))

    def test_gradient_to_the_confidence_is_one_over_the_density(self):
        slope = jax.jit(jax.grad(lambda c: scoring.clopper_pearson_upper(jnp.int32(7), jnp.int32(64), c)))
        bound = beta.ppf(0.95, 8, 57)
        assert float(slope(0.95)) == pytest.approx(1 / beta.pdf(bound, 8, 57), rel=1e-9)
        edge = jax.grad(lambda c: scoring.clopper_pearson_upper(jnp.int32(5), jnp.int32(5), c))
        assert float(edge(0.95)) == 0

    def test_batch_vmap_and_float32(self):
        k = np.arange(8).reshape(2, 4)
        together = upper(k, np.full((2, 4), 64), np.full((2, 4), 0.95))
        mapped = jax.vmap(jax.vmap(lambda each: scoring.clopper_pearson_upper(each, jnp.int32(64), 0.95)))
        np.testing.assert_allclose(mapped(k), together, rtol=1e-12)
        narrow = scoring.clopper_pearson_upper(k, np.full((2, 4), 64), np.full((2, 4), 0.95, np.float32))
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, together, rtol=1e-5)


class TestCertificate:
    def test_the_null_policy_may_succeed_seven_times_in_sixty_four(self):
        """Upper bounds 0.196 and 0.214: the arithmetic that decides which bands exist."""
        assert float(upper(7, 64)) == pytest.approx(beta.ppf(0.95, 8, 57), abs=1e-10)
        null = np.arange(6, 10)
        found = scoring.certified(null, np.full(4, 64), np.full(4, 64), np.full(4, 64))
        expected = beta.ppf(0.95, null + 1, 64 - null) <= 0.2
        np.testing.assert_array_equal(found, expected)
        assert expected.tolist() == [True, True, False, False]

    @pytest.mark.parametrize(
        ("successes", "clones", "holds"), [(52, 65, True), (51, 64, False), (52, 64, True)]
    )
    def test_some_policy_must_succeed_on_four_clones_in_five(self, successes, clones, holds):
        assert (
            bool(scoring.certified(jnp.int32(0), jnp.int32(64), jnp.int32(successes), jnp.int32(clones)))
            == holds
        )

    @pytest.mark.parametrize(
        "counts", [(0, 63, 64, 64), (0, 64, 63, 63), (-1, 64, 64, 64), (0, 64, 65, 64), (65, 64, 64, 64)]
    )
    def test_too_few_clones_and_impossible_counts_are_never_certified(self, counts):
        assert not bool(scoring.certified(*(jnp.int32(count) for count in counts)))

    def test_without_64_bit_types_the_decision_is_the_same(self):
        k, n = np.arange(65), np.full(65, 64)
        wide = np.asarray(scoring.certified(k, n, n, n))
        with jax.enable_x64(False):
            np.testing.assert_array_equal(scoring.certified(k, n, n, n), wide)
