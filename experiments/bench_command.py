"""What `simworlds bench` does."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from experiments.commands import console, print_json
from experiments.inputs import UsageError
from experiments.progress import progress_bar


def chosen_benchmarks(text: str | None) -> list[str]:
    """Names of benchmarks in a list with commas; all of them for None.

    Raises:
        UsageError: if a name is unknown.
    """
    from experiments.benchmarks.bench import MODULES

    if text is None:
        return list(MODULES)
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        raise UsageError(f"there is no benchmark {unknown[0]!r}; there are {', '.join(MODULES)}")
    return [name for name in MODULES if name in names]


def run_bench(options: argparse.Namespace) -> None:
    """Measure the rows of the targets table; exits with status 1 if a benchmark failed."""
    names = chosen_benchmarks(options.only)
    from experiments.benchmarks import bench

    if options.list:
        _show_list(bench.titles(bench.MODULES), options.json)
        return
    with progress_bar() as bar:
        task = bar.add_task("benchmarks", total=len(names))

        def tell(what: str) -> None:
            bar.update(task, description=what[:60])

        def done(entries: Any) -> None:
            bar.advance(task)
            if not bar.console.is_terminal:
                for entry in entries:
                    text = f"{entry.verdict}: {entry.cells[0]}: {entry.cells[1]}"
                    bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

        report = bench.run_all(names, quick=options.quick, tell=tell, done=done)
    if options.out:
        _write(report, Path(options.out))
    if options.json:
        print_json(report.to_json())
    else:
        console().print(bench.rich_table(report))
    failed = [entry.benchmark for entry in report.entries if entry.row is None]
    if failed:
        sys.exit(f"simworlds: {len(failed)} of {len(names)} benchmarks failed: {', '.join(failed)}")


def _show_list(titles: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(titles)
        return
    from rich.table import Table

    table = Table("name", "what it measures")
    for row in titles.items():
        table.add_row(*row)
    console().print(table)


def _write(report: Any, folder: Path) -> None:
    from experiments import plot
    from experiments.benchmarks import bench
    from simworlds.store import write_atomically

    data = json.dumps(report.to_json(), indent=1, allow_nan=False)
    write_atomically(folder / "bench.json", f"{data}\n".encode())
    write_atomically(folder / "bench.md", bench.page(report).encode())
    plot.save(bench.picture(report), folder / "bench.png")
    print(f"benchmarks: {folder}/bench.json, bench.md, bench.png", file=sys.stderr)
