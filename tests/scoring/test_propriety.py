"""Propriety by experiment: excess is least for the honest report; accuracy alone is not proper."""

from statistics import NormalDist

import numpy as np
import pytest

import scoring

LEVELS = np.array(scoring.LEVELS)
NORMAL = np.array([NormalDist().inv_cdf(level) for level in scoring.LEVELS])
ENSEMBLES, CLONES = 20000, 8
Z = 4.9  # standard errors at alpha 1e-6


def two_mode_quantiles(share=0.6, spread=0.14):
    law = NormalDist(0, spread)
    below = [-1 + law.inv_cdf(level / share) for level in scoring.LEVELS if level < share]
    above = [1 + law.inv_cdf((level - share) / (1 - share)) for level in scoring.LEVELS if level > share]
    return np.array(below + above)


def truth(law):
    """Draws [ensemble, clone] and the honest quantiles of a law."""
    rng = np.random.default_rng(20)
    noise = rng.normal(size=(ENSEMBLES, CLONES))
    if law == "gaussian":
        return noise, NORMAL
    if law == "skewed":
        return np.exp(0.8 * noise), np.exp(0.8 * NORMAL)
    mode = np.where(rng.uniform(size=noise.shape) < 0.6, -1, 1)
    return mode + 0.14 * noise, two_mode_quantiles()


def misreports(law, honest):
    centre, spread = honest[2], honest[-1] - honest[0]
    reports = {
        "shifted up": honest + 0.1 * spread,
        "shifted down": honest - 0.1 * spread,
        "narrowed": centre + 0.7 * (honest - centre),
        "widened": centre + 1.4 * (honest - centre),
        "a point": np.full(5, centre),
    }
    if law == "two modes":
        reports["one mode"] = -1 + 0.14 * NORMAL
        reports["the middle"] = 0.14 * NORMAL
    return reports


def excess_of(report, draws, scale):
    score = scoring.quantile_score(report[None, :], draws)
    return np.asarray(scoring.excess(score, scoring.fair_floor(draws), scale))


@pytest.mark.parametrize("law", ["gaussian", "skewed", "two modes"])
def test_expected_excess_is_least_at_the_honest_report(law):
    """Paired differences over 20,000 ensembles, each at least 4.9 standard errors above 0 (alpha 1e-6)."""
    draws, honest = truth(law)
    scale = 3 * draws.std()
    best = excess_of(honest, draws, scale)
    for name, report in misreports(law, honest).items():
        loss = excess_of(report, draws, scale) - best
        assert loss.mean() > Z * loss.std() / np.sqrt(ENSEMBLES), name


@pytest.mark.parametrize("law", ["gaussian", "skewed", "two modes"])
def test_a_perfect_forecaster_sits_just_below_zero(law):
    draws, honest = truth(law)
    spread = 0.14 if law == "two modes" else draws.std()
    excess = excess_of(honest, draws, 3 * spread)
    error = excess.std() / np.sqrt(ENSEMBLES)
    assert -0.1 - Z * error < excess.mean() < Z * error


def test_a_scale_from_the_scored_draws_favours_a_narrow_report_and_one_from_further_clones_does_not():
    """Skewed truth, report scaled by 0.9: a gain of 0.002 with the own scale of the draws, else a loss."""
    draws, honest = truth("skewed")
    further = np.exp(0.8 * np.random.default_rng(21).normal(size=(ENSEMBLES, 64)))
    own_scale, fair_scale = (3 * np.asarray(scoring.total_spread(each)) for each in (draws, further))

    def gain(scale):
        difference = excess_of(0.9 * honest, draws, scale) - excess_of(honest, draws, scale)
        return difference.mean(), difference.std() / np.sqrt(ENSEMBLES)

    own, own_error = gain(own_scale)
    fair, fair_error = gain(fair_scale)
    assert own < -Z * own_error
    assert own > -0.01
    assert fair > Z * fair_error


class TestAccuracyIsNotProper:
    """A forecaster believes "0 or 1, evenly"; the truth is one of them, the scale 3 % of the range."""

    scale = 0.03

    def expected(self, quantiles):
        truths = np.array([[0.0] * 8, [1.0] * 8])
        score = scoring.quantile_score(np.array([quantiles]), truths)
        floor = scoring.fair_floor(truths)
        return (
            float(scoring.accuracy(score, floor, self.scale).mean()),
            float(scoring.excess(score, floor, self.scale).mean()),
        )

    def test_a_bluff_earns_more_accuracy_and_the_honest_spread_less_excess(self):
        bluff_accuracy, bluff_excess = self.expected([0.0] * 5)
        honest_accuracy, honest_excess = self.expected([0.0, 0.0, 0.5, 1.0, 1.0])
        assert bluff_accuracy == pytest.approx(0.5, abs=1e-6)
        assert honest_accuracy < 0.01
        assert honest_excess < 0.5 * bluff_excess
