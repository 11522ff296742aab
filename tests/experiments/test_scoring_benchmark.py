"""The scoring benchmark at small sizes: it measures what it says, and asserts no time."""

import json
import warnings

import numpy as np
import pytest
from rich.console import Console

from experiments.benchmarks.scoring import make_case, rival_backend, scoring_benchmark
from scoring import score_contracts


@pytest.fixture(scope="module")
def result():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numba's own, where it is installed
        return scoring_benchmark(sizes=(10, 100), rival_size=50, dtypes=("float64",), repeats=1)


def test_data_is_plain_json_with_every_ratio(result):
    data = json.loads(json.dumps(result.data, allow_nan=False))
    assert data["rival"]["backend"] == rival_backend()
    assert data["environment"]["backend"] == "cpu"
    found = data["float64"]
    assert [row["contracts"] for row in found["sizes"]] == [10, 100]
    assert "growth_over_linear" in found["sizes"][1]
    names = [row["part"] for row in found["rival"]]
    assert names == [
        "quantile score",
        "fair floor",
        "interval score",
        "all three",
        "a card, against all three",
    ]
    assert all(row["ratio"] == pytest.approx(row["rival"] / row["ours"]) for row in found["rival"])


def test_both_parties_compute_the_same(result):
    assert all(row["difference"] < 1e-12 for row in result.data["float64"]["rival"])


def test_tables_show_both(result):
    console = Console(width=120)
    with console.capture() as capture:
        for table in result.tables:
            console.print(table)
    text = " ".join(capture.get().split())
    for part in ("ns each", "growth / linear", "times as fast", "scoringrules", "fair floor"):
        assert part in text


def test_a_case_is_scored_to_finite_figures():
    scores = score_contracts(*make_case(20, np.float32))
    assert scores.accuracy.dtype == np.float32
    assert all(np.isfinite(np.asarray(column)).all() for column in scores)
