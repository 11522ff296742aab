"""The table of targets: which benchmarks there are, how they run, and how their rows are shown."""

import ast
import importlib
import importlib.util
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.benchmarks.harness import FAILED, MET, MISSED, NOT_MEASURED, Row, Tell, machine, machine_line

# In the order of the table. Each has `TITLE` and `rows(quick, tell)`; they are imported when they run.
MODULES = {
    "ode": "experiments.benchmarks.ode",
    "sde": "experiments.benchmarks.sde",
    "ssa": "experiments.benchmarks.ssa",
    "adaptive": "experiments.benchmarks.adaptive",
    "gradient": "experiments.benchmarks.gradient",
    "randoms": "experiments.benchmarks.randoms",
    "memory": "experiments.benchmarks.memory",
    "growth": "experiments.benchmarks.growth",
    "first": "experiments.benchmarks.first",
    "scoring": "experiments.benchmarks.cards",
    "devices": "experiments.benchmarks.devices",
}

COLOURS = {MET: "#2e7d5b", MISSED: "#d1495b", NOT_MEASURED: "#9a9a9a", FAILED: "#6d1a36"}


class Entry(NamedTuple):
    """A row of the table.

    Attributes:
        benchmark: the name of the module that it comes from.
        row: what was measured; None if the module failed.
        error: why it failed, else empty.
    """

    benchmark: str
    row: Row | None
    error: str = ""

    @property
    def verdict(self) -> str:
        """The row's verdict, or "failed"."""
        return self.row.verdict if self.row else FAILED

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Name, figure, target, verdict and note as text."""
        if self.row is None:
            return f"{self.benchmark} (the whole benchmark)", "-", "-", FAILED, self.error
        rivals = "; ".join(f"{ratio} of {name}" for name, ratio in self.row.rivals.items())
        note = "; ".join(filter(None, (self.row.note, rivals)))
        return self.row.name, self.row.figure, self.row.target, self.verdict, note

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data."""
        if self.row is None:
            return {"benchmark": self.benchmark, "verdict": FAILED, "error": self.error}
        return {"benchmark": self.benchmark} | self.row.to_json()


class Report(NamedTuple):
    """The whole table, and the machine that it was measured on."""

    machine: Mapping[str, Any]
    quick: bool
    entries: tuple[Entry, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        rows = [entry.to_json() for entry in self.entries]
        return {"machine": dict(self.machine), "quick": self.quick, "rows": rows}


def run_one(name: str, quick: bool, tell: Tell, modules: Mapping[str, str]) -> list[Entry]:
    """The rows of one benchmark; one that fails gives one entry that says why."""
    try:
        module = importlib.import_module(modules[name])
        return [Entry(name, row) for row in module.rows(quick, tell)]
    except Exception as error:  # whatever goes wrong in one, the others still run
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return [Entry(name, None, " ".join(text.split()))]


def run_all(
    names: Sequence[str],
    *,
    quick: bool,
    tell: Tell,
    done: Callable[[list[Entry]], None],
    modules: Mapping[str, str] | None = None,
) -> Report:
    """Run benchmarks one after the other.

    Args:
        names: of benchmarks, in `modules`.
        quick: whether to do with less work.
        tell: is told what is being measured.
        done: is given each benchmark's entries when it is through.
        modules: module paths by name; `MODULES` if None.
    """

    def entries() -> Iterator[Entry]:
        for name in names:
            found = run_one(name, quick, tell, MODULES if modules is None else modules)
            done(found)
            yield from found

    return Report(machine(), quick, tuple(entries()))


def titles(modules: Mapping[str, str]) -> dict[str, str]:
    """What each benchmark is about, from the first line of its source's docstring, without importing it."""
    found = {}
    for name, path in modules.items():
        spec = importlib.util.find_spec(path)
        if spec is None or spec.origin is None:
            found[name] = "(not installed)"
            continue
        with open(spec.origin, encoding="utf-8") as file:
            text = ast.get_docstring(ast.parse(file.read())) or ""
        found[name] = text.splitlines()[0] if text else ""
    return found


def page(report: Report) -> str:
    """The table as a Markdown page."""
    lines = ["# Benchmarks", "", f"Measured on {machine_line(report.machine)}."]
    if report.quick:
        lines.append("A quick run: less work and fewer repeats than the table of targets asks for.")
    lines += [
        "Ratios are medians over interleaved repeats of one run, with quartiles, of CPU time.",
        "",
        "| what | measured | target | verdict | note |",
        "|---|---|---|---|---|",
    ]
    for entry in report.entries:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in entry.cells) + " |")
    return "\n".join(lines) + "\n"


def rich_table(report: Report) -> Any:
    """The table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Targets" + (", quick run" if report.quick else ""))
    for column in ("what", "measured", "target", "verdict", "note"):
        table.add_column(column)
    for entry in report.entries:
        name, figure, target, verdict, note = entry.cells
        cells = (Text(name), Text(figure), Text(target), Text(verdict, style=COLOURS[verdict]), Text(note))
        table.add_row(*cells)
    table.caption = machine_line(report.machine)
    return table


def shares(report: Report) -> list[tuple[str, float, str, str]]:
    """(name, figure over target, verdict, figure as text) of each measured row with a target above 0.

    Below 1 the target is met, for rows that ask for a least value too.
    """
    found = []
    for entry in report.entries:
        row = entry.row
        if row is None or row.value is None or row.limit <= 0 or row.value <= 0:
            continue
        share = row.value / row.limit if row.smaller_is_better else row.limit / row.value
        found.append((row.name, share, row.verdict, row.figure))
    return found


def picture(report: Report) -> Any:
    """Horizontal bars on a logarithmic scale: each figure over its target, shorter than 1 being better."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bars = shares(report)
    figure = Figure(figsize=(9.5, 1.4 + 0.36 * max(len(bars), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.set_xscale("log")
    place = range(len(bars))[::-1]
    for y, (_, share, verdict, text) in zip(place, bars, strict=True):
        axis.barh(y, share - 1, left=1, color=COLOURS[verdict], height=0.62)
        axis.annotate(
            text.split(" (")[0], (share, y), (4 if share > 1 else -4, 0), textcoords="offset points",
            ha="left" if share > 1 else "right", va="center", fontsize=7,
        )  # fmt: skip
    axis.axvline(1, color="0.3", linewidth=1)
    reach = max([1.5, *(max(share, 1 / share) for _, share, _, _ in bars)]) ** 1.6
    axis.set_xlim(1 / reach, reach)
    axis.set_yticks(list(place), [name for name, *_ in bars], fontsize=7)
    axis.set_xlabel("figure over target: left of 1 the target is met")
    axis.grid(axis="x", alpha=0.3)
    title = "Benchmarks against their targets" + (" (quick run)" if report.quick else "")
    axis.set_title(f"{title}\n{report.machine['cpu']}, {report.machine['cores']} cores", fontsize=9)
    return figure
