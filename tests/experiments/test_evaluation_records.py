"""Evaluation refuses, counts and repeats; records hold all that a rescoring needs."""

import json
import math

import numpy as np
import pytest

from experiments import evaluate
from experiments.evaluation import score_answers
from experiments.records import SCHEMA, ladder_record, provenance, to_bytes, write_record
from experiments.summary import figure
from oracles.fit import Fit, FitSettings
from oracles.ladder import Ladder, Rung, ensemble_answers, null_answers, outcomes_of, point_answers
from scoring import Answer, check_answers, check_truth, scorecard
from simworlds.catalogue import load
from simworlds.contracts import contracts_of
from simworlds.errors import InvalidAnswers, InvalidRequest
from simworlds.store import Store
from simworlds.truth import checked_truth, ensemble_of, truth_of

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


@pytest.fixture(scope="module")
def instance():
    return load("B2").instance(0, redraws=0)


@pytest.fixture(scope="module")
def contracts(instance):
    return contracts_of(instance)


@pytest.fixture(scope="module")
def truth(instance, contracts):
    return truth_of(instance, contracts)


@pytest.fixture(scope="module")
def perfect(contracts, truth):
    """The truth's own quantiles."""
    return [answer.to_json() for answer in ensemble_answers(contracts, truth.draws)]


def changed(answers, number, **fields):
    """The answers with fields of one of them changed; an ellipsis removes a field."""
    made = [dict(answer) for answer in answers]
    made[number] = {k: v for k, v in (made[number] | fields).items() if v is not ...}
    return made


# Evaluation


def test_the_truth_itself_scores_best(instance, perfect):
    card = evaluate(instance, perfect)
    assert card.contracts == 8
    assert card.missing == 0
    assert card.clones == 8
    assert card.accuracy > 0.97
    assert max(row.excess for row in card.rows) < 0.05
    nothing = evaluate(instance, [{"id": k, "mean": 0, "low": 0, "high": 0} for k in range(8)])
    assert nothing.accuracy < card.accuracy - 0.2
    assert nothing.excess > card.excess


def test_another_order_and_numpy_s_numbers_score_the_same(instance, perfect):
    card = evaluate(instance, perfect)
    assert evaluate(instance, perfect[::-1]) == card
    as_numpy = [
        answer | {"id": np.int64(answer["id"]), "mean": np.float64(answer["mean"])} for answer in perfect
    ]
    assert evaluate(instance, as_numpy) == card


def test_an_absent_answer_counts_as_missing(instance, perfect, truth):
    whole, card = evaluate(instance, perfect), evaluate(instance, perfect[:3] + perfect[4:])
    assert card.missing == 1
    assert card.contracts == 8
    assert card.accuracy == pytest.approx(sum(row.accuracy for row in whole.rows if row.id != 3) / 8)
    row = card.rows[3]
    assert (row.answered, row.accuracy, row.interval, row.legacy) == (False, 0, 0, 0)
    assert row.excess == pytest.approx((truth.dynamic_range[3] - row.floor) / row.scale)
    others = [row for row in card.rows if row.id != 3]
    assert others == [row for row in whole.rows if row.id != 3]


def test_no_answers_at_all_are_eight_missing_ones(instance):
    card = evaluate(instance, [])
    assert (card.missing, card.contracts, card.accuracy, card.interval) == (8, 8, 0, 0)
    assert math.isfinite(card.excess)


BAD = {
    "NaN mean": ({"mean": math.nan}, "`mean` must be a finite number"),
    "infinite low": ({"low": -math.inf}, "`low` must be a finite number"),
    "string": ({"high": "1"}, "`high` must be a finite number"),
    "no mean": ({"mean": ...}, "`mean` is required"),
    "turned interval": ({"low": 2, "high": 1}, "`low` must be at most `high`"),
    "crossing": (
        {"quantiles": dict(zip(map(str, LEVELS), (1, 0, 2, 3, 4), strict=True))},
        "`quantiles` must not decrease from '0.1' to '0.25'",
    ),
    "incomplete": (
        {"quantiles": {"0.1": 1, "0.5": 2}},
        "`quantiles` must have all of .* lacks '0.25', '0.75', '0.9'",
    ),
    "NaN quantile": (
        {"quantiles": dict.fromkeys(map(str, LEVELS), math.nan)},
        "`quantiles` at '0.1' must be a finite number",
    ),
    "unknown id": ({"id": 8}, "`id` must be one of 0, 1, 2, 3, 4, 5, 6, 7, but is 8"),
    "duplicate id": ({"id": 4}, "`id` must be given once"),
    "unknown field": ({"median": 1}, "also has 'median'"),
}


