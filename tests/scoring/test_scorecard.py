"""Scores of a run: the array program, missing answers, and the card."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import scoring
from scoring import Answer, AnswerArrays, Truth, check_truth, score_contracts, scorecard


def make_truth(contracts=3, clones=8, **changes):
    rng = np.random.default_rng(0)
    branch = rng.integers(0, 2, (contracts, clones))
    given = {"fraction": 0.1, "dynamic_range": np.linspace(2, 4, contracts)} | changes
    return check_truth(branch + rng.normal(size=branch.shape), branch, **given)


def make_answer(identity):
    levels = tuple(0.1 * identity + level for level in (-1.0, -0.5, 0.0, 0.5, 1.0))
    return Answer(identity, 0.3, -1.0, 1.5, levels if identity % 2 else None)


def make_answers(*ids):
    return {identity: make_answer(identity) for identity in ids}


def test_each_figure_is_that_of_its_kernel():
    truth = make_truth()
    card = scorecard(truth, make_answers(0, 1, 2), [0, 1, 2])
    for index, row in enumerate(card.rows):
        draws, answer = truth.draws[index], make_answer(index)
        tau = scoring.within_branch_spread(draws, truth.branch[index])
        scale = scoring.contract_scale(tau, 0.1, truth.dynamic_range[index])
        score, floor = scoring.quantile_score(np.array(answer.levels()), draws), scoring.fair_floor(draws)
        expected = {
            "accuracy": scoring.accuracy(score, floor, scale),
            "excess": scoring.excess(score, floor, scale),
            "interval": scoring.interval_score(answer.low, answer.high, draws, scale),
            "legacy": scoring.legacy_accuracy(answer.mean, draws, scale),
            "coverage": scoring.coverage(answer.low, answer.high, draws),
            "null_accuracy": scoring.accuracy(scoring.quantile_score(np.zeros(5), draws), floor, scale),
            "null_excess": scoring.excess(scoring.quantile_score(np.zeros(5), draws), floor, scale),
            "quantile_score": score,
            "floor": floor,
            "scale": scale,
            "tau": tau,
            "branches": 2,
        }
        for name, value in expected.items():
            assert getattr(row, name) == pytest.approx(float(value), rel=1e-12), name
        np.testing.assert_allclose(row.pit, scoring.pit_shares(np.array(answer.levels()), draws), rtol=1e-12)
        assert (row.id, row.answered) == (index, True)


class TestMissing:
    def test_scores_nothing_and_stays_in_the_denominator(self):
        truth = make_truth()
        full, part = (scorecard(truth, make_answers(*ids), [0, 1, 2]) for ids in ((0, 1, 2), (0, 2)))
        row = part.rows[1]
        assert (row.accuracy, row.interval, row.legacy, row.answered) == (0, 0, 0, False)
        assert row.excess == pytest.approx((truth.dynamic_range[1] - row.floor) / row.scale)
        assert (part.contracts, part.missing, full.missing) == (3, 1, 0)
        assert part.accuracy == pytest.approx((full.rows[0].accuracy + full.rows[2].accuracy) / 3)
        assert part.rows[0] == full.rows[0]

    def test_nothing_answered(self):
        card = scorecard(make_truth(), {}, [0, 1, 2])
        assert (card.accuracy, card.interval, card.legacy, card.missing) == (0, 0, 0, 3)
        assert card.excess > 0

    def test_the_numbers_of_a_missing_answer_are_never_read(self):
        truth = make_truth()
        junk = np.full(3, np.nan)
        scores = score_contracts(
            truth, AnswerArrays(junk, junk, junk, np.full((3, 5), np.nan), np.zeros(3, bool))
        )
        assert np.isfinite(np.stack(scores[:-1])).all()
        assert np.isnan(scores.pit).all()


class TestScale:
    def test_tau_may_come_from_further_clones(self):
        card = scorecard(make_truth(tau=[0.5, 0.6, 0.01]), make_answers(0, 1, 2), [0, 1, 2])
        np.testing.assert_allclose([row.scale for row in card.rows], [1.5, 1.8, 0.4])

    def test_a_label_beyond_the_count_of_labels_never_pays(self):
        truth = make_truth()
        spoilt = truth._replace(branch=np.where(truth.branch == 1, 99, 0))
        scores = score_contracts(spoilt, AnswerArrays(*np.zeros((3, 3)), np.zeros((3, 5)), np.ones(3, bool)))
        assert (np.asarray(scores.accuracy) == 0).all()
        assert np.isposinf(scores.excess).all()

    def test_more_labels_on_request(self):
        rng = np.random.default_rng(1)
        branch = np.array([[0, 0, 20, 20, 0, 20, 20, 0]])
        truth = check_truth(
            branch + rng.normal(size=(1, 8)), branch, fraction=0.1, dynamic_range=2, labels=32
        )
        assert scorecard(truth, make_answers(0), [0], labels=32).rows[0].branches == 2


class TestProgram:
    def test_the_card_is_double_precision_and_leaves_no_switch_behind(self):
        truth = make_truth(1)
        expected = scorecard(truth, make_answers(0), [0])
        with jax.enable_x64(False):
            assert scorecard(truth, make_answers(0), [0]) == expected
            assert jnp.zeros(1).dtype == np.float32
        draws = truth.draws[0]
        assert expected.rows[0].floor == pytest.approx(
            np.abs(draws[:, None] - draws[None, :]).sum() / (2 * 8 * 7), rel=1e-13
        )

    def test_one_program_serves_one_to_eight_contracts(self):
        scorecard(make_truth(1), make_answers(0), [0])
        programs = score_contracts._cache_size()
        for contracts in range(2, 9):
            assert scorecard(make_truth(contracts), {}, range(contracts)).contracts == contracts
        assert score_contracts._cache_size() == programs

    @pytest.mark.parametrize("contracts", [9, 17])
    def test_padding_changes_nothing(self, contracts):
        truth = make_truth(contracts)
        ids = list(range(contracts))
        card = scorecard(truth, make_answers(*ids), ids)
        for index in (0, contracts - 1):
            alone = jax.tree.map(lambda leaf, i=index: leaf[i : i + 1], truth)
            assert scorecard(alone, make_answers(index), [index]).rows[0] == card.rows[index]

    def test_vmap_over_runs_and_gradient_to_the_answers(self):
        truth = make_truth()
        mean = np.linspace(-1, 1, 12).reshape(4, 3)
        answers = AnswerArrays(
            mean, mean - 1, mean + 1, np.repeat(mean[..., None], 5, axis=-1), np.ones((4, 3), bool)
        )
        together = jax.vmap(score_contracts, (None, 0))(truth, answers)
        alone = score_contracts(truth, jax.tree.map(lambda leaf: leaf[2], answers))
        for name, column in alone._asdict().items():
            np.testing.assert_allclose(getattr(together, name)[2], column, rtol=1e-12, err_msg=name)

        def total_excess(quantiles):
            return jnp.sum(
                jax.vmap(score_contracts, (None, 0))(truth, answers._replace(quantiles=quantiles)).excess
            )

        gradient = jax.grad(total_excess)(jnp.asarray(answers.quantiles))
        assert np.isfinite(gradient).all()
        assert (np.asarray(gradient) != 0).any()

    def test_float32_in_float32_out(self):
        truth = jax.tree.map(
            lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, make_truth()
        )
        zeros = np.zeros(3, np.float32)
        scores = score_contracts(
            truth, AnswerArrays(zeros, zeros, zeros, np.zeros((3, 5), np.float32), zeros == 0)
        )
        floats = [column for name, column in scores._asdict().items() if name != "branches"]
        assert {column.dtype for column in floats} == {np.dtype(np.float32)}


class TestCard:
    def test_json_is_plain_and_complete(self):
        card = scorecard(make_truth(), make_answers(0, 2), [0, 1, 2])
        plain = json.loads(json.dumps(card.to_json(), allow_nan=False))
        assert (
            plain["accuracy"] == card.accuracy == pytest.approx(np.mean([row.accuracy for row in card.rows]))
        )
        assert plain["excess"] == card.excess == pytest.approx(np.mean([row.excess for row in card.rows]))
        assert (plain["missing"], plain["contracts"], plain["clones"]) == (1, 3, 8)
        assert [row["id"] for row in plain["rows"]] == [0, 1, 2]
        assert all(type(row["accuracy"]) is float and type(row["branches"]) is int for row in plain["rows"])

    @pytest.mark.parametrize("far", [-1e300, 1e300])
    def test_an_answer_far_off_stays_finite_and_is_the_worst(self, far):
        truth = check_truth(
            1e-9 * np.random.default_rng(0).normal(size=(2, 8)),
            np.zeros((2, 8), int),
            fraction=0.1,
            dynamic_range=1e-9,
        )
        card = scorecard(truth, {identity: Answer(identity, far, far, far) for identity in (0, 1)}, [0, 1])
        json.dumps(card.to_json(), allow_nan=False)
        assert (card.accuracy, card.interval, card.legacy) == (0, 0, 0)
        assert card.excess == 1e300

    @pytest.mark.parametrize("place", ["mean", "low", "high", "quantiles"])
    def test_an_unchecked_answer_that_is_not_finite_earns_nothing_by_it(self, place):
        numbers = {"mean": 0.5, "low": 0.0, "high": 1.0, "quantiles": (0.0,) * 5}
        numbers[place] = (0.0, math.nan, 0.0, 0.0, 0.0) if place == "quantiles" else math.nan
        card = scorecard(make_truth(1), {0: Answer(0, **numbers)}, [0])
        json.dumps(card.to_json(), allow_nan=False)
        assert (card.legacy == 0) == (place == "mean")
        assert (card.interval == 0) == (place in ("low", "high"))
        assert (card.accuracy == 0) == (card.excess == 1e300) == (place == "quantiles")

    def test_truth_that_is_not_finite_is_refused(self):
        truth = make_truth()
        truth.draws[1, 2] = np.nan
        with pytest.raises(ValueError, match=r"`draws` must be finite .* but is nan at \[1, 2\]"):
            scorecard(truth, {}, [0, 1, 2])

    def test_truth_as_large_as_it_may_be(self):
        draws = 1e300 * np.array([[-1.0, 1.0, 0.5, -0.5]])
        truth = check_truth(draws, np.zeros((1, 4), int), fraction=0.1, dynamic_range=1e300)
        card = scorecard(truth, {0: Answer(0, 0.0, -1e300, 1e300)}, [0])
        json.dumps(card.to_json(), allow_nan=False)
        assert card.accuracy > 0.5

    def test_table_shows_every_contract_and_the_means(self):
        console = Console(width=100, record=True, file=None, quiet=False)
        with console.capture() as capture:
            console.print(scorecard(make_truth(), make_answers(0, 2), [0, 1, 2]).table())
        text = capture.get()
        for part in ("3 contracts, 1 missing, 8 truth draws each", "1 missing", "mean", "accuracy", "excess"):
            assert part in text

    @pytest.mark.parametrize("ids", [[0, 1], [0, 1, 1], [0, 1, 2, 3]])
    def test_ids_must_fit_the_truth(self, ids):
        with pytest.raises(ValueError, match="`contract_ids` must be 3 different ids"):
            scorecard(make_truth(), {}, ids)

    def test_answers_must_be_to_these_contracts(self):
        with pytest.raises(
            ValueError, match=r"`answers` must be to contracts \[0, 1, 2\], but has \[7\] too"
        ):
            scorecard(make_truth(), make_answers(0, 7), [0, 1, 2])


def test_truth_without_tau_is_a_tree_of_four_arrays():
    assert len(jax.tree.leaves(make_truth())) == 4
    assert len(jax.tree.leaves(Truth(*make_truth()[:4], tau=np.zeros(3)))) == 5
