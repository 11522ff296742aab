"""B4 against the stationary law of noise-induced homochirality, and against its own master equation."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of, state_type
from simworlds.catalogue import load
from simworlds.exact import ssa
from simworlds.keys import key_for

WORLD: Any = load("B4")
State = state_type(WORLD)
SIZE = 100  # molecules
BINS = 8  # of |w|, equally likely
DILUTE = 10.0  # theta of leaps; where it is 1, an achiral molecule lives for less than a step
JAFARPOUR = "Jafarpour et al. 2015"
MASTER = "the law's master equation"
RIVALRY = {"N": 40.0, "kn": 0.03, "x": 0.3}
STIRRED = {"V": 20.0, "kd": 1.0, "s": 1.0, "g": 0.0}


def _states(size: int) -> np.ndarray:
    """All counts (a, d, l) of so many molecules, ``[state, 3]``."""
    d, l = (c.ravel() for c in np.meshgrid(*[np.arange(size + 1)] * 2, indexing="ij"))
    return np.stack([size - d - l, d, l], 1)[d + l <= size]


def _rates(counts: Any, params: Any, drive: dict[str, float]) -> np.ndarray:
    """The law's propensities in float64, ``[reaction, state]``."""
    with jax.enable_x64(True):
        n = tuple(jnp.asarray(c, jnp.float64) for c in np.moveaxis(np.asarray(counts), -1, 0))
        rates = WORLD.propensities(State(n, 0.0), WORLD.drive_type(**drive), params)
        return np.stack([np.broadcast_to(rate, n[0].shape) for rate in rates])


def w_of(counts: Any) -> np.ndarray:
    """The excess w = (d - l) / (d + l) of counts ``[..., 3]``; 0 where there is no product."""
    _, d, l = np.moveaxis(np.asarray(counts, float), -1, 0)
    return (d - l) / np.maximum(d + l, 1)


@cache
def stationary(alpha: float, theta: float, size: int = SIZE) -> tuple[np.ndarray, np.ndarray]:
    """Counts, and P ~ theta^a / a!  Gamma(d + alpha) / d!  Gamma(l + alpha) / l!."""
    counts = _states(size)
    steps = np.arange(1, size + 1)
    grown = np.concatenate([[0], np.cumsum(np.log((steps - 1 + alpha) / steps))])
    faded = np.concatenate([[0], np.cumsum(np.log(theta / steps))])
    log = faded[counts[:, 0]] + grown[counts[:, 1]] + grown[counts[:, 2]]
    share = np.exp(log - log.max())
    return counts, share / share.sum()


def _setting(alpha: float, theta: float) -> tuple[Any, dict[str, float]]:
    """Parameters and drives with k = kd = 1."""
    return WORLD.limit(N=float(SIZE), kn=alpha / theta), {"V": theta, "kd": 1.0, "s": 0.0, "g": 0.0}


def spread_of(counts: Any, share: Any) -> Measured:
    """<w^2> of a law."""
    return Measured(float(w_of(counts) ** 2 @ share))


def imbalance(alpha: float, theta: float) -> Measured:
    """The largest net flow between two states under the stationary law, in units of the largest flow."""
    counts, share = stationary(alpha, theta, 30)
    index = {tuple(c): k for k, c in enumerate(counts.tolist())}
    rates = _rates(counts, *_setting(alpha, theta))
    flows, nets = [], []
    for there, back in ((0, 2), (1, 3)):
        for k in np.flatnonzero(rates[there] > 0):
            j = index[tuple((counts[k] + WORLD.changes[there]).tolist())]
            flows.append(share[k] * rates[there, k])
            nets.append(flows[-1] - share[j] * rates[back, j])
    return Measured(float(np.abs(nets).max() / np.max(flows)))


def turning_point() -> Measured:
    """The alpha at which one-handed and racemic states of 100 products are equally likely, by bisection."""

    def odds(alpha: float) -> float:
        """The logarithm of P(all D) / P(racemic): from pair to pair by L -> A, A -> D, over the way back."""
        steps = np.arange(50)
        racemic = np.stack([np.zeros(50), 50 + steps, 50 - steps], 1)
        open_, after = racemic + [1, 0, -1], racemic + [0, 1, -1]
        setting = _setting(alpha, 1.0)
        forth = np.log(_rates(racemic, *setting)[3]) + np.log(_rates(open_, *setting)[0])
        back = np.log(_rates(after, *setting)[2]) + np.log(_rates(open_, *setting)[1])
        return float(np.sum(forth - back))

    low, high = 0.3, 3.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if odds(middle) > 0 else (low, middle)
    return Measured((low + high) / 2)


@cache
def _exact(alpha: float, until: float, runs: int) -> np.ndarray:
    """The excess at the end of exact simulations, theta = 1, ``[run]``."""
    params, drive = _setting(alpha, 1.0)
    keys = jax.random.split(key_for("B4", 0, "validation", "ssa", round(100 * alpha)), runs)
    zero = jnp.zeros(())
    start = State((jnp.asarray(float(SIZE)), zero, zero), zero)
    run = partial(ssa, WORLD, params, start, WORLD.drive_type(**drive), until=until)
    return w_of(jax.jit(jax.vmap(lambda key: run(key=key).counts))(keys))


def _leapt(params: Any, drive: dict[str, float], label: str, apart: int, rows: int, clones: int) -> Any:
    """The excess under leaps, ``[time, clone]``; times are so many ticks apart, from three such spans on."""
    run = Run(WORLD, params, drive, clones=clones, label=label, dtype=np.float32)
    run.ticks(2 * apart)
    result = []
    for _ in range(rows):
        run.ticks(apart)
        result.append(w_of(np.stack(run.state.n, -1)))
    return np.stack(result)


