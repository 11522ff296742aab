"""Addressed randomness: the generator's layout, its addresses, and the exact laws of what is drawn.

Statistical assertions stand at fixed addresses. Each holds a score in units of its standard error against
`LIMIT`, the two-sided point of alpha = 1e-6, and a planted defect shows that it can fail. Discrete laws are
functions of one uniform number of 2^23 values, so their law is enumerated and no statistics are needed. The
statistics of drawn numbers are in `test_random_laws.py`.
"""

import inspect
import json
import subprocess
import sys
from itertools import pairwise, permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats
from scipy.special import ndtri

from simworlds.catalogue import worlds
from simworlds.keys import (
    INVERSION_MEAN,
    Draws,
    Noise,
    Words,
    binomial_from,
    bits,
    clone_words,
    key_for,
    normal_from,
    normal_quantile,
    poisson_from,
    role_words,
    threefry2x32,
    typed_key,
    unit_interval,
)

ALPHA = 1e-6
LIMIT = stats.norm.isf(ALPHA / 2)  # 4.89 standard errors
WORD = np.uint32

ROLE = role_words("B2", 0, "truth", 3)


def words(high, low):
    return Words(WORD(high), WORD(low))


def as_ints(pair):
    return tuple(int(x) for x in pair)


# The layout


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_meets_the_known_answers_of_its_authors(key, counter, expected):
    assert as_ints(threefry2x32(words(*key), words(*counter))) == expected


def test_words_are_those_frozen_in_the_first_version():
    clone = clone_words(ROLE, WORD(5))
    assert as_ints(ROLE) == (0x6966BA21, 0x5FD1671F)
    assert as_ints(role_words("C2", "sealed", "sensor")) == (0xC437910D, 0x3D477DA1)
    assert as_ints(clone) == (0x0FB3F628, 0xD47117D0)
    frozen = {(0, 0): 0x4146941B, (0, 1): 0x9DE443EE, (7, 0): 0x26094C39, (5119, 3): 0xE479A923}
    assert {at: int(bits(clone, WORD(at[0]), WORD(at[1]))) for at in frozen} == frozen
    assert float(normal_from(bits(clone, WORD(0), WORD(0)))) == pytest.approx(-0.6588899, abs=1e-6)
    expected = [0.6654037734260783, 0.2547811846015975, 0.8629166929749772]
    assert Draws.for_role("D4", 1, "contracts").unit(3).tolist() == expected


@pytest.mark.parametrize("address", [("B2", 0, "truth", 3), ("C2", "sealed", "sensor"), ("A4", 2**62, "x")])
def test_bits_at_step_0_are_those_of_jax(address):
    ours = bits(role_words(*address), np.zeros(1000, WORD), np.arange(1000, dtype=WORD))
    np.testing.assert_array_equal(ours, jax.random.bits(key_for(*address), (1000,)))


ADDRESSES = np.array(
    [(0, 0), (0, 1), (1, 0), (7, 3), (255, 2**31), (5119, 4), (2**31, 9), (2**32 - 1, 2**32 - 1)], WORD
)


@pytest.mark.parametrize("clone", [0, 3, 2**32 - 1])
@pytest.mark.parametrize("wide", [False, True], ids=["x32", "x64"])
def test_bits_at_any_address_are_those_of_the_generator_of_jax(wide, clone):
    """On the host and on the device, inside and outside of jit, at the counter (step, component)."""
    more = bits(ROLE, WORD(1), np.arange(2000, dtype=WORD)).reshape(1000, 2)
    step, component = np.concatenate([ADDRESSES, more]).T
    key = clone_words(ROLE, WORD(clone))
    with jax.enable_x64(wide):
        key_data = jax.random.key_data(typed_key(key))
        counter = jnp.concatenate([jnp.asarray(step), jnp.asarray(component)])
        high, low = jnp.split(threefry_2x32(key_data, counter), 2)
        on_device = jax.tree.map(jnp.uint32, key)
        found = {
            "host": bits(key, step, component),
            "device": bits(on_device, jnp.asarray(step), jnp.asarray(component)),
            "jit": jax.jit(bits)(on_device, step, component),
            "vmap": jax.jit(jax.vmap(bits, (None, 0, 0)))(on_device, step, component),
        }
    for name, word in found.items():
        assert word.dtype == WORD, name
        np.testing.assert_array_equal(word, np.asarray(high ^ low), err_msg=name)
    swapped = bits(key, component, step)
    assert not np.array_equal(swapped, found["host"])


