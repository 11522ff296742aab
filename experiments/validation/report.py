"""Runs checks, keeps what they found, and prints the table of them."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from experiments.validation import steps
from experiments.validation.check import Check, Row
from experiments.validation.registry import checks_of, modules_of
from simworlds.catalogue import load
from simworlds.store import Store, code_digest, engine_modules, environment

# What measurements are made with, beside a family, its checks and the engine.
_MEASURING = (
    "experiments.validation.data",
    "experiments.validation.runs",
    "experiments.validation.steps",
    "simworlds.admission",
    "simworlds.exact",
    "simworlds.expressions",
    "simworlds.gradients",
    "simworlds.network",
    "simworlds.reference",
    "simworlds.relaxation",
)
COLUMNS = ("world", "quantity", "published", "measured", "standard error", "allowed", "verdict", "source")


def all_checks(names: Sequence[str], quick: bool = False) -> list[Check]:
    """The checks of some families, their published values, then what every family must pass."""
    found = [check for name in names for check in (*checks_of([name]), *steps.checks(name))]
    return [check for check in found if not (quick and check.slow)]


def run_checks(
    checks: Sequence[Check],
    *,
    store: Store | None = None,
    fresh: bool = False,
    jobs: int = 1,
    done: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Run checks, or take what the store holds of them: a row is a fixed function of code and machine.

    Args:
        checks: what to run.
        store: where rows are kept; the default store if None.
        fresh: measure again whatever the store holds.
        jobs: worlds whose checks run at the same time, in threads.
        done: called with each row when it is there.

    Returns:
        The rows, in the order of the checks.
    """
    place = store or Store()

    def one(check: Check) -> Row:
        address = _address(check)
        found = None if fresh else place.get(address)
        if found is None:
            row = check.run()
            if row.passed:  # what fails is measured again the next time
                place.put(address, {"row": np.array([row.measured, row.error])})
        else:
            measured, error = found["row"].tolist()
            row = check.row(measured, error)
        if done:
            done(row)
        return row

    # Checks of one world share runs, which two threads would both make; so a thread takes a world.
    worlds = dict.fromkeys(check.world for check in checks)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        found = pool.map(lambda world: [one(c) for c in checks if c.world == world], worlds)
        rows = dict(zip(worlds, map(iter, found), strict=True))
        return [next(rows[check.world]) for check in checks]


def _address(check: Check) -> dict[str, Any]:
    try:
        family = [type(load(check.world))]
    except Exception:  # a problem outside the catalogue
        family = []
    code = code_digest(
        *family,
        *modules_of(check.world),
        *_MEASURING,
        *engine_modules(),
    )
    return {
        "kind": "validation",
        "world": check.world,
        "quantity": check.quantity,
        "published": float(check.published),
        "data": check.data,
        "code": code,
        **environment(),
    }


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, in the order of `COLUMNS`."""
    error = f"{row.error:.2g}" if row.error else "–"
    verdict = "passed" if row.passed else "FAILED" + (f" ({' '.join(row.note.split())})" if row.note else "")
    return (
        row.world,
        row.quantity,
        _number(row.published),
        _number(row.measured),
        error,
        _number(row.tolerance) if row.tolerance else "4 s.e.",
        verdict,
        row.source,
    )


def _number(value: float) -> str:
    return f"{value:.10g}" if abs(value - round(value, 6)) < 1e-12 else f"{value:.7g}"


def markdown_table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def rich_table(rows: Sequence[Row]) -> Any:
    """The rows as a table for a terminal."""
    from rich.table import Table

    failed = sum(not row.passed for row in rows)
    table = Table(*COLUMNS, title=f"{len(rows)} checks, {failed} failed")
    for row in rows:
        table.add_row(*cells(row), style=None if row.passed else "bold red")
    return table


def page(rows: Sequence[Row]) -> str:
    """The page that the docs keep."""
    where = environment()
    failed = sum(not row.passed for row in rows)
    return (
        "# Published and analytic values against measured ones\n\n"
        "Made by `simworlds validate --out docs/validation.md`. A row passes if measured and published\n"
        "differ by no more than what is allowed and four standard errors. Rows with the source *step 0\n"
        "limit* compare a family with itself: at half its step, with adaptive solves by diffrax, in the\n"
        "other precision, and its derivatives with central differences. The source *catalogue* marks\n"
        "targets of the project's own design, most of them computed beforehand by independent prototypes.\n\n"
        f"{len(rows)} checks, {failed} failed. Version {where['version']}, JAX {where['jax']}, "
        f"{where['backend']}.\n\n" + markdown_table(rows)
    )


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as plain data; what is not finite becomes null."""
    return [finite_only(row._asdict()) | {"passed": row.passed} for row in rows]


def finite_only(data: Any) -> Any:
    """Plain data in which numbers that are not finite have become None."""
    if isinstance(data, dict):
        return {name: finite_only(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite_only(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
