"""Checks, rows and their table: the verdict's rule, what the store keeps, how a row is shown, the command."""

import json
import math
from functools import partial

import numpy as np
import pytest

from experiments.validation import report
from experiments.validation.check import Check, Measured, Row
from simworlds.store import Store


def row(measured=1.0, published=1.0, error=0.0, tolerance=0.0, **other):
    texts = {"world": "Z1", "quantity": "size", "source": "Noether 1918", "note": ""} | other
    return Row(published=published, measured=measured, error=error, tolerance=tolerance, **texts)


def made(measure, published=1.0, tolerance=0.0, **other):
    texts = {"world": "Z1", "quantity": "size", "source": "Noether 1918"} | other
    return Check(published=published, measure=measure, tolerance=tolerance, **texts)


class Counted:
    """A measurement that counts how often it is made."""

    def __init__(self, *values):
        self.values, self.times = values, 0

    def __call__(self):
        value = self.values[min(self.times, len(self.values) - 1)]
        self.times += 1
        return value


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


# The verdict


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize(
    ("apart", "tolerance", "error", "passed"),
    [
        (0.0, 0.0, 0.0, True),
        (1e-12, 0.0, 0.0, False),
        (0.25, 0.25, 0.0, True),
        (0.26, 0.25, 0.0, False),
        (0.5, 0.0, 0.125, True),  # four standard errors
        (0.51, 0.0, 0.125, False),
        (0.75, 0.25, 0.125, True),  # both together
        (0.76, 0.25, 0.125, False),
    ],
)
def test_a_row_passes_within_the_tolerance_and_four_standard_errors(side, apart, tolerance, error, passed):
    found = row(measured=2.0 + side * apart, published=2.0, error=error, tolerance=tolerance)
    assert found.passed is passed


@pytest.mark.parametrize("field", ["measured", "published", "error", "tolerance"])
def test_a_row_with_a_nan_fails(field):
    assert not row(**{field: math.nan}).passed


@pytest.mark.parametrize("measured", [math.inf, -math.inf])
def test_a_row_with_an_infinite_value_fails(measured):
    assert not row(measured=measured, error=1.0, tolerance=1.0).passed


def test_a_check_becomes_a_row_of_plain_numbers():
    found = made(lambda: Measured(np.float32(0.5), np.float64(0.25)), published=1).run()
    assert found == row(0.5, error=0.25)
    assert {type(x) for x in (found.measured, found.published, found.error)} == {float}


def test_an_exception_becomes_a_failing_row_that_names_it():
    def measure():
        raise ZeroDivisionError("no order at K = 0")

    found = made(measure, tolerance=math.inf).run()
    assert not found.passed
    assert math.isnan(found.measured)
    assert found.note == "ZeroDivisionError: no order at K = 0"


def test_a_measurement_of_the_wrong_form_fails_likewise():
    assert made(lambda: None).run().note.startswith("TypeError: ")


def test_an_interrupt_is_no_measurement():
    def measure():
        raise KeyboardInterrupt("stop")

    with pytest.raises(KeyboardInterrupt, match="stop"):
        made(measure).run()


# The store


def test_a_passing_row_is_kept(store):
    measure = Counted(Measured(1.25, 0.0625))
    [first], [second] = (report.run_checks([made(measure)], store=store) for _ in range(2))
    assert measure.times == 1
    assert first == second == row(1.25, error=0.0625)


def test_a_failing_row_is_measured_again(store):
    measure = Counted(Measured(3.0), Measured(math.nan), Measured(1.0))
    verdicts = [report.run_checks([made(measure)], store=store)[0].passed for _ in range(4)]
    assert verdicts == [False, False, True, True]
    assert measure.times == 3


def test_fresh_rows_replace_those_that_are_kept(store):
    measure = Counted(Measured(1.0), Measured(3.0))
    assert report.run_checks([made(measure)], store=store)[0].passed
    assert not report.run_checks([made(measure)], store=store, fresh=True)[0].passed
    assert measure.times == 2


