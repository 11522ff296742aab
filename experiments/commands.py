"""What each command does. JAX is imported inside, after the command line has settled how it runs."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.inputs import read_json
from experiments.progress import busy


def console() -> Any:
    """Where tables go."""
    from rich.console import Console

    # A pipe gets tables at their full width, a terminal at its own.
    return Console() if sys.stdout.isatty() else Console(width=200)


def print_json(data: Any) -> None:
    """Print plain data for machines."""
    print(json.dumps(data, indent=1, allow_nan=False))


def chosen_worlds(names: str) -> list[str]:
    """Identifiers of the worlds that a user names: a list with commas, or all."""
    from simworlds.catalogue import load, worlds

    if names.strip().casefold() == "all":
        return [world.id for world in worlds()]
    return list(dict.fromkeys(load(name).id for name in names.split(",")))


def run_worlds(options: argparse.Namespace) -> None:
    """List the worlds."""
    from simworlds.catalogue import worlds

    rows = [
        {
            "id": w.id,
            "title": w.title,
            "track": w.track,
            "phenomenon": w.phenomenon,
            "drives": len(w.drives),
            "sensors": len(w.sensors),
        }
        for w in worlds()
    ]
    if options.json:
        print_json(rows)
        return
    from rich.table import Table

    table = Table(*(["id", "title", "track", "phenomenon", "drives", "sensors"]))
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console().print(table)


def run_contracts(options: argparse.Namespace) -> None:
    """Show the contracts of a (world, seed)."""
    from simworlds.catalogue import load

    instance = load(options.world).instance(options.seed)
    with busy("measuring the range of each channel"):
        contracts = [c.to_json() for c in instance.contracts()]
    if options.json:
        print_json(contracts)
        return
    from rich.table import Table

    table = Table(
        "id",
        "statistic",
        "port",
        "window",
        "protocol",
        title="Under this protocol, what will this statistic be?",
    )
    for c in contracts:
        steps = "; ".join(f"{s['ticks']} ticks {_levels(s['set'])}" for s in c["protocol"])
        table.add_row(str(c["id"]), c["statistic"], c["port"], f"[{c['window'][0]}, {c['window'][1]})", steps)
    console().print(table)


def _levels(levels: dict[str, float]) -> str:
    return " ".join(f"{port}={level:g}" for port, level in levels.items()) or "(hold)"


def run_explore(options: argparse.Namespace) -> None:
    """Run protocols in one session."""
    from simworlds.catalogue import load

    protocols = [read_json(path) for path in options.protocol]
    world = load(options.world)
    for protocol in protocols:  # before anything runs: the ports of every draw bear the same names
        world.instance(options.seed, redraws=0).protocol(protocol)
    session = world.instance(options.seed).session()
    with busy("running the protocols"):
        for protocol in protocols:
            session.run(protocol)
    experiments = session.history
    if options.json:
        rows = [e._asdict() | {"readings": e.readings.tolist()} for e in experiments]
        print_json(
            {"drives": session.drives, "sensors": session.sensors, "rest": session.rest, "experiments": rows}
        )
    else:
        for number, experiment in enumerate(experiments):
            console().print(_readings_table(number, experiment, session.sensors))
    if options.picture:
        from experiments import plot

        for number, experiment in enumerate(experiments):
            path = Path(options.picture)
            path = path if len(experiments) == 1 else path.with_stem(f"{path.stem}-{number}")
            plot.save(plot.readings(experiment.readings, session.sensors), path)
            print(f"picture: {path}", file=sys.stderr)


def _readings_table(number: int, experiment: Any, sensors: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(
        "ticks", "set", *sensors, title=f"Run {number}: mean ± sd of each sensor, segment by segment"
    )
    start = 0
    for segment in experiment.protocol:
        rows = experiment.readings[start : start + segment["ticks"]]
        cells = [f"{rows[:, k].mean():.3f} ± {rows[:, k].std():.3f}" for k in range(rows.shape[1])]
        table.add_row(f"{start}..{start + segment['ticks']}", _levels(segment["set"]), *cells)
        start += segment["ticks"]
    table.caption = f"{experiment.ticks_left} ticks and {experiment.preparations_left} preparations left"
    return table


def run_truth(options: argparse.Namespace) -> None:
    """Show the truth of each contract, god mode."""
    from simworlds.catalogue import load
    from simworlds.contracts import contracts_of
    from simworlds.truth import truth_of

    instance = load(options.world).instance(options.seed)
    with busy("running the true world"):
        contracts = contracts_of(instance)
        truth = truth_of(instance, contracts, options.clones)
    names = instance.world.branches
    if options.json:
        print_json(
            {name: column.tolist() for name, column in truth._asdict().items()} | {"branches": list(names)}
        )
        return
    from rich.table import Table

    table = Table(
        "id", "asks", "draws", "branches", "spread within", "range", title=f"Truth on {options.clones} clones"
    )
    for k, c in enumerate(contracts):
        draws = " ".join(f"{y:.3f}" for y in truth.draws[k][:16]) + (" ..." if options.clones > 16 else "")
        seen = ", ".join(sorted({names[b] for b in truth.branch[k]}))
        table.add_row(
            str(c.id),
            f"{c.statistic} of {c.port}",
            draws,
            seen,
            f"{truth.tau[k]:.4f}",
            f"{truth.dynamic_range[k]:.3f}",
        )
    console().print(table)


def run_score(options: argparse.Namespace) -> None:
    """Score an answers file."""
    answers = read_json(options.answers)
    from experiments.evaluation import evaluate
    from simworlds.catalogue import load

    instance = load(options.world).instance(options.seed)
    with busy("running the true world"):
        card = evaluate(instance, answers, clones=options.clones, lenient=options.lenient)
    if options.json:
        from experiments.records import provenance

        print_json(provenance(instance) | {"scores": card.to_json()})
        return
    console().print(card.table())


def run_ladder(options: argparse.Namespace) -> None:
    """Climb the reference ladder."""
    worlds = chosen_worlds("all" if options.all else options.world)
    from experiments import summary
    from experiments.run_ladder import Cell, fit_settings, run_ladder

    cells = [Cell(world, seed) for world in worlds for seed in options.seed]
    out = Path(options.out)
    settings = fit_settings(options.fit_steps)
    records, timing = run_ladder(cells, out, clones=options.clones, settings=settings, jobs=options.jobs)
    picture = None
    if not options.no_picture:
        from experiments import plot

        picture = out / "ladder.png"
        plot.save(plot.ladder(records), picture)
    if options.json:
        print_json(records)
    else:
        screen = console()
        screen.print(summary.ladder_table(records))
        screen.print(summary.outcomes_table(records))
    drawn = f"; picture: {picture}" if picture else ""
    print(f"records: {out}/ ({len(records)} files){drawn}", file=sys.stderr)
    print(f"time: {timing}", file=sys.stderr)


def run_bimodal(options: argparse.Namespace) -> None:
    """Print the two bimodal tables."""
    from experiments.bimodal import bimodal_tables

    with busy("scoring 4,000 ensembles a table"):
        tables = bimodal_tables()
    if options.json:
        print_json(tables.data)
    else:
        console().print(tables.table)


def run_propriety(options: argparse.Namespace) -> None:
    """Score a grid of misreports."""
    from experiments import plot
    from experiments.propriety import propriety_figure, propriety_study

    with busy("scoring a grid of misreports"):
        study = propriety_study(ensembles=options.ensembles)
    picture = Path(options.picture)
    plot.save(propriety_figure(study.data), picture)
    if options.json:
        print_json(study.data)
    else:
        console().print(study.table)
    print(f"picture: {picture}", file=sys.stderr)


def run_rescore(options: argparse.Namespace) -> None:
    """Rescore records; exits with status 1 if one disagrees."""
    from experiments.rescore import rescore

    records = [read_json(path) for path in options.record]
    reports = [rescore(record) for record in records]
    if options.json:
        print_json([report.to_json() for report in reports])
    else:
        for report in reports:
            console().print(report.table())
    if not all(report.agrees for report in reports):
        sys.exit("simworlds: a record does not agree with its own draws and answers")


def run_outcomes(options: argparse.Namespace) -> None:
    """Count the distinguishable outcomes of each contract."""
    from experiments.outcomes import outcome_rows, outcome_table

    rows = outcome_rows(chosen_worlds(options.world), options.seed, options.clones)
    if options.json:
        print_json(rows)
    else:
        console().print(outcome_table(rows))


def run_schema(options: argparse.Namespace) -> None:
    """Print a JSON Schema."""
    from scoring.checks import ANSWERS_SCHEMA
    from simworlds.contracts import CONTRACTS_SCHEMA

    print_json({"answers": ANSWERS_SCHEMA, "contracts": CONTRACTS_SCHEMA}[options.name])