def test_draws_are_those_of_jax_for_the_same_words():
    """Uniforms are the cell's centre where jax takes its lower edge, half of 2^-23 below."""
    key, at = key_for("B2", 0, "truth"), np.arange(1000, dtype=WORD)
    word = bits(role_words("B2", 0, "truth"), WORD(0), at)
    below = np.asarray(unit_interval(word)) - np.asarray(jax.random.uniform(key, (1000,)))
    assert set(below) == {np.float32(2.0**-24)}
    np.testing.assert_allclose(normal_from(word), jax.random.normal(key, (1000,)), atol=1e-4)


@pytest.mark.parametrize("clone", [0, 1, 5, 2**31, 2**32 - 1])
def test_a_clone_key_is_fold_in_of_the_role_key(clone):
    folded = jax.random.key_data(jax.random.fold_in(typed_key(ROLE), WORD(clone)))
    assert as_ints(clone_words(ROLE, WORD(clone))) == as_ints(folded)
    assert as_ints(clone_words(ROLE, clone)) == as_ints(folded)


def test_numpy_and_jax_share_one_stream():
    at = np.arange(64, dtype=WORD)
    host = bits(clone_words(ROLE, at), at[::-1], at % WORD(3))
    traced = jax.jit(lambda n: bits(clone_words(ROLE, n), n[::-1], n % WORD(3)))(jnp.asarray(at))
    np.testing.assert_array_equal(host, traced)


def test_a_clone_number_of_another_dtype_gives_the_same_key():
    expected = clone_words(ROLE, np.arange(4, dtype=WORD))
    for dtype in (np.int32, np.int64):
        found = clone_words(ROLE, np.arange(4, dtype=dtype))
        np.testing.assert_array_equal(np.stack(found), np.stack(expected))


# Addresses


def test_no_two_addresses_collide():
    names = [world.id for world in worlds()]
    roles = ("instance", "initial", "process", "sensor", "contracts", "truth", "calibration", "exploration")
    addresses = {
        (world, seed, role, *index)
        for world in names
        for seed in (*range(40), "0", "1", "sealed")
        for role in roles
        for index in ((), *((k,) for k in range(20)), ("0",), ("truth", 1), ("truth", 11), (1, 1))
    }
    found = {as_ints(role_words(*address)) for address in addresses}
    assert len(addresses) == len(names) * 43 * 8 * 25
    assert len(found) == len(addresses)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("B2", 1, "truth", 11), ("B2", 11, "truth", 1)),
        (("B2", 1, "truth"), ("B2", "1", "truth")),
        (("B2", 1, "truth", 12), ("B2", 1, "truth", 1, 2)),
        (("B2", 1, "a,b"), ("B2", 1, "a", "b")),
        (("B2", 1, 'a","b'), ("B2", 1, "a", "b")),
    ],
)
def test_the_parts_of_an_address_keep_their_borders(one, other):
    assert as_ints(role_words(*one)) != as_ints(role_words(*other))


@pytest.mark.parametrize("part", [1.0, True, None, (1,), b"x", np.float32(1)])
def test_an_address_refuses_whatever_has_no_stable_text(part):
    unchecked = inspect.unwrap(role_words)  # as users run it: types are checked in tests alone
    with pytest.raises(TypeError, match="an address holds integers and strings only"):
        unchecked("B2", 0, "truth", part)


def test_a_hash_seed_of_the_process_changes_nothing():
    code = "from simworlds.keys import role_words; print([int(x) for x in role_words('B2', 0, 'truth', 3)])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == list(as_ints(ROLE))


def agreement(one, other):
    """Bits on which two arrays of words agree, less half of them, in standard errors."""
    different = np.bitwise_count(one ^ other).sum()
    total = 32 * one.size
    return (total / 2 - different) / np.sqrt(total / 4)


