"""Scoring against its target: a million contracts of eight draws in one jitted call under a second."""

from functools import partial

import jax
import numpy as np

from experiments.benchmarks.harness import Row, Tell, race
from experiments.benchmarks.scoring import CLONES, make_case
from scoring import score_contracts

NAME = "scoring"
TITLE = "Scores of a million contracts"

CONTRACTS = 10**6
SECONDS = 1.0


def rows(quick: bool, tell: Tell) -> list[Row]:
    """Seconds on the wall of one call in float64, the dtype that scores are computed in."""
    tell(f"scoring: {CONTRACTS:,} contracts")
    with jax.enable_x64(True):
        case = make_case(CONTRACTS, np.float64)
        call = partial(score_contracts, *case)
        times = race({"ours": lambda: jax.block_until_ready(call())}, 3 if quick else 7)
    wall = times["ours"].wall
    return [
        Row(
            f"scoring of {CONTRACTS:,} contracts x {CLONES} draws",
            f"{wall:.2f} s",
            f"one jitted call under {SECONDS:g} s",
            wall,
            SECONDS,
            detail=times["ours"].to_json(),
            note="float64, every figure of a card; seconds on the wall",
        )
    ]
