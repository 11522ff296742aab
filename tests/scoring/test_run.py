"""Run scores of section 8, pooled cards with clustered errors, and the JSON Schemas of all three."""

import json

import numpy as np
import pytest
from rich.console import Console

import scoring
from scoring import (
    POOLED_SCHEMA,
    RUN_SCHEMA,
    SCORECARD_SCHEMA,
    PreparationScore,
    RunScore,
    Weights,
    check_truth,
    pooled,
    scorecard,
)
from tests.scoring.test_scorecard import make_answers, make_truth


def fits(value, schema, path="$"):
    """The faults of a value under the few keywords that the schemas use, in the meaning of JSON Schema."""
    if "anyOf" in schema:
        found = [fits(value, each, path) for each in schema["anyOf"]]
        return min(found, key=len)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    holds = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
        "number": number,
        "integer": number and value == int(value),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    if not any(holds[kind] for kind in kinds):
        return [f"{path} must be {kinds}, but is {value!r}"]
    faults = []
    if number:
        inside = schema.get("minimum", -np.inf) <= value <= schema.get("maximum", np.inf)
        if not inside or value <= schema.get("exclusiveMinimum", -np.inf):
            faults.append(f"{path} is out of range: {value}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", np.inf):
            faults.append(f"{path} has {len(value)} items")
        faults += [f for k, each in enumerate(value) for f in fits(each, schema["items"], f"{path}[{k}]")]
    if isinstance(value, dict):
        known = schema["properties"]
        faults += [f"{path} lacks {key}" for key in schema["required"] if key not in value]
        faults += [f"{path} has {key} too" for key in value if key not in known]
        for key in known.keys() & value.keys():
            faults += fits(value[key], known[key], f"{path}.{key}")
    return faults


def plain(thing):
    return json.loads(json.dumps(thing.to_json(), allow_nan=False))


def show(table):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def card(*ids, contracts=3):
    return scorecard(make_truth(contracts), make_answers(*ids), list(range(contracts)))


class TestScorecard:
    @pytest.mark.parametrize("ids", [(0, 1, 2), (0, 2), ()], ids=["all", "one missing", "none"])
    def test_json_fits_its_schema(self, ids):
        assert fits(plain(card(*ids)), SCORECARD_SCHEMA) == []
        json.dumps(SCORECARD_SCHEMA, allow_nan=False)

    def test_the_schema_sees_a_planted_fault(self):
        wrong = plain(card(0)) | {"accuracy": 1.5}
        assert fits(wrong, SCORECARD_SCHEMA) == ["$.accuracy is out of range: 1.5"]
        del wrong["rows"]
        assert "$ lacks rows" in fits(wrong, SCORECARD_SCHEMA)
        assert fits(plain(card(0)) | {"rows": []}, SCORECARD_SCHEMA) == ["$.rows has 0 items"]

    def test_one_contract_has_no_standard_error(self):
        found = plain(card(0, contracts=1))
        assert set(found["standard_errors"].values()) == {None}
        assert fits(found, SCORECARD_SCHEMA) == []

    def test_standard_errors_are_over_the_contracts(self):
        found = card(0, 1, 2)
        values = np.array([row.accuracy for row in found.rows])
        assert found.standard_error("accuracy") == pytest.approx(values.std(ddof=1) / np.sqrt(3), rel=1e-12)

    def test_a_standard_error_of_losses_as_large_as_they_may_be_is_finite(self):
        truth = check_truth(
            1e-9 * np.random.default_rng(0).normal(size=(2, 8)),
            np.zeros((2, 8), int),
            fraction=0.1,
            dynamic_range=1e-9,
        )
        far = scorecard(truth, {0: scoring.Answer(0, 1e300, 1e300, 1e300)}, [0, 1])
        assert fits(plain(far), SCORECARD_SCHEMA) == []

    def test_a_missing_answer_covers_nothing_and_has_no_pit(self):
        found = card(0, 2)
        assert found.rows[1].coverage == 0
        assert found.rows[1].pit is None
        assert found.denominators == dict.fromkeys(
            ("accuracy", "excess", "interval", "legacy", "coverage"), 3
        ) | {"pit": 2}
        assert sum(found.pit) == pytest.approx(1)

    def test_table_shows_errors_anchor_and_denominators(self):
        text = " ".join(show(card(0, 2).table()).split())
        for part in ("s.e.", "null", "coverage", "over 2 answered", "scoring version", "3 contracts"):
            assert part in text


