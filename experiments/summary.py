"""Tables of ladder records: mean figures a rung and world with 95 % intervals over seeds."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oracles.ladder import RUNGS

Record = dict[str, Any]


_WIDEST = 8  # columns beside the rungs' names


class Figure(NamedTuple):
    """A mean over seeds with the half width of its 95 % interval (Student's t), and the number of seeds."""

    mean: float
    half_width: float
    n: int

    def __str__(self) -> str:
        if self.n == 0:
            return "–"
        if self.n == 1:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ± {self.half_width:.3f}"


# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom; beyond them the normal's.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def figure(values: Sequence[float]) -> Figure:
    """The mean of one value a seed, with its interval."""
    n = len(values)
    if n == 0:
        return Figure(float("nan"), float("nan"), 0)
    if n == 1:
        return Figure(float(values[0]), float("nan"), 1)
    quantile = _T95[n - 2] if n - 2 < len(_T95) else 1.96
    return Figure(float(np.mean(values)), quantile * float(np.std(values, ddof=1)) / n**0.5, n)


def rung_of(record: Record, name: str) -> Record | None:
    """A rung of a record by name, or None."""
    return next((rung for rung in record["rungs"] if rung["rung"] == name), None)


def worlds_of(records: Sequence[Record]) -> list[str]:
    """The worlds that occur, in order."""
    return sorted({record["world"] for record in records})


def by_world(records: Sequence[Record], field: str) -> dict[tuple[str, str], Figure]:
    """A rung's mean figure (``accuracy``, ``excess``, ``interval``, ``leave_one_out``) by (rung, world)."""
    table = {}
    for name in RUNGS:
        for world in worlds_of(records):
            rungs = [rung_of(record, name) for record in records if record["world"] == world]
            table[name, world] = figure([rung[field] for rung in rungs if rung is not None])
    return table


def _contract_mean(record: Record, rung: Record, field: str, chosen: Callable[[int], bool]) -> float | None:
    rows = [
        row[field]
        for row, count in zip(rung["scores"], record["truth"]["outcomes"], strict=True)
        if chosen(count)
    ]
    return float(np.mean(rows)) if rows else None


def by_outcomes(records: Sequence[Record], field: str) -> dict[tuple[str, str, str], Figure]:
    """The same by (rung, world, outcomes), outcomes being "one" or "two or more".

    A seed counts with its mean over its contracts of that kind.
    """
    table = {}
    kinds: dict[str, Callable[[int], bool]] = {"one": lambda n: n == 1, "two or more": lambda n: n >= 2}
    for name in RUNGS:
        for world in worlds_of(records):
            for label, chosen in kinds.items():
                values = []
                for record in records:
                    rung = rung_of(record, name) if record["world"] == world else None
                    value = None if rung is None else _contract_mean(record, rung, field, chosen)
                    values += [] if value is None else [value]
                table[name, world, label] = figure(values)
    return table


def contracts_by_outcomes(records: Sequence[Record], world: str) -> dict[str, int]:
    """How many contracts of a world have one outcome, and how many two or more."""
    counts = [n for record in records if record["world"] == world for n in record["truth"]["outcomes"]]
    return {"one": sum(n == 1 for n in counts), "two or more": sum(n >= 2 for n in counts)}


def missing_of(records: Sequence[Record]) -> int:
    """Missing answers over all rungs."""
    return sum(rung["missing"] for record in records for rung in record["rungs"])


def ladder_table(records: Sequence[Record]) -> Any:
    """Accuracy and excess of each rung in each world, as a rich table."""
    from rich.table import Table

    worlds = worlds_of(records)
    seeds = {world: sum(record["world"] == world for record in records) for world in worlds}
    first = records[0]
    title = "Reference ladder: mean over seeds ± 95 % interval"
    accuracy, excess = by_world(records, "accuracy"), by_world(records, "excess")
    columns = {
        f"{world} {label}": {name: str(part[name, world]) for name in RUNGS}
        for world in worlds
        for label, part in (("accuracy", accuracy), ("excess", excess))
    }
    table = Table(title=title, caption=_caption(records, first, seeds), caption_justify="left")
    return _filled(table, columns)


def _filled(table: Any, columns: dict[str, dict[str, str]]) -> Any:
    """A table with a row a rung and a column each, or the other way round where that would be too wide."""
    turned = len(columns) > _WIDEST
    table.add_column("" if turned else "rung")
    for head in RUNGS if turned else columns:
        table.add_column(head, justify="right")
    if turned:
        for head, cells in columns.items():
            table.add_row(head.replace("\n", " "), *(cells[name] for name in RUNGS))
    else:
        for name in RUNGS:
            table.add_row(name, *(cells[name] for cells in columns.values()))
    return table


def _caption(records: Sequence[Record], first: Record, seeds: dict[str, int]) -> str:
    contracts = sum(len(record["contracts"]) for record in records)
    count = ", ".join(f"{world} {n}" for world, n in seeds.items())
    return (
        f"seeds: {count}; {contracts} contracts, {first['clones']} truth clones each; "
        f"{missing_of(records)} missing answers; budget {first['budget']['ticks']} ticks; "
        f"simworlds {first['version']}, {first['backend']}, {first['dtype']}. "
        "accuracy: higher is better; excess: lower is better, 0 is perfect."
    )


def _with_expectation(value: Figure, expected: Figure) -> str:
    return f"{value} [{expected.mean:.3f}]" if value.n else str(value)


def outcomes_table(records: Sequence[Record]) -> Any:
    """Accuracy by the number of outcomes, beside the leave-one-out expectation, as a rich table."""
    from rich.table import Table

    worlds = worlds_of(records)
    table = Table(title="Accuracy by number of outcomes (in brackets: leave-one-out expectation)")
    accuracy, expected = by_outcomes(records, "accuracy"), by_outcomes(records, "leave_one_out")
    columns = {}
    for world in worlds:
        for kind, count in contracts_by_outcomes(records, world).items():
            if count:
                columns[f"{world}: {kind}\n({count} contracts)"] = {
                    name: _with_expectation(accuracy[name, world, kind], expected[name, world, kind])
                    for name in RUNGS
                }
    return _filled(table, columns)
