"""How many ways do the contracts of a world go? Distinguishable outcomes among truth clones."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from experiments.progress import track
from oracles.ladder import outcomes_of
from scoring.quantile import contract_scale
from simworlds.catalogue import load
from simworlds.contracts import contracts_of
from simworlds.truth import checked_truth, truth_of


def outcome_rows(worlds: Sequence[str], seeds: Sequence[int], clones: int) -> list[dict[str, Any]]:
    """One row a (world, seed): the number of distinguishable outcomes of each contract.

    See `oracles.ladder.outcomes_of` for what counts: branches that hold 15 % of the clones, with means of the
    statistic more than one scale apart.
    """
    return [_row(name, seed, clones) for name, seed in track(list(product(worlds, seeds)), "truth")]


def _row(name: str, seed: int, clones: int) -> dict[str, Any]:
    instance = load(name).instance(seed)
    truth = checked_truth(truth_of(instance, contracts_of(instance), clones))
    scale = np.asarray(contract_scale(truth.tau, truth.fraction, truth.dynamic_range))
    counts = outcomes_of(truth.draws, truth.branch, scale).tolist()
    return {"world": name, "seed": seed, "clones": clones, "outcomes": counts}


def outcome_table(rows: Sequence[dict[str, Any]]) -> Any:
    """The rows as a rich table, with the share of seeds that have a contract of two or more outcomes."""
    from rich.table import Table

    table = Table(title=f"Distinguishable outcomes of each contract among {rows[0]['clones']} clones")
    for name in ("world", "seed", "outcomes by contract", "contracts with two or more"):
        table.add_column(name, justify="right")
    for row in rows:
        several = sum(n >= 2 for n in row["outcomes"])
        table.add_row(row["world"], str(row["seed"]), " ".join(map(str, row["outcomes"])), str(several))
    split = sum(any(n >= 2 for n in row["outcomes"]) for row in rows)
    table.caption = (
        f"{split} of {len(rows)} (world, seed) pairs have at least one contract with two or more outcomes"
    )
    return table
