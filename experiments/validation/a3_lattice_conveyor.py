"""What is known of exclusion processes, measured on A3: exact currents, phases, shocks, a slow bond.

The exact current of N sites between reservoirs (Derrida, Evans, Hakim, Pasquier 1993,
doi:10.1088/0305-4470/26/7/011) is J_N = Z_{N-1} / Z_N with

    Z_N = sum_{p=1}^N p (2N - 1 - p)! / (N! (N - p)!) * sum_{k=0}^p alpha^-k beta^-(p-k)

Exact values of a few sites, with exchange and a slow bond, come from the generator of the Markov chain.
"""

from collections.abc import Iterator
from functools import cache, partial
from math import ceil, lgamma, log
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of
from simworlds.catalogue import load
from simworlds.integrate import RandomSequential
from simworlds.integrate.lattice import WORD, half_full
from simworlds.keys import Noise, clone_words, role_words

WORLD: Any = load("A3")
TUBES = 16
_DEHP = "Derrida, Evans, Hakim, Pasquier 1993, doi:10.1088/0305-4470/26/7/011"
_PFF = "Parmeggiani, Franosch, Frey 2003, doi:10.1103/PhysRevLett.90.086601"
_JL92 = "mean field q / (1 + q)^2, known to be low: Janowsky & Lebowitz 1992, doi:10.1103/PhysRevA.45.618"
_JL94 = "series in q to the sixth order, Janowsky & Lebowitz 1994, arXiv:comp-gas/9306003"
# Coefficients of q, q^2 ... of the current past a slow bond of rate q in a long tube.
BLOCKED = (1, -3 / 2, 19 / 16, -21535 / 27648, 0.529610, -0.327872)
_SMALL = {"alpha": 0.6, "beta": 0.8, "Omega_A": 0.5, "Omega_D": 0.3, "speed": 2.0}
_SHOCK = {"alpha": 0.2, "beta": 0.25, "Omega_A": 0.2, "Omega_D": 0.2, "speed": 1.0}


def log_weight(N: int, alpha: float, beta: float) -> float:
    """The logarithm of Z_N."""
    terms = []
    for p in range(1, N + 1):
        k = np.arange(p + 1)
        ends = np.logaddexp.reduce(-k * log(alpha) - (p - k) * log(beta))
        terms.append(log(p) + lgamma(2 * N - p) - lgamma(N + 1) - lgamma(N - p + 1) + ends)
    return float(np.logaddexp.reduce(terms))


def exact_current(N: int, alpha: float, beta: float) -> float:
    """J_N, in hops per unit of time."""
    return float(np.exp(log_weight(N - 1, alpha, beta) - log_weight(N, alpha, beta)))


class Chain(NamedTuple):
    """The Markov chain of a few sites: state s has site i full if bit i of s is set."""

    generator: np.ndarray  # rate of change of the probabilities ``[state, state]``
    full: np.ndarray  # whether a site is full ``[state, site]``


def chain(N: int, q: float, at: int, drive: dict[str, float]) -> Chain:
    """The continuous-time chain with a slow bond before site `at` (from 0), element by element."""
    flow = np.zeros((2**N, 2**N))

    def move(source: int, target: int, rate: float) -> None:
        flow[target, source] += drive["speed"] * rate
        flow[source, source] -= drive["speed"] * rate

    for s in range(2**N):
        full = [bool(s >> i & 1) for i in range(N)]
        for i in range(N):
            move(s, s ^ 1 << i, drive["Omega_D" if full[i] else "Omega_A"] / N)
        for i in range(1, N):
            if full[i - 1] and not full[i]:
                move(s, s ^ (0b11 << (i - 1)), q if i == at else 1.0)
        if not full[0]:
            move(s, s | 1, drive["alpha"])
        if full[N - 1]:
            move(s, s ^ 1 << (N - 1), drive["beta"])
    return Chain(flow, (np.arange(2**N)[:, None] >> np.arange(N)) % 2)


