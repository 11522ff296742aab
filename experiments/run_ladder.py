"""The main job: climb the ladder on (world, seed) cells, with records, tables, a picture and progress."""

import dataclasses
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from experiments.progress import Reporter, progress_bar
from experiments.records import ladder_record, write_record
from oracles.fit import FitSettings
from oracles.ladder import climb
from simworlds.catalogue import load
from simworlds.contracts import contracts_of
from simworlds.store import Store, write_atomically
from simworlds.truth import CLONES, calibrate, truth_of


class Cell(NamedTuple):
    """One (world, seed)."""

    world: str
    seed: int


class Timing(NamedTuple):
    """Seconds that a run took.

    Attributes:
        wall: wall time in all.
        fits: what fits made for the first time took, added up over the workers.
        jobs: the number of workers.
    """

    wall: float
    fits: float
    jobs: int

    def __str__(self) -> str:
        share = "of it" if self.jobs == 1 else f"of work, on {self.jobs} workers,"
        return f"{self.wall:.1f} s; {self.fits:.1f} s {share} in fits made for the first time"


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
    return ladder_record(ladder, truth, settings)


def run_ladder(
    cells: Sequence[Cell],
    out: Path | None,
    *,
    clones: int = CLONES,
    store: Store | None = None,
    settings: FitSettings | None = None,
    console: Console | None = None,
    jobs: int = 1,
) -> tuple[list[dict[str, Any]], Timing]:
    """Climb the ladder on every cell. Each record is written when its cell is done.

    Args:
        cells: what to run.
        out: folder for the records; nothing is written if None.
        clones: truth clones of each contract.
        store: cache of ensembles and fits.
        settings: of the fits.
        console: where progress is shown.
        jobs: cells that are worked on at the same time, in threads; no figure depends on it.

    Returns:
        The records, in the order of the cells, and the time it took.

    Raises:
        OSError: if the folder cannot be written, before anything runs.
    """
    if out is not None:
        write_atomically(out / ".writable", b"")
        (out / ".writable").unlink()
    jobs = max(1, min(jobs, len(cells)))
    started, stop = time.perf_counter(), threading.Event()

    def work(cell: Cell) -> dict[str, Any]:
        report = Reporter(bar, f"{cell.world} seed {cell.seed}", stop)
        try:
            record = climb_cell(
                cell, clones=clones, store=store or Store(), settings=settings or FitSettings(), report=report
            )
        finally:
            fits.append(report.close())
        if out is not None:
            write_record(out, record)
        bar.advance(whole)
        if not bar.console.is_terminal:
            bar.console.print(f"done: {cell.world} seed {cell.seed}")
        return record

    fits: list[float] = []
    with progress_bar(console) as bar, ThreadPoolExecutor(jobs) as pool:
        whole = bar.add_task("ladder", total=len(cells))
        try:
            records = list(pool.map(work, cells))
        except BaseException:
            stop.set()
            bar.console.print("stopping after the current step ...")
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return records, Timing(time.perf_counter() - started, sum(fits), jobs)
