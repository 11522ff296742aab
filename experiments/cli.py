"""The command line. JAX is imported inside the commands, so that `--help` comes at once."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from experiments import bench_command as bench
from experiments import cache_command as cache
from experiments import commands as do
from experiments import ensemble_command as bulk
from experiments import world_commands as about
from experiments.inputs import (
    UsageError,
    parse_bulk_clones,
    parse_chunk,
    parse_clones,
    parse_first_clone,
    parse_jobs,
    parse_one_seed,
    parse_seeds,
    parse_steps,
    parse_window,
)
from experiments.random_command import run_random
from simworlds.errors import Diverged, SimworldsError
from simworlds.startup import start_jax, usable_cores
from simworlds.store import default_home


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def default_jobs() -> int:
    """Cells that the ladder works on at the same time."""
    return min(usable_cores(), 4)


def prepare() -> None:
    """Settle how JAX runs, unless a program that calls `main` has; an unusable cache folder is said so."""
    home = default_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        if "jax" not in sys.modules:
            start_jax()
    except OSError as error:
        raise UsageError(
            f"cannot use the cache folder {error.filename or home}: {error.strerror} "
            "(set SIMWORLDS_HOME to another)"
        ) from error


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


def _add_clones(parser: _Parser, default: int = 8) -> None:
    text = f"truth clones of each contract, at least 4 (default {default})"
    parser.add_argument("--clones", type=parse_clones, default=default, metavar="N", help=text)


def _add_contracts(commands: Any) -> None:
    text = "Show the contracts of a (world, seed): the questions to answer."
    example = "simworlds contracts --world B2 --seed 0 --json"
    _add_instance(_add(commands, "contracts", do.run_contracts, text, example))


def _add_explore(commands: Any) -> None:
    text = "Run protocols on fresh clones within the standard budget, and read the sensors."
    example = (
        'echo \'[{"ticks": 40, "set": {"u0": 0.8}}, {"ticks": 88}]\' | '
        "simworlds explore --world B2 --seed 0 --protocol -"
    )
    explore = _add(commands, "explore", do.run_explore, text, example)
    _add_instance(explore)
    explore.add_argument(
        "--protocol",
        required=True,
        action="append",
        metavar="FILE",
        help="JSON list of segments; - reads standard input; may be repeated",
    )
    explore.add_argument("--picture", metavar="PNG", help="draw the readings into this file")


def _add_score(commands: Any) -> None:
    text = "Score answers to the contracts against the truth that the agent never sees."
    example = (
        "simworlds score --world B2 --seed 0 --answers answers.json\n\nanswers.json:\n"
        '  [{"id": 0, "mean": 0.3, "low": 0.1, "high": 0.5,\n'
        '    "quantiles": {"0.1": 0.1, "0.25": 0.2, "0.5": 0.3, "0.75": 0.4, "0.9": 0.5}}]\n'
        "  (quantiles are optional)"
    )
    score = _add(commands, "score", do.run_score, text, example)
    _add_instance(score)
    answers = "JSON list of answers; - reads standard input"
    score.add_argument("--answers", required=True, metavar="FILE", help=answers)
    lenient = "count invalid answers as missing instead of refusing the file"
    score.add_argument("--lenient", action="store_true", help=lenient)
    _add_clones(score)


def _add_truth(commands: Any) -> None:
    text = "Show the truth of each contract, god mode: never show it to an agent."
    truth = _add(commands, "truth", do.run_truth, text, "simworlds truth --world B2 --seed 0 --clones 64")
    _add_instance(truth)
    _add_clones(truth)


def _add_studies(commands: Any) -> None:
    text = "Studies of the scoring rule and of what contracts ask."
    study = commands.add_parser("study", help=text, description=text)
    studies = study.add_subparsers(title="studies", required=True, metavar="STUDY", parser_class=_Parser)
    text = "What honest, one-sided and wrong answers earn on a two-branch truth."
    _add(studies, "bimodal", do.run_bimodal, text, "simworlds study bimodal")
    text = "What misreports earn: accuracy is not proper against one's own ignorance, excess is."
    propriety = _add(studies, "propriety", do.run_propriety, text, "simworlds study propriety")
    ensembles = "truth ensembles of each law and uncertainty (default 4000)"
    propriety.add_argument("--ensembles", type=parse_clones, default=4000, metavar="N", help=ensembles)
    picture = "where the picture goes (default runs/propriety.png)"
    propriety.add_argument("--picture", default="runs/propriety.png", metavar="PNG", help=picture)
    text = "How many distinguishable outcomes each contract has among truth clones."
    example = "simworlds study outcomes --world B2 --seed 0..15 --clones 64"
    outcomes = _add(studies, "outcomes", do.run_outcomes, text, example)
    _add_cells(outcomes)
    _add_clones(outcomes, default=64)
    text = "How far the laws of the drawn numbers are from what they stand for, by enumeration."
    example = "simworlds study random --out docs/random.md"
    random = _add(studies, "random", run_random, text, example)
    random.add_argument("--out", metavar="FILE", help="write the tables as a Markdown page, too")


def _add_rescore(commands: Any) -> None:
    text = "Recompute the scores of ladder records from what they store, and say whether they agree."
    rescore = _add(commands, "rescore", do.run_rescore, text, "simworlds rescore runs/demo/*.json")
    rescore.add_argument("record", nargs="+", metavar="RECORD", help="a record of `simworlds ladder`")


def _add_schema(commands: Any) -> None:
    text = "Print the JSON Schema of answers or contracts."
    schema = _add(commands, "schema", do.run_schema, text, "simworlds schema answers")
    schema.add_argument("name", choices=("answers", "contracts"), help="which schema")


def _add_card(commands: Any) -> None:
    text = "Say what a world is: equations, ports, references, admission, noise floors, cost. God mode."
    card = _add(commands, "card", about.run_card, text, "simworlds card B1 --out docs/cards")
    card.add_argument("world", metavar="IDS", help="worlds, separated by commas, or all")
    card.add_argument("--out", metavar="FOLDER", help="write ID.md and ID.png here instead of printing")
    seeds = "seeds whose admission is reported, from 0 (default 16)"
    card.add_argument("--seeds", type=parse_jobs, default=16, metavar="N", help=seeds)


def _add_validate(commands: Any) -> None:
    text = "Hold every world against published and analytic values, and print the table of them."
    example = "simworlds validate --world B2,C2\n  simworlds validate --data folder-with-dsmts-and-ivp-files"
    validate = _add(commands, "validate", about.run_validate, text, example)
    worlds = "worlds, separated by commas, or all (default; none if --data is given)"
    validate.add_argument("--world", metavar="IDS", help=worlds)
    data = "folder of reference data by others: dsmts_cases.json, ivp_testset_refs.json"
    validate.add_argument("--data", metavar="FOLDER", help=data)
    validate.add_argument("--quick", action="store_true", help="leave slow checks out")
    validate.add_argument("--fresh", action="store_true", help="measure again what the store holds")
    validate.add_argument("--out", metavar="FILE", help="write the table as a Markdown page, too")
    jobs = f"worlds worked on at the same time (default {default_jobs()}: one a core, 4 at most)"
    validate.add_argument("--jobs", type=parse_jobs, default=default_jobs(), metavar="N", help=jobs)


def _add_ensemble(commands: Any) -> None:
    text = "Generate ensembles in bulk: statistics (Parquet) or readings (Zarr) of many clones. God mode."
    example = "simworlds ensemble B2 --seed 0..127 --protocol protocol.json --clones 4096 --out runs/b2"
    ensemble = _add(commands, "ensemble", bulk.run_ensemble, text, f"{example}\n{bulk.HELP}")
    ensemble.add_argument("worlds", metavar="IDS", help="worlds, separated by commas, or all")
    seeds = "0, 0,3,7 or 0..15 (default 0)"
    ensemble.add_argument("--seed", type=parse_seeds, default=[0], metavar="SEEDS", help=seeds)
    asked = ensemble.add_mutually_exclusive_group()
    protocol = "JSON list of segments, as of `explore`; - reads standard input; may be repeated"
    asked.add_argument("--protocol", action="append", metavar="FILE", help=protocol)
    contracts = "the contracts of each instance (default without --protocol)"
    asked.add_argument("--contracts", action="store_true", help=contracts)
    window = "ticks START to STOP - 1, for every protocol (default the last half of each)"
    ensemble.add_argument("--window", type=parse_window, metavar="START:STOP", help=window)
    clones = "clones of each (world, seed, protocol), from 1 to 2^24 (default 1024)"
    ensemble.add_argument("--clones", type=parse_bulk_clones, default=1024, metavar="N", help=clones)
    first = "number of the first clone (default 0)"
    ensemble.add_argument("--first", type=parse_first_clone, default=0, metavar="N", help=first)
    ensemble.add_argument("--readings", action="store_true", help="keep every reading, not statistics")
    ensemble.add_argument("--no-noise", action="store_true", help="leave sensor noise out")
    drawn = "take the first draw of each seed as it is, without the examination that can take seconds"
    ensemble.add_argument("--as-drawn", action="store_true", help=drawn)
    chunk = "clones a chunk, the most that a kill loses (default 16384 by all protocols; of readings 1024)"
    ensemble.add_argument("--chunk", type=parse_chunk, metavar="N", help=chunk)
    out = "where the files go (default runs/ensemble)"
    ensemble.add_argument("--out", default="runs/ensemble", metavar="FOLDER", help=out)


def _add_cache(commands: Any) -> None:
    text = "The caches: compiled programs, and figures that were computed once."
    command = commands.add_parser("cache", help=text, description=text)
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION", parser_class=_Parser)
    text = "Say where the caches lie and how large they are."
    _add(actions, "info", cache.run_info, text, "simworlds cache info")
    text = "Empty both caches, or the one that is named. Everything in them can be computed again."
    clear = _add(actions, "clear", cache.run_clear, text, "simworlds cache clear --compiled")
    clear.add_argument("--compiled", action="store_true", help="compiled programs")
    clear.add_argument("--figures", action="store_true", help="ensembles, examinations, fits and checks")


def _add_bench(commands: Any) -> None:
    text = "Measure this machine against the targets: ratios against named rivals in the same run."
    example = "simworlds bench --quick\n  simworlds bench --only ode,sde --out runs/bench"
    command = _add(commands, "bench", bench.run_bench, text, example)
    command.add_argument(
        "--quick", action="store_true", help="less work and fewer repeats, under two minutes"
    )
    command.add_argument("--only", metavar="NAMES", help="benchmarks, separated by commas (default all)")
    command.add_argument("--list", action="store_true", help="list the benchmarks and measure nothing")
    out = "write bench.json, bench.md and bench.png into this folder, too"
    command.add_argument("--out", metavar="FOLDER", help=out)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="simworlds",
        description="Simulated worlds whose laws are hidden from whoever explores them.",
        epilog="exit status: 0 done, 1 the work failed, 2 bad input (one line says what).",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
    _add(commands, "worlds", do.run_worlds, "List the worlds.", "simworlds worlds")
    for add in (
        _add_contracts,
        _add_explore,
        _add_score,
        _add_truth,
        _add_ladder,
        _add_rescore,
        _add_studies,
        _add_schema,
        _add_card,
        _add_validate,
        _add_ensemble,
        _add_cache,
        _add_bench,
    ):
        add(commands)
    return parser


def _add_cells(parser: _Parser) -> None:
    worlds = "worlds, separated by commas, or all (default)"
    parser.add_argument("--world", default="all", metavar="IDS", help=worlds)
    seeds = "0, 0,3,7 or 0..15 (default 0)"
    parser.add_argument("--seed", type=parse_seeds, default=[0], metavar="SEEDS", help=seeds)


def _add_ladder(commands: Any) -> None:
    ladder = _add(
        commands,
        "ladder",
        do.run_ladder,
        "Climb the reference ladder: records, tables and a picture.",
        "simworlds ladder --world B2,C2 --seed 0..3 --out runs/ladder",
    )
    _add_cells(ladder)
    ladder.add_argument("--all", action="store_true", help="every world, whatever --world says")
    ladder.add_argument(
        "--out",
        default="runs/ladder",
        metavar="FOLDER",
        help="where records and picture go (default runs/ladder)",
    )
    jobs = f"cells worked on at the same time (default {default_jobs()}: one a core, 4 at most)"
    ladder.add_argument("--jobs", type=parse_jobs, default=default_jobs(), metavar="N", help=jobs)
    ladder.add_argument("--no-picture", action="store_true", help="write no picture")
    ladder.add_argument(
        "--fit-steps",
        type=parse_steps,
        default=120,
        metavar="N",
        help="gradient steps of a fit of everything (default 120); a closure alone takes 40 at most",
    )
    _add_clones(ladder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; exits with status 2 and one line on bad input, 1 where the work failed."""
    options = build_parser().parse_args(arguments)
    try:
        prepare()
        options.run(options)
        sys.stdout.flush()
    except Diverged as error:
        sys.exit(f"simworlds: {error}")
    except (SimworldsError, UsageError) as error:
        print(f"simworlds: error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"simworlds: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit("simworlds: interrupted; what was finished is kept, and the same command goes on from there")


if __name__ == "__main__":
    main()
