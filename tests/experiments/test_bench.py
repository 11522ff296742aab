"""`simworlds bench`: how it measures, judges and shows; no figure of time is asserted."""

import json
import math
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks import bench, harness, ode
from experiments.benchmarks.harness import Party, Ratio, Row, Timing, not_measured, race, ratio, spread_of
from experiments.benchmarks.laws import DoubleWell, Lorenz63, bench_instance, bench_request
from experiments.benchmarks.rivals import job_of
from simworlds.ensemble import measure
from simworlds.keys import bits, clone_words, normal_from


def row(value, limit=2.0, smaller=True):
    return Row("a row", "its figure", "its target", value, limit, smaller)


# The harness


def test_parties_take_turns_after_one_warm_up_each():
    calls = []
    times = race({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4
    assert set(times) == {"a", "b"}
    assert all(len(time.walls) == len(time.cpus) == 3 for time in times.values())


def test_times_are_divided_by_a_party_s_work():
    def busy():
        return sum(range(200_000))

    times = race([Party("whole", busy), Party("share", busy, unit_work=1e6)], 1)
    assert times["share"].wall < times["whole"].wall / 1e3


def test_a_ratio_is_taken_within_each_repeat():
    ours = Timing((2.0, 20.0, 200.0), (1.0, 1.0, 1.0))
    rival = Timing((1.0, 10.0, 100.0), (2.0, 4.0, 8.0))
    assert ratio(ours, rival, clock="wall") == Ratio(2, 2, 2)
    assert ratio(ours, rival) == Ratio(0.25, 0.1875, 0.375)
    assert spread_of([3.0]) == Ratio(3, 3, 3)
    assert str(ratio(ours, rival)) == "0.25 (0.188 to 0.375)"


@pytest.mark.parametrize(
    ("value", "smaller", "verdict"),
    [
        (1.9, True, "met"),
        (2.0, True, "met"),
        (2.1, True, "missed"),
        (1.9, False, "missed"),
        (2.0, False, "met"),
    ],
)
def test_a_verdict_holds_the_figure_against_the_limit(value, smaller, verdict):
    assert row(value, smaller=smaller).verdict == verdict


def test_a_figure_that_is_not_a_number_meets_nothing():
    assert row(math.nan).verdict == row(math.nan, smaller=False).verdict == "missed"


def test_without_a_compiler_the_row_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert harness.c_library.__wrapped__("ode.c") is None
    found = ode.against_c(ode.CASES[0], ode.Race({}, {}))
    assert found.verdict == "not measured"
    assert "gcc was not found" in found.note
    absent = ode.times_faster("ours", "numba", 2.5, ode.Race({}, {}), ode.NO_NUMBA)
    assert (absent.verdict, absent.note) == ("not measured", ode.NO_NUMBA)


@pytest.mark.parametrize(("total", "block", "cores"), [(10, 4, 2), (1, 64, 3), (257, 64, 4), (8, 1, 1)])
def test_shares_cover_every_item_once(total, block, cores):
    seen = np.zeros(total, int)

    def run(first, count):
        seen[first : first + count] += 1

    harness.on_all_cores(run, total, block=block, cores=cores)
    assert (seen == 1).all()


# The rivals do the same work


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("sd", [False, True], ids=["mean", "sd"])
@pytest.mark.parametrize(
    ("world", "source", "kernel"),
    [(Lorenz63(), "ode.c", "lorenz63"), (DoubleWell(), "sde.c", "double_well")],
    ids=["ode", "sde"],
)
def test_a_c_kernel_finds_what_measure_finds(world, source, kernel, sd):
    instance = bench_instance(world)
    request = bench_request(world, 0.25, ticks=20, sd=sd, port=1)
    ours = measure(instance, [request], 70).values[0]
    theirs = ode.c_party(source, kernel, job_of(instance, request, 70))()
    np.testing.assert_allclose(theirs, ours, atol=2e-4)
    assert np.std(ours) > 0.01
    other = bench_request(world, 0.75, ticks=20, sd=sd, port=1)
    changed = ode.c_party(source, kernel, job_of(instance, other, 70))()
    assert np.abs(changed - ours).max() > 0.01


def test_parties_that_disagree_are_no_race(monkeypatch):
    case = ode.CASES[0]._replace(apart=0.0)
    monkeypatch.setattr(
        ode, "parties_of", lambda *_: {"ours": lambda: np.zeros(3), "C": lambda: np.full(3, 0.5)}
    )
    with pytest.raises(AssertionError, match=r"ODE, 3 state variables: ours and C are 0\.5 apart, beyond 0$"):
        ode.farthest_apart(case, 3)


def test_sensor_noise_of_a_benchmark_law_is_addressed():
    instance, request = bench_instance(DoubleWell()), bench_request(DoubleWell(), 0.5, ticks=4)
    job = job_of(instance, request, 1)
    still = measure(instance, [request], 1, noise=False).values[0, 0]
    noisy = measure(instance, [request], 1).values[0, 0]
    key = clone_words(job.sensor, 0)
    z = [float(normal_from(bits(key, np.uint32(tick), np.uint32(0)))) for tick in (2, 3)]
    assert noisy - still == pytest.approx(float(job.sigma[0]) * np.mean(z), abs=1e-6)


# The table


@pytest.fixture
def modules(monkeypatch):
    """Benchmarks that measure nothing: one with two rows, one that is broken, one that cannot be imported."""

    def made(name, rows):
        module = types.ModuleType(name)
        module.rows = rows
        monkeypatch.setitem(sys.modules, name, module)
        return name

    rows = [row(1.0), not_measured("another", "its target", 1.0, "no such rival here")]

    def broken(quick, tell):
        raise ZeroDivisionError("nothing to divide by")

    return {
        "fine": made("bench_fine", lambda quick, tell: rows),
        "broken": made("bench_broken", broken),
        "absent": "bench_that_is_not_there",
    }


def report_of(modules, names):
    done = []
    report = bench.run_all(names, quick=True, tell=lambda text: None, done=done.extend, modules=modules)
    assert done == list(report.entries)
    assert list(dict.fromkeys(entry.benchmark for entry in done)) == list(names)
    return report


def test_a_broken_benchmark_is_reported_and_the_others_still_run(modules):
    report = report_of(modules, ["broken", "absent", "fine"])
    assert [entry.verdict for entry in report.entries] == ["failed", "failed", "met", "not measured"]
    assert "ZeroDivisionError: nothing to divide by (broken, line" in report.entries[0].error
    assert "bench_that_is_not_there" in report.entries[1].error


def test_a_report_is_plain_json_a_page_and_a_picture(modules, tmp_path):
    report = report_of(modules, ["fine", "broken"])
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [entry["verdict"] for entry in data["rows"]] == ["met", "not measured", "failed"]
    assert {"cpu", "cores", "gcc", "versions"} <= set(data["machine"])
    text = bench.page(report)
    assert "| a row | its figure | its target | met |" in text
    assert "no such rival here" in text
    assert "nothing to divide by" in text
    bench.picture(report).savefig(tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1_000


def test_shares_are_below_one_where_the_target_is_met():
    entries = [bench.Entry("x", r) for r in (row(1.0), row(4.0), row(4.0, smaller=False), row(0.0, 0.0))]
    entries.append(bench.Entry("x", None, "failed"))
    report = bench.Report({}, True, tuple(entries))
    assert [share for _, share, _, _ in bench.shares(report)] == [0.5, 2.0, 0.5]


def test_every_benchmark_says_what_it_is():
    titles = bench.titles(bench.MODULES)
    assert set(titles) == set(bench.MODULES)
    assert all(title and title != "(not installed)" for title in titles.values())


# The command


def test_the_list_measures_nothing(cli):
    status, out, _ = cli("bench", "--list")
    assert status == 0
    assert all(name in out for name in bench.MODULES)


def test_an_unknown_benchmark_is_named(cli):
    status, _, err = cli("bench", "--only", "ode,speed")
    assert status == 2
    assert "there is no benchmark 'speed'; there are ode, sde" in err


def test_the_command_writes_all_three_files(cli, modules, monkeypatch):
    monkeypatch.setattr(bench, "MODULES", modules)
    status, out, err = cli("bench", "--only", "fine", "--json", "--out", "found")
    assert status == 0
    assert json.loads(out)["rows"][0]["verdict"] == "met"
    assert "met: a row: its figure" in err
    assert json.loads(Path("found/bench.json").read_text()) == json.loads(out)
    assert {path.name for path in Path("found").iterdir()} == {"bench.json", "bench.md", "bench.png"}
    status, _, err = cli("bench", "--only", "fine,broken")
    assert status == 1
    assert "1 of 2 benchmarks failed: broken" in err
