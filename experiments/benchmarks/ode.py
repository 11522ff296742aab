"""ODE ensembles against C and numba: Lorenz 63 and Lorenz 96 through `measure`.

The rivals do the work of `measure`, in single precision: initial states and sensor noise from the same
addressed stream, RK4, tick means by the trapezoidal rule, the mean of a window. `kernels/ode.c` keeps blocks
of clones side by side, which gcc vectorises; the numba twin has the same blocks. All parties use all cores:
the rivals a thread a core, ours a device a core. Before the race they are held against each other clone by
clone under a drive that leaves the law calm, where the rounding of single precision stays small.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmarks.harness import (
    NO_COMPILER,
    Party,
    Ratio,
    Row,
    Tell,
    c_function,
    not_measured,
    on_all_cores,
    race,
    ratio,
)
from experiments.benchmarks.laws import Lorenz63, Lorenz96, bench_instance, bench_request
from experiments.benchmarks.rivals import CJob, Job, c_job, job_of
from experiments.benchmarks.twins import numba_party
from simworlds.ensemble import measure
from simworlds.world import World

NAME = "ode"
TITLE = "ODE ensembles against C and numba"

BLOCK = 64  # a share of clones is a multiple of the clones that go side by side in a kernel
NO_NUMBA = "numba is not installed: it comes with the extra simworlds[bench]"
FASTER_THAN_NUMBA = 2.5


class Case(NamedTuple):
    """A law to race.

    Attributes:
        name: as it is printed.
        source: the file of its C kernel.
        kernel: the kernel and its twin.
        world: the law.
        calm: drive level of the check.
        lively: drive level of the race.
        apart: how far the parties' window means may lie apart under the calm drive.
        limit: the most CPU time over that of C.
    """

    name: str
    source: str
    kernel: str
    world: World
    calm: float
    lively: float
    apart: float
    limit: float


CASES = (
    Case("ODE, 3 state variables", "ode.c", "lorenz63", Lorenz63(), 0.25, 0.7, 2e-4, 1.3),
    Case("ODE, 40 state variables", "ode.c", "lorenz96", Lorenz96(), 0.05, 0.5, 1e-4, 2.0),
)


class Race(NamedTuple):
    """What came of a race: our CPU time over that of each rival, and the rest as plain data."""

    rivals: dict[str, Ratio]
    detail: dict[str, Any]


def c_party(source: str, kernel: str, job: Job) -> Callable[[], np.ndarray] | None:
    """A C kernel at work on a job, on all cores; None without a compiler."""
    function = c_function(source, kernel, [ctypes.POINTER(CJob), ctypes.c_int, ctypes.c_int])
    if function is None:
        return None

    def run() -> np.ndarray:
        whole = c_job(job)
        on_all_cores(lambda first, count: function(whole, first, count), len(job.values), block=BLOCK)
        return job.values

    return run


def parties_of(case: Case, level: float, clones: int) -> dict[str, Callable[[], Any]]:
    """Ours and the rivals that there are on this machine: each returns the statistic ``[clone]``."""
    instance, request = bench_instance(case.world), bench_request(case.world, level)
    job = job_of(instance, request, clones)
    rivals = {"C": c_party(case.source, case.kernel, job), "numba": numba_party(case.kernel, job)}
    ours = {"ours": lambda: measure(instance, [request], clones).values[0]}
    return ours | {name: run for name, run in rivals.items() if run is not None}


def farthest_apart(case: Case, clones: int) -> dict[str, float]:
    """The largest difference between ours and each rival under the calm drive.

    Raises:
        AssertionError: if it is larger than the case allows, so that a race would be between unlike works.
    """
    parties = parties_of(case, case.calm, clones)
    ours = np.array(parties.pop("ours")())
    apart = {name: float(np.abs(ours - run()).max()) for name, run in parties.items()}
    for name, difference in apart.items():
        if not difference <= case.apart:
            raise AssertionError(
                f"{case.name}: ours and {name} are {difference:g} apart, beyond {case.apart:g}"
            )
    return apart


def race_case(case: Case, *, clones: int, repeats: int, more: dict[str, Party] | None = None) -> Race:
    """Race a case under its lively drive; `more` are further rivals."""
    apart = farthest_apart(case, 256)
    parties = [Party(name, run) for name, run in parties_of(case, case.lively, clones).items()]
    times = race([*parties, *(more or {}).values()], repeats)
    rivals = {name: ratio(times["ours"], time) for name, time in times.items() if name != "ours"}
    walls = {name: ratio(times["ours"], time, clock="wall") for name, time in times.items() if name != "ours"}
    detail = {
        "clones": clones,
        "ticks": case.world.horizon,
        "steps": case.world.horizon * case.world.scheme.substeps,
        "seconds": {name: time.to_json() for name, time in times.items()},
        "wall_ratios": {name: value._asdict() for name, value in walls.items()},
        "farthest_apart": apart,
    }
    return Race(rivals, detail)


def against_c(case: Case, found: Race) -> Row:
    """The row of a case against C."""
    target = f"at most {case.limit:g} x C"
    if "C" not in found.rivals:
        return not_measured(f"{case.name}, against C", target, case.limit, NO_COMPILER)
    value = found.rivals["C"]
    return Row(
        f"{case.name}, against C",
        f"{value} x C",
        target,
        value.median,
        case.limit,
        rivals={"C (gcc, SIMD)": value},
        detail=found.detail,
        note=f"{found.detail['clones']:,} clones x {found.detail['steps']:,} steps, all cores, CPU time",
    )


def times_faster(name: str, rival: str, least: float, found: Race, absent: str = "") -> Row:
    """A row that asks to be some times faster than a rival."""
    target = f"at least {least:g} times as fast"
    if rival not in found.rivals:
        return not_measured(name, target, least, absent, smaller_is_better=False)
    value = found.rivals[rival]
    return Row(
        name,
        f"{1 / value.median:.3g} times as fast",
        target,
        1 / value.median,
        least,
        smaller_is_better=False,
        rivals={rival: value},
        detail=found.detail,
    )


def rows(quick: bool, tell: Tell) -> list[Row]:
    """Both laws against C and numba."""
    made = []
    for case in CASES:
        tell(f"{case.name}: compiling and racing")
        found = race_case(case, clones=2_048 if quick else 10_000, repeats=3 if quick else 7)
        made.append(against_c(case, found))
        made.append(times_faster(f"{case.name}, against numba", "numba", FASTER_THAN_NUMBA, found, NO_NUMBA))
    return made
