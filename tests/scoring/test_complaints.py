"""What users of other systems complained of, and must be impossible here; a test each or more.

The fuzz at the end feeds every score with what is not finite, subnormal, enormous, empty or alone.
"""

import json

import jax
import numpy as np
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st

import scoring
from scoring import Answer, check_answers, check_truth, pooled, scorecard
from scoring.reward import check_prediction
from tests.scoring.test_scorecard import make_answers, make_truth

FIVE = np.array(scoring.LEVELS)


class TestErroredCasesLeaveTheDenominator:
    """UKGovernmentBEIS/inspect_ai#3707: 80 right of 100 with 10 errors is reported as 80 of 90."""

    def test_inspect_ai_3707_a_missing_answer_never_raises_a_figure(self):
        truth = make_truth(10)
        whole = scorecard(truth, make_answers(*range(10)), list(range(10)))
        for dropped in range(10):
            left = [identity for identity in range(10) if identity != dropped]
            part = scorecard(truth, make_answers(*left), list(range(10)))
            assert part.contracts == part.denominators["accuracy"] == 10
            assert part.missing == 1
            for name in ("accuracy", "interval", "legacy", "coverage"):
                expected = sum(getattr(whole.rows[k], name) for k in left) / 10
                assert getattr(part, name) == pytest.approx(expected, rel=1e-12)
                assert getattr(part, name) <= getattr(whole, name)

    def test_inspect_ai_3707_nor_in_a_pool_of_runs_of_which_one_handed_in_nothing(self):
        full, empty = (scorecard(make_truth(), make_answers(*ids), [0, 1, 2]) for ids in ((0, 1, 2), ()))
        found = pooled([full, empty], [0, 1])
        assert found.contracts == 6
        assert found.mean("accuracy") == pytest.approx(full.accuracy / 2, rel=1e-12)

    def test_inspect_ai_3707_nor_does_a_void_clone(self):
        final = np.array([0.5, np.nan, 0.5, 0.5, 0.5])
        assert float(scoring.ended_in_band(final, np.array(0.0), np.array(1.0))) == 0.8


class TestNanPassesAsAReward:
    """OpenEnv#1199: NaN and infinity pass as a reward."""

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e400])
    def test_openenv_1199_an_answer_that_is_not_finite_is_refused_by_name(self, bad):
        answers = [{"id": 0, "mean": bad, "low": 0.0, "high": 1.0}]
        parsed, faults = check_answers(answers, [0])
        assert parsed == {}
        assert "`mean` must be a finite number" in faults[0]

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_openenv_1199_a_prediction_that_is_not_finite_is_refused_and_worth_nothing(self, bad):
        prediction, target = np.zeros((2, 2)), np.zeros((2, 2))
        prediction[1, 0] = bad
        with pytest.raises(ValueError, match=r"`prediction` must be finite numbers .* at \[1, 0\]"):
            check_prediction(prediction, 2, 2)
        error = scoring.normalised_mse(prediction, target, np.ones(2))
        assert float(scoring.mse_reward(error)) == 0

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_openenv_1199_json_of_scores_has_no_nan_even_for_answers_that_were_not_checked(self, bad):
        card = scorecard(make_truth(1), {0: Answer(0, bad, bad, bad, (bad,) * 5)}, [0])
        json.dumps(card.to_json(), allow_nan=False)
        assert (card.accuracy, card.interval, card.legacy, card.coverage) == (0, 0, 0, 0)
        assert card.excess == 1e300


