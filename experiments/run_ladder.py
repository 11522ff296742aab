"""The main job: climb the ladder on (world, seed) cells, with records, tables, a picture and progress."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from experiments.progress import Reporter, progress_bar
from experiments.records import ladder_record, write_record
from oracles.fit import FitSettings
from oracles.ladder import climb
from simworlds.catalogue import load
from simworlds.contracts import contracts_of
from simworlds.store import Store
from simworlds.truth import CLONES, calibrate, truth_of


class Cell(NamedTuple):
    """One (world, seed)."""

    world: str
    seed: int


class Timing(NamedTuple):
    """Seconds of wall time that a run took, those of fits apart."""

    fits: float
    rest: float


def fit_settings(steps: int) -> FitSettings:
    """The default settings with another number of steps; a closure takes no more than its default."""
    default = FitSettings()
    return dataclasses.replace(default, steps=steps, closure_steps=min(steps, default.closure_steps))


def climb_cell(
    cell: Cell, *, clones: int, store: Store, settings: FitSettings, report: Reporter
) -> dict[str, Any]:
    """The record of one (world, seed)."""
    instance = load(cell.world).instance(cell.seed)
    report.begin()
    calibrate(instance, store, lambda n: report("calibration", 256, n))
    contracts = contracts_of(instance, store)
    truth = truth_of(instance, contracts, clones, store)
    report.begin()
    ladder = climb(instance, contracts, store, settings, report)
    return ladder_record(ladder, truth, instance.world.branches)


def run_ladder(
    cells: Sequence[Cell],
    out: Path | None,
    *,
    clones: int = CLONES,
    store: Store | None = None,
    settings: FitSettings | None = None,
    console: Console | None = None,
) -> tuple[list[dict[str, Any]], Timing]:
    """Climb the ladder on every cell.

    Args:
        cells: what to run.
        out: folder for the records; nothing is written if None.
        clones: truth clones of each contract.
        store: cache of ensembles and fits.
        settings: of the fits.
        console: where progress is shown.

    Returns:
        The records, in the order of the cells, and the time it took.

    Raises:
        OSError: if the folder cannot be written, before anything runs.
    """
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    records = []
    started = time.perf_counter()
    with progress_bar(console) as bar:
        whole = bar.add_task("ladder", total=len(cells))
        report = Reporter(bar)
        for cell in cells:
            bar.update(whole, description=f"ladder: {cell.world} seed {cell.seed}")
            record = climb_cell(
                cell, clones=clones, store=store or Store(), settings=settings or FitSettings(), report=report
            )
            records.append(record)
            if out is not None:
                write_record(out, record)
            bar.advance(whole)
    elapsed = time.perf_counter() - started
    return records, Timing(report.fit_seconds, elapsed - report.fit_seconds)
