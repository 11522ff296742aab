"""Records of ladder runs: plain JSON that anyone can rescore without running a world.

A record holds the contracts, the truth (draws, branches, scale, floor, range), every rung's answers and
scores, the fits' loss curves, and what a figure must carry: version, world, seed, budget, clones, backend,
dtype. It holds no time and no path, so the same command gives the same bytes.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.evaluation import score_answers
from oracles.fit import FitSettings
from oracles.ladder import ENSEMBLE_REPLICATION, Ladder, Rung, outcomes_of
from scoring.checks import Answer
from scoring.quantile import LEVELS, leave_one_out_accuracy, replication_expectation
from scoring.scorecard import FIGURES, SCORING_VERSION, Scorecard
from simworlds.instance import Budget, Instance
from simworlds.store import environment, write_atomically
from simworlds.truth import TruthEnsemble, checked_truth

SCHEMA = "simworlds/ladder/1"
_LEFT_OUT = 256


def _plain(values: Any) -> Any:
    return np.asarray(values).tolist()


def _curve(values: Any) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in _plain(values)]


def leave_one_out(
    rung: str, answers: Mapping[int, Answer], ids: Sequence[int], draws: np.ndarray, scale: np.ndarray
) -> list[float]:
    """What a rung is worth over the luck of the draws: each of the first 256 truth draws left out in turn.

    The work grows with the square of the draws, hence the limit. For replication the draw that is left out is
    itself the answer; other rungs keep theirs.

    Args:
        rung: the rung's name.
        answers: its answers by contract id; one that is missing is worth 0.
        ids: of the contracts, in the order of the truth.
        draws: truth draws ``[contract, clone]``.
        scale: of each contract ``[contract]``.

    Returns:
        The expected accuracy of each contract.
    """
    import jax

    draws = draws[:, :_LEFT_OUT]
    with jax.enable_x64(True):
        if rung == "replication":
            return _plain(replication_expectation(draws, scale))
        missing = (np.nan,) * len(LEVELS)
        quantiles = np.array([answers[k].levels() if k in answers else missing for k in ids])
        return _plain(leave_one_out_accuracy(quantiles, draws, scale))


def _rung_record(rung: Rung, card: Scorecard, expectation: list[float]) -> dict[str, Any]:
    rows = [
        {name: getattr(row, name) for name in (*FIGURES, "null_accuracy", "null_excess", "quantile_score")}
        | {"id": row.id, "answered": row.answered, "leave_one_out": expected}
        for row, expected in zip(card.rows, expectation, strict=True)
    ]
    means = {name: getattr(card, name) for name in (*FIGURES, "null_accuracy", "null_excess", "missing")}
    record = {
        "rung": rung.name,
        "answers": [answer.to_json() for answer in rung.answers],
        "scores": rows,
        **means,
        "leave_one_out": float(np.mean(expectation)),
    }
    if rung.fit is not None:
        record["fit"] = {"losses": _curve(rung.fit.losses), "gradient_norms": _curve(rung.fit.gradients)}
    return record


def ladder_record(ladder: Ladder, ensemble: TruthEnsemble, settings: FitSettings) -> dict[str, Any]:
    """The record of one (world, seed): every rung scored against the same truth."""
    instance, contracts = ladder.instance, ladder.contracts
    truth, ids = checked_truth(ensemble), [contract.id for contract in contracts]
    cards = [score_answers(contracts, truth, rung.answers) for rung in ladder.rungs]
    scale = np.array([row.scale for row in cards[0].rows])
    floor = np.array([row.floor for row in cards[0].rows])
    return {
        "schema": SCHEMA,
        **provenance(instance),
        "clones": ensemble.draws.shape[1],
        "ensemble_replication_clones": ENSEMBLE_REPLICATION,
        "branches": list(instance.world.branches),
        "fit_settings": dataclasses.asdict(settings),
        "contracts": [contract.to_json() for contract in contracts],
        "truth": {
            **{name: _plain(column) for name, column in ensemble._asdict().items()},
            "scale": _plain(scale),
            "floor": _plain(floor),
            "outcomes": _plain(outcomes_of(ladder.replicates, ladder.branches, scale)),
        },
        "rungs": [
            _rung_record(rung, card, leave_one_out(rung.name, rung.by_id(), ids, ensemble.draws, scale))
            for rung, card in zip(ladder.rungs, cards, strict=True)
        ],
    }


def provenance(instance: Instance) -> dict[str, Any]:
    """What every figure carries: versions, world, seed, budget, backend, dtype."""
    budget = Budget()
    return {
        **environment(),
        "scoring_version": SCORING_VERSION,
        "law_version": instance.world.law_version,
        "world": instance.world.id,
        "seed": instance.seed,
        "redraws": instance.redraws,
        "budget": {"ticks": budget.ticks, "preparations": budget.preparations},
    }


def to_bytes(record: Any) -> bytes:
    """A record as JSON: sorted keys, two spaces, no NaN."""
    return (json.dumps(record, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def write_record(folder: Path, record: dict[str, Any]) -> Path:
    """Write a record under ``<folder>/<world>-<seed>.json``, atomically.

    Raises:
        OSError: if the folder cannot be written.
    """
    path = folder / f"{record['world']}-{record['seed']}.json"
    write_atomically(path, to_bytes(record))
    return path
