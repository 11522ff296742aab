"""Exact simulation and tau-leaps of reaction networks against C, numba and stochastix.

Two laws, both with known distributions from their master equations:

- dimerisation, ``2 P <-> D`` with rates ``c1 P (P - 1)`` and ``c2 D`` from 301 P to time 10: the process of
  DSMTS 004, some 360 reactions a run, all runs about alike;
- the Schloegl model (Schloegl 1972, doi:10.1007/BF01379769), ``2 X <-> 3 X`` with rates ``c1 X (X - 1)`` and
  ``c2 X (X - 1) (X - 2)`` and ``0 <-> X`` with rates c3 and ``c4 X``, from 250 X to time 4: bistable near 85
  and 565 individuals, 13,400 reactions a run on average, few in the low state and many in the high one.

The rivals run Gillespie's direct method in single precision. C has two generators: the addressed threefry
stream of `simworlds.exact`, with which its runs must be ours one by one, and xoshiro256+, which is faster;
the ratio of a row is against the faster one. Tau-leaps are held against the exact C kernel, at a step at
which means and variances of the Schloegl model are within 2 % of its master equation's.
"""

import ctypes
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmarks.harness import (
    NO_COMPILER,
    Party,
    Row,
    Tell,
    Timing,
    c_function,
    installed,
    not_measured,
    on_all_cores,
    race,
    ratio,
)
from experiments.benchmarks.rivals import CWords
from simworlds.keys import Words, key_for, role_words
from simworlds.network import Network, exact_runs, leap_runs

NAME = "ssa"
TITLE = "Exact simulation and tau-leaps against C, numba and stochastix"

TARGET, FASTER_THAN_STOCHASTIX, LEAP_TARGET = 0.6, 30.0, 0.2
OURS, XOSHIRO, THREEFRY, NUMBA, STOCHASTIX, LEAPS = (
    "simworlds",
    "C, xoshiro256+",
    "C, threefry",
    "numba",
    "stochastix",
    "simworlds, leaps",
)
LEAP = 0.02  # of the Schloegl model
LEAP_TIMES = (1.0, 2.0, 4.0)
LEAP_ERROR = 0.02
AGREEMENT = 0.99  # the least share of runs that are the same in C: a logarithm rounds in more than one way


class Law(NamedTuple):
    """A network, and how its rivals know it."""

    title: str
    kernel: str
    network: Network
    reactions: tuple[tuple[str, float], ...]  # as stochastix writes them, mass action
    until: float
    most: int  # reactions of a run, for rivals that must know

    @property
    def rates(self) -> np.ndarray:
        """What the C kernels take: rate constants, then the first species at the start."""
        return np.array([*self.network.parameters.values(), self.network.start[0]], np.float32)


DIMERISATION = Law(
    "dimerisation",
    "dimer",
    Network(
        {
            "species": {"P": 301, "D": 0},
            "parameters": {"c1": 0.00083, "c2": 0.2},
            "reactions": [
                {"propensity": "c1*P*(P-1)", "change": {"P": -2, "D": 1}},
                {"propensity": "c2*D", "change": {"P": 2, "D": -1}},
            ],
        }
    ),
    (("2 P -> D", 0.00166), ("D -> 2 P", 0.2)),
    10.0,
    1_000,
)
SCHLOEGL = Law(
    "Schloegl model",
    "schloegl",
    Network(
        {
            "species": {"X": 250},
            "parameters": {"c1": 0.015, "c2": 1e-4 / 6, "c3": 200.0, "c4": 3.5},
            "reactions": [
                {"propensity": "c1*X*(X-1)", "change": {"X": 1}},
                {"propensity": "c2*X*(X-1)*(X-2)", "change": {"X": -1}},
                {"propensity": "c3", "change": {"X": 1}},
                {"propensity": "c4*X", "change": {"X": -1}},
            ],
        }
    ),
    (("2 X -> 3 X", 0.03), ("3 X -> 2 X", 1e-4), ("0 -> X", 200.0), ("X -> 0", 3.5)),
    4.0,
    100_000,
)


class _CJob(ctypes.Structure):
    """`job` of kernels/ssa.c."""

    _fields_ = [
        ("role", CWords),
        ("rate", ctypes.POINTER(ctypes.c_float)),
        ("end", ctypes.POINTER(ctypes.c_float)),
        ("until", ctypes.c_float),
    ]


