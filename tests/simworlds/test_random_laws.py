"""The laws and the independence of drawn numbers, at 10^5 draws by default and at 10^7 under `make validate`.

Numbers are drawn as worlds draw them: ``[clone, step]`` at one component of a role. A battery turns a sample
into scores. Most are departures in units of their standard error under the exact law; tests of a whole
distribution give a p-value, which is turned into the normal quantile of the same tail. All scores of a sample
are held against one limit, set so that a sample of truly independent numbers exceeds it with probability
`ALPHA` (Bonferroni). The addresses are fixed, so a test never fails by chance from one run to the next.

The law that a sample is held against is scipy's, with one exception: for counts whose mean is just above
that of inversion, 10^7 draws show the error that `simworlds study random` states. There the law is the
enumerated one, so that the generator and its addresses are what is tested. Float32 normals end at 5.29 and
lose 5e-4 of the sixth moment, whose standard error is 0.03 at 10^7 draws. A cell of a float32 uniform is
1e-7, where the distance of Kolmogorov and Smirnov resolves 1e-3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from simworlds.keys import (
    INVERSION_MEAN,
    binomial_from,
    bits,
    clone_words,
    normal_from,
    poisson_from,
    role_words,
    unit_interval,
)

ALPHA = 1e-6
WORD = np.uint32
ROLE = role_words("B2", 0, "process", "truth", 3)
OTHER_ROLE = role_words("B2", 0, "sensor", "truth", 3)
SMALL, LARGE = (256, 512), (4096, 2500)  # clones, steps
sizes = pytest.mark.parametrize(
    "shape", [SMALL, pytest.param(LARGE, marks=pytest.mark.validation)], ids=["10^5", "10^7"]
)
LAGS = (*range(1, 17), 32, 64, 128)


@jax.jit
def _drawn(role, clone, step, component):
    return bits(clone_words(role, clone), step, component)


def words(shape, component=0, role=ROLE):
    """Words ``[clone, step]`` at a component."""
    clone, step = jnp.arange(shape[0], dtype=jnp.uint32), jnp.arange(shape[1], dtype=jnp.uint32)
    return np.asarray(_drawn(role, clone[:, None], step[None, :], jnp.uint32(component)))


# Laws


class Law(NamedTuple):
    """How numbers come from words, and what they should be: moments and, for counts, shares."""

    draw: Callable[[Any], Any]
    mean: float
    sd: float
    moments: list[float]  # standardised, of order 0 to 12
    cdf: Callable[[Any], Any] | None = None  # continuous laws
    shares: np.ndarray | None = None  # of the counts from 0 on; discrete laws

    def __call__(self, word):
        """The numbers, standardised."""
        return (np.asarray(self.draw(word), np.float64) - self.mean) / self.sd


_POWERS = range(13)
UNIFORM = Law(
    jax.jit(unit_interval),
    mean=0.5,
    sd=12**-0.5,
    moments=[0.0 if k % 2 else 3 ** (k / 2) / (k + 1) for k in _POWERS],
    cdf=lambda x: np.clip(x * 12**-0.5 + 0.5, 0, 1),
)
NORMAL = Law(
    jax.jit(normal_from),
    mean=0.0,
    sd=1.0,
    moments=[float(stats.norm.moment(k)) if k else 1.0 for k in _POWERS],
    cdf=stats.norm.cdf,
)


def count_law(from_uniform, law):
    shares = law.pmf(np.arange(int(law.isf(1e-12)) + 2))
    k = np.arange(len(shares))
    mean, sd = law.mean(), law.std()
    moments = [float(shares @ ((k - mean) / sd) ** power) for power in _POWERS]
    return Law(lambda word: from_uniform(unit_interval(word)), mean, sd, moments, shares=shares)


def poisson(mean):
    return count_law(
        jax.jit(lambda u: poisson_from(u, jnp.float32(mean))), stats.poisson(float(np.float32(mean)))
    )


def binomial(trials, probability):
    draw = jax.jit(lambda u: binomial_from(u, jnp.float32(trials), jnp.float32(probability)))
    return count_law(draw, stats.binom(trials, float(np.float32(probability))))


def resolved(law, shape, mean):
    """The law that a sample of a shape is held against; `mean` is what decides between the methods."""
    if shape == SMALL or not INVERSION_MEAN < mean < 2 * INVERSION_MEAN:
        return law
    counts = np.asarray(law.draw(np.arange(2**23, dtype=WORD) << WORD(9)), np.int64)
    shares = np.bincount(counts) / len(counts)
    enumerated = stats.rv_discrete(values=(np.arange(len(shares)), shares))
    return count_law(None, enumerated)._replace(draw=law.draw)


MEANS = (0.01, 0.5, 3.0, 5.9, 6.0, 6.1, 20.0, 200.0, 1e4)
TRIALS = (
    (1, 0.5),
    (12, 0.5),
    (13, 0.5),
    (59, 0.1),
    (61, 0.1),
    (5, 0.002),
    (5, 0.998),
    (300, 0.97),
    (1000, 0.5),
)


# The battery


def battery(law, shape, source=words):
    """Scores of numbers at one component: law, steps, clones, and other components and roles."""
    x = law(source(shape))
    scores = law_scores(law, x) | lag_scores(x)
    for component in (1, 2, 3, 4, 8):
        other = law(source(shape, component))
        scores[f"component {component}"] = product(x, other)
        scores[f"component {component}, next step"] = product(x[:, 1:], other[:, :-1])
    scores["other role"] = product(x, law(source(shape, role=OTHER_ROLE)))
    return scores


def law_scores(law, x):
    """Moments to order 6, and the whole distribution."""
    scores = {}
    for k in range(1, 7):
        error = np.sqrt((law.moments[2 * k] - law.moments[k] ** 2) / x.size)
        scores[f"moment {k}"] = (np.mean(x**k) - law.moments[k]) / error if error else 0.0
    if law.cdf is not None:
        below = law.cdf(np.sort(x, axis=None))
        at = np.arange(x.size + 1) / x.size
        distance = max(np.max(at[1:] - below), np.max(below - at[:-1]))
        scores["distribution"] = as_score(stats.kstwobign.sf(distance * np.sqrt(x.size)))
    else:
        scores["distribution"] = as_score(count_p_value(law, np.rint(x * law.sd + law.mean)))
    return scores


def count_p_value(law, counts):
    """Chi-square over counts, neighbours pooled until each is expected a hundred times."""
    found = np.bincount(counts.astype(np.int64).ravel(), minlength=len(law.shares))
    if len(found) > len(law.shares):
        return 0.0
    expected = law.shares * counts.size
    group = np.minimum(np.cumsum(expected) // 100, (expected.sum() - 100) // 100).astype(np.int64)
    _, group = np.unique(group, return_inverse=True)
    pooled = [np.bincount(group, weights=weights) for weights in (found, expected)]
    pooled[1] *= pooled[0].sum() / pooled[1].sum()  # shares beyond 1e-12 are left out
    return stats.chisquare(*pooled).pvalue if len(pooled[0]) > 1 else 1.0


def lag_scores(x):
    """Correlations of numbers, and of their squares, some steps and some clones apart."""
    square = x**2
    square = (square - square.mean()) / max(square.std(), 1e-12)
    scores = {}
    for lag in LAGS:
        scores[f"steps {lag} apart"] = product(x[:, lag:], x[:, :-lag])
        scores[f"clones {lag} apart"] = product(x[lag:], x[:-lag])
        scores[f"clones and steps {lag} apart"] = product(x[lag:, :-lag], x[:-lag, lag:])
        scores[f"squares, steps {lag} apart"] = product(square[:, lag:], square[:, :-lag])
        scores[f"squares, clones {lag} apart"] = product(square[lag:], square[:-lag])
    return scores


def product(one, other):
    """The correlation of two standardised samples in standard errors."""
    return float(np.einsum("ij,ij->", one, other) / np.sqrt(one.size))


def as_score(p_value):
    """The normal quantile whose two tails hold a p-value."""
    return float(stats.norm.isf(max(p_value, 1e-300) / 2))


def beyond(scores):
    """The scores that are beyond the limit of so many."""
    limit = stats.norm.isf(ALPHA / 2 / len(scores))
    return {name: round(score, 2) for name, score in scores.items() if not abs(score) <= limit}


@sizes
@pytest.mark.parametrize("law", [UNIFORM, NORMAL], ids=["uniform", "normal"])
def test_continuous_numbers_have_their_law_and_are_independent(law, shape):
    scores = battery(law, shape)
    assert len(scores) == 7 + 5 * len(LAGS) + 11
    assert beyond(scores) == {}


@sizes
@pytest.mark.parametrize("mean", MEANS)
def test_poisson_counts_have_their_law_and_are_independent(mean, shape):
    assert beyond(battery(resolved(poisson(mean), shape, mean), shape)) == {}


@sizes
@pytest.mark.parametrize(("trials", "probability"), TRIALS)
def test_binomial_counts_have_their_law_and_are_independent(trials, probability, shape):
    law = resolved(binomial(trials, probability), shape, trials * min(probability, 1 - probability))
    assert beyond(battery(law, shape)) == {}


@pytest.mark.validation
def test_ten_million_draws_show_the_error_of_the_expansion_where_it_begins():
    law = poisson(6.1)
    assert list(beyond(law_scores(law, law(words(LARGE))))) == ["distribution"]


# Bits and pairs


def bit_scores(word, one, other):
    """Every bit of words ``[clone, step]`` alone and against the other bits, and against those of neighbours.

    Args:
        word: the words.
        one: picks words, and `other` their neighbours, of an array of them.
        other: see `one`.
    """
    total, within, across, n, pairs = np.zeros(32), np.zeros((32, 32)), np.zeros((32, 32)), 0, 0
    for rows in np.array_split(word, max(1, word.size // 10**6)):
        own, first, second = (_signs(part) for part in (rows, one(rows), other(rows)))
        total += own.sum(0)
        within += own.T @ own
        across += first.T @ second
        n, pairs = n + len(own), pairs + len(first)
    scores = {f"bit {k}": total[k] / np.sqrt(n) for k in range(32)}
    for k in range(32):
        scores |= {f"bits {j} and {k}": within[j, k] / np.sqrt(n) for j in range(k)}
        scores |= {f"bit {j} and a neighbour's {k}": across[j, k] / np.sqrt(pairs) for j in range(32)}
    return scores


def _signs(word):
    return (2.0 * ((word.ravel()[:, None] >> np.arange(32, dtype=WORD)[None, :]) & WORD(1)) - 1).astype(
        np.float32
    )


NEIGHBOURS = {
    "step": (lambda w: w[:, 1:], lambda w: w[:, :-1]),
    "clone": (lambda w: w[1:], lambda w: w[:-1]),
}


@sizes
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_every_bit_is_even_and_independent_of_every_other(neighbour, shape):
    assert beyond(bit_scores(words(shape), *NEIGHBOURS[neighbour])) == {}


def test_a_planted_defect_of_bits_is_seen():
    few = (128, 256)
    word = words(few)
    stuck = word & ~WORD(1 << 9) | (word >> WORD(1)) & WORD(1 << 9)  # bit 9 is that of bit 10
    assert list(beyond(bit_scores(stuck, *NEIGHBOURS["step"]))) == ["bits 9 and 10"]
    word = word.copy()
    word[:, 1:] = word[:, 1:] & ~WORD(1 << 3) | (word[:, :-1] >> WORD(2)) & WORD(1 << 3)
    assert list(beyond(bit_scores(word, *NEIGHBOURS["step"]))) == ["bit 3 and a neighbour's 5"]
    word |= WORD(2) * (words(few, 1) < WORD(2**32 // 10))  # one in ten is set
    assert "bit 1" in beyond(bit_scores(word, *NEIGHBOURS["step"]))


def pair_scores(shape, source=words):
    """Even filling of 64 x 64 squares by pairs of neighbours."""
    word = source(shape) >> WORD(26)
    pairs = {name: (one(word), other(word)) for name, (one, other) in NEIGHBOURS.items()}
    pairs |= {f"component {k}": (word, source(shape, k) >> WORD(26)) for k in (1, 2, 4)}
    pairs["role"] = (word, source(shape, role=OTHER_ROLE) >> WORD(26))
    squares = {
        name: np.bincount((one * WORD(64) + other).ravel(), minlength=4096)
        for name, (one, other) in pairs.items()
    }
    return {name: as_score(stats.chisquare(found).pvalue) for name, found in squares.items()}


@sizes
def test_pairs_of_neighbours_fill_the_square_evenly(shape):
    assert beyond(pair_scores(shape)) == {}


# Planted defects


def altered(change):
    """A source of words that are drawn as always and then changed."""
    return lambda shape, *address, **role: change(words(shape, *address, **role))


def mirrored(word):
    """Every other step is the one before it, or its mirror image, by the toss of a coin."""
    toss = words(word.shape, 7) >> WORD(31)
    repeated = np.where(toss == 1, ~word, word)[:, ::2]
    word = word.copy()
    word[:, 1::2] = repeated
    return word


DEFECTS = {
    "colliding steps": (altered(lambda w: w[:, np.arange(w.shape[1]) // 2]), "steps 1 apart"),
    "colliding clones": (altered(lambda w: w[np.arange(len(w)) // 2]), "clones 1 apart"),
    "clones modulo 64": (altered(lambda w: w[np.arange(len(w)) % 64]), "clones 64 apart"),
    "steps modulo 128": (altered(lambda w: w[:, np.arange(w.shape[1]) % 128]), "steps 128 apart"),
    "one stream for all clones": (
        altered(lambda w: np.stack([np.roll(w[0], -k) for k in range(len(w))])),
        "clones and steps 1 apart",
    ),
    "one sign in two": (altered(mirrored), "squares, steps 1 apart"),
    "components collide": (lambda shape, component=0, role=ROLE: words(shape, 0, role), "component 4"),
    "components are steps": (
        lambda shape, component=0, role=ROLE: np.roll(words(shape, 0, role), -component, axis=1),
        "component 1, next step",
    ),
    "roles collide": (lambda shape, component=0, role=ROLE: words(shape, component), "other role"),
    "six bits alone": (altered(lambda w: w & WORD(0xFC000000)), "distribution"),
}


@pytest.mark.parametrize("law", [UNIFORM, NORMAL], ids=["uniform", "normal"])
@pytest.mark.parametrize(("source", "seen_by"), DEFECTS.values(), ids=DEFECTS)
def test_a_planted_defect_of_words_is_seen(source, seen_by, law):
    assert seen_by in beyond(battery(law, SMALL, source))


@pytest.mark.parametrize(
    ("defect", "seen_by"),
    [
        (lambda z: z + 0.02, "moment 1"),
        (lambda z: z * 1.015, "moment 2"),
        (lambda z: z + 0.02 * (z**2 - 1), "moment 3"),
        (lambda z: z + 0.02 * (z**3 - 3 * z), "moment 4"),
        (lambda z: np.clip(z, -2.8, 2.8), "moment 6"),
        (lambda z: np.where(np.abs(z) < 0.03, 0.03, z), "distribution"),
    ],
    ids=["mean", "spread", "skew", "kurtosis", "cut tails", "hole"],
)
def test_a_planted_defect_of_normals_is_seen(defect, seen_by):
    assert seen_by in beyond(law_scores(NORMAL, defect(NORMAL(words(SMALL)))))


@pytest.mark.parametrize(
    "law", [poisson(0.5), poisson(20.0), binomial(59, 0.1)], ids=["0.5", "20", "59, 0.1"]
)
def test_a_planted_defect_of_counts_is_seen(law):
    """One count in twelve is moved up by one; one count in twelve beside the middle is moved there."""
    counts = np.asarray(law.draw(words(SMALL)), np.float64)
    chosen = words(SMALL, 5) < WORD(2**32 // 12)
    assert "moment 1" in beyond(law_scores(law, (counts + chosen - law.mean) / law.sd))
    middle = np.rint(law.mean)
    narrow = np.where(chosen & (np.abs(counts - middle) == 1), middle, counts)
    assert "distribution" in beyond(law_scores(law, (narrow - law.mean) / law.sd))


@pytest.mark.parametrize(
    ("defect", "seen_by"),
    [
        ("colliding steps", "step"),
        ("colliding clones", "clone"),
        ("one sign in two", "step"),
        ("components collide", "component 1"),
        ("roles collide", "role"),
    ],
)
def test_a_planted_defect_of_pairs_is_seen(defect, seen_by):
    assert seen_by in beyond(pair_scores(SMALL, DEFECTS[defect][0]))