def test_another_check_has_a_row_of_its_own(store):
    measure = Counted(Measured(1.0))
    others = ({}, {"quantity": "weight"}, {"world": "C2"}, {"published": 1.5, "tolerance": 0.5})
    for count, other in enumerate(others, 1):
        assert report.run_checks([made(measure, **other)], store=store)[0].passed
        assert measure.times == count


def test_the_verdict_on_a_kept_row_is_that_of_the_check(store):
    measure = Counted(Measured(1.25))
    assert report.run_checks([made(measure, tolerance=0.5)], store=store)[0].passed
    assert not report.run_checks([made(measure, tolerance=0.125)], store=store)[0].passed


@pytest.mark.parametrize("jobs", [1, 3])
def test_rows_come_in_the_order_of_the_checks(store, jobs):
    names, seen = [str(k) for k in range(8)], []
    checks = [made(lambda k=k: Measured(1.0 + int(k)), quantity=k) for k in names]
    rows = report.run_checks(checks, store=store, jobs=jobs, done=seen.append)
    assert [r.quantity for r in rows] == names
    assert [r.measured for r in rows] == [1.0 + int(k) for k in names]
    assert sorted(seen) == sorted(rows)


# How a row is shown


def cells_of(line):
    """The cells of a line of a Markdown table."""
    return [text.strip() for text in line.replace("\\|", "\0").strip("|").split("|")]


def test_a_markdown_table_has_a_line_of_all_cells_for_each_row():
    rows = [
        row(1.25, error=0.0625, quantity="<|m|> at |x| = 1", source="a | b"),
        row(math.nan, tolerance=0.5, note="ValueError: |z| is not finite"),
    ]
    head, rule, *lines = report.markdown_table(rows).splitlines()
    assert len(lines) == 2
    assert {len(cells_of(line)) for line in (head, rule, *lines)} == {len(report.COLUMNS)}
    first, second = ([text.replace("\0", "|") for text in cells_of(line)] for line in lines)
    assert first == ["Z1", "<|m|> at |x| = 1", "1", "1.25", "0.062", "4 s.e.", "passed", "a | b"]
    assert second[3:7] == ["nan", "–", "0.5", "FAILED (ValueError: |z| is not finite)"]


def test_the_page_says_how_many_failed_and_holds_the_table():
    rows = [row(), row(2.0), row(math.nan)]
    assert "3 checks, 2 failed." in report.page(rows)
    assert report.page(rows).endswith(report.markdown_table(rows))


def test_in_json_a_nan_is_null():
    plain = report.to_json([row(), row(math.nan, note="why")])
    assert plain[0] == {**row()._asdict(), "passed": True}
    assert plain[1] == {**row(note="why")._asdict(), "measured": None, "passed": False}
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_the_terminal_table_marks_what_failed():
    table = report.rich_table([row(), row(2.0)])
    assert table.title == "2 checks, 1 failed"
    assert [line.style for line in table.rows] == [None, "bold red"]


# The command


def test_a_world_has_its_own_checks_and_then_those_of_every_family():
    found = report.all_checks(["C2", "D4"])
    own = {name: [c for c in found if c.world == name] for name in ("C2", "D4")}
    assert found == own["C2"] + own["D4"]
    for name, checks in own.items():
        general = [check.source == "step 0 limit" for check in checks]
        assert general == sorted(general)
        assert set(general) == {False, True}, name
    quick = report.all_checks(["C2", "D4"], quick=True)
    assert [(c.world, c.quantity) for c in quick] == [(c.world, c.quantity) for c in found if not c.slow]


FINE, SLOW = (
    made(lambda: Measured(1.0), quantity="fine"),
    made(lambda: Measured(1.0), quantity="step", slow=True),
)
WRONG = made(lambda: Measured(2.0), quantity="wrong")


