"""The study of the laws of drawn numbers: its errors are right, its bounds can fail, its page says so."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments import random_laws
from experiments.cli import main
from experiments.random_laws import (
    BOUNDS,
    EXPANSION,
    INVERSION,
    all_means,
    all_trials,
    beyond_bounds,
    count_errors,
    every_uniform,
    random_study,
)
from simworlds.keys import normal_quantile

ROOT = Path(__file__).parents[2]
CENTRES = (np.arange(2**18) + 0.5) / 2**18


@pytest.fixture
def few_laws(monkeypatch):
    monkeypatch.setattr(random_laws, "all_means", lambda: [3.0, 6.1])
    monkeypatch.setattr(random_laws, "all_trials", lambda: [(13, 0.5)])
    monkeypatch.setattr(random_laws, "RARE_MEANS", (1e-3,))


def rounded_normal(uniform, mean):
    return jnp.maximum(jnp.round(mean + jnp.sqrt(mean) * normal_quantile(uniform)), 0)


# Errors


@pytest.mark.parametrize("law", [stats.poisson(3), stats.poisson(40), stats.binom(30, 0.2)])
def test_quantiles_of_the_law_have_errors_of_a_cell_alone(law):
    errors = count_errors(law.ppf(CENTRES), law)
    assert errors.distribution < 2.0**-18
    assert errors.variation < 40 * 2.0**-18
    assert max(abs(x) for x in (errors.mean, errors.variance, errors.skew, errors.kurtosis)) < 2e-3
    assert abs(errors.upper[0]) < 1e-3


def test_the_order_of_the_counts_does_not_matter():
    counts = stats.poisson(3).ppf(CENTRES)
    assert count_errors(counts[::-1], stats.poisson(3)) == count_errors(counts, stats.poisson(3))


def test_errors_have_the_size_and_the_sign_of_what_was_planted():
    law = stats.poisson(4)
    counts = law.ppf(CENTRES)
    assert count_errors(counts + 1, law).mean == pytest.approx(1 / 2, rel=1e-4)
    assert count_errors(counts + 1, law).distribution == pytest.approx(law.pmf(4), rel=1e-3)
    assert count_errors(counts + 1, law).variation == pytest.approx(law.pmf(4), rel=1e-3)
    assert count_errors(2 * counts, law).variance == pytest.approx(3, rel=1e-4)
    assert count_errors(8 - counts.clip(0, 8), law).skew < -0.5
    cut = count_errors(np.minimum(counts, 8), law)
    assert cut.kurtosis < -0.1
    assert cut.upper[0] == cut.upper[1] == -1.0
    assert cut.lower[0] == pytest.approx(0, abs=1e-3)


def test_a_law_without_a_point_near_a_level_has_no_tail_there():
    errors = count_errors(stats.binom(3, 0.5).ppf(CENTRES), stats.binom(3, 0.5))
    assert errors.lower == errors.upper == (None,) * 4


# Bounds


def test_an_error_beyond_its_bound_is_named():
    errors = count_errors(stats.poisson(20).ppf(CENTRES), stats.poisson(20))
    within = errors._replace(
        mean=0.0, variance=0.0, skew=0.0, kurtosis=0.0, distribution=0.0, lower=(0.0,) * 4, upper=(None,) * 4
    )
    for bounds in BOUNDS.values():
        assert beyond_bounds(within, bounds) == ()
        for name in bounds._fields[:-1]:
            for side in (-1.01, 1.01):
                planted = within._replace(**{name: side * getattr(bounds, name)})
                assert beyond_bounds(planted, bounds) == (name,)
        for k, level in enumerate(random_laws.LEVELS[:3]):
            tails = [0.0] * 4
            tails[k] = -1.01 * bounds.tails[k]
            assert beyond_bounds(within._replace(upper=tuple(tails)), bounds) == (f"upper tail at {level:g}",)


def test_the_laws_cover_both_methods_and_their_border():
    assert {0.01, 6.0, 6.001, 1e6} <= set(all_means())
    assert len(all_means()) == len({random_laws.poisson_name(mean) for mean in all_means()})
    successes = [n * min(p, 1 - p) for n, p in all_trials()]
    assert sum(5 < mean <= 6 for mean in successes) >= 8
    assert sum(6 < mean < 7 for mean in successes) >= 8


@pytest.mark.validation
def test_every_law_is_within_its_bounds():
    assert random_study().beyond == []


def test_a_few_laws_are_within_their_bounds(few_laws):
    study = random_study(means=[3.0, 6.1], trials=[(13, 0.5), (20, 0.29)])
    assert study.beyond == []
    assert [row.method for row in study.poisson] == [INVERSION, EXPANSION]
    assert [row.method for row in study.binomial] == [EXPANSION, INVERSION]
    assert study.rare == {1e-3: pytest.approx(1, rel=1e-3)}
    assert study.normal["largest, float32"][1] == pytest.approx(stats.norm.isf(2.0**-24), rel=1e-6)
    assert study.normal["largest, float64"][1] == pytest.approx(stats.norm.isf(2.0**-33), rel=1e-6)
    assert study.normal["moment 6"][1] == pytest.approx(15, rel=1e-4)


# What is printed


def test_the_command_writes_the_page_and_prints_json(few_laws, tmp_path, capsys):
    path = tmp_path / "docs" / "random.md"
    main(["study", "random", "--json", "--out", str(path)])
    found = json.loads(capsys.readouterr().out)
    assert [row["law"] for row in found["poisson"]] == ["3", "6.1"]
    assert found["bounds"][EXPANSION]["tails"][3] is None
    text = path.read_text(encoding="utf-8")
    assert "| 6.1 | expansion |" in text
    assert "| 13, 0.5 | expansion |" in text
    assert "BEYOND" not in text
    assert "inf" not in text.split()


def test_a_planted_sampler_is_beyond_its_bounds_and_the_command_fails(few_laws, monkeypatch, capsys):
    monkeypatch.setattr(random_laws, "poisson_from", rounded_normal)
    with pytest.raises(SystemExit, match=r"beyond the stated bounds: 3, 6\.1"):
        main(["study", "random"])
    assert "BEYOND" in capsys.readouterr().out


def test_the_page_of_the_docs_holds_the_bounds_of_the_code():
    text = (ROOT / "docs" / "random.md").read_text(encoding="utf-8")
    for method, bounds in BOUNDS.items():
        for name in bounds._fields[:-1]:
            assert f"| {method} | {name} | {getattr(bounds, name):g} |" in text
        assert all(f"| {bound:g} |" in text for bound in bounds.tails if math.isfinite(bound))
    assert "BEYOND" not in text


def test_every_uniform_is_there_once():
    u = np.asarray(every_uniform())
    assert len(np.unique(u)) == random_laws.CELLS
    assert float(u.mean(dtype=np.float64)) == 0.5
