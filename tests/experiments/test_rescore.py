"""Rescoring a record: agreement to the last bit, every tampered field named, clear words for no record."""

import copy
import json

import numpy as np
import pytest
from rich.console import Console

from experiments.inputs import UsageError
from experiments.records import SCHEMA, ladder_record, to_bytes
from experiments.rescore import rescore
from oracles.fit import FitSettings
from oracles.ladder import Ladder, Rung, ensemble_answers, null_answers, point_answers
from simworlds.catalogue import load
from simworlds.contracts import contracts_of
from simworlds.truth import ensemble_of, truth_of


@pytest.fixture(scope="module")
def record():
    """A record of four rungs without a fit, as a reader gets it: one has missing answers, one has none."""
    instance = load("B2").instance(0, redraws=0)
    contracts = contracts_of(instance)
    many = ensemble_of(instance, contracts, 32, "ensemble_replication")
    once = ensemble_of(instance, contracts, 1, "replication")
    rungs = (
        Rung("null", null_answers(contracts)),
        Rung("compact oracle", ensemble_answers(contracts, many.values)[:5]),
        Rung("fitted oracle", []),
        Rung("replication", point_answers(contracts, once.values[:, 0])),
    )
    ladder = Ladder(instance, contracts, rungs, many.values, many.branch)
    truth = truth_of(instance, contracts)
    return json.loads(to_bytes(ladder_record(ladder, truth, FitSettings())))


def test_a_record_of_many_clones_agrees_too():
    """Its leave-one-out figures stop at 256 draws, here as there."""
    instance = load("C2").instance(0, redraws=0)
    contracts = contracts_of(instance)
    once = ensemble_of(instance, contracts, 1, "replication")
    rung = Rung("replication", point_answers(contracts, once.values[:, 0]))
    ladder = Ladder(instance, contracts, (rung,), once.values, once.branch)
    truth = truth_of(instance, contracts, 300)
    assert rescore(json.loads(to_bytes(ladder_record(ladder, truth, FitSettings())))).identical


def changed(record, change):
    made = copy.deepcopy(record)
    change(made)
    return made


def test_a_record_agrees_to_the_last_bit(record):
    report = rescore(record)
    assert report.identical
    assert report.agrees
    assert report.differences == ()
    assert [part.rung for part in report.parts] == [
        "truth",
        "null",
        "compact oracle",
        "fitted oracle",
        "replication",
    ]
    assert report.compared >= 17 + 4 * 70
    assert "agree to the last bit" in report.verdict
    assert "truth.outcomes" in report.unchecked


TAMPERED = {
    "a score": (lambda r: r["rungs"][1]["scores"][2].update(excess=0.0), "scores[2].excess"),
    "a mean": (lambda r: r["rungs"][0].update(accuracy=0.99), "accuracy"),
    "a leave-one-out": (
        lambda r: r["rungs"][3]["scores"][0].update(leave_one_out=1.0),
        "scores[0].leave_one_out",
    ),
    "the count of missing": (lambda r: r["rungs"][2].update(missing=0), "missing"),
    "who answered": (lambda r: r["rungs"][2]["scores"][1].update(answered=True), "scores[1].answered"),
    "an id": (lambda r: r["rungs"][0]["scores"][1].update(id=7), "scores[1].id"),
    "a field that is gone": (lambda r: r["rungs"][0]["scores"][4].pop("legacy"), "scores[4].legacy"),
    "a word for a number": (lambda r: r["rungs"][0]["scores"][4].update(legacy="1"), "scores[4].legacy"),
    "a row that is gone": (lambda r: r["rungs"][0]["scores"].pop(), "len(scores)"),
    "the scale": (lambda r: r["truth"]["scale"].__setitem__(3, 1.0), "scale[3]"),
    "the floor": (lambda r: r["truth"]["floor"].append(0.0), "len(floor)"),
    "the clones": (lambda r: r.update(clones=64), "clones"),
    "a long integer": (lambda r: r["rungs"][0].update(excess=10**400), "excess"),
}


