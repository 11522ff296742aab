"""Progress on a terminal: bars for work with steps, a spinner for work without. A pipe gets neither."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")


class _Rate(ProgressColumn):
    """Units a second; empty until it is known."""

    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s")


@contextmanager
def progress_bar(console: Console | None = None, unit: str | None = None) -> Iterator[Progress]:
    """A bar on a console, standard error if none is given; with a unit, its rate is shown too."""
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *([_Rate(unit)] if unit else []),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def track(items: Sequence[T], text: str) -> Iterable[T]:
    """The items, with a bar that counts them."""
    with progress_bar() as bar:
        yield from bar.track(items, description=text)


def busy(text: str) -> Any:
    """A spinner while something runs that has no steps to count."""
    return Console(stderr=True).status(text)


class Stopped(Exception):
    """The run was interrupted while this cell was being worked on."""


class Reporter:
    """Turns the stages of one cell into a line of a progress bar, and adds up the time that fits take.

    Once `stop` is set, the next report raises `Stopped`, so that a worker ends soon.
    """

    def __init__(self, bar: Progress, name: str, stop: threading.Event):
        self._bar, self._name, self._stop = bar, name, stop
        self._task = bar.add_task(f"  {name}", total=None)
        self._stage = ""
        self._since = time.perf_counter()
        self._fits = 0.0

    def __call__(self, stage: str, total: int, more: int) -> None:
        """Note that `more` of `total` units of a stage are done."""
        if self._stop.is_set():
            raise Stopped
        now = time.perf_counter()
        if stage.startswith("fit"):
            self._fits += now - self._since
        self._since = now
        if stage != self._stage:
            self._stage = stage
            self._bar.reset(self._task, total=total, description=f"  {self._name}: {stage}")
        self._bar.advance(self._task, more)

    def begin(self) -> None:
        """Start the clock of the next stage."""
        self._stage, self._since = "", time.perf_counter()

    def close(self) -> float:
        """Take the line away; returns the seconds that fits took."""
        self._bar.remove_task(self._task)
        return self._fits