@cache
def _leapt_plain(alpha: float) -> np.ndarray:
    """The excess under leaps at theta = 10, once in two relaxation times of w^2, N / (2 alpha + 1)."""
    apart = round(SIZE / (2 * alpha + 1) / WORLD.scheme.tick_time)
    return _leapt(*_setting(alpha, DILUTE), f"alpha = {alpha}", apart, 6, 2048)


def leapt_spread(alpha: float) -> Measured:
    """<w^2> under leaps: the mean over clones of their means over time."""
    return mean_of((_leapt_plain(alpha) ** 2).mean(0))


def exact_spread(alpha: float, until: float, runs: int) -> Measured:
    """<w^2> at the end of exact simulations."""
    return mean_of(_exact(alpha, until, runs) ** 2)


def chi_square(source: Callable[[], np.ndarray], alpha: float, theta: float) -> Measured:
    """Pearson's distance of |w| from the stationary law, over bins of about equal probability."""
    sample = source()
    counts, share = stationary(alpha, theta)
    size = np.abs(w_of(counts))
    order = np.argsort(size)
    inner = size[order][np.searchsorted(np.cumsum(share[order]), np.arange(1, BINS) / BINS)]
    # Edges lie between possible values, so that rounding moves none across.
    edges = np.unique(np.round(inner, 4)) + 5e-5
    expected = np.bincount(np.searchsorted(edges, size), share, BINS) * sample.size
    found = np.bincount(np.searchsorted(edges, np.abs(sample)), minlength=BINS)
    distance = float(np.sum((found - expected) ** 2 / expected))
    return Measured(distance, float(np.sqrt(2 * (BINS - 1))))


def master() -> float:
    """<w^2> at rest with antagonism, from the law's generator."""
    params = WORLD.limit(**RIVALRY)
    counts = _states(int(params.N))
    index = {tuple(c): k for k, c in enumerate(counts.tolist())}
    generator = np.zeros((len(counts), len(counts)))
    for change, rates in zip(WORLD.changes, _rates(counts, params, STIRRED), strict=True):
        for k in np.flatnonzero(rates > 0):
            j = index[tuple((counts[k] + change).tolist())]
            generator[j, k] += rates[k]
            generator[k, k] -= rates[k]
    generator[0] = 1  # that the shares sum to 1 replaces one of the balances
    share = np.linalg.solve(generator, np.eye(len(counts))[0])
    return spread_of(counts, share).value


def leapt_rivalry() -> Measured:
    """<w^2> under leaps with antagonism."""
    return mean_of((_leapt(WORLD.limit(**RIVALRY), STIRRED, "rivalry", 20, 6, 2048) ** 2).mean(0))


def exact_rivalry() -> Measured:
    """<w^2> under exact simulation with antagonism."""
    zero = jnp.zeros(())
    start = State((jnp.asarray(RIVALRY["N"]), zero, zero), zero)
    drive = WORLD.drive_type(**STIRRED)
    run = partial(ssa, WORLD, WORLD.limit(**RIVALRY), start, drive, until=120.0)
    keys = jax.random.split(key_for("B4", 0, "validation", "rivalry"), 8192)
    return mean_of(w_of(jax.jit(jax.vmap(lambda key: run(key=key).counts))(keys)) ** 2)


def checks() -> Iterator[Check]:
    """All checks of B4."""
    check = partial(Check, "B4")
    balance = partial(imbalance, 0.5, 4.0)
    yield check("net flows in the stationary law", 0.0, "detailed balance", balance, 1e-12)
    yield check("alpha at which the two peaks merge", 1.0, JAFARPOUR, turning_point, 1e-9)
    for alpha, until, runs in ((0.5, 120.0, 8192), (2.0, 60.0, 16384)):
        given, limit = f"alpha = {alpha:g}", 1 / (2 * alpha + 1)
        # Of x products, d is beta-binomial: <w^2> = (1 + 2 alpha / x) / (2 alpha + 1).
        finite, many = 2.1 * alpha * limit / SIZE, partial(spread_of, *stationary(alpha, 1.0, 1000))
        yield check(f"<w^2> of 1000 in the stationary law, {given}", limit, JAFARPOUR, many, finite / 10)
        exact, leapt = partial(exact_spread, alpha, until, runs), partial(leapt_spread, alpha)
        yield check(f"<w^2> of 100 by SSA, {given}", limit, JAFARPOUR, exact, finite, slow=True)
        settled = spread_of(*stationary(alpha, 1.0)).value
        yield check(f"<w^2> of 100 by SSA, {given}, theta = 1", settled, "stationary law", exact, slow=True)
        settled = spread_of(*stationary(alpha, DILUTE)).value
        quantity = f"<w^2> of 100 by leaps, {given}, theta = {DILUTE:g}"
        yield check(quantity, settled, "stationary law", leapt, 0.003 * settled, slow=True)
        for name, sample, theta in (
            ("SSA", partial(_exact, alpha, until, runs), 1.0),
            ("leaps", lambda alpha=alpha: _leapt_plain(alpha)[-1], DILUTE),
        ):
            distance = partial(chi_square, sample, alpha, theta)
            quantity = f"chi-square of |w| by {name}, {given}"
            yield check(quantity, BINS - 1, "stationary law", distance, slow=True)
    given = "<w^2> with antagonism"
    settled = master()
    yield check(f"{given}, by leaps", settled, MASTER, leapt_rivalry, 0.003 * settled, slow=True)
    yield check(f"{given}, by SSA", settled, MASTER, exact_rivalry, slow=True)