def chain_readings(N: int, q: float, at: int, drive: dict[str, float]) -> np.ndarray:
    """The stationary mean of each sensor."""
    flow, full = chain(N, q, at, drive)
    system = np.vstack([flow, np.ones(2**N)])
    law = np.linalg.lstsq(system, np.append(np.zeros(2**N), 1.0), rcond=None)[0]
    rho = law @ full
    thirds = [rho[a:b].mean() for a, b in ((0, N // 3), (N // 3, 2 * N // 3), (2 * N // 3, N))]
    ends = drive["speed"] * drive["beta"] * rho[-1], drive["speed"] * drive["alpha"] * (1 - rho[0])
    return np.array([*ends, *thirds])


def sweeps(N: int, time: float, drive: dict[str, float]) -> RandomSequential:
    """A scheme whose tick is two sweeps of a time that suits N sites: no attempt is wasted."""
    exchange = max(drive.get("Omega_A", 0.0), drive.get("Omega_D", 0.0)) / N
    most = drive.get("speed", 1.0) * (1 + exchange)  # no rate at an end is above 1
    return RandomSequential(dt=time, substeps=2, attempts=ceil(most * time * (N + 1)) + 1)


@cache
def readings(
    N: int, drive: tuple[tuple[str, float], ...], warm: int, keep: int, time: float, **slow: float
) -> np.ndarray:
    """Means of the sensors over `keep` ticks after `warm` ticks, ``[clone, sensor]``; 64 clones."""
    values = {"Omega_A": 0.0, "Omega_D": 0.0, "speed": 1.0, **dict(drive)}
    params = WORLD.limit(N=float(N), **slow)
    run = Run(WORLD, params, values, clones=64, dtype=np.float32, scheme=sweeps(N, time, values))
    run.ticks(warm)
    return run.ticks(keep).astype(np.float64).mean(1)


def _sensor(index: int, N: int, drive: dict[str, float], **options: Any) -> Measured:
    settings = {"warm": 200, "keep": 200, "time": 2.5} | options
    return mean_of(readings(N, tuple(drive.items()), **settings)[:, index])


@cache
def shock_profile(N: int, clones: int) -> np.ndarray:
    """The mean occupation of each site with exchange, from half full, ``[clone, site]``."""
    words = -(-N // WORD)
    noise = Noise(clone_words(role_words(WORLD.id, 0, "initial", "shock"), 0), jnp.uint32(0))
    start = WORLD.initial(WORLD.limit(N=jnp.float32(N)), noise)
    start = start._replace(cells=half_full(noise, jnp.float32(N), TUBES, words))
    scheme = sweeps(N, 10.0, _SHOCK)
    settings = {"clones": clones, "dtype": np.float32, "scheme": scheme, "state": start}
    run = Run(WORLD, WORLD.limit(N=float(N)), _SHOCK, **settings)
    memory = 2.5 * N / scheme.tick_time  # of the shock's place, in ticks
    run.ticks(round(5 * memory))
    total = np.zeros((clones, N))
    for _ in range(20):
        run.ticks(max(1, round(memory / 4)))
        cells = np.stack(run.state.cells, axis=-1)[..., None]
        bits = (cells >> np.arange(WORD, dtype=np.uint32)) & 1
        total += bits.reshape(clones, TUBES, -1)[..., :N].mean(1)
    return total / 20


def _shock_place(N: int, clones: int) -> Measured:
    """x_w from the mean density, 1 - beta - Omega / 2 - (1 - beta - Omega - alpha) x_w."""
    alpha, beta, Omega = _SHOCK["alpha"], _SHOCK["beta"], _SHOCK["Omega_A"]
    density = shock_profile(N, clones).mean(1)
    return mean_of((1 - beta - Omega / 2 - density) / (1 - beta - Omega - alpha))


def _shock_density(start: float, stop: float, N: int, clones: int) -> Measured:
    profile = shock_profile(N, clones)
    return mean_of(profile[:, round(start * N) : round(stop * N)].mean(1))


def _shock_slope(N: int, clones: int) -> Measured:
    x = (np.arange(N) + 0.5) / N
    left = (x > 0.04) & (x < 0.32)
    return mean_of(np.polyfit(x[left], shock_profile(N, clones)[:, left].T, 1)[0])


def checks() -> Iterator[Check]:
    """The checks of A3, cheapest first."""
    formula = f"J_N, {_DEHP}"
    for (alpha, beta), published in (((0.3, 0.8), 0.21), ((0.9, 0.9), 0.257275), ((1.0, 1.0), 0.2574257)):
        ends = {"alpha": alpha, "beta": beta}
        name = f"N = 50, alpha = {alpha}, beta = {beta}"
        value = exact_current(50, alpha, beta)
        yield Check("A3", f"J_N formula, {name}", published, "catalogue", partial(Measured, value), 5.1e-8)
        for index, port in enumerate(("exit", "entry")):
            yield Check("A3", f"{port} current, {name}", value, formula, partial(_sensor, index, 50, ends))
    value = exact_current(128, 0.7, 0.4)
    name, ends = "N = 128, alpha = 0.7, beta = 0.4", {"alpha": 0.7, "beta": 0.4}
    yield Check("A3", f"exit current, {name}", value, formula, partial(_sensor, 0, 128, ends))

    low, high, most = ({"alpha": a, "beta": b} for a, b in ((0.2, 0.8), (0.8, 0.2), (0.8, 0.8)))
    phases = "Schutz & Domany 1993, doi:10.1007/BF01048050"
    for phase, ends, J, rho in (("low", low, 0.16, 0.2), ("high", high, 0.16, 0.8)):
        yield Check("A3", f"current, {phase} density, N = 100", J, phases, partial(_sensor, 0, 100, ends))
        yield Check(
            "A3", f"bulk density, {phase} density, N = 100", rho, phases, partial(_sensor, 3, 100, ends)
        )
    yield Check("A3", "current, maximal, N = 100", 0.25, phases, partial(_sensor, 0, 100, most), 0.005)
    yield Check("A3", "bulk density, maximal, N = 100", 0.5, phases, partial(_sensor, 3, 100, most))

    full, slow = {"alpha": 1.0, "beta": 1.0}, {"slow": 1.0, "at": 64.0}
    series = sum(c * 0.3**k for k, c in enumerate(BLOCKED, start=1))
    for q, value, source, tolerance in ((0.3, series, _JL94, 3e-4), (0.5, 0.5 / 1.5**2, _JL92, 0.02)):
        name = f"current, slow bond q = {q}, N = 128"
        yield Check("A3", name, value, source, partial(_sensor, 0, 128, full, q=q, **slow), tolerance)
    exact = chain_readings(5, 0.4, 2, _SMALL)
    few = {"warm": 20, "keep": 400, "time": 5.0, "slow": 1.0, "q": 0.4, "at": 2.0}
    for index, (sensor, value) in enumerate(zip(WORLD.sensors, exact, strict=True)):
        name = f"{sensor.name}, N = 5, exchange and a slow bond"
        yield Check("A3", name, value, "generator", partial(_sensor, index, 5, _SMALL, **few))

    wide = {"N": 480, "clones": 8}
    own = {"N": 128, "clones": 32}
    yield Check("A3", "shock at x, N = 128", 0.625, _PFF, partial(_shock_place, **own), 0.01, slow=True)
    yield Check("A3", "shock at x, N = 480", 0.625, _PFF, partial(_shock_place, **wide), 0.01, slow=True)
    left, right = (partial(_shock_density, *x, **wide) for x in ((0.1, 0.2), (0.9, 0.98)))
    yield Check("A3", "density left of the shock, x = 0.15, N = 480", 0.23, _PFF, left, 0.002, slow=True)
    yield Check("A3", "density right of it, x = 0.94, N = 480", 0.738, _PFF, right, 0.002, slow=True)
    slope = partial(_shock_slope, **wide)
    yield Check("A3", "slope left of the shock, N = 480", 0.2, _PFF, slope, 0.005, slow=True)