class TestCrpsBiasedByEnsembleSize:
    """properscoring#7: the CRPS of an ensemble depends on how many members it has."""

    def test_properscoring_7_the_fair_score_of_a_perfect_ensemble_does_not_depend_on_its_size(self):
        """1 / sqrt(pi) for a normal within 4.9 standard errors (alpha 1e-6); the plain one is too large."""
        rng = np.random.default_rng(0)
        for members in (3, 4, 8, 64):
            samples, outcome = rng.normal(size=(20_000, members)), rng.normal(size=20_000)
            fair = np.asarray(scoring.crps_samples(samples, outcome))
            plain = np.asarray(scoring.crps_samples(samples, outcome, fair=False))
            error = 4.9 * fair.std() / np.sqrt(len(fair))
            assert abs(fair.mean() - np.pi**-0.5) < error
            assert plain.mean() - fair.mean() == pytest.approx(np.pi**-0.5 / members, rel=0.05)

    def test_properscoring_7_accuracy_and_excess_do_not_move_with_the_number_of_truth_clones(self):
        """Honest quantiles, a given scale: mean excess at 4, 8, 64 draws within 4.9 standard errors."""
        rng = np.random.default_rng(1)
        honest = scoring.inverted_cdf(rng.normal(size=(1, 100_001)))
        found = []
        for clones in (4, 8, 64):
            draws = rng.normal(size=(20_000, clones))
            score = scoring.quantile_score(honest, draws)
            excess = np.asarray(scoring.excess(score, scoring.fair_floor(draws), 3.0))
            found.append((excess.mean(), excess.std() / np.sqrt(len(excess))))
        for (mean, error), (other, its_error) in zip(found, found[1:], strict=False):
            assert abs(mean - other) < 4.9 * np.hypot(error, its_error)


class TestCrpsFromQuantilesIsUnclear:
    """properscoring#12: how a CRPS comes from quantiles, and what crossing ones mean."""

    def test_properscoring_12_the_score_is_the_documented_formula_and_scoringrules(self):
        rng = np.random.default_rng(2)
        quantiles, draws = np.sort(rng.normal(size=5)), rng.normal(size=8)
        losses = (draws - quantiles[:, None]) * (FIVE[:, None] - (draws < quantiles[:, None]))
        score = float(scoring.quantile_score(quantiles, draws))
        assert score == pytest.approx(2 * losses.mean(), rel=1e-13)
        expected = scoringrules.crps_quantile(draws, np.tile(quantiles, (8, 1)), FIVE, backend="numpy")
        assert score == pytest.approx(expected.mean(), rel=1e-13)

    def test_properscoring_12_quantiles_are_never_taken_for_samples(self):
        """The advice of that thread, to insert quantiles as an ensemble, gives another number."""
        quantiles = np.array([-1.2816, -0.6745, 0.0, 0.6745, 1.2816])
        exact = float(scoring.crps_quantiles(quantiles, np.array(0.4), FIVE))
        as_samples = float(scoring.crps_samples(quantiles, np.array(0.4), fair=False))
        law = float(scoring.crps_normal(np.array(0.0), np.array(1.0), np.array(0.4)))
        assert abs(exact - law) < 0.02 < abs(as_samples - law)

    def test_properscoring_12_crossing_quantiles_are_refused_with_the_pair_named_and_never_sorted(self):
        crossing = {"0.1": 0.0, "0.25": 2.0, "0.5": 1.0, "0.75": 3.0, "0.9": 4.0}
        answers = [{"id": 0, "mean": 1.0, "low": 0.0, "high": 4.0, "quantiles": crossing}]
        parsed, faults = check_answers(answers, [0])
        assert parsed == {}
        assert "must not decrease from '0.25' to '0.5', but go from 2.0 to 1.0" in faults[0]
        assert np.isnan(scoring.crps_quantiles(np.array([*crossing.values()]), np.array(1.0), FIVE))


class TestScoresWithoutAnAnchor:
    """forecastbench#139: adjusted scores whose zero moves with whatever else was scored."""

    def test_forecastbench_139_null_s_value_is_shipped_with_every_card(self):
        truth = make_truth()
        null = {k: Answer(k, 0.0, 0.0, 0.0) for k in range(3)}
        anchor = scorecard(truth, null, [0, 1, 2])
        for answers in (make_answers(0, 1, 2), make_answers(1), {}, null):
            card = scorecard(truth, answers, [0, 1, 2])
            # Null's value is computed beside the card's, where last bits may be rounded otherwise.
            found = {"accuracy": anchor.accuracy, "excess": anchor.excess}
            assert card.to_json()["null"] == pytest.approx(found, rel=1e-12)
            each = [row.accuracy for row in anchor.rows]
            assert [row.null_accuracy for row in card.rows] == pytest.approx(each, rel=1e-12)

    def test_forecastbench_139_a_score_does_not_depend_on_who_else_is_scored(self):
        truth = make_truth(4)
        alone = scorecard(truth, make_answers(2), list(range(4)))
        among = scorecard(truth, make_answers(0, 1, 2, 3), list(range(4)))
        assert alone.rows[2] == among.rows[2]
        assert pooled([alone, among], [0, 1]).cards[0] == alone


