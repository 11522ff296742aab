"""Loops compiled into one function: the same results, and what cannot be is compiled as ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.compiled import as_one

X = np.linspace(0.1, 1, 128, dtype=np.float32)
MARK = 'xla_cpu_small_call = "true"'


def logistic_map(x):
    return jax.lax.fori_loop(0, 50, lambda _, y: 3.7 * y * (1 - y), x)


def text(function):
    return jax.jit(lambda x: as_one(function, x)).lower(X).as_text()


def test_a_loop_is_marked_and_gives_the_same():
    assert np.array_equal(jax.jit(lambda x: as_one(logistic_map, x))(X), jax.jit(logistic_map)(X))
    assert (MARK in text(logistic_map)) == (jax.default_backend() == "cpu")


def test_trees_and_outer_values_are_carried_through():
    def program(x, slope):
        return as_one(lambda a, b: {"sum": a["x"] * slope + b, "same": b}, {"x": x}, x)

    found = jax.jit(program)(X, np.float32(2))
    assert np.array_equal(found["sum"], 3 * X)
    assert np.array_equal(found["same"], X)


@pytest.mark.parametrize(
    "function",
    [
        jnp.sort,
        lambda x: x.at[jnp.arange(128) % 7].add(x),
        lambda x: jnp.sum(jnp.outer(x, x), axis=0),
        lambda x: jnp.linalg.solve(jnp.outer(x, x) + jnp.eye(128), x),
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y + jnp.sum(y), x),
    ],
    ids=["sort", "scatter", "sum", "solve", "sum in a loop"],
)
def test_what_goes_through_libraries_is_not_marked(function):
    assert MARK not in text(function)
    assert np.array_equal(jax.jit(lambda x: as_one(function, x))(X), jax.jit(function)(X))
