"""The command line. JAX is imported inside the commands, so that `--help` comes at once."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from simworlds.errors import Diverged, SimworldsError

_LARGEST_FILE = 10 * 2**20


class UsageError(Exception):
    """Bad input on the command line: shown in one line, exit status 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def parse_seeds(text: str) -> list[int]:
    """Seeds such as ``0``, ``0,3,7`` or ``0..15`` (both ends included).

    Raises:
        argparse.ArgumentTypeError: if the text is none of these.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or len(part) > 40:
            raise argparse.ArgumentTypeError(
                f"seeds are whole numbers such as 0, 0,3,7 or 0..15, but {part!r} is not"
            )
        low, high = int(first), int(last) if dots else int(first)
        if high < low or high - low >= 10_000 or high >= 2**63:
            raise argparse.ArgumentTypeError(
                f"a range of seeds ascends, holds at most 10000 and ends below 2^63, but is {part!r}"
            )
        seeds += range(low, high + 1)
    return list(dict.fromkeys(seeds))


def parse_one_seed(text: str) -> int:
    """One seed.

    Raises:
        argparse.ArgumentTypeError: if the text is not a whole number from 0 to 2^63 - 1.
    """
    seeds = parse_seeds(text)
    if len(seeds) != 1:
        raise argparse.ArgumentTypeError(f"this command takes one seed, but {text!r} names {len(seeds)}")
    return seeds[0]


def read_json(path: str) -> Any:
    """JSON from a file, or from standard input if the path is ``-``.

    Raises:
        UsageError: if it cannot be read, is larger than 10 MiB, or is not JSON.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LARGEST_FILE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > _LARGEST_FILE:
        raise UsageError(f"{path} is larger than {_LARGEST_FILE // 2**20} MiB, the most that is read")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error or 'nested too deeply'}") from error


def start_jax() -> None:
    """Settle how JAX runs before it is imported: a device a core, and a compilation cache that lasts."""
    from simworlds.store import default_home

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    flag = "--xla_force_host_platform_device_count"
    if flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}={cores}".strip()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(default_home() / "xla"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def _console() -> Any:
    from rich.console import Console

    # A pipe gets tables at their full width, a terminal at its own.
    return Console() if sys.stdout.isatty() else Console(width=200)


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=1, allow_nan=False))


def _worlds(names: str) -> list[str]:
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
        _print_json(rows)
        return
    from rich.table import Table

    table = Table(*(["id", "title", "track", "phenomenon", "drives", "sensors"]))
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    _console().print(table)


def run_contracts(options: argparse.Namespace) -> None:
    """Show the contracts of a (world, seed)."""
    from simworlds.catalogue import load

    contracts = [c.to_json() for c in load(options.world).instance(options.seed).contracts()]
    if options.json:
        _print_json(contracts)
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
    _console().print(table)


def _levels(levels: dict[str, float]) -> str:
    return " ".join(f"{port}={level:g}" for port, level in levels.items()) or "(hold)"


def run_explore(options: argparse.Namespace) -> None:
    """Run protocols in one session."""
    from simworlds.catalogue import load

    protocols = [read_json(path) for path in options.protocol]
    session = load(options.world).instance(options.seed).session()
    for protocol in protocols:
        session.run(protocol)
    experiments = session.history
    if options.json:
        rows = [e._asdict() | {"readings": e.readings.tolist()} for e in experiments]
        _print_json(
            {"drives": session.drives, "sensors": session.sensors, "rest": session.rest, "experiments": rows}
        )
    else:
        for number, experiment in enumerate(experiments):
            _console().print(_readings_table(number, experiment, session.sensors))
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
    contracts = contracts_of(instance)
    truth = truth_of(instance, contracts, options.clones)
    names = instance.world.branches
    if options.json:
        _print_json(
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
    _console().print(table)


def run_score(options: argparse.Namespace) -> None:
    """Score an answers file."""
    answers = read_json(options.answers)
    from experiments.evaluation import evaluate
    from simworlds.catalogue import load

    instance = load(options.world).instance(options.seed)
    card = evaluate(instance, answers, clones=options.clones, lenient=options.lenient)
    if options.json:
        from experiments.records import provenance

        _print_json(provenance(instance) | {"scores": card.to_json()})
        return
    _console().print(card.table())


def run_ladder(options: argparse.Namespace) -> None:
    """Climb the reference ladder."""
    worlds = _worlds(options.world)
    from experiments import summary
    from experiments.run_ladder import Cell, run_ladder
    from oracles.fit import FitSettings

    cells = [Cell(world, seed) for world in worlds for seed in options.seed]
    out = Path(options.out)
    records, timing = run_ladder(
        cells, out, clones=options.clones, settings=FitSettings(steps=options.fit_steps)
    )
    picture = None
    if not options.no_picture:
        from experiments import plot

        picture = out / "ladder.png"
        plot.save(plot.ladder(records), picture)
    if options.json:
        _print_json(records)
    else:
        console = _console()
        console.print(summary.ladder_table(records))
        console.print(summary.outcomes_table(records))
    drawn = f"; picture: {picture}" if picture else ""
    print(f"records: {out}/ ({len(records)} files){drawn}", file=sys.stderr)
    print(
        f"time: {timing.rest:.1f} s, and {timing.fits:.1f} s for fits made for the first time",
        file=sys.stderr,
    )


def run_bimodal(options: argparse.Namespace) -> None:
    """Print the two bimodal tables."""
    from experiments.bimodal import bimodal_tables

    tables = bimodal_tables()
    if options.json:
        _print_json(tables.data)
    else:
        _console().print(tables.table)


def _add(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], text: str, example: str
) -> _Parser:
    parser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON for machines instead of tables")
    return parser


