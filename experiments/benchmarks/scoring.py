"""How fast are scores? A million contracts in one jitted call, against scoringrules in the same run.

Run it with `python -m experiments.benchmarks.scoring`. Like is compared with like: scoringrules' quantile
score, leave-one-out fair CRPS and interval score of the same draws and answers, in the same dtype. Repeats of
the parties take turns, so that a busy machine slows them alike; the least time of each counts.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import scoring
from experiments.benchmarks.harness import installed, race
from scoring import AnswerArrays, Truth, score_contracts
from simworlds.keys import key_for
from simworlds.store import environment

CLONES = 8
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
RIVAL_SIZE = 10**6
TENFOLD = 1.2  # linear: ten times the contracts take at most twelve times as long


class Benchmark(NamedTuple):
    """The benchmark.

    Attributes:
        data: plain numbers: seconds by size, and by part against the rival.
        tables: the same for a terminal.
    """

    data: dict[str, Any]
    tables: tuple[Table, ...]


def make_case(contracts: int, dtype: Any) -> tuple[Truth, AnswerArrays]:
    """Random contracts with honest-looking answers, as device arrays."""
    shape = (contracts, CLONES)
    draws = jax.random.normal(key_for("benchmark", 0, "process", contracts), shape, dtype)
    branch = (jax.random.uniform(key_for("benchmark", 0, "branch", contracts), shape) < 0.5).astype(jnp.int32)
    levels = jax.random.normal(key_for("benchmark", 0, "answers", contracts), (contracts, 5), dtype)
    quantiles = jnp.sort(levels, axis=-1)
    one = jnp.ones(contracts, dtype)
    columns: list[Any] = [draws + 3 * branch, branch, 0.1 * one, 4 * one]
    given: list[Any] = [quantiles[:, 2], quantiles[:, 0], quantiles[:, 4], quantiles, one > 0]
    return jax.block_until_ready((Truth(*columns), AnswerArrays(*given)))


def _least(parties: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least seconds of each party on the wall, in turns, after one run of each that compiles."""
    waited = {name: lambda call=call: jax.block_until_ready(call()) for name, call in parties.items()}
    return {name: min(timing.walls) for name, timing in race(waited, repeats).items()}


