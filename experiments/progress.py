"""Progress on a terminal: bars for work with steps, a spinner for work without. A pipe sees nothing."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Progress]:
    """A bar on a console, standard error if none is given."""
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
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


class Reporter:
    """Turns the stages of a climb into a progress bar, and adds up the time that fits take."""

    def __init__(self, bar: Progress):
        self._bar = bar
        self._task = bar.add_task("", total=None, visible=False)
        self._stage = ""
        self._since = time.perf_counter()
        self.fit_seconds = 0.0

    def __call__(self, stage: str, total: int, more: int) -> None:
        """Note that `more` of `total` units of a stage are done."""
        now = time.perf_counter()
        if stage.startswith("fit"):
            self.fit_seconds += now - self._since
        self._since = now
        if stage != self._stage:
            self._stage = stage
            self._bar.reset(self._task, total=total, description=f"  {stage}", visible=True)
        self._bar.advance(self._task, more)

    def begin(self) -> None:
        """Start the clock of the next stage."""
        self._stage, self._since = "", time.perf_counter()
        self._bar.update(self._task, visible=False)