def _add_instance(parser: _Parser) -> None:
    parser.add_argument(
        "--world", required=True, metavar="ID", help="a world such as B2; `simworlds worlds` lists them"
    )
    parser.add_argument(
        "--seed", required=True, type=parse_one_seed, metavar="N", help="seed of the instance, from 0"
    )


def _clones(text: str) -> int:
    if not text.isdecimal() or not 4 <= int(text) <= 2**20:
        raise argparse.ArgumentTypeError(
            f"truth takes a whole number of clones from 4 to {2**20}, but got {text!r}"
        )
    return int(text)


def _steps(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(
            f"a fit takes a whole number of steps from 1 to 100000, but got {text!r}"
        )
    return int(text)


def _add_clones(parser: _Parser) -> None:
    parser.add_argument(
        "--clones",
        type=_clones,
        default=8,
        metavar="N",
        help="truth clones of each contract, at least 4 (default 8)",
    )


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="simworlds",
        description="Simulated worlds whose laws are hidden from whoever explores them.",
        epilog="exit status: 0 done, 1 the work failed, 2 bad input (one line says what).",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
    _add(commands, "worlds", run_worlds, "List the worlds.", "simworlds worlds")
    contracts = _add(
        commands,
        "contracts",
        run_contracts,
        "Show the contracts of a (world, seed): the questions to answer.",
        "simworlds contracts --world B2 --seed 0 --json",
    )
    _add_instance(contracts)
    explore = _add(
        commands,
        "explore",
        run_explore,
        "Run protocols on fresh clones within the standard budget, and read the sensors.",
        'echo \'[{"ticks": 40, "set": {"u0": 0.8}}, {"ticks": 88}]\' | '
        "simworlds explore --world B2 --seed 0 --protocol -",
    )
    _add_instance(explore)
    explore.add_argument(
        "--protocol",
        required=True,
        action="append",
        metavar="FILE",
        help="JSON list of segments; - reads standard input; may be repeated",
    )
    explore.add_argument("--picture", metavar="PNG", help="draw the readings into this file")
    score = _add(
        commands,
        "score",
        run_score,
        "Score answers to the contracts against the truth that the agent never sees.",
        "simworlds score --world B2 --seed 0 --answers answers.json\n\nanswers.json:\n"
        '  [{"id": 0, "mean": 0.3, "low": 0.1, "high": 0.5,\n'
        '    "quantiles": {"0.1": 0.1, "0.25": 0.2, "0.5": 0.3, "0.75": 0.4, "0.9": 0.5}}]\n'
        "  (quantiles are optional)",
    )
    _add_instance(score)
    score.add_argument(
        "--answers", required=True, metavar="FILE", help="JSON list of answers; - reads standard input"
    )
    score.add_argument(
        "--lenient", action="store_true", help="count invalid answers as missing instead of refusing the file"
    )
    _add_clones(score)
    truth = _add(
        commands,
        "truth",
        run_truth,
        "Show the truth of each contract, god mode: never show it to an agent.",
        "simworlds truth --world B2 --seed 0 --clones 64",
    )
    _add_instance(truth)
    _add_clones(truth)
    _add_ladder(commands)
    study = commands.add_parser(
        "study", help="Studies of the scoring rule.", description="Studies of the scoring rule."
    )
    studies = study.add_subparsers(title="studies", required=True, metavar="STUDY", parser_class=_Parser)
    _add(
        studies,
        "bimodal",
        run_bimodal,
        "What honest, one-sided and wrong answers earn on a two-branch truth.",
        "simworlds study bimodal",
    )
    return parser


def _add_ladder(commands: Any) -> None:
    ladder = _add(
        commands,
        "ladder",
        run_ladder,
        "Climb the reference ladder: records, tables and a picture.",
        "simworlds ladder --world B2,C2 --seed 0..3 --out runs/ladder",
    )
    ladder.add_argument(
        "--world", default="all", metavar="IDS", help="worlds, separated by commas, or all (default)"
    )
    ladder.add_argument(
        "--seed", type=parse_seeds, default=[0], metavar="SEEDS", help="0, 0,3,7 or 0..15 (default 0)"
    )
    ladder.add_argument(
        "--out",
        default="runs/ladder",
        metavar="FOLDER",
        help="where records and picture go (default runs/ladder)",
    )
    ladder.add_argument("--no-picture", action="store_true", help="write no picture")
    ladder.add_argument(
        "--fit-steps", type=_steps, default=120, metavar="N", help="gradient steps of each fit (default 120)"
    )
    _add_clones(ladder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; exits with status 2 and one line on bad input, 1 where the work failed."""
    options = build_parser().parse_args(arguments)
    start_jax()
    try:
        options.run(options)
    except Diverged as error:
        sys.exit(f"simworlds: {error}")
    except (SimworldsError, UsageError) as error:
        print(f"simworlds: error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"simworlds: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit("simworlds: interrupted; what was finished is kept, and the same command goes on from there")


if __name__ == "__main__":
    main()