@pytest.mark.parametrize(("fields", "message"), BAD.values(), ids=BAD)
def test_an_invalid_answer_refuses_all_and_is_missing_when_lenient(instance, perfect, fields, message):
    broken = changed(perfect, 3, **fields)
    with pytest.raises(InvalidAnswers, match=message) as caught:
        evaluate(instance, broken)
    assert caught.value.code == "invalid_answers"
    card = evaluate(instance, broken, lenient=True)
    # With two answers to one contract nobody knows which was meant: both are invalid.
    lost = {3, 4} if fields == {"id": 4} else {3}
    assert {row.id for row in card.rows if not row.answered} == lost
    assert card.contracts == 8
    assert card.accuracy == pytest.approx(
        sum(row.accuracy for row in evaluate(instance, perfect).rows if row.id not in lost) / 8
    )


def test_all_faults_are_listed_at_once(instance, perfect):
    broken = changed(changed(perfect, 1, mean=math.nan, low="x"), 5, id=99, high=...)
    with pytest.raises(InvalidAnswers, match="NaN|nan") as caught:
        evaluate(instance, [*broken, 7])
    faults = caught.value.faults
    assert len(faults) == 5
    assert str(caught.value) == "; ".join(faults)
    for word in ("`mean`", "`low`", "`id`", "`high`", "answers[8]"):
        assert any(word in fault for fault in faults), word


@pytest.mark.parametrize("answers", [None, 3, "[]", {"id": 0}, {"answers": []}, [[]], [None]], ids=repr)
def test_answers_are_a_list_of_objects(instance, answers):
    with pytest.raises(InvalidAnswers, match="must be a(n|) (list|object)"):
        evaluate(instance, answers)
    assert evaluate(instance, answers, lenient=True).missing == 8


def test_nothing_runs_for_invalid_answers_or_clones(instance, perfect, tmp_path, monkeypatch):
    def run(*_, **__):
        raise AssertionError("truth was asked for")

    monkeypatch.setattr("experiments.evaluation.truth_of", run)
    with pytest.raises(InvalidAnswers, match="`mean`"):
        evaluate(instance, changed(perfect, 0, mean=None))
    monkeypatch.undo()
    with pytest.raises(InvalidRequest, match="at least 4 clones, but `clones` is 3"):
        evaluate(instance, perfect, clones=3)


def test_no_number_is_a_score(instance, perfect):
    far = [{"id": k, "mean": x, "low": x, "high": x} for k, x in enumerate((1e300, -1e300) * 4)]
    for answers in (perfect, [], far):
        data = evaluate(instance, answers).to_json()
        assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert evaluate(instance, far).accuracy == 0


def test_answers_of_the_ladder_score_like_those_handed_in(instance, contracts, truth, perfect):
    handed, checked = evaluate(instance, perfect), checked_truth(truth)
    answers = ensemble_answers(contracts, truth.draws)
    assert score_answers(contracts, checked, answers) == handed
    assert evaluate(instance, answers) == handed
    with pytest.raises(InvalidAnswers, match="`id` must be given once"):
        score_answers(contracts, checked, [answers[0], *answers])
    with pytest.raises(InvalidAnswers, match="`mean` must be a finite number"):
        score_answers(contracts, checked, [Answer(0, math.nan, 0.0, 0.0)])


def test_a_store_of_its_own_changes_nothing(instance, perfect, tmp_path):
    assert evaluate(instance, perfect, store=Store(tmp_path)) == evaluate(instance, perfect)
    assert any(tmp_path.rglob("*.npz"))


def test_more_clones_change_the_truth_but_not_its_first_draws(instance, perfect, truth):
    card = evaluate(instance, perfect, clones=16)
    assert card.clones == 16
    more = truth_of(instance, contracts_of(instance), 16)
    np.testing.assert_array_equal(more.draws[:, :8], truth.draws)


# Records


