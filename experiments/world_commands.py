"""What the commands about worlds themselves do: `validate` and `card`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.commands import chosen_worlds, console, print_json
from experiments.progress import progress_bar


def run_validate(options: argparse.Namespace) -> None:
    """Measure published values; exits with status 1 if a row fails."""
    names = [] if options.data and options.world is None else chosen_worlds(options.world or "all")
    from experiments.validation import report
    from simworlds.store import write_atomically

    checks = report.all_checks(names, options.quick)
    if options.data:
        from experiments.validation.data import data_checks

        checks += data_checks(Path(options.data))
    with progress_bar() as bar:
        task = bar.add_task("checks", total=len(checks))

        def done(row: Any) -> None:
            bar.advance(task)
            bar.update(task, description=f"{row.world}: {row.quantity}"[:60])
            if not bar.console.is_terminal:
                verdict = "passed" if row.passed else "FAILED"
                bar.console.print(f"{verdict}: {row.world} {row.quantity}", markup=False, highlight=False)

        rows = report.run_checks(checks, fresh=options.fresh, jobs=options.jobs, done=done)
    if options.out:
        write_atomically(Path(options.out), report.page(rows).encode())
        print(f"page: {options.out}", file=sys.stderr)
    if options.json:
        print_json(report.to_json(rows))
    else:
        console().print(report.rich_table(rows))
    failed = sum(not row.passed for row in rows)
    if failed:
        sys.exit(f"simworlds: {failed} of {len(rows)} checks failed")


def run_card(options: argparse.Namespace) -> None:
    """Print cards, or write them with their pictures into a folder."""
    names = chosen_worlds(options.world)
    from rich.markdown import Markdown

    from experiments.card import card_of, write_card

    for name in names:
        with progress_bar() as bar:
            task = bar.add_task(f"{name}: card", total=None)

            def tell(stage: str, name: str = name, task: Any = task, bar: Any = bar) -> None:
                bar.update(task, description=f"{name}: {stage}")

            card = card_of(name, seeds=options.seeds, tell=tell)
        if options.out:
            path = write_card(card, Path(options.out))
            print(f"card: {path}", file=sys.stderr)
        elif options.json:
            print_json(card.to_json())
        else:
            console().print(Markdown(card.markdown()))