def c_party(law: Law, generator: str, runs: int) -> Callable[[], np.ndarray] | None:
    """The C kernel of a law on all cores: returns counts ``[run, species]``; None without a compiler."""
    function = c_function(
        "ssa.c",
        f"{law.kernel}_{generator}",
        [ctypes.POINTER(_CJob), ctypes.c_long, ctypes.c_long],
        restype=ctypes.c_int64,
    )
    if function is None:
        return None
    role, rates = _role(law), law.rates
    end = np.zeros((runs, len(law.network.species)), np.float32)
    floats = ctypes.POINTER(ctypes.c_float)

    def run() -> np.ndarray:
        job = _CJob(
            CWords(int(role.high), int(role.low)),
            rates.ctypes.data_as(floats),
            end.ctypes.data_as(floats),
            law.until,
        )
        on_all_cores(lambda first, count: function(job, first, count), runs)
        return end

    return run


def _role(law: Law) -> Words:
    """The key under which `exact_runs` of that name has a key for each run."""
    return role_words("network", 0, "process", law.kernel)


def numba_party(law: Law, runs: int) -> Callable[[], np.ndarray]:
    """The C kernel's numba twin, with xoshiro256+, on all cores."""
    from experiments.benchmarks.ssa_numba import TWINS

    twin, role, rates = TWINS[law.kernel], _role(law), law.rates
    end = np.zeros((runs, len(law.network.species)), np.float32)
    seed = np.uint64(int(role.high) << 32 | int(role.low))

    def run() -> np.ndarray:
        on_all_cores(lambda first, count: twin(seed, rates, np.float32(law.until), first, count, end), runs)
        return end

    return run


def stochastix_party(law: Law, runs: int) -> Callable[[], np.ndarray]:
    """Its direct method in its fast form, under `jax.vmap` over keys."""
    import jax
    import jax.numpy as jnp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # that a part of it is experimental
        import stochastix

    reactions = [stochastix.Reaction(text, stochastix.kinetics.MassAction(c)) for text, c in law.reactions]
    network, solver = stochastix.ReactionNetwork(reactions), stochastix.DirectMethod()
    start = jnp.array([law.network.species[name] for name in network.species], jnp.float32)
    order = np.array([network.species.index(name) for name in law.network.species])

    def one(key: Any) -> Any:
        run = stochastix.faststochsimsolve(
            key, network, start, T=law.until, max_steps=law.most, solver=solver, save_propensities=False
        )
        return run.x[-1]

    program = jax.jit(jax.vmap(one))
    keys = jax.random.split(key_for("benchmark", 0, "process", "stochastix"), runs)
    return lambda: np.asarray(program(keys))[:, order]


def master_equation(law: Law, times: tuple[float, ...], most: int = 1_000) -> list[tuple[float, float]]:
    """Mean and variance at some times of a network of one species with changes of one, at most `most`."""
    from scipy.sparse import diags
    from scipy.sparse.linalg import expm_multiply

    n = np.arange(most + 1.0)
    rates = [np.asarray(rate, np.float64) for rate in law.network.propensities((n,))]
    up, down = (
        sum(
            (rate for rate, change in zip(rates, law.network.changes, strict=True) if change == (sign,)),
            0 * n,
        )
        for sign in (1, -1)
    )
    up[-1] = 0
    flow = sum(diags(d, k) for d, k in ((up[:-1], -1), (-(up + down), 0), (down[1:], 1)))
    share, before, moments = (n == law.network.start[0]).astype(float), 0.0, []
    for time in times:
        share, before = expm_multiply(flow * (time - before), share), time
        mean = float(share @ n)
        moments.append((mean, float(share @ (n - mean) ** 2)))
    return moments


class Error(NamedTuple):
    """The largest relative error of a mean or a variance, and its standard error."""

    value: float
    noise: float


def leap_error(runs: int) -> Error:
    """How far means and variances of leaps of the Schloegl model are from its master equation's."""
    found = []
    values = leap_runs(SCHLOEGL.network, LEAP_TIMES, runs, step=LEAP, name="check")[:, :, 0]
    for column, (mean, variance) in zip(values.T, master_equation(SCHLOEGL, LEAP_TIMES), strict=True):
        square = (column - mean) ** 2
        found.append(Error(abs(column.mean() / mean - 1), float(np.sqrt(variance / runs) / mean)))
        found.append(Error(abs(square.mean() / variance - 1), square.std() / np.sqrt(runs) / variance))
    return max(found, key=lambda error: error.value)