@pytest.fixture(scope="module")
def climbed(instance, contracts, truth):
    """A ladder of few rungs: one with missing answers, one with a fit whose curve has a gap."""
    once = ensemble_of(instance, contracts, 1, "replication")
    many = ensemble_of(instance, contracts, 32, "ensemble_replication")
    gap = Fit(None, np.array([0.5, np.nan, 0.25]), np.array([1.0, np.inf, 2.0]))
    rungs = (
        Rung("null", null_answers(contracts)),
        Rung("compact oracle", ensemble_answers(contracts, many.values)[:5], gap),
        Rung("fitted oracle", []),
        Rung("replication", point_answers(contracts, once.values[:, 0])),
        Rung("ensemble replication", ensemble_answers(contracts, many.values)),
    )
    return Ladder(instance, contracts, rungs, many.values, many.branch)


@pytest.fixture(scope="module")
def finite_ladder(climbed):
    """The same without the gap."""
    whole = Fit(None, np.array([0.5, 0.25]), np.array([1.0, 2.0]))
    rungs = tuple(rung._replace(fit=whole) if rung.fit else rung for rung in climbed.rungs)
    return climbed._replace(rungs=rungs)


@pytest.fixture(scope="module")
def record(instance, finite_ladder, truth):
    return ladder_record(finite_ladder, truth, FitSettings())


