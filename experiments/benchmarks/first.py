"""The first result: what a newcomer waits for, in processes of their own.

Process time of `simworlds ladder --world B2 --seed 0`, its workers included, with an empty cache folder, and
again with the compiled programs of that run but an empty store; and the time that ``simworlds --help`` takes.
"""

import shutil
import statistics
import tempfile
from pathlib import Path

from experiments.benchmarks.children import Finished, run_command
from experiments.benchmarks.harness import Row, Tell

NAME = "first"
TITLE = "First result"

COLD, WARM, HELP = 20.0, 5.0, 0.5
CLI = ("-m", "experiments.cli")
# The settings of the command's own start-up are part of what is timed.
PLAIN = {"XLA_FLAGS": "", "JAX_COMPILATION_CACHE_DIR": ""}

IMPORTED = """
import sys
from experiments.cli import build_parser
build_parser().format_help()
print(int("jax" in sys.modules))
"""


def ladder(home: Path, out: Path) -> Finished:
    """Climb the ladder of one cell with a given cache folder."""
    variables = PLAIN | {"SIMWORLDS_HOME": str(home), "JAX_COMPILATION_CACHE_DIR": str(home / "xla")}
    return run_command([*CLI, "ladder", "--world", "B2", "--seed", "0", "--out", str(out)], variables)


def _seconds(name: str, done: Finished, limit: float, note: str) -> Row:
    return Row(
        name,
        f"{done.cpu:.1f} s of CPU time ({done.wall:.1f} s on the wall)",
        f"at most {limit:g} s of process time",
        done.cpu,
        limit,
        detail={"cpu_seconds": done.cpu, "wall_seconds": done.wall},
        note=note,
    )


def rows(quick: bool, tell: Tell) -> list[Row]:
    """The ladder with an empty and with a warm compilation cache, and the help page."""
    command = "`simworlds ladder --world B2 --seed 0`"
    with tempfile.TemporaryDirectory(prefix="simworlds-first-") as folder:
        home, out = Path(folder) / "home", Path(folder) / "out"
        tell("first result: empty cache")
        cold = ladder(home, out)
        for stale in (home / "store", out):
            shutil.rmtree(stale, ignore_errors=True)
        tell("first result: warm cache")
        warm = ladder(home, out)
    made = [
        _seconds(f"{command}, empty cache", cold, COLD, "cache folder and store empty"),
        _seconds(f"{command}, warm cache", warm, WARM, "compiled programs kept, store empty"),
    ]
    tell("first result: --help")
    runs = [run_command([*CLI, "--help"], PLAIN) for _ in range(3 if quick else 9)]
    wall = statistics.median(run.wall for run in runs)
    imports = run_command(["-c", IMPORTED], PLAIN).out.strip() == "1"
    made.append(
        Row(
            "`simworlds --help`",
            f"{wall:.2f} s" + (", imports JAX" if imports else ", JAX is not imported"),
            f"under {HELP:g} s without importing JAX",
            wall + 60 * imports,
            HELP,
            note="seconds on the wall; importing JAX would count as a minute",
            detail={"wall_seconds": wall, "cpu_seconds": statistics.median(run.cpu for run in runs)},
        )
    )
    return made