def test_neighbouring_addresses_are_independent():
    at = np.arange(10_000, dtype=WORD)
    base = bits(ROLE, WORD(0), at)
    others = {
        "seed": role_words("B2", 1, "truth", 3),
        "world": role_words("B1", 0, "truth", 3),
        "role": role_words("B2", 0, "process", 3),
        "index": role_words("B2", 0, "truth", 4),
        "clone 0": clone_words(ROLE, WORD(0)),
    }
    scores = {name: agreement(base, bits(key, WORD(0), at)) for name, key in others.items()}
    scores["next step"] = agreement(base, bits(ROLE, WORD(1), at))
    scores["next component"] = agreement(base[:-1], base[1:])
    clones = [bits(clone_words(ROLE, WORD(k)), WORD(0), at) for k in range(2)]
    scores["next clone"] = agreement(*clones)
    assert {name: score for name, score in scores.items() if abs(score) > LIMIT} == {}


def test_the_agreement_score_sees_a_shared_word_in_a_thousand():
    at = np.arange(10_000, dtype=WORD)
    one, other = bits(ROLE, WORD(0), at), bits(ROLE, WORD(1), at)
    other[::50] = one[::50]  # a fiftieth; the detectable share is LIMIT / sqrt(320 000), 0.9 %
    assert abs(agreement(one, other)) > LIMIT


# Uniforms


def test_uniforms_lie_inside_the_interval_and_mirror_each_other():
    edge = np.array([0, 1, 511, 512, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], WORD)
    word = np.concatenate([edge, bits(ROLE, WORD(0), np.arange(10_000, dtype=WORD))])
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            u, mirrored = (np.asarray(unit_interval(w, dtype)) for w in (word, ~word))
            assert u.dtype == dtype
            assert u.min() > 0
            assert u.max() < 1
            np.testing.assert_array_equal(u + mirrored, np.ones_like(u))
            np.testing.assert_array_equal(normal_from(word, dtype), -np.asarray(normal_from(~word, dtype)))
            assert np.isfinite(normal_from(word, dtype)).all()


def test_the_two_precisions_agree():
    word = bits(ROLE, WORD(0), np.arange(100_000, dtype=WORD))
    single = np.asarray(unit_interval(word, np.float32), np.float64)
    with jax.enable_x64(True):
        double = np.asarray(unit_interval(word, np.float64))
    assert np.abs(single - double).max() < 2.0**-24


def test_noise_is_addressed_by_step_and_component():
    key = clone_words(ROLE, WORD(2))
    at = np.arange(6, dtype=WORD)
    whole = Noise(key, WORD(9)).normal(at)
    assert [float(Noise(key, WORD(9)).normal(k)) for k in at] == np.asarray(whole).tolist()
    expected = unit_interval(bits(key, WORD(9), at))
    np.testing.assert_array_equal(Noise(key, WORD(9)).uniform(at), expected)


# Laws, enumerated

CELLS = 2**23


@pytest.fixture(scope="module")
def every_uniform():
    """All float32 numbers that `unit_interval` can give."""
    return unit_interval(np.arange(CELLS, dtype=WORD) << WORD(9))


def error_of_quantile(z, uniform):
    """The largest relative error of normal quantiles."""
    true = ndtri(np.asarray(uniform, np.float64))
    return float(np.abs(np.asarray(z, np.float64) / true - 1).max())


def test_the_normal_quantile_is_right_at_every_uniform(every_uniform):
    z = normal_quantile(every_uniform)
    assert error_of_quantile(z, every_uniform) < 3e-7
    assert (np.diff(z) > 0).all()
    np.testing.assert_array_equal(z, -np.asarray(z)[::-1])
    by_erfinv = jnp.float32(np.sqrt(2)) * jax.scipy.special.erfinv(2 * every_uniform - 1)
    assert error_of_quantile(by_erfinv, every_uniform) > 3e-6


def test_the_normal_quantile_is_right_in_double_precision():
    with jax.enable_x64(True):
        u = unit_interval(bits(ROLE, WORD(0), np.arange(100_000, dtype=WORD)), np.float64)
        assert error_of_quantile(normal_quantile(u), u) < 1e-12


def errors_of(counts, law):
    """How far the law of a count, enumerated over all uniforms, is from scipy's frozen one."""
    share = np.bincount(np.asarray(counts, np.int64)) / len(counts)
    k = np.arange(len(share))
    mean, variance = float(share @ k), float(share @ (k - share @ k) ** 2)
    skew = float(share @ (k - mean) ** 3) / variance**1.5
    true_mean, true_variance, true_skew = (float(x) for x in law.stats("mvs"))
    return {
        "distribution": float(np.abs(np.cumsum(share) - law.cdf(k)).max()),
        "mean": abs(mean - true_mean) / np.sqrt(true_variance),
        "variance": abs(variance / true_variance - 1),
        "skew": abs(skew - true_skew),
    }


