"""How benchmarks are measured: rivals race in turns within one run, and ratios are taken within each turn.

A machine that is busy for a while slows all parties of a turn alike, so a ratio holds where seconds do not.
The clock of a ratio is CPU time unless a row says otherwise: that of all threads of this process, those of
JAX and of C kernels included. So a ratio on all cores charges each party for every core that it keeps busy.
"""

import ctypes
import dataclasses
import importlib.util
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from experiments.machine import processor
from simworlds.startup import usable_cores

Tell = Callable[[str], None]

KERNELS = Path(__file__).parent / "kernels"
C_FLAGS = ("-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")
NO_COMPILER = "no C compiler: gcc was not found"

MET, MISSED, NOT_MEASURED, FAILED = "met", "missed", "not measured", "failed"


class Ratio(NamedTuple):
    """A median over repeats, with the quartiles about it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclasses.dataclass(frozen=True)
class Party:
    """One who takes part in a race.

    Attributes:
        name: as it is printed.
        run: does the work once and returns when it is done; its first call may compile.
        unit_work: how much work a call does, where parties do unlike amounts: times are divided by it.
    """

    name: str
    run: Callable[[], Any]
    unit_work: float = 1.0


class Timing(NamedTuple):
    """Seconds a unit of work, of each repeat in turn.

    Attributes:
        walls: on the clock on the wall.
        cpus: of all threads of the process.
    """

    walls: tuple[float, ...]
    cpus: tuple[float, ...]

    @property
    def wall(self) -> float:
        """Median seconds on the wall."""
        return statistics.median(self.walls)

    @property
    def cpu(self) -> float:
        """Median seconds of CPU time."""
        return statistics.median(self.cpus)

    def to_json(self) -> dict[str, float]:
        """The medians as plain data."""
        return {"wall_seconds": self.wall, "cpu_seconds": self.cpu}


def race(parties: Sequence[Party] | Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Time parties in turns: one call of each to warm up, then `repeats` rounds of one call of each.

    Args:
        parties: what to call; a mapping from names to functions is short for parties of one unit of work.
        repeats: the number of rounds, at least 1.
    """
    if isinstance(parties, Mapping):
        parties = [Party(name, run) for name, run in parties.items()]
    for party in parties:
        party.run()
    walls: dict[str, list[float]] = {party.name: [] for party in parties}
    cpus: dict[str, list[float]] = {party.name: [] for party in parties}
    for _ in range(repeats):
        for party in parties:
            wall, cpu = time.perf_counter(), time.process_time()
            party.run()
            cpus[party.name].append((time.process_time() - cpu) / party.unit_work)
            walls[party.name].append((time.perf_counter() - wall) / party.unit_work)
    return {name: Timing(tuple(walls[name]), tuple(cpus[name])) for name in walls}


def ratio(ours: Timing, rival: Timing, *, clock: str = "cpu") -> Ratio:
    """Our time over a rival's, repeat by repeat: above 1 we are slower. `clock` is "cpu" or "wall"."""
    pairs = zip(getattr(ours, f"{clock}s"), getattr(rival, f"{clock}s"), strict=True)
    return spread_of([a / max(b, 1e-9) for a, b in pairs])