@pytest.mark.parametrize(("change", "field"), TAMPERED.values(), ids=TAMPERED)
def test_whatever_was_changed_is_named(record, change, field):
    report = rescore(changed(record, change))
    assert not report.agrees
    assert field in [each.field for each in report.differences]
    assert "fields differ" in report.verdict
    json.dumps(report.to_json(), allow_nan=False)


def test_a_changed_answer_shows_in_every_score_that_follows_from_it(record):
    report = rescore(changed(record, lambda r: r["rungs"][0]["answers"][0].update(mean=0.5, high=0.5)))
    fields = {each.field for each in report.differences}
    assert {"scores[0].accuracy", "scores[0].legacy", "accuracy", "legacy"} <= fields
    assert {each.rung for each in report.differences} == {"null"}


def test_a_changed_draw_shows_in_every_rung(record):
    report = rescore(changed(record, lambda r: r["truth"]["draws"][0].__setitem__(0, 9.0)))
    assert {each.rung for each in report.differences} >= {"truth", "null", "replication"}


def test_the_last_bit_is_seen_but_called_rounding(record):
    def nudge(made):
        row = made["rungs"][1]["scores"][0]
        row["excess"] = float(np.nextafter(row["excess"], np.inf))

    report = rescore(changed(record, nudge))
    assert not report.identical
    assert report.agrees
    assert [each.field for each in report.differences] == ["scores[0].excess"]
    assert "by rounding alone" in report.verdict


NO_RECORD = {
    "a list": ([], "a record must be a JSON object, but is list"),
    "nothing": (None, "a record must be a JSON object, but is NoneType"),
    "answers": ({"id": 0}, "must have the schema .* but has None"),
    "another schema": ({"schema": "simworlds/ladder/99"}, "must have the schema"),
    "an empty one": ({"schema": SCHEMA}, "must have the field 'contracts'"),
}


@pytest.mark.parametrize(("thing", "message"), NO_RECORD.values(), ids=NO_RECORD)
def test_what_is_no_record_is_refused_with_a_reason(thing, message):
    with pytest.raises(UsageError, match=message):
        rescore(thing)


BROKEN = {
    "no rungs": (lambda r: r.update(rungs=[]), "has no rungs"),
    "rungs of another kind": (lambda r: r.update(rungs={}), r"\['rungs'\] is of the wrong kind: dict"),
    "a rung that is a word": (lambda r: r["rungs"].__setitem__(1, "null"), r"rungs\[1\] must be an object"),
    "no draws": (lambda r: r["truth"].pop("draws"), "truth must have the field 'draws'"),
    "ragged draws": (lambda r: r["truth"]["draws"][0].pop(), "truth is no truth"),
    "a draw that is NaN": (
        lambda r: r["truth"]["draws"][0].__setitem__(0, float("nan")),
        "truth is no truth",
    ),
    "a draw that is a word": (lambda r: r["truth"]["draws"][0].__setitem__(0, "x"), "truth is no truth"),
    "a contract too few": (lambda r: r["contracts"].pop(), "has 8 contracts, but `contracts` has ids"),
    "a contract without id": (
        lambda r: r["contracts"][0].pop("id"),
        r"contracts\[0\] must have the field 'id'",
    ),
    "an invalid answer": (
        lambda r: r["rungs"][0]["answers"][0].update(low=2.0, high=1.0),
        "cannot be scored",
    ),
    "no answers": (lambda r: r["rungs"][0].pop("answers"), r"rungs\[0\] must have the field 'answers'"),
    "a world that is a number": (lambda r: r.update(world=3), r"\['world'\] is of the wrong kind: int"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_record_is_refused_with_a_reason(record, change, message):
    with pytest.raises(UsageError, match=message):
        rescore(changed(record, change))


def test_the_table_shows_the_verdict_and_what_differs(record):
    console = Console(width=160)
    with console.capture() as capture:
        console.print(rescore(record).table())
        console.print(rescore(changed(record, TAMPERED["a score"][0])).table())
    text = capture.get()
    for part in ("agree to the last bit", "1 of", "scores[2].excess", "compact oracle", "does not follow"):
        assert part in text