class TestRun:
    preparation = (PreparationScore(8, 5, 4, 3), PreparationScore(9, 5, 0, 0, answered=False))

    def test_is_the_mean_over_all_contracts_of_accuracy_or_clone_fraction(self):
        prediction = card(0, 1, 2)
        run = RunScore(prediction, self.preparation)
        total = sum(row.accuracy for row in prediction.rows) + 0.8 + 0
        assert run.score == pytest.approx(total / 5, rel=1e-12)
        assert run.excess == prediction.excess
        assert (run.contracts, run.missing) == (5, 1)
        assert RunScore(prediction).score == pytest.approx(prediction.accuracy, rel=1e-15)

    def test_interval_and_theory_have_weight_nought_unless_asked(self):
        prediction, theory = card(0, 1, 2), card(0, 1)
        assert RunScore(prediction, theory=theory).score == RunScore(prediction).score
        both = RunScore(prediction, theory=theory, weights=Weights(1, 1, 0, 1))
        assert both.score == pytest.approx((prediction.accuracy + theory.accuracy) / 2, rel=1e-12)
        none = RunScore(prediction, weights=Weights(1, 1, 0, 1))
        assert none.score == pytest.approx(prediction.accuracy / 2, rel=1e-12)

    @pytest.mark.parametrize("theory", [None, (0, 1)])
    def test_json_carries_weights_and_fits_its_schema(self, theory):
        run = RunScore(card(0, 2), self.preparation, None if theory is None else card(*theory))
        found = plain(run)
        assert fits(found, RUN_SCHEMA) == []
        assert found["weights"] == {"prediction": 1, "preparation": 1, "interval": 0, "theory": 0}
        assert found["denominators"] == {"score": 5, "excess": 3}
        text = show(run.table())
        for part in ("weights:", "score", "excess", "in band", "held", "3 prediction contracts", "2 missing"):
            assert part in text

    @pytest.mark.parametrize("counts", [(5, 6, 0), (5, 3, 4), (0, 0, 0), (5, -1, -1)])
    def test_counts_that_cannot_be_are_refused(self, counts):
        with pytest.raises(ValueError, match="`held` <= `in_band` <= `clones`"):
            PreparationScore(0, *counts)

    def test_other_nonsense_is_refused(self):
        with pytest.raises(ValueError, match="`in_band` must be 0 where no policy"):
            PreparationScore(0, 5, 1, 0, answered=False)
        with pytest.raises(ValueError, match="`weights` must be at least 0"):
            RunScore(card(0), weights=Weights(0, 0, 0, 0))
        with pytest.raises(ValueError, match="`weights` must be at least 0"):
            RunScore(card(0), weights=Weights(1, 1, -1, 0))
        with pytest.raises(ValueError, match="must have the same contracts, but have 2 and 3"):
            RunScore(card(0), theory=card(0, contracts=2))


class TestPooled:
    def test_means_are_over_all_contracts_of_all_cards(self):
        cards = [card(0, 1, 2), card(0, contracts=5), card(contracts=2)]
        found = pooled(cards, [0, 1, 1])
        rows = [row for each in cards for row in each.rows]
        assert found.contracts == 10
        assert found.missing == 6
        assert found.clusters == 2
        assert found.mean("accuracy") == pytest.approx(np.mean([row.accuracy for row in rows]), rel=1e-12)
        assert found.denominators["pit"] == 4

    def test_errors_are_clustered_by_seed(self):
        cards = [card(0, 1, 2), card(0, 1), card(0), card(1, 2)]
        values = np.array([row.accuracy for each in cards for row in each.rows])
        around = values - values.mean()
        sums = [around[:3].sum() + around[6:9].sum(), around[3:6].sum(), around[9:].sum()]
        expected = np.sqrt(3 / 2 * np.sum(np.square(sums))) / 12
        found = pooled(cards, [5, 6, 5, 7])
        assert found.standard_error("accuracy") == pytest.approx(expected, rel=1e-12)
        assert pooled(cards, [5] * 4).standard_error("accuracy") is None

    def test_json_and_table(self):
        found = pooled([card(0, 1, 2), card(0)], [("B2", 0), ("B2", 1)])
        assert fits(plain(found), POOLED_SCHEMA) == []
        assert plain(found)["cards"][0]["seed"] == "('B2', 0)"
        text = show(found.table())
        for part in ("2 runs, 6 contracts, 2 missing", "errors clustered by 2 seeds", "mean", "s.e.", "null"):
            assert part in text

    @pytest.mark.parametrize(("cards", "seeds"), [(0, []), (2, [0])])
    def test_cards_and_seeds_must_pair(self, cards, seeds):
        with pytest.raises(ValueError, match="`cards` and `seeds` must be as many"):
            pooled([card(0)] * cards, seeds)


def test_blocks_of_contracts_change_no_score():
    """More contracts than fit in one block: the last block reaches back."""
    rng = np.random.default_rng(0)
    contracts = 2 * 2048 + 57
    draws = rng.normal(size=(contracts, 8))
    branch = rng.integers(0, 2, draws.shape)
    truth = check_truth(draws, branch, fraction=0.1, dynamic_range=4)
    quantiles = np.sort(rng.normal(size=(contracts, 5)), axis=-1)
    answers = scoring.AnswerArrays(
        quantiles[:, 2], quantiles[:, 0], quantiles[:, 4], quantiles, rng.uniform(size=contracts) < 0.9
    )
    whole = scoring.score_contracts(truth, answers)
    for place in (slice(0, 8), slice(2044, 2052), slice(contracts - 8, contracts)):
        part = scoring.score_contracts(
            type(truth)(*(leaf if leaf is None else leaf[place] for leaf in truth)),
            type(answers)(*(leaf[place] for leaf in answers)),
        )
        for name, column in part._asdict().items():
            np.testing.assert_allclose(getattr(whole, name)[place], column, rtol=1e-13, err_msg=name)
