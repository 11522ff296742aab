"""What `simworlds study random` does. JAX is imported inside, once it is settled how it runs."""

import argparse
import sys
from pathlib import Path

from experiments.commands import console, print_json
from experiments.progress import progress_bar


def run_random(options: argparse.Namespace) -> None:
    """Enumerate the laws of the drawn numbers; exits with status 1 if one is beyond its bounds."""
    from experiments import random_page
    from experiments.random_laws import all_means, all_trials, random_study

    with progress_bar() as bar:
        task = bar.add_task("enumerating laws", total=len(all_means()) + len(all_trials()))
        study = random_study(done=lambda: bar.advance(task))
    if options.out:
        path = Path(options.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(random_page.page(study), encoding="utf-8")
        print(f"page: {path}", file=sys.stderr)
    if options.json:
        print_json(random_page.to_json(study))
    else:
        for section in random_page.sections(study):
            console().print(section.rich())
    if study.beyond:
        names = ", ".join(row.law for row in study.beyond)
        sys.exit(f"simworlds: beyond the stated bounds: {names}")