ODD = [np.nan, np.inf, -np.inf, 5e-324, -5e-324, 1e-310, 1e308, -1e308, 1.7e308, 0.0, -0.0, 1.0]
odd = st.sampled_from(ODD) | st.floats(allow_nan=True, allow_infinity=True)


@jax.jit
def earned(draws, quantiles, low, high, answer, scale):
    """Everything that pays, at the largest: no input may raise one above 1, or one with NaN in it above 0."""
    score, floor = scoring.quantile_score(quantiles, draws), scoring.fair_floor(draws)
    return [
        scoring.accuracy(score, floor, scale),
        scoring.interval_score(low, high, draws, scale),
        scoring.legacy_accuracy(answer, draws, scale),
        scoring.mse_reward(
            scoring.normalised_mse(quantiles[None, :], quantiles[None, :] + answer, scale + quantiles)
        ),
        scoring.accuracy(scoring.crps_samples(draws, answer, fair=False), floor, scale),
        scoring.accuracy(scoring.crps_normal(answer, scale, low), floor, scale),
    ]


@pytest.mark.parametrize("clones", [1, 2, 8, 17])
@settings(max_examples=60)
@given(data=st.data())
def test_fuzz_nothing_earns_more_than_one_and_nan_earns_nothing(clones, data):
    draws = np.array(data.draw(st.lists(odd, min_size=clones, max_size=clones)))
    quantiles = np.array(data.draw(st.lists(odd, min_size=5, max_size=5)))
    low, high, answer, scale = (np.array(data.draw(odd)) for _ in range(4))
    values = np.array(earned(draws, quantiles, low, high, answer, scale))
    assert ((values >= 0) & (values <= 1)).all()
    if not np.isfinite(draws).all() or not np.isfinite(scale):
        assert values[0] == values[1] == values[2] == values[4] == 0
    if not np.isfinite(quantiles).all():
        assert values[0] == values[3] == 0
    if not (np.isfinite(low) and np.isfinite(high)):
        assert values[1] == 0
    if not np.isfinite(answer):
        assert values[2] == values[4] == values[5] == 0
    fraction = float(scoring.ended_in_band(draws, low, high))
    assert 0 <= fraction <= np.isfinite(draws).mean()
    assert float(scoring.coverage(low, high, draws)) <= np.isfinite(draws).mean()


@pytest.mark.parametrize(
    "kernel",
    [
        lambda d: scoring.accuracy(scoring.quantile_score(FIVE, d), scoring.fair_floor(d), 1.0),
        lambda d: scoring.interval_score(np.array(0.0), np.array(1.0), d, 1.0),
        lambda d: scoring.legacy_accuracy(np.array(0.0), d, 1.0),
        lambda d: scoring.ended_in_band(d, np.array(-1.0), np.array(1.0)),
        lambda d: scoring.coverage(np.array(-1.0), np.array(1.0), d),
    ],
)
def test_fuzz_no_draws_earn_nothing(kernel):
    assert not float(kernel(np.zeros(0))) > 0


def test_fuzz_a_single_draw_has_no_floor_and_no_spread_but_a_score():
    one = np.array([0.3])
    assert float(scoring.fair_floor(one)) == 0
    assert float(scoring.total_spread(one)) == 0
    assert float(scoring.within_branch_spread(one, np.zeros(1, int))) == 0
    assert float(scoring.quantile_score(np.full(5, 0.5), one)) == pytest.approx(0.2)


@settings(max_examples=60)
@given(data=st.data())
def test_fuzz_a_card_is_finite_json_whatever_truth_and_answers_pass_the_checks(data):
    number = st.sampled_from([0.0, 5e-324, 1e-310, 1e-9, 1.0, 1e9, 1e300, -1e300])
    draws = np.array(data.draw(st.lists(number, min_size=8, max_size=8))).reshape(1, 8)
    width = data.draw(st.sampled_from([5e-324, 1e-300, 1.0, 1e300]))
    truth = check_truth(draws, np.zeros((1, 8), int), fraction=0.1, dynamic_range=width)
    value = data.draw(number)
    card = scorecard(truth, {0: Answer(0, value, min(value, 0.0), max(value, 0.0))}, [0])
    json.dumps(card.to_json(), allow_nan=False)
    assert 0 <= card.accuracy <= 1
    assert 0 <= card.interval <= 1