def _parties(law: Law, runs: int, few: int, tell: Tell) -> list[Party]:
    """All who can take part; ours and the C kernel of the same stream are held against each other."""

    def ours() -> np.ndarray:
        return exact_runs(law.network, [law.until], runs, name=law.kernel, max_events=law.most)[:, 0]

    parties = [Party(OURS, ours, runs)]
    kernels = {THREEFRY: c_party(law, "threefry", runs), XOSHIRO: c_party(law, "xoshiro", runs)}
    for name, kernel in kernels.items():
        if kernel is not None:
            parties.append(Party(name, kernel, runs))
    same = kernels[THREEFRY]
    if same is not None:
        tell(f"{law.title}: our runs against those of C")
        share = float(np.mean(np.all(ours() == same(), axis=1)))
        if share < AGREEMENT:
            raise ArithmeticError(f"of runs of the {law.title}, only {share:.2%} are the same in C")
    if installed("numba"):
        parties.append(Party(NUMBA, numba_party(law, runs), runs))
    if installed("stochastix"):
        parties.append(Party(STOCHASTIX, stochastix_party(law, few), few))
    return parties


def _exact_rows(law: Law, timings: dict[str, Timing], runs: int, few: int) -> list[Row]:
    name = f"exact SSA, {law.title}"
    against = {
        rival: ratio(timings[OURS], time) for rival, time in timings.items() if rival not in (OURS, LEAPS)
    }
    detail = {
        "runs": runs,
        "runs of stochastix": few,
        "cpu_microseconds_a_run": {who: 1e6 * time.cpu for who, time in timings.items()},
        "wall_ratio": {who: ratio(timings[OURS], timings[who], clock="wall").median for who in against},
    }
    compiled = {who: against[who] for who in (XOSHIRO, THREEFRY) if who in against}
    rows = []
    target = f"at most {TARGET} of scalar C, all cores"
    if compiled:
        fastest = max(compiled, key=lambda who: compiled[who].median)
        worst = compiled[fastest]
        note = f"against {fastest}; " + ", ".join(
            f"{who} {against[who]}" for who in compiled if who != fastest
        )
        rows.append(
            Row(name, str(worst), target, worst.median, TARGET, rivals=against, detail=detail, note=note)
        )
    else:
        rows.append(not_measured(name, target, TARGET, NO_COMPILER))
    name, target = f"{name}, stochastix", f"at least {FASTER_THAN_STOCHASTIX:g} times faster than stochastix"
    if STOCHASTIX not in against:
        why = "stochastix is not installed"
        return [*rows, not_measured(name, target, FASTER_THAN_STOCHASTIX, why, smaller_is_better=False)]
    times = 1 / against[STOCHASTIX].median
    note = f"its direct method under vmap, {few} runs at a time"
    rows.append(Row(name, f"{times:.3g}", target, times, FASTER_THAN_STOCHASTIX, False, note=note))
    return rows


def _leap_row(timings: dict[str, Timing], error: Error) -> Row:
    name, target = "tau-leap against exact SSA in C", f"at most {LEAP_TARGET}, statistics within 2 %"
    rivals = {who: ratio(timings[LEAPS], timings[who]) for who in (XOSHIRO, THREEFRY, OURS) if who in timings}
    detail = {"step": LEAP, "error": error.value, "noise": error.noise}
    accuracy = f"the largest error of a mean or variance is {error.value:.2%} (+- {error.noise:.2%})"
    if XOSHIRO not in rivals:
        return not_measured(name, target, LEAP_TARGET, NO_COMPILER)
    if error.value > LEAP_ERROR + 4 * error.noise:
        return not_measured(name, target, LEAP_TARGET, f"leaps are too long: {accuracy}")
    worst = max(rivals[XOSHIRO], rivals[THREEFRY])
    note = f"{SCHLOEGL.title}, leaps of {LEAP}; {accuracy}"
    return Row(name, str(worst), target, worst.median, LEAP_TARGET, rivals=rivals, detail=detail, note=note)


def rows(quick: bool, tell: Tell) -> list[Row]:
    """The rows of exact simulation and of tau-leaps.

    Args:
        quick: whether to be done in half a minute, with fewer runs.
        tell: is told what is being done.

    Raises:
        ArithmeticError: if our runs are not those of the C kernel on the same stream.
    """
    repeats, found = (3, []) if quick else (7, [])
    for law, runs, few in (
        (DIMERISATION, 10_000, 10_000),
        (SCHLOEGL, 1_000 if quick else 10_000, 200 if quick else 1_000),
    ):
        parties = _parties(law, runs, few, tell)
        if law is SCHLOEGL:
            leaps = max(runs, 4_096)
            parties.append(
                Party(LEAPS, lambda n=leaps: leap_runs(SCHLOEGL.network, [4.0], n, step=LEAP), leaps)
            )
        tell(f"{law.title}: {len(parties)} parties, {repeats} rounds")
        timings = race(parties, repeats)
        found += _exact_rows(law, timings, runs, few)
        if law is SCHLOEGL:
            tell("tau-leaps against the master equation")
            found.append(_leap_row(timings, leap_error(40_000 if quick else 200_000)))
    return found
