"""Cards: one of a cheap world, whole; what a card says of worlds with outcomes and of worlds that jump."""

import json
import math

import numpy as np
import pytest

from experiments import card as cards
from experiments.card import admission_of, card_of, cost_of, noise_floors, relaxation_bias, typical_runs
from experiments.validation import report
from experiments.validation.check import Check, Measured
from simworlds.admission import MOST_REDRAWS, Examination
from simworlds.catalogue import load
from simworlds.errors import Inadmissible
from simworlds.store import Store


@pytest.fixture
def quick(monkeypatch):
    """Two checks in place of all: those are run elsewhere."""
    checks = [
        Check("D2", "period", 2.0, "theory", lambda: Measured(2.0), 1e-6),
        Check("D2", "share", 0.5, "theory", lambda: Measured(0.51, 0.01)),
    ]
    monkeypatch.setattr(report, "all_checks", lambda names, quick=False: checks)


@pytest.mark.usefixtures("quick")
def test_a_card_says_all_there_is(tmp_path):
    stages = []
    card = card_of("D2", seeds=2, store=Store(tmp_path / "store"), tell=stages.append)
    page = cards.write_card(card, tmp_path / "cards")
    text = page.read_text()
    assert stages[0] == "references"
    assert text.startswith("# D2 Latched network\n")
    for heading in ("Law", "Ports", "Scheme", "References", "Admission", "Noise floors"):
        assert f"\n## {heading}\n" in text
    assert "| D2 | share | 0.5 | 0.51 | 0.01 | 4 s.e. | passed | theory |" in text
    assert all(f"| {drive.name} |" in text for drive in load("D2").drives)
    assert all(f"| {sensor.name} |" in text for sensor in load("D2").sensors)
    assert "2 seeds took" in text
    assert "nan" not in text
    assert (tmp_path / "cards" / "D2.png").read_bytes()[:4] == b"\x89PNG"
    data = json.loads(json.dumps(card.to_json(), allow_nan=False))
    assert data["id"] == "D2"
    assert data["references"][1]["measured"] == 0.51
    assert data["relaxation_bias"] is None


def test_a_world_with_outcomes_says_how_open_they_are(monkeypatch, tmp_path):
    """Of two seeds one is open: under one of its protocols 30 of 64 clones end otherwise."""
    monkeypatch.setattr(cards, "trail", lambda world, seed: [Examination(constant=0.5, last=0.25)])
    branch = np.zeros((cards._SPLIT_PROTOCOLS, cards._SPLIT_CLONES), int)

    class Fake:
        def __init__(self, instance, requests, clones):
            self.branch = branch.copy()
            if instance.seed == 1:
                self.branch[3, :30] = 1

    monkeypatch.setattr(cards, "simulate", Fake)
    found = admission_of(load("B2"), 2, Store(tmp_path))
    assert found.split == 0.5
    assert (found.draws, found.constant, found.last) == (2, 0.5, 0.25)
    assert "In 50% of the instances" in cards._admission(found)


def test_a_refused_draw_is_told_with_its_reason(monkeypatch, tmp_path):
    refused = Examination(unmoved=1.0)
    monkeypatch.setattr(cards, "trail", lambda world, seed: [refused, Examination(constant=0.1, last=0.1)])
    found = admission_of(load("D2"), 3, Store(tmp_path))
    assert found.draws == 6
    assert math.isnan(found.split)
    text = cards._admission(found)
    assert "3 seeds took 6 draws: 50% of the draws were admitted." in text
    assert "seed 2 draw 0: 1 drives move no sensor" in text


def test_a_seed_without_an_instance_counts_among_the_draws(monkeypatch, tmp_path):
    def refuse(world, seed):
        if seed:
            raise Inadmissible("no draw is fit")
        return [Examination(constant=0.1, last=0.1)]

    monkeypatch.setattr(cards, "trail", refuse)
    found = admission_of(load("D2"), 2, Store(tmp_path))
    assert (found.seeds, found.admitted, found.draws) == (2, 1, 1 + MOST_REDRAWS)
    assert "no draw is fit" in cards._admission(found)


def test_floors_of_a_world_without_noise_are_those_of_its_sensors(tmp_path):
    """The mean over 16 ticks of noise of 0.5 to 2 % of the range spreads by a quarter of that."""
    for floor in noise_floors(load("D2"), Store(tmp_path)):
        assert 0.005 / 4 * 0.8 < floor.mean < 0.02 / 4 * 1.25
        assert 0 < floor.crps < floor.mean


def test_a_jump_worlds_relaxation_has_a_small_bias(tmp_path):
    """Thousands of spins are all but a diffusion."""
    assert 0 < relaxation_bias(load("A1"), Store(tmp_path)) < 0.01


def test_costs_are_positive_and_pictures_have_a_panel_a_sensor():
    world = load("D2")
    assert cost_of(world) > 0
    assert len(typical_runs(world).axes) == 2 * (1 + len(world.sensors))