# Inversion errs by the rounding of float32 and by the width of a cell, which cut a far tail;
# the expansion of the quantile by its higher orders, most where it takes over.
EXACT = {"distribution": 1e-6, "mean": 1e-5, "variance": 1e-4, "skew": 1e-3}
EXPANDED = {"distribution": 1.5e-4, "mean": 5e-5, "variance": 3e-4, "skew": 1e-3}


def beyond(errors, limits):
    return {name: error for name, error in errors.items() if error > limits[name]}


_poisson, _binomial = jax.jit(poisson_from), jax.jit(binomial_from)


@pytest.mark.parametrize("mean", [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 6.0, 6.001, 8.0, 15.0, 50.0, 200.0])
def test_poisson_has_its_law(every_uniform, mean):
    counts = _poisson(every_uniform, jnp.float32(mean))
    assert beyond(errors_of(counts, stats.poisson(mean)), EXACT if mean <= INVERSION_MEAN else EXPANDED) == {}


@pytest.mark.parametrize(
    ("trials", "probability"),
    [
        (1, 0.5),
        (3, 0.01),
        (12, 0.5),
        (13, 0.5),
        (20, 0.31),
        (30, 0.2),
        (30, 0.8),
        (200, 0.01),
        (200, 0.031),
        (200, 0.99),
        (600, 0.05),
        (1000, 0.7),
        (5000, 0.999),
    ],
)
def test_binomial_has_its_law(every_uniform, trials, probability):
    counts = _binomial(every_uniform, jnp.float32(trials), jnp.float32(probability))
    exact = trials * min(probability, 1 - probability) <= INVERSION_MEAN
    # The law of the probability that float32 holds: 0.999 leaves 1 - p with an error of 3e-5.
    law = stats.binom(trials, float(np.float32(probability)))
    assert beyond(errors_of(counts, law), EXACT if exact else EXPANDED) == {}
    assert int(counts.min()) >= 0
    assert int(counts.max()) <= trials


def test_a_planted_defect_of_counts_is_seen(every_uniform):
    law = stats.poisson(8)
    rounded = jax.jit(lambda u: jnp.maximum(jnp.round(8 + 8**0.5 * jax.scipy.special.ndtri(u)), 0))
    plain_normal = rounded(every_uniform)
    assert set(beyond(errors_of(plain_normal, law), EXPANDED)) >= {"distribution", "variance", "skew"}
    jumping = _poisson(every_uniform, jnp.float32(1)).at[-2:].set(24)
    assert set(beyond(errors_of(jumping, stats.poisson(1)), EXACT)) >= {"variance"}


@pytest.mark.parametrize(("low", "high"), [(1e-4, 0.01), (0.01, 0.1), (0.1, 1.0), (1.0, 6.0)])
def test_the_last_uniforms_give_no_jump(every_uniform, low, high):
    # A sum in float32 may end below the largest uniforms: the count must not run on to the last term.
    means = np.linspace(low, high, 10_000, dtype=np.float32)[:, None]
    top = every_uniform[None, -8:]
    counts = np.asarray(_poisson(top, means))
    true = stats.poisson.ppf(np.asarray(top, np.float64), means.astype(np.float64))
    furthest = float(np.abs(counts - true).max())
    assert furthest <= 2


def test_the_last_uniforms_give_no_jump_in_binomials(every_uniform):
    trials = np.arange(1, 400, dtype=np.float32)[:, None, None]
    chance = (np.linspace(0.02, 1, 50, dtype=np.float32)[:, None] * 6 / trials).clip(0, 0.5)
    top = every_uniform[None, None, -8:]
    counts = np.asarray(_binomial(top, trials, chance))
    true = stats.binom.ppf(*(np.asarray(x, np.float64) for x in (top, trials, chance)))
    furthest = float(np.abs(counts - true).max())
    assert furthest <= 3