@pytest.fixture
def validate(cli, monkeypatch, tmp_path_factory):
    """Run `simworlds validate` in an empty folder, with an empty store; returns (status, stdout, stderr)."""
    monkeypatch.setenv("SIMWORLDS_HOME", str(tmp_path_factory.mktemp("home")))
    return partial(cli, "validate")


@pytest.fixture
def planted(monkeypatch):
    """Put checks in place of those of C2; its steps are one slow check, SLOW."""

    def plant(*checks):
        monkeypatch.setattr(report, "checks_of", lambda names: list(checks) if names == ["C2"] else [])
        monkeypatch.setattr(report.steps, "checks", lambda name: [SLOW])

    return plant


def test_all_is_well(validate, planted):
    planted(FINE)
    status, out, err = validate("--world", "c2")
    assert status == 0, err
    assert "2 checks, 0 failed" in out


def test_a_failing_row_is_status_1(validate, planted):
    planted(FINE, WRONG)
    status, out, err = validate("--world", "C2")
    assert status == 1
    assert "FAILED" in out
    assert err.endswith("simworlds: 1 of 3 checks failed\n")
    assert "FAILED: Z1 wrong" in err


def test_json(validate, planted):
    planted(FINE, made(lambda: Measured(math.nan)))
    status, out, _ = validate("--world", "C2", "--json")
    assert status == 1
    rows = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [r["passed"] for r in rows] == [True, False, True]
    assert rows[1]["measured"] is None


def test_quick_leaves_slow_checks_out(validate, planted):
    planted(FINE, made(lambda: pytest.fail("it ran"), slow=True))
    status, out, err = validate("--world", "C2", "--quick", "--json")
    assert status == 0, err
    assert [r["quantity"] for r in json.loads(out)] == ["fine"]


def test_without_a_world_all_are_checked(validate, planted):
    planted(FINE)
    status, _, err = validate("--quick")
    assert status == 0, err
    assert err.count("passed: ") == 1


@pytest.mark.parametrize("check", [FINE, WRONG], ids=["fine", "wrong"])
def test_out_writes_the_page(validate, planted, tmp_path, check):
    planted(check)
    status, _, err = validate("--world", "C2", "--quick", "--out", "docs/validation.md")
    assert status == (check is WRONG)
    assert "page: docs/validation.md" in err
    assert (tmp_path / "docs" / "validation.md").read_text() == report.page([check.run()])


def test_what_the_store_holds_is_measured_again_on_demand(validate, planted):
    measure = Counted(Measured(1.0))
    planted(made(measure))
    for more, times in (((), 1), ((), 1), (("--fresh",), 2)):
        assert validate("--world", "C2", "--quick", *more)[0] == 0
        assert measure.times == times


BAD = {
    "unknown world": (["--world", "Z9"], "there is no world 'Z9'"),
    "one unknown world": (["--world", "C2,Z9"], "there is no world 'Z9'"),
    "no folder": (["--data", "missing"], "missing holds neither dsmts_cases.json nor ivp_testset_refs.json"),
    "a folder without files": (["--data", "."], "holds neither dsmts_cases.json nor ivp_testset_refs.json"),
    "a folder beside a world": (["--data", ".", "--world", "C2"], "holds neither"),
    "no jobs": (["--jobs", "0"], "--jobs"),
    "no name": (["--out"], "--out"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_status_2(validate, planted, tmp_path, arguments, message):
    planted(made(lambda: pytest.fail("it ran")))
    status, out, err = validate(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("dsmts_cases.json", "{"),
        ("dsmts_cases.json", '[{"dsmts": "001-01"}]'),
        ("ivp_testset_refs.json", "{}"),
        ("ivp_testset_refs.json", '{"refs": {"hires": {"t1": 1, "y": [1, 2]}}}'),
    ],
)
def test_a_data_file_that_is_not_what_it_should_be_is_one_line(validate, tmp_path, name, data):
    (tmp_path / name).write_text(data)
    status, out, err = validate("--data", ".")
    assert (status, out) == (2, "")
    assert f"{name} is not what it should be" in err
    assert len(err.splitlines()) == 1, err
