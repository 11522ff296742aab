"""Does structure pay? Five answers to a world that goes two ways, scored by the real scoring code.

The truth has two modes, -1 and +1, each with a spread of 0.14. The tables give the mean accuracy and excess
of each answer over many truth ensembles of eight draws: one table with four draws in each mode, one in which
each draw takes the mode -1 with probability 0.6.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import scoring
from simworlds.keys import key_for

MODES = (-1.0, 1.0)
SPREAD = 0.14
CLONES = 8
MAJORITY = 0.6
FRACTION = 0.03
DYNAMIC_RANGE = 2.6  # about the 1 % to 99 % range of the truth, so that 3 tau decides the scale

# What the definitions state, and what the page that they come from printed for its own example.
STATED = {
    "even": {"middle": 0.36, "one mode": 0.31, "honest": 1.00},
    "random": {"middle": 0.30, "majority mode": 0.50, "minority mode": 0.24, "honest": 0.96},
}
SOURCE = {"even": {"middle": 0.34, "one mode": 0.32, "honest": 1.0}, "random": {}}


class BimodalTables(NamedTuple):
    """Both tables.

    Attributes:
        data: plain numbers by table ("even", "random"), answer and figure.
        table: the same for a terminal.
    """

    data: dict[str, dict[str, dict[str, float | None]]]
    table: Table


def mixture_quantiles(first_share: float) -> tuple[float, ...]:
    """Quantiles of the truth at `scoring.LEVELS`, in the limit of two modes that do not overlap.

    Args:
        first_share: probability of the mode at -1.

    Returns:
        The quantiles; halfway between the modes where a level falls exactly between them.
    """
    law = NormalDist(0.0, SPREAD)

    def quantile(level: float) -> float:
        if level == first_share:
            return (MODES[0] + MODES[1]) / 2
        if level < first_share:
            return MODES[0] + law.inv_cdf(level / first_share)
        return MODES[1] + law.inv_cdf((level - first_share) / (1 - first_share))

    return tuple(quantile(level) for level in scoring.LEVELS)


def _point(value: float) -> tuple[float, ...]:
    return (value,) * len(scoring.LEVELS)


# Narrow quantiles, sure of an outcome one unit beyond the upper mode.
WRONG = tuple(2.0 + NormalDist(0.0, SPREAD / 4).inv_cdf(level) for level in scoring.LEVELS)

ANSWERS: dict[str, dict[str, tuple[float, ...]]] = {
    "even": {
        "middle": _point(0.0),
        "one mode": _point(MODES[1]),
        "honest": mixture_quantiles(0.5),
        "confident and wrong": WRONG,
    },
    "random": {
        "middle": _point(0.0),
        "majority mode": _point(MODES[0]),
        "minority mode": _point(MODES[1]),
        "honest": mixture_quantiles(MAJORITY),
        "confident and wrong": WRONG,
    },
}


def _ensembles(name: str, number: int, seed: int) -> tuple[jax.Array, jax.Array]:
    """Truth draws and branches of one table, [ensemble, clone] each."""
    shape = (number, CLONES)
    if name == "even":
        branch = jnp.broadcast_to(jnp.arange(CLONES, dtype=jnp.int32) % 2, shape)
    else:
        chance = jax.random.uniform(key_for("bimodal", seed, "branch"), shape, jnp.float64)
        branch = (chance >= MAJORITY).astype(jnp.int32)
    noise = jax.random.normal(key_for("bimodal", seed, "process", name), shape, jnp.float64)
    return jnp.asarray(MODES)[branch] + SPREAD * noise, branch


@jax.jit
def _score(draws: jax.Array, branch: jax.Array, quantiles: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Accuracy and excess of each answer [answer, level] against one ensemble [clone]."""
    tau = scoring.within_branch_spread(draws, branch)
    scale = scoring.contract_scale(tau, FRACTION, DYNAMIC_RANGE)
    floor = scoring.fair_floor(draws)
    score = jax.vmap(scoring.quantile_score, (0, None))(quantiles, draws)
    return scoring.accuracy(score, floor, scale), scoring.excess(score, floor, scale)


def _measure(name: str, number: int, seed: int) -> dict[str, dict[str, float | None]]:
    answers = ANSWERS[name]
    with jax.enable_x64(True):
        draws, branch = _ensembles(name, number, seed)
        quantiles = jnp.asarray(tuple(answers.values()))
        scores = jax.device_get(jax.vmap(_score, (0, 0, None))(draws, branch, quantiles))
    accuracy, excess = scores
    error = np.std(accuracy, axis=0, ddof=1) / np.sqrt(number)
    return {
        answer: {
            "accuracy": float(np.mean(accuracy[:, index])),
            "standard_error": float(error[index]),
            "excess": float(np.mean(excess[:, index])),
            "stated": STATED[name].get(answer),
            "source": SOURCE[name].get(answer),
        }
        for index, answer in enumerate(answers)
    }


def _render(data: Mapping[str, Mapping[str, Mapping[str, Any]]], number: int) -> Table:
    table = Table(title=f"Two modes, {CLONES} draws, spread {SPREAD} in each; mean over {number} ensembles")
    table.add_column("truth")
    table.add_column("answer")
    for heading in ("accuracy", "s.e.", "excess", "stated", "source page"):
        table.add_column(heading, justify="right")
    truths = {"even": "4 and 4", "random": f"random {MAJORITY:.0%} at -1"}
    for name, answers in data.items():
        for answer, cell in answers.items():
            figures = (f"{cell['accuracy']:.3f}", f"{cell['standard_error']:.4f}", f"{cell['excess']:.3f}")
            known = ("" if cell[key] is None else f"{cell[key]:.2f}" for key in ("stated", "source"))
            table.add_row(truths[name], answer, *figures, *known)
        table.add_section()
    return table


def bimodal_tables(*, ensembles: int = 4000, seed: int = 0) -> BimodalTables:
    """Scores five answers to a two-mode truth, over many truth ensembles.

    Args:
        ensembles: number of truth ensembles in each table.
        seed: address of their random numbers; the same seed gives the same tables.

    Returns:
        Mean accuracy with its standard error and mean excess for each table and answer, beside the figure
        that the definitions state and that of the source page; and all of it as a table for a terminal.
    """
    data = {name: _measure(name, ensembles, seed) for name in ANSWERS}
    return BimodalTables(data, _render(data, ensembles))


def main() -> None:
    """Prints both tables."""
    Console().print(bimodal_tables().table)


if __name__ == "__main__":
    main()