@pytest.fixture(scope="module")
def stored(record):
    """The record as a reader gets it."""
    return json.loads(to_bytes(record), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_record_is_json_and_the_same_every_time(record, stored, instance, finite_ladder, truth):
    assert stored == record
    assert to_bytes(ladder_record(finite_ladder, truth, FitSettings())) == to_bytes(record)
    assert to_bytes(record).endswith(b"}\n")


def test_a_record_carries_what_a_figure_must(stored, instance, contracts):
    assert stored["schema"] == SCHEMA
    expected = {"world": "B2", "seed": 0, "backend": "cpu", "dtype": "float32", "clones": 8}
    assert {name: stored[name] for name in expected} == expected
    assert stored["budget"] == {"ticks": 4096, "preparations": 32}
    assert stored["version"]
    assert stored["law_version"] == instance.world.law_version
    assert stored["contracts"] == [contract.to_json() for contract in contracts]
    assert [rung["missing"] for rung in stored["rungs"]] == [0, 3, 8, 0, 0]
    assert all(len(rung["scores"]) == 8 for rung in stored["rungs"])


def test_a_record_holds_no_time_and_no_path(record, tmp_path, monkeypatch):
    text = to_bytes(record).decode()
    assert "/" not in text.replace(SCHEMA, "").replace("https://", "")
    assert not any(word in text.casefold() for word in ("time", "date", "second", "host"))


def test_a_rescoring_from_a_record_alone_gives_its_scores_to_the_last_bit(stored):
    kept = stored["truth"]
    names = ("fraction", "dynamic_range", "tau")
    truth = check_truth(kept["draws"], kept["branch"], **{name: kept[name] for name in names})
    ids = [contract["id"] for contract in stored["contracts"]]
    for rung in stored["rungs"]:
        answers, faults = check_answers(rung["answers"], ids)
        assert faults == []
        card = scorecard(truth, answers, ids)
        for row, kept_row in zip(card.rows, rung["scores"], strict=True):
            for name in ("accuracy", "excess", "interval", "legacy", "quantile_score", "answered"):
                assert getattr(row, name) == kept_row[name], (rung["rung"], name)
            assert row.scale == kept["scale"][row.id]
            assert row.floor == kept["floor"][row.id]
        for name in ("accuracy", "excess", "interval", "legacy", "missing"):
            assert getattr(card, name) == rung[name]


def pinball(quantiles, draws):
    """The quantile score by its definition: twice the mean pinball loss over levels and draws."""
    losses = [
        np.where(draws >= q, level * (draws - q), (1 - level) * (q - draws))
        for level, q in zip(LEVELS, quantiles, strict=True)
    ]
    return 2 * float(np.mean(losses))


def test_scores_follow_from_the_stored_draws_scale_floor_and_range(stored):
    kept = stored["truth"]
    for rung in stored["rungs"]:
        answers = {answer["id"]: answer for answer in rung["answers"]}
        for row in rung["scores"]:
            k = row["id"]
            scale, floor = kept["scale"][k], kept["floor"][k]
            assert scale == max(3 * kept["tau"][k], kept["fraction"][k] * kept["dynamic_range"][k])
            if k in answers:
                given = answers[k].get("quantiles", dict.fromkeys(map(str, LEVELS), answers[k]["mean"]))
                score = pinball([given[str(level)] for level in LEVELS], np.array(kept["draws"][k]))
                accuracy = math.exp(-max(score - floor, 0) / scale)
            else:
                score, accuracy = kept["dynamic_range"][k], 0
            assert row["quantile_score"] == pytest.approx(score, rel=1e-12)
            assert row["accuracy"] == pytest.approx(accuracy, rel=1e-9, abs=1e-300)
            assert row["excess"] == pytest.approx((score - floor) / scale, rel=1e-9, abs=1e-12)


def test_means_are_over_all_contracts(stored):
    for rung in stored["rungs"]:
        for name in ("accuracy", "excess", "interval", "legacy", "leave_one_out"):
            assert rung[name] == pytest.approx(sum(row[name] for row in rung["scores"]) / 8, rel=1e-12)


def test_a_missing_answer_is_worth_nothing_over_the_luck_of_the_draws_too(stored):
    rows = {rung["rung"]: rung["scores"] for rung in stored["rungs"]}
    assert [row["leave_one_out"] for row in rows["fitted oracle"]] == [0] * 8
    assert [row["leave_one_out"] == 0 for row in rows["compact oracle"]] == [False] * 5 + [True] * 3
    assert all(0 <= row["leave_one_out"] <= 1 for scores in rows.values() for row in scores)


def test_replication_s_expectation_is_over_every_draw_as_the_answer(stored):
    kept = stored["truth"]
    [rung] = [rung for rung in stored["rungs"] if rung["rung"] == "replication"]
    for row in rung["scores"]:
        draws, scale = np.array(kept["draws"][row["id"]]), kept["scale"][row["id"]]
        worth = []
        for j, answer in enumerate(draws):
            others = np.delete(draws, j)
            gaps = np.abs(others[:, None] - others)
            floor = gaps.sum() / (2 * len(others) * (len(others) - 1))
            worth.append(math.exp(-max(pinball([answer] * 5, others) - floor, 0) / scale))
        assert row["leave_one_out"] == pytest.approx(np.mean(worth), rel=1e-9)


def test_outcomes_are_counted_on_the_replicates(stored, climbed):
    scale = np.array(stored["truth"]["scale"])
    assert stored["truth"]["outcomes"] == outcomes_of(climbed.replicates, climbed.branches, scale).tolist()


def test_a_fit_that_was_no_number_for_a_step_is_still_a_record(climbed, truth, instance):
    text = to_bytes(ladder_record(climbed, truth, FitSettings()))
    curves = json.loads(text)["rungs"][1]["fit"]
    assert curves == {"losses": [0.5, None, 0.25], "gradient_norms": [1.0, None, 2.0]}


def test_a_record_is_written_whole_under_its_cell(tmp_path, record):
    path = write_record(tmp_path / "deep", record)
    assert path == tmp_path / "deep" / "B2-0.json"
    assert path.read_bytes() == to_bytes(record)
    assert write_record(tmp_path / "deep", record) == path
    assert list(path.parent.iterdir()) == [path]


def test_a_record_that_cannot_be_written_is_an_error(tmp_path, record):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_record(tmp_path / "file" / "deep", record)
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_bytes({"accuracy": math.nan})


def test_provenance_names_the_instance(instance):
    assert json.loads(to_bytes(provenance(instance)))["world"] == "B2"
    assert provenance(load("C2").instance("sealed", redraws=0))["seed"] == "sealed"


@pytest.mark.parametrize(
    ("values", "text", "half"),
    [
        ([], "–", None),
        ([0.5], "0.500", None),
        ([0.0, 1.0], "0.500 ± 6.353", 6.353),
        ([1.0] * 40, "1.000 ± 0.000", 0),
    ],
)
def test_a_figure_is_a_mean_with_student_s_interval(values, text, half):
    found = figure(values)
    assert str(found) == text
    assert found.n == len(values)
    if half is not None:
        assert found.half_width == pytest.approx(half, abs=1e-3)