def spread_of(values: Sequence[float]) -> Ratio:
    """The median and the quartiles of some values."""
    if len(values) == 1:
        return Ratio(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Ratio(middle, low, high)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table of targets.

    Attributes:
        name: what is measured.
        figure: the measured figure as it is printed.
        target: the target as it is printed.
        value: the figure that is held against the limit; None if it could not be measured.
        limit: the target as a number, in the units of `value`.
        smaller_is_better: whether the target is a most or a least.
        rivals: our CPU time over that of each rival.
        detail: whatever else was measured, as plain data.
        note: what to know when reading the row; if there is no value, why.
    """

    name: str
    figure: str
    target: str
    value: float | None
    limit: float
    smaller_is_better: bool = True
    rivals: Mapping[str, Ratio] = dataclasses.field(default_factory=dict)
    detail: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""

    @property
    def verdict(self) -> str:
        """Whether the target is "met" or "missed", or the figure "not measured"."""
        if self.value is None:
            return NOT_MEASURED
        met = self.value <= self.limit if self.smaller_is_better else self.value >= self.limit
        return MET if met else MISSED

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        rivals = {name: value._asdict() for name, value in self.rivals.items()}
        return dataclasses.asdict(self) | {"rivals": rivals, "verdict": self.verdict}


def not_measured(name: str, target: str, limit: float, why: str, *, smaller_is_better: bool = True) -> Row:
    """A row whose figure cannot be had on this machine, and why."""
    return Row(name, "-", target, None, limit, smaller_is_better, note=why)


def on_all_cores(run: Callable[[int, int], Any], total: int, *, block: int = 1, cores: int = 0) -> None:
    """Call ``run(first, count)`` for the shares of `total` items, each on a thread of its own.

    For C kernels and numba twins, which release the interpreter while they run.

    Args:
        run: works on items ``first .. first + count - 1``.
        total: the number of items.
        block: shares are whole multiples of it, but for the last.
        cores: the number of shares; 0 takes one a usable core.
    """
    cores = cores or usable_cores()
    size = max(1, -(-total // (cores * block))) * block
    shares = [(first, min(size, total - first)) for first in range(0, total, size)]
    if len(shares) == 1:
        run(*shares[0])
        return
    with ThreadPoolExecutor(len(shares)) as pool:
        for done in [pool.submit(run, *share) for share in shares]:
            done.result()


@lru_cache
def c_library(source: str, flags: tuple[str, ...] = C_FLAGS) -> ctypes.CDLL | None:
    """A kernel of the folder `kernels`, compiled on the spot; None if there is no gcc.

    Raises:
        subprocess.CalledProcessError: if gcc refuses the source.
    """
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    with tempfile.TemporaryDirectory(prefix="simworlds-bench-") as folder:
        library = str(Path(folder) / "kernel.so")
        command = [gcc, "-std=gnu11", *flags, "-shared", "-fPIC", str(KERNELS / source), "-o", library, "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return ctypes.CDLL(library)  # stays loaded when its file is gone


def c_function(
    source: str,
    name: str,
    argtypes: Sequence[Any],
    *,
    restype: Any = None,
    flags: tuple[str, ...] = C_FLAGS,
) -> Callable[..., Any] | None:
    """A function of a kernel as a Python callable that releases the interpreter; None if there is no gcc.

    Args:
        source: a file in `kernels`, such as ``"ode.c"``.
        name: the C function.
        argtypes: ctypes types, or ``numpy.ctypeslib.ndpointer`` types for arrays.
        restype: the type of its result; None for void.
        flags: of the compiler; `C_FLAGS` do not include ``-ffast-math``.
    """
    library = c_library(source, flags)
    if library is None:
        return None
    function = getattr(library, name)
    function.argtypes, function.restype = list(argtypes), restype
    return function


def installed(module: str) -> bool:
    """Whether a rival's module can be imported."""
    return importlib.util.find_spec(module) is not None


def machine() -> dict[str, Any]:
    """What the figures were measured on: processor, cores, and the versions of all parties."""
    versions = {}
    for name in ("jax", "jaxlib", "numpy", "numba", "scipy", "diffrax", "stochastix", "scoringrules"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {"cpu": processor(), "cores": usable_cores(), "gcc": _gcc_version(), "versions": versions}


def machine_line(facts: Mapping[str, Any]) -> str:
    """The machine in one line."""
    packages = ", ".join(f"{name} {number or 'absent'}" for name, number in facts["versions"].items())
    return f"{facts['cpu']}, {facts['cores']} cores; gcc {facts['gcc'] or 'absent'}, {packages}"


@lru_cache
def _gcc_version() -> str | None:
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    done = subprocess.run([gcc, "-dumpfullversion"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
