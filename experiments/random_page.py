"""The study of the laws of drawn numbers as tables for a terminal, as plain data, and as a page."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from textwrap import fill
from typing import Any

from experiments.random_laws import (
    BOUNDS,
    EXPANSION,
    INVERSION,
    LEVELS,
    SHOWN_MEANS,
    SHOWN_TRIALS,
    Errors,
    Row,
    Study,
    binomial_name,
    poisson_name,
)
from simworlds.keys import INVERSION_MEAN

COLUMNS = (
    "law",
    "method",
    "mean / sd",
    "variance",
    "skew",
    "kurtosis",
    "cdf",
    "variation",
    "lower tails",
    "upper tails",
    "verdict",
)

WORST = ("method", "error", "bound", "largest", "of the law", "verdict")


@dataclasses.dataclass(frozen=True)
class Section:
    """A table of the page: a title, headings, and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table under its title as Markdown."""
        lines = [f"## {self.title}", "", f"| {' | '.join(self.columns)} |", "|" + "---|" * len(self.columns)]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)]) + "\n"

    def rich(self) -> Any:
        """The table for a terminal."""
        from rich.table import Table

        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        return table


def sections(study: Study) -> list[Section]:
    """The tables of the page: the worst of each method against its bounds, then the laws, and the normal."""
    shown = {poisson_name(mean) for mean in SHOWN_MEANS} | {binomial_name(*pair) for pair in SHOWN_TRIALS}
    poisson = [_cells(row) for row in study.poisson if row.law in shown or row.beyond]
    binomial = [_cells(row) for row in study.binomial if row.law in shown or row.beyond]
    rare = [(f"{mean:g}", f"{ratio:.4f}") for mean, ratio in study.rare.items()]
    normal = [(name, _number(true), _number(found)) for name, (true, found) in study.normal.items()]
    worst = [cells for method in BOUNDS for cells in _worst(study, method)]
    return [
        Section(f"The worst of {len(study.poisson) + len(study.binomial)} laws", WORST, worst),
        Section("Poisson counts, by mean", COLUMNS, poisson),
        Section("Binomial counts, by trials and probability", COLUMNS, binomial),
        Section("Rare events", ("mean asked for", "mean of the counts over it"), rare),
        Section("Normals from float32 uniforms", ("quantity", "standard normal", "enumerated"), normal),
    ]


_LEVELS = ", ".join(f"{level:g}" for level in LEVELS)
_INTRODUCTION = (
    "Made by `simworlds study random --out docs/random.md`. Every number that a world draws is a "
    "function of one addressed 32-bit word (`simworlds/keys.py`). In float32 a word becomes the "
    "centre of one of 2^23 equal cells of (0, 1), so the law of a draw is found by pushing all 2^23 "
    "centres through the sampler: the errors below are exact, against `scipy.stats`, and have no "
    "sampling noise. That words at different addresses are independent is held by "
    "`tests/simworlds/test_random_laws.py`, at 10^7 draws.",
    f"Counts are drawn by *{INVERSION}*, the sum of the distribution function, up to a mean of "
    f"{INVERSION_MEAN:g} (binomials: trials times the smaller probability), and by *{EXPANSION}*, a "
    "rounded Cornish-Fisher quantile, above. Neither has a loop whose length depends on the draw.",
    "Errors: of the mean in standard deviations; of the variance and of the fourth standardised "
    "moment (kurtosis), relative; of the skew, absolute; the largest of the distribution function "
    "(cdf); the total variation distance. Tails are relative errors of P(X <= q) and P(X > q) where "
    f"the true tail is nearest to {_LEVELS}; a dash stands where a law has no point within a factor of "
    "two of a level. At the last level a tail holds about eight of the 2^23 cells, so it is shown and "
    "not bounded. The total variation of a law that is thousands of counts wide is that of cells "
    "shared among them, and is not bounded either.",
)
_NOTES = (
    "Counts: at 10^7 draws a chi-square test tells the expansion from the true law just above the mean "
    "where it begins; at 10^5 draws, or from a mean of 20 on, it does not.",
    "Rare events: a mean below half a cell, 6e-8, is never drawn, and float32 rounds exp(-mean) to a "
    "cell. The mean is wrong by about 1e-7, which matters for events that are expected less than once "
    "in 10^5 draws.",
    "Normals: no float32 draw is beyond the largest. The sixth moment loses what lies there, a "
    "hundredth of its standard error at 10^7 draws.",
)


def page(study: Study) -> str:
    """The page that the docs keep."""
    before, after = ("\n\n".join(fill(text, 105) for text in texts) for texts in (_INTRODUCTION, _NOTES))
    tables = "\n".join(section.markdown() for section in sections(study))
    return f"# The laws of the drawn numbers\n\n{before}\n\n{tables}\n{after}\n"


def to_json(study: Study) -> dict[str, Any]:
    """The study as plain data; a bound that is infinite becomes null."""
    rows = {
        name: [row._asdict() | {"errors": row.errors._asdict()} for row in getattr(study, name)]
        for name in ("poisson", "binomial")
    }
    bounds = {
        method: most._asdict() | {"tails": [bound if math.isfinite(bound) else None for bound in most.tails]}
        for method, most in BOUNDS.items()
    }
    normal = {
        name: {"exact": true if math.isfinite(true) else None, "enumerated": found}
        for name, (true, found) in study.normal.items()
    }
    rare = [{"mean": mean, "ratio": ratio} for mean, ratio in study.rare.items()]
    return {"levels": LEVELS, "bounds": bounds, **rows, "rare": rare, "normal": normal}


def _cells(row: Row) -> tuple[str, ...]:
    e = row.errors
    figures = (e.mean, e.variance, e.skew, e.kurtosis, e.distribution, e.variation)
    verdict = "within" if not row.beyond else "BEYOND: " + ", ".join(row.beyond)
    texts = (f"{figure:.1e}" for figure in figures)
    return row.law, row.method, *texts, _tails(e.lower), _tails(e.upper), verdict


def _tails(errors: Sequence[float | None]) -> str:
    return " / ".join("–" if error is None else f"{100 * error:+.2g}" for error in errors) + " %"


def _worst(study: Study, method: str) -> list[tuple[str, ...]]:
    """Of each bounded error of a method the largest, and whose it is."""
    bounds = BOUNDS[method]
    rows = [("Poisson " + row.law, row) for row in study.poisson if row.method == method]
    rows += [("binomial " + row.law, row) for row in study.binomial if row.method == method]
    figures: dict[str, tuple[float, Callable[[Errors], float | None]]] = {
        name: (getattr(bounds, name), partial(_named, name)) for name in bounds._fields[:-1]
    }
    for k, (level, most) in enumerate(zip(LEVELS, bounds.tails, strict=True)):
        for side in ("lower", "upper"):
            figures[f"{side} tail at {level:g}"] = (most, partial(_named, side, k=k))
    found = []
    for name, (most, of) in figures.items():
        sizes = [(abs(error), law) for law, row in rows if (error := of(row.errors)) is not None]
        if sizes:
            size, law = max(sizes)
            verdict = "–" if math.isinf(most) else "within" if size <= most else "BEYOND"
            bound = "–" if math.isinf(most) else f"{most:g}"
            found.append((method, name, bound, f"{size:.2g}", law, verdict))
    return found


def _named(name: str, errors: Errors, k: int | None = None) -> float | None:
    error = getattr(errors, name)
    return error if k is None else error[k]


def _number(value: float) -> str:
    return "–" if math.isinf(value) else f"{value:.7g}" if abs(value) > 1e-15 else "0"
