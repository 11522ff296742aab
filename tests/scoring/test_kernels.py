"""Laws that every kernel keeps: batching, vmap, gradients, permutations, dtype, and NaN that never pays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scoring

CLONES = 8


class Case(NamedTuple):
    """Inputs of every kernel, floats first."""

    draws: np.ndarray
    quantiles: np.ndarray
    answer: np.ndarray
    low: np.ndarray
    high: np.ndarray
    tau: np.ndarray
    fraction: np.ndarray
    dynamic_range: np.ndarray
    branch: np.ndarray


def make_case(batch=(), clones=CLONES, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    branch = rng.integers(0, 3, (*batch, clones))
    low = rng.normal(size=batch)
    floats = (
        branch + rng.normal(size=(*batch, clones)),
        np.sort(rng.normal(size=(*batch, 5)), axis=-1),
        rng.normal(size=batch),
        low,
        low + rng.uniform(0.5, 2, batch),
        rng.uniform(0.5, 1, batch),
        rng.uniform(0.03, 0.1, batch),
        rng.uniform(2, 6, batch),
    )
    return Case(*(np.asarray(value, np.float32).astype(dtype) for value in floats), branch)


def scale_of(case):
    return scoring.contract_scale(case.tau, case.fraction, case.dynamic_range)


def score_and_floor(case):
    return scoring.quantile_score(case.quantiles, case.draws), scoring.fair_floor(case.draws)


def levels_of(case):
    return jnp.broadcast_to(jnp.asarray(scoring.LEVELS, case.quantiles.dtype), case.quantiles.shape)


EARNING = {
    "accuracy": lambda c: scoring.accuracy(*score_and_floor(c), scale_of(c)),
    "legacy_accuracy": lambda c: scoring.legacy_accuracy(c.answer, c.draws, scale_of(c)),
    "interval_score": lambda c: scoring.interval_score(c.low, c.high, c.draws, scale_of(c)),
    "leave_one_out_accuracy": lambda c: scoring.leave_one_out_accuracy(c.quantiles, c.draws, scale_of(c)),
    "replication_expectation": lambda c: scoring.replication_expectation(c.draws, scale_of(c)),
}
REGRET = {
    "excess": lambda c: scoring.excess(*score_and_floor(c), scale_of(c)),
    "missing_excess": lambda c: scoring.missing_excess(
        c.dynamic_range, scoring.fair_floor(c.draws), scale_of(c)
    ),
}
KERNELS = {
    **EARNING,
    **REGRET,
    "coverage": lambda c: scoring.coverage(c.low, c.high, c.draws),
    "pit_shares": lambda c: scoring.pit_shares(c.quantiles, c.draws),
    "crps_quantiles": lambda c: scoring.crps_quantiles(c.quantiles, c.answer, levels_of(c)),
    "crps_grid": lambda c: scoring.crps_grid(c.quantiles, c.answer, levels_of(c)),
    "crps_samples": lambda c: scoring.crps_samples(c.draws, c.answer),
    "crps_samples_plain": lambda c: scoring.crps_samples(c.draws, c.answer, fair=False),
    "crps_normal": lambda c: scoring.crps_normal(c.answer, c.tau, c.low),
    "ended_in_band": lambda c: scoring.ended_in_band(c.draws, c.low, c.high),
    "pinball_loss": lambda c: scoring.pinball_loss(c.low, c.high, c.fraction),
    "quantile_score": lambda c: scoring.quantile_score(c.quantiles, c.draws),
    "fair_floor": lambda c: scoring.fair_floor(c.draws),
    "within_branch_spread": lambda c: scoring.within_branch_spread(c.draws, c.branch),
    "total_spread": lambda c: scoring.total_spread(c.draws),
    "contract_scale": scale_of,
    "interval_width": lambda c: scoring.interval_width(c.low, c.high, c.draws),
    "inverted_cdf": lambda c: scoring.inverted_cdf(c.draws),
    "branch_count": lambda c: scoring.branch_count(c.branch),
}
USES = {
    "accuracy": ("draws", "quantiles", "tau", "fraction", "dynamic_range"),
    "legacy_accuracy": ("draws", "answer", "tau", "fraction", "dynamic_range"),
    "interval_score": ("draws", "low", "high", "tau", "fraction", "dynamic_range"),
    "leave_one_out_accuracy": ("draws", "quantiles", "tau", "fraction", "dynamic_range"),
    "replication_expectation": ("draws", "tau", "fraction", "dynamic_range"),
    "excess": ("draws", "quantiles", "tau", "fraction", "dynamic_range"),
    "missing_excess": ("draws", "tau", "fraction", "dynamic_range"),
}
JITTED = {name: jax.jit(kernel) for name, kernel in KERNELS.items()}
each_kernel = pytest.mark.parametrize("name", KERNELS)


def item(case, index):
    return Case(*(leaf[index] for leaf in case))


@each_kernel
@pytest.mark.parametrize("batch", [(CLONES,), (2, CLONES)])
def test_a_batch_equals_its_items(name, batch):
    """A batch axis as long as the member axis is where an axis that is mixed up would go unseen."""
    case = make_case(batch)
    together = np.asarray(KERNELS[name](case))
    for index in np.ndindex(batch):
        alone = np.asarray(JITTED[name](item(case, index)))
        assert alone.shape == together.shape[len(batch) :]
        np.testing.assert_allclose(together[index], alone, rtol=1e-13)


@each_kernel
def test_vmap_equals_batch(name):
    case = make_case((CLONES,))
    np.testing.assert_allclose(jax.vmap(KERNELS[name])(case), KERNELS[name](case), rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "clones"),
    [(name, CLONES) for name in KERNELS if name != "branch_count"]
    + [("fair_floor", 20), ("within_branch_spread", 20)],
)
def test_gradients_are_finite(name, clones):
    """The second item has identical draws and a perfect answer, where roots and ties are."""
    case = make_case((2,), clones)
    for leaf in (case.draws, case.quantiles, case.answer):
        leaf[1] = 0.3

    def value(floats):
        return jnp.sum(KERNELS[name](Case(*floats, case.branch)))

    gradients = jax.jit(jax.grad(value))(tuple(case[:-1]))
    assert all(np.isfinite(leaf).all() for leaf in gradients)


def test_gradients_match_differences():
    case = make_case(())
    for name in ("accuracy", "excess", "interval_score", "within_branch_spread", "replication_expectation"):

        def value(draws, kernel=KERNELS[name]):
            return kernel(case._replace(draws=draws))

        gradient = jax.jit(jax.grad(value))(case.draws)
        moves = 1e-6 * np.eye(CLONES)
        values = jax.jit(jax.vmap(value))
        slopes = (values(case.draws + moves) - values(case.draws - moves)) / 2e-6
        np.testing.assert_allclose(gradient, slopes, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    ("name", "clones"),
    [(name, CLONES) for name in KERNELS] + [("fair_floor", 20), ("within_branch_spread", 20)],
)
def test_the_order_of_draws_does_not_matter(name, clones):
    case = make_case((3,), clones)
    order = np.random.default_rng(1).permutation(clones)
    shuffled = case._replace(draws=case.draws[:, order], branch=case.branch[:, order])
    np.testing.assert_allclose(KERNELS[name](shuffled), KERNELS[name](case), rtol=1e-13)


@each_kernel
def test_float32_stays_float32_and_close(name):
    wide, narrow = make_case((50,)), make_case((50,), dtype=np.float32)
    result = KERNELS[name](narrow)
    assert result.dtype in (np.float32, np.int32)
    np.testing.assert_allclose(result, KERNELS[name](wide), rtol=1e-5, atol=1e-5)


@each_kernel
def test_runs_without_64_bit_types(name):
    with jax.enable_x64(False):
        result = KERNELS[name](make_case((50,), dtype=np.float32))
        assert result.dtype in (np.float32, np.int32)
    np.testing.assert_allclose(result, KERNELS[name](make_case((50,))), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*EARNING, *REGRET])
@settings(max_examples=30)
@given(data=st.data(), seed=st.integers(0, 100))
def test_nothing_that_is_not_finite_ever_pays(name, data, seed):
    """The spoilt item earns exactly 0, or costs +inf; its neighbours keep their scores."""
    case = make_case((4,), seed=seed)
    field = data.draw(st.sampled_from(USES[name]))
    spoilt = getattr(case, field).copy()
    flat = spoilt.reshape(4, -1)
    place = data.draw(st.integers(0, flat.shape[1] - 1))
    flat[1, place] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    clean, result = (np.asarray(JITTED[name](each)) for each in (case, case._replace(**{field: spoilt})))
    assert result[1] == (0 if name in EARNING else np.inf)
    np.testing.assert_array_equal(np.delete(result, 1), np.delete(clean, 1))


@pytest.mark.parametrize("name", EARNING)
@settings(max_examples=50)
@given(seed=st.integers(0, 1000), size=st.sampled_from([1e-300, 1e-9, 1.0, 1e9, 1e300]))
def test_no_finite_input_earns_more_than_one(name, seed, size):
    case = make_case((4,), seed=seed)
    scaled = Case(*(leaf * size for leaf in case[:-1]), case.branch)
    result = np.asarray(JITTED[name](scaled))
    assert ((result >= 0) & (result <= 1)).all()