@pytest.mark.parametrize(
    ("trials", "probability", "expected"),
    [(0, 0.3, 0), (0, 1.0, 0), (7, 0.0, 0), (7, 1.0, 7), (900, 1.0, 900)],
)
def test_a_binomial_without_chance_is_a_number(trials, probability, expected):
    u = jnp.asarray([2.0**-24, 0.25, 0.5, 0.75, 1 - 2.0**-24], jnp.float32)
    assert set(np.asarray(_binomial(u, jnp.float32(trials), jnp.float32(probability)))) == {expected}


def test_a_poisson_of_mean_0_is_0():
    u = jnp.asarray([2.0**-24, 0.5, 1 - 2.0**-24], jnp.float32)
    assert set(np.asarray(_poisson(u, jnp.float32(0)))) == {0}


def test_counts_grow_with_the_uniform(every_uniform):
    few = every_uniform[:: CELLS // 4096]
    for mean in (0.3, 5.9, 6.1, 40.0):
        assert (np.diff(_poisson(few, jnp.float32(mean))) >= 0).all()


# Draws on the host


def draws(name="test"):
    return Draws.for_role("B2", 0, name)


def test_draws_do_not_depend_on_how_they_are_asked_for():
    whole = draws().unit(1000)
    one, parts = draws(), draws()
    assert [one.unit(1)[0] for _ in range(1000)] == whole.tolist()
    cut = [parts.unit(n) for n in (1, 254, 3, 0, 255, 300, 187)]  # across the borders of blocks of 256
    np.testing.assert_array_equal(np.concatenate(cut), whole)
    np.testing.assert_array_equal(draws().unit(700), whole[:700])


def test_draws_are_words_at_successive_components():
    word = bits(role_words("B2", 0, "test"), WORD(0), np.arange(600, dtype=WORD))
    np.testing.assert_array_equal(draws().unit(600), (word + 0.5) / 2**32)


def test_other_roles_give_other_draws():
    sequences = [draws(name).unit(4).tolist() for name in ("a", "b", "c")]
    assert all(one != other for one, other in pairwise(sequences))


def ks_score(sample, law):
    return stats.kstest(sample, law.cdf).statistic * np.sqrt(len(sample)) / stats.kstwobign.isf(ALPHA)


def test_continuous_draws_have_their_laws():
    n, d = 20_000, draws("laws")
    samples = {
        "uniform": ([d.uniform(-2, 3) for _ in range(n)], stats.uniform(-2, 5)),
        "log uniform": ([d.log_uniform(0.1, 100) for _ in range(n)], stats.loguniform(0.1, 100)),
        "normal": ([d.normal(2, 0.5) for _ in range(n)], stats.norm(2, 0.5)),
    }
    assert {k: s for k, (x, law) in samples.items() if (s := ks_score(x, law)) > 1} == {}
    assert ks_score(samples["uniform"][0], stats.uniform(-2, 5.3)) > 1


def chi_square(sample, shares):
    """The p-value of a sample of labels against their shares."""
    found = [sum(x == label for x in sample) for label in shares]
    assert sum(found) == len(sample), "a label that has no share was drawn"
    return stats.chisquare(found, np.array(list(shares.values())) * len(sample)).pvalue


def test_discrete_draws_have_their_laws():
    n, d = 12_000, draws("labels")
    cases = {
        "integer": ([d.integer(-1, 4) for _ in range(n)], dict.fromkeys(range(-1, 5), 1 / 6)),
        "choice": ([d.choice("abc") for _ in range(n)], dict.fromkeys("abc", 1 / 3)),
        "weights": ([d.choice("abc", (1, 0, 3)) for _ in range(n)], {"a": 0.25, "c": 0.75}),
        "chance": ([d.chance(0.3) for _ in range(n)], {True: 0.3, False: 0.7}),
        "order": (
            [tuple(d.permutation(4)) for _ in range(n)],
            dict.fromkeys(permutations(range(4)), 1 / 24),
        ),
    }
    assert {k: p for k, (sample, shares) in cases.items() if (p := chi_square(sample, shares)) < ALPHA} == {}
    sample = cases["integer"][0]
    assert chi_square(sample, {-1: 0.2} | dict.fromkeys(range(5), 0.16)) < ALPHA


def test_degenerate_draws():
    d = draws()
    assert d.integer(3, 3) == 3
    assert d.choice(["only"]) == "only"
    assert d.permutation(1) == [0]
    assert d.permutation(0) == []
    assert not d.chance(0)
    assert d.chance(1)
    assert d.unit(0).shape == (0,)
