"""The interval score of section 2."""

import numpy as np
import pytest
import scoringrules
from hypothesis import given
from hypothesis import strategies as st

import scoring

finite = st.floats(-100, 100)


@given(
    ends=st.tuples(finite, finite), draws=st.lists(finite, min_size=8, max_size=8), scale=st.floats(0.1, 10)
)
def test_width_is_the_mean_winkler_score_at_a_fifth(ends, draws, scale):
    low, high = sorted(ends)
    each = [scoringrules.interval_score(y, low, high, 0.2, backend="numpy") for y in draws]
    width = scoring.interval_width(low, high, np.array(draws))
    assert float(width) == pytest.approx(np.mean(each), rel=1e-12, abs=1e-12)
    score = scoring.interval_score(low, high, np.array(draws), scale)
    assert float(score) == pytest.approx(np.exp(-np.mean(each) / (10 * scale)), rel=1e-10)


def test_narrow_and_right_then_wide_then_narrow_and_wrong():
    draws = np.random.default_rng(0).normal(size=8) * 0.1
    right, wide, wrong = (
        float(scoring.interval_score(low, high, draws, 0.3))
        for low, high in ((-0.2, 0.2), (-2.0, 2.0), (3.0, 3.1))
    )
    assert right > 0.85
    assert 0.1 < wide < 0.5
    assert wrong < 1e-3


@pytest.mark.parametrize("escape", [-3.0, 0.5, 5.0])
def test_ends_in_the_wrong_order_never_pay(escape):
    """Validation refuses them; in the kernel every draw escapes by at least the distance of the ends."""
    assert float(scoring.interval_width(1.0, 0.0, np.full(8, escape))) >= 9


def test_the_best_interval_of_a_gaussian_goes_from_level_a_tenth_to_nine_tenths():
    """Expected width over a grid of half widths is least at the 80 % interval (1.28 standard deviations)."""
    draws = np.random.default_rng(1).normal(size=200_000)
    half = np.arange(0.7, 2.0, 0.1)
    widths = [float(scoring.interval_width(-h, h, draws)) for h in half]
    assert half[np.argmin(widths)] == pytest.approx(1.28, abs=0.1)
