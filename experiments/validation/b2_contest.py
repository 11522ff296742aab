"""B2: Moran's and Nowak's fixation probabilities, the neutral winner, founder control, the R* rule."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of
from simworlds.catalogue import load
from simworlds.exact import ssa, ssa_network
from simworlds.keys import Noise, Words, key_for

WORLD: Any = load("B2")
SPECIES = len(WORLD.limit().mu)
MORAN = "Moran 1958, doi:10.1017/S0305004100033193"
NOWAK = "Nowak et al. 2004, doi:10.1038/nature02414"
HSU = "Hsu, Hubbell, Waltman 1977, doi:10.1137/0132030"
NEUTRAL = "each founder is equally likely the ancestor"
CATALOGUE = "catalogue"
FEW, MANY = (
    0.01,
    0.0019,
)  # what winners' shares from few and from many cultures are off by; like rivals show it
GAME = 60  # players: payoff 2 among equals, 1 among unequals
DILUTION = 0.4  # of the R* rule
MU, K = (1.0, 0.8, 1.2), (0.5, 0.2, 1.0)


def share_of(won: Any) -> Measured:
    """A probability from independent trials."""
    share, runs = float(np.mean(won)), np.size(won)
    return Measured(share, float(np.sqrt(share * (1 - share) / runs)))


def _culture(founders: tuple[Any, ...], R: Any = 1.0) -> Any:
    """A state of up to four species, without pigment."""
    counts = (*founders, *[0.0] * (SPECIES - len(founders)))
    empty = WORLD.initial(WORLD.limit(), Noise(Words(np.uint32(0), np.uint32(0)), np.uint32(0)))
    return empty._replace(n=counts, R1=R, R2=R, P=0.0)


def fixation(start: int, size: int, ratio: Callable[[Any], Any]) -> float:
    """phi_i = (1 + sum_{k<i} prod_{j<=k} g_j / f_j) / (1 + sum_{k<N} prod_{j<=k} g_j / f_j).

    For a line of births and deaths; `ratio` is g / f, deaths over births, at 1 to N - 1 individuals.
    """
    products = np.concatenate([[1], np.cumprod(ratio(np.arange(1, size)))])
    return float(products[:start].sum() / products.sum())


def moran(r: float, i: int, N: int) -> float:
    """rho_i = (1 - r^-i) / (1 - r^-N), or i / N if r = 1."""
    return i / N if r == 1 else (1 - r**-i) / (1 - r**-N)


def law_fixation(r: float, i: int, N: int) -> Measured:
    """The same from the rates of the law's first species: births at 1 and deaths at D = 1 / r for each."""

    def ratio(counts: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            drive = WORLD.drive_type(D=1 / r, S=2.0, rho=0.5, T=1.0)
            state = _culture((jnp.asarray(counts, jnp.float64),), jnp.asarray(1.0))
            birth, death = WORLD.propensities(state, drive, WORLD.limit())[:2]
        return np.asarray(death) / np.asarray(birth)

    return Measured(fixation(i, N, ratio))


def exact_fixation(r: float, i: int, N: int, runs: int) -> Measured:
    """The share of exact simulations of the law in which the first species reaches N."""
    keys = jax.random.split(key_for("B2", 0, "validation", "moran", N), runs)
    params, start = (jax.tree.map(jnp.float32, x) for x in (WORLD.limit(), _culture((i,))))
    drive = WORLD.drive_type(D=1 / r, S=2.0, rho=0.5, T=1.0)
    run = partial(ssa, WORLD, params, start, drive, stop=lambda n: n[0] >= N)
    end = jax.vmap(lambda key: run(key=key))(keys)
    return share_of(_decided(end, N))


def _decided(end: Any, N: int) -> np.ndarray:
    """Which runs ended at N; all must have ended there or at 0."""
    last = np.asarray(end.counts[:, 0])
    if not (np.all(end.finished) and np.isin(last, (0, N)).all()):
        raise ArithmeticError("a run ended undecided")
    return last == N


def game_ratio(i: Any) -> Any:
    """The mean payoff of the second strategy over that of the first, of which i play: g / f."""
    f = (2 * (i - 1) + 1 * (GAME - i)) / (GAME - 1)
    g = (1 * i + 2 * (GAME - i - 1)) / (GAME - 1)
    return g / f


def _game_rates(counts: Any) -> Any:
    i = counts[0]
    gain = i * (GAME - i) / (GAME * (i + game_ratio(i) * (GAME - i)))
    return jnp.stack([gain, gain * game_ratio(i)])


def game_fixation(start: int, runs: int) -> Measured:
    """The share of exact simulations of the game's Moran process that the first strategy wins."""
    keys = jax.random.split(key_for("B2", 0, "validation", "nowak", start), runs)
    changes, counts = np.array([[1], [-1]]), jnp.array([float(start)])

    def stop(counts: Any) -> Any:
        return (counts[0] <= 0) | (counts[0] >= GAME)

    end = jax.vmap(lambda key: ssa_network(_game_rates, changes, counts, key=key, stop=stop))(keys)
    return share_of(_decided(end, GAME))


def _to_the_end(params: Any, drive: dict[str, float], state: Any, clones: int, label: str) -> np.ndarray:
    """Which species each clone is left with, ``[clone, species]``, under leaps."""
    run = Run(WORLD, params, drive, clones=clones, label=label, dtype=np.float32, state=state)
    for _ in range(200):
        run.ticks(20)
        left = np.stack(run.state.n, 1) > 0
        if (left.sum(1) <= 1).all():
            break
    if not (left.sum(1) == 1).all():
        raise ArithmeticError("a contest ended undecided, or without a winner")
    return left


@cache
def neutral() -> np.ndarray:
    """Winners of (4, 8, 12) founders with births at 1 and deaths at (sum of all n) / 60 per individual."""
    params = WORLD.limit(A=np.ones((SPECIES, SPECIES)), V=60.0)
    return _to_the_end(params, {"D": 0.0}, _culture((4.0, 8.0, 12.0)), 16384, "neutral")


@cache
def rivals(founders: tuple[float, ...], clones: int = 32768) -> np.ndarray:
    """Winners among like species that poison all others but not themselves: A_ij = 1, V = 200."""
    params = WORLD.limit(
        w=np.full((SPECIES, 2), 0.5),
        K=np.full((SPECIES, 2), 0.5),
        y=np.ones((SPECIES, 2)),
        loss=np.full(SPECIES, 0.04),
        A=1 - np.eye(SPECIES),
    )
    drive = {"D": 0.1, "S": 1.0, "rho": 0.5, "T": 1.0}
    return _to_the_end(params, drive, _culture(founders, 0.5), clones, f"rivals {founders}")


def need(mu: float, K: float) -> float:
    """The resource at which a species just keeps up with the dilution, K D / (mu - D)."""
    return K * DILUTION / (mu - DILUTION)


def _feeders(mu: tuple[float, ...], K: tuple[float, ...], **changes: Any) -> Any:
    """Parameters of species that live on the first resource."""
    padded = np.ones(SPECIES), np.ones(SPECIES)
    padded[0][: len(mu)], padded[1][: len(K)] = mu, K
    table = np.stack([padded[1], np.zeros(SPECIES)], 1)
    one = np.stack([np.ones(SPECIES), np.zeros(SPECIES)], 1)
    return WORLD.limit(mu=padded[0], K=table, y=one, **changes)


def law_need(species: int) -> Measured:
    """The resource at which the law's births balance deaths, by bisection."""
    params = _feeders(MU, K)
    low, high = 0.01, 2.0
    for _ in range(50):
        middle = (low + high) / 2
        with jax.enable_x64(True):
            drive = WORLD.drive_type(D=DILUTION, S=2.0, rho=0.5, T=1.0)
            state = _culture((1.0,) * SPECIES, jnp.asarray(middle))
            rates = WORLD.propensities(state, drive, params)
        grows = float(rates[2 * species]) > float(rates[2 * species + 1])
        low, high = (low, middle) if grows else (middle, high)
    return Measured((low + high) / 2)


@cache
def _grown(species: int, ticks: int) -> Any:
    """Cultures of the first so many species, so large that their noise shifts no mean."""
    params = _feeders(MU[:species], K[:species], V=2e6)
    start = _culture((10000.0,) * species)
    drive = {"D": DILUTION, "S": 2.0, "rho": 0.5, "T": 1.0}
    run = Run(WORLD, params, drive, clones=128, label="R*", dtype=np.float32, state=start)
    run.ticks(ticks)
    return run.state


def resource_left(species: int, ticks: int) -> Measured:
    """The first resource after so many ticks."""
    return mean_of(_grown(species, ticks).R1)


def winner() -> Measured:
    """The share of cultures that hold the species of the smallest need, the slowest grower, alone."""
    left = np.stack(_grown(3, 200).n, 1) > 0
    return Measured(float(np.mean(left[:, 1] & (left.sum(1) == 1))))


def checks() -> Iterator[Check]:
    """Formulas against published values, the law against formulas."""
    check = partial(Check, "B2")
    for r, i, N, published, runs in ((1.0, 10, 50, 0.2, 65536), (1.05, 5, 100, 0.218133, 32768)):
        at = (r, i, N)
        given = f"fixation, r = {r:g}, i = {i}, N = {N}"
        yield check(f"{given}: the formula", published, MORAN, partial(Measured, moran(*at)), 5e-7)
        yield check(f"{given}: the law's rates", moran(*at), MORAN, partial(law_fixation, *at), 1e-9)
        yield check(f"{given}: SSA", moran(*at), MORAN, partial(exact_fixation, *at, runs), slow=True)
    for start, published in ((30, 0.5), (25, 0.224892)):
        exact, given = fixation(start, GAME, game_ratio), f"coordination of 60 from {start}"
        yield check(f"{given}: the formula", published, NOWAK, partial(Measured, exact), 5e-7)
        yield check(f"{given}: SSA", exact, NOWAK, partial(game_fixation, start, 262144), slow=True)
    for k, founders in enumerate((4, 8, 12)):
        measure = lambda k=k: share_of(neutral()[:, k])  # noqa: E731
        quantity = f"wins of {founders} founders among (4, 8, 12), neutral"
        yield check(quantity, founders / 24, NEUTRAL, measure, slow=True)
    for k in range(3):
        measure = lambda k=k: share_of(rivals((6.0, 6.0, 6.0))[:, k])  # noqa: E731
        yield check(f"wins of rival {k + 1} from (6, 6, 6)", 1 / 3, "symmetry", measure, slow=True)
    for k, published in enumerate((0.578, 0.208, 0.214)):
        measure = lambda k=k: share_of(rivals((9.0, 6.0, 6.0))[:, k])  # noqa: E731
        yield check(f"wins of rival {k + 1} from (9, 6, 6)", published, CATALOGUE, measure, FEW, slow=True)
    for k, published in enumerate((0.5695, 0.21525, 0.21525)):
        measure = lambda k=k: share_of(rivals((9.0, 6.0, 6.0))[:, k])  # noqa: E731
        quantity = f"wins of rival {k + 1} from (9, 6, 6), converged"
        yield check(quantity, published, "65536 cultures, a third of the step", measure, MANY, slow=True)
    for k, published in enumerate((1 / 3, 0.2, 0.5)):
        given = f"R* = K D / (mu - D), D = .4, mu = {MU[k]:g}, K = {K[k]:g}"
        formula = partial(Measured, need(MU[k], K[k]))
        yield check(f"{given}: the formula", published, HSU, formula, 1e-12)
        yield check(f"{given}: the law's rates", published, HSU, partial(law_need, k), 1e-9)
    yield check("R left by one species", 1 / 3, HSU, partial(resource_left, 1, 100))
    yield check("R left by three species, the smallest R*", 0.2, HSU, partial(resource_left, 3, 200))
    yield check("share of cultures in which the smallest R* alone is left", 1.0, HSU, winner)
