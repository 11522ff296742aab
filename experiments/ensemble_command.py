"""What `simworlds ensemble` does: bulk generation into a folder, with progress."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.commands import chosen_worlds, print_json
from experiments.inputs import UsageError, read_json
from experiments.progress import progress_bar

if TYPE_CHECKING:
    from simworlds.protocol import Protocol

HELP = """
protocols:
  With --protocol, each world runs the given protocols. A protocol's random numbers are addressed by its
  content: further protocols, worlds, seeds or clones never change those that are there. Without it, each
  instance runs its own eight contracts, whose clones are those of `simworlds truth`.

what is written:
  OUT/manifest.json      what was asked, by which version and code, on which device
  OUT/statistics/        Parquet files world=ID/seed=N/part-K.parquet, one row a (protocol, clone, port):
    protocol             number of the --protocol in the command from 0, or the contract's id
    clone                number of the clone
    port                 the sensor port: y0, y1, ...
    mean, sd             of the port's readings within the window (sd with ddof 0)
    branch               the outcome at the window's end, by name
    asked                contracts only: the statistic that it asks of this port, else null
  OUT/readings.zarr/     with --readings, instead: a Zarr 3 group world=ID/seed=N/protocol=K with the arrays
                         readings [clone, tick, sensor] and branch [clone], the outcome at the protocol's end
  OUT/finished/          size and SHA-256 of each finished chunk
  Each file also holds ports, protocols, windows and branches as metadata.

how to read it:
  pandas.read_parquet("OUT/statistics")      polars.scan_parquet("OUT/statistics", hive_partitioning=True)
  zarr.open_group("OUT/readings.zarr")["world=B2/seed=0/protocol=0/readings"][:]

after an interruption, a kill or a full disk:
  The same command goes on: chunks that are there and whole are kept, damaged ones are run again. More worlds
  and seeds may be added to a folder; anything else that differs is refused."""


class _Meter:
    """Clones, clones a second and time left: a bar on a terminal, else a line a finished instance."""

    def __init__(self, bar: Any):
        self._bar = bar
        self._task = bar.add_task("looking for finished chunks", total=None)
        self._cells = self._left = self._done = 0
        self._since = time.perf_counter()

    def planned(self, clones: int, cells: int) -> None:
        """Start the clock."""
        self._cells, self._left = cells, clones
        self._bar.reset(self._task, total=clones)
        self._since = time.perf_counter()

    def preparing(self, world: str, seed: int) -> None:
        """Name the instance that is drawn and examined."""
        self._bar.update(self._task, description=f"{world} seed {seed}: drawing")

    def running(self, world: str, seed: int) -> None:
        """Name the instance whose clones are run."""
        self._bar.update(self._task, description=f"{world} seed {seed}")

    def ran(self, clones: int) -> None:
        """Count clones."""
        self._done += clones
        self._bar.advance(self._task, clones)

    def finished(self, world: str, seed: int, clones: int) -> None:
        """Print a line where no bar shows."""
        self._cells -= 1
        if self._bar.console.is_terminal:
            return
        taken = self.seconds
        left = (self._left - self._done) * taken / max(self._done, 1)
        self._bar.console.print(
            f"done: {world} seed {seed}, {clones} clones; {self._done / taken:,.0f} clones/s, "
            f"{self._cells} instances and about {left:.0f} s left",
            highlight=False,
            soft_wrap=True,
        )

    @property
    def seconds(self) -> float:
        """Since the work was planned."""
        return time.perf_counter() - self._since


def _protocols(
    options: argparse.Namespace, worlds: list[str]
) -> "tuple[tuple[Protocol, tuple[int, int] | None], ...] | None":
    """The protocols of the command with their windows, checked against the ports of every world."""
    if options.window and (not options.protocol or options.readings):
        raise UsageError(
            "`--window` goes with statistics of a `--protocol`: a contract has a window of its own"
        )
    if not options.protocol:
        return None
    from simworlds.catalogue import load

    made = []
    for data in [read_json(path) for path in options.protocol]:
        # The ports of every draw bear the same names.
        protocol = [load(name).instance(0, redraws=0).protocol(data) for name in worlds][0]
        ticks = protocol.ticks
        window = None if options.readings else options.window or (min(ticks // 2, max(ticks - 2, 0)), ticks)
        if window and window[1] > ticks:
            raise UsageError(f"`--window` must end by tick {ticks}, but ends at {window[1]}")
        if window and ticks < 2:
            raise UsageError("statistics need a protocol of at least 2 ticks, but one has 1")
        if protocol in (earlier for earlier, _ in made):
            raise UsageError(f"protocol {len(made)} is given twice: its clones would be the same")
        made.append((protocol, window))
    return tuple(made)


def run_ensemble(options: argparse.Namespace) -> None:
    """Generate, and say what was written and how to read it."""
    if options.first + options.clones > 2**32:
        raise UsageError(
            f"clones are numbered up to {2**32 - 1}, but end at {options.first + options.clones - 1}"
        )
    worlds = chosen_worlds(options.worlds)
    protocols = _protocols(options, worlds)
    from experiments.bulk import Order, generate

    order = Order(
        worlds=tuple(worlds),
        seeds=tuple(options.seed),
        protocols=protocols,
        clones=options.clones,
        first=options.first,
        chunk=options.chunk,
        readings=options.readings,
        noise=not options.no_noise,
        as_drawn=options.as_drawn,
    )
    out = Path(options.out)
    with progress_bar(unit="clones") as bar:
        meter = _Meter(bar)
        outcome = generate(order, out, meter)
        seconds = meter.seconds
    for name in outcome.damaged:
        print(f"damaged, so run again: {name}", file=sys.stderr)
    rate = outcome.clones / seconds
    if options.json:
        found = outcome._asdict() | {"damaged": list(outcome.damaged)}
        print_json(
            {"out": str(out), "kind": order.kind, **found, "seconds": seconds, "clones_per_second": rate}
        )
        return
    print(
        f"{outcome.written} chunks written, {outcome.kept} kept: {outcome.clones:,} clones and "
        f"{outcome.size / 1e6:,.1f} MB in {seconds:.1f} s ({rate:,.0f} clones/s)"
    )
    read = "zarr.open_group" if order.readings else "pandas.read_parquet"
    print(f'read it with {read}("{out}/{"readings.zarr" if order.readings else "statistics"}")')
