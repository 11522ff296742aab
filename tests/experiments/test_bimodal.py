"""The bimodal tables: the figures that the definitions state, and the order of the answers."""

import json

import pytest
from rich.console import Console

from experiments import bimodal


@pytest.fixture(scope="module")
def tables():
    return bimodal.bimodal_tables()


@pytest.mark.parametrize(
    ("table", "answer", "stated"),
    [
        ("even", "middle", 0.36),
        ("even", "one mode", 0.31),
        ("even", "honest", 1.00),
        ("random", "middle", 0.30),
        ("random", "majority mode", 0.50),
        ("random", "minority mode", 0.24),
        ("random", "honest", 0.96),
    ],
)
def test_each_cell_is_the_stated_one(tables, table, answer, stated):
    """Stated to two digits: half a digit, and 4.9 standard errors (each below 0.0045) for the simulation."""
    cell = tables.data[table][answer]
    assert cell["standard_error"] < 0.0045
    assert abs(cell["accuracy"] - stated) < 0.005 + 4.9 * cell["standard_error"]


@pytest.mark.parametrize(("answer", "source"), [("middle", 0.34), ("one mode", 0.32), ("honest", 1.0)])
def test_the_source_page_is_met(tables, answer, source):
    assert tables.data["even"][answer]["accuracy"] == pytest.approx(source, abs=0.05)


def test_structure_pays(tables):
    assert tables.data["even"]["honest"]["accuracy"] >= 0.99
    for cells in tables.data.values():
        best = max(cells, key=lambda answer: cells[answer]["accuracy"])
        least_regret = min(cells, key=lambda answer: cells[answer]["excess"])
        assert best == least_regret == "honest"


def test_confident_and_wrong_is_the_lowest_of_all(tables):
    for cells in tables.data.values():
        others = [cell["accuracy"] for answer, cell in cells.items() if answer != "confident and wrong"]
        assert cells["confident and wrong"]["accuracy"] < min(others) - 0.1


def test_the_total_spread_would_let_the_middle_pass(monkeypatch):
    """Why tau is the spread inside the branches: with the ordinary one the middle scores 0.85 to 0.95."""
    total = bimodal.scoring.total_spread
    monkeypatch.setattr(bimodal.scoring, "within_branch_spread", lambda draws, branch: total(draws))
    bimodal._score.clear_cache()
    try:
        middle = bimodal._measure("even", 200, 0)["middle"]["accuracy"]
    finally:
        bimodal._score.clear_cache()
    assert 0.85 < middle < 0.95


def test_data_is_plain_and_repeats(tables):
    again = bimodal.bimodal_tables()
    assert json.loads(json.dumps(again.data, allow_nan=False)) == tables.data
    assert bimodal.bimodal_tables(seed=1).data != tables.data


def test_main_prints_both_tables(monkeypatch, capsys):
    monkeypatch.setattr(bimodal, "Console", lambda: Console(width=120))
    bimodal.main()
    printed = capsys.readouterr().out
    for text in ("4 and 4", "random 60% at -1", "confident and wrong", "0.358"):
        assert text in printed