def _growth(sizes: Sequence[int], dtype: Any, repeats: int) -> list[dict[str, Any]]:
    """Seconds of `score_contracts` at each size, and how they grew from the size before."""
    rows: list[dict[str, Any]] = []
    for size in sizes:
        case = make_case(size, dtype)
        runs = max(3, min(50, repeats * RIVAL_SIZE // size)) if size < RIVAL_SIZE else repeats
        seconds = _least({"ours": partial(score_contracts, *case)}, runs)["ours"]
        row = {"contracts": size, "seconds": seconds, "nanoseconds_each": 1e9 * seconds / size}
        if rows:
            row["growth_over_linear"] = seconds / rows[-1]["seconds"] / (size / rows[-1]["contracts"])
        rows.append(row)
    return rows


@jax.jit
def _all_three(quantiles: jax.Array, draws: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    width = scoring.interval_width(quantiles[:, 0], quantiles[:, 4], draws)
    return scoring.quantile_score(quantiles, draws), scoring.fair_floor(draws), width


def _parts_of(scores: Any) -> tuple[Any, Any]:
    return scores.quantile_score, scores.floor


def rival_backend() -> str:
    """The backend of scoringrules that the race is against: numba if it is installed, else numpy."""
    return "numba" if installed("numba") else "numpy"


def _against_rival(size: int, dtype: Any, repeats: int) -> list[dict[str, Any]]:
    """Seconds of each part and of all three, ours and the rival's, and the largest relative difference."""
    import scoringrules

    truth, answers = make_case(size, dtype)
    draws, quantiles = np.asarray(truth.draws), np.asarray(answers.quantiles)
    repeated = np.broadcast_to(quantiles[:, None, :], (size, CLONES, 5))
    low, high = quantiles[:, :1], quantiles[:, 4:]
    levels = np.asarray(scoring.LEVELS, draws.dtype)
    rest = np.stack([np.delete(np.arange(CLONES), j) for j in range(CLONES)])
    use: dict[str, Any] = {"backend": rival_backend()}

    def quantile_score() -> Any:
        return scoringrules.crps_quantile(draws, repeated, levels, **use).mean(axis=-1)

    def floor() -> Any:
        return scoringrules.crps_ensemble(draws, draws[:, rest], estimator="fair", **use).mean(axis=-1)

    def interval() -> Any:
        return scoringrules.interval_score(draws, low, high, 0.2, **use).mean(axis=-1)

    parts: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "quantile score": (partial(scoring.quantile_score, answers.quantiles, truth.draws), quantile_score),
        "fair floor": (partial(scoring.fair_floor, truth.draws), floor),
        "interval score": (
            partial(scoring.interval_width, answers.quantiles[:, 0], answers.quantiles[:, 4], truth.draws),
            interval,
        ),
        "all three": (
            partial(_all_three, answers.quantiles, truth.draws),
            lambda: (quantile_score(), floor(), interval()),
        ),
    }
    # The card has seven figures more: scale, accuracy, excess, legacy score, coverage, PIT, and null's score.
    card = partial(score_contracts, truth, answers)
    parts["a card, against all three"] = (lambda: _parts_of(card()), parts["all three"][1])
    rows = []
    for name, (ours, theirs) in parts.items():
        seconds = _least({"ours": ours, "rival": theirs}, repeats)
        pairs = zip(jax.tree.leaves(ours()), jax.tree.leaves(theirs()), strict=False)
        apart = max(float(np.max(np.abs(np.asarray(a) - b) / (1 + np.abs(b)))) for a, b in pairs)
        rows.append(
            {"part": name, **seconds, "ratio": seconds["rival"] / seconds["ours"], "difference": apart}
        )
    return rows


def _growth_table(rows: Sequence[Mapping[str, Any]], dtype: str) -> Table:
    table = Table(
        title=f"score_contracts, {CLONES} draws, 5 levels, {dtype}: every figure of a card in one call"
    )
    for name in ("contracts", "seconds", "ns each", "growth / linear"):
        table.add_column(name, justify="right")
    for row in rows:
        growth = f"{row['growth_over_linear']:.2f}" if "growth_over_linear" in row else ""
        table.add_row(
            f"{row['contracts']:,}", f"{row['seconds']:.4f}", f"{row['nanoseconds_each']:.0f}", growth
        )
    return table


def _rival_table(rows: Sequence[Mapping[str, Any]], size: int, dtype: str, backend: str) -> Table:
    table = Table(title=f"Against scoringrules ({backend}), {size:,} contracts, {dtype}: least seconds")
    for name in ("part", "ours", "scoringrules", "times as fast", "largest difference"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for row in rows:
        times = (f"{row['ours']:.4f}", f"{row['rival']:.4f}", f"{row['ratio']:.1f}")
        table.add_row(row["part"], *times, f"{row['difference']:.1e}")
    return table


def scoring_benchmark(
    *,
    sizes: Sequence[int] = SIZES,
    rival_size: int = RIVAL_SIZE,
    dtypes: Sequence[str] = ("float64", "float32"),
    repeats: int = 3,
) -> Benchmark:
    """Times the scoring of contracts over their number, and against scoringrules.

    Args:
        sizes: numbers of contracts.
        rival_size: number of contracts in the race.
        dtypes: of the draws and answers.
        repeats: runs of each party; the least time counts.

    Returns:
        Seconds, time for each contract and growth at every size; seconds, ratio and largest relative
        difference of each part against scoringrules.
    """
    import scoringrules

    backend = rival_backend()
    data: dict[str, Any] = {
        "environment": environment(),
        "rival": {"package": "scoringrules", "version": scoringrules.__version__, "backend": backend},
        "clones": CLONES,
    }
    tables = []
    for dtype in dtypes:
        with jax.enable_x64(dtype == "float64"):
            growth = _growth(sizes, jnp.dtype(dtype), repeats)
            race = _against_rival(rival_size, jnp.dtype(dtype), repeats)
        data[dtype] = {"sizes": growth, "rival_contracts": rival_size, "rival": race}
        tables += [_growth_table(growth, dtype), _rival_table(race, rival_size, dtype, backend)]
    return Benchmark(data, tuple(tables))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables, or JSON for machines."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.scoring", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON for machines instead of tables")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each party (default 3)")
    options = parser.parse_args(arguments)
    result = scoring_benchmark(repeats=options.repeats)
    if options.json:
        print(json.dumps(result.data, indent=1, allow_nan=False))
        return
    for table in result.tables:
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
