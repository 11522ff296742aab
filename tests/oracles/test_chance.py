"""Draws of theories are those of ``jax.random``, bit by bit, and a gradient does not draw them again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import chance
from simworlds.keys import key_for


@pytest.fixture(scope="module")
def keys():
    return jax.random.split(key_for("T", 0, "test", "chance"), 400)


DRAWS = {
    "keys": (lambda k: chance.split(k, 3), lambda k: jax.random.split(k, 3)),
    "normals": (lambda k: chance.normal(k, (3, 5)), lambda k: jax.random.normal(k, (3, 5))),
    "a normal": (chance.normal, jax.random.normal),
    "complex normals": (
        lambda k: chance.complex_normal(k, (5, 2)),
        lambda k: jax.random.normal(k, (5, 2), jnp.complex64),
    ),
    "counts": (lambda k: chance.poisson(k, 6, (4,)), lambda k: jax.random.poisson(k, 6, (4,))),
}


def plain(x):
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_has_the_bits_of_jax(name, keys):
    ours, theirs = (plain(jax.jit(jax.vmap(draw))(keys)) for draw in DRAWS[name])
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    assert len(np.unique(ours)) > 10


@pytest.mark.parametrize("mean", [0, -1.0, 10, 50.0])
def test_a_mean_that_products_do_not_reach_is_refused(mean, keys):
    with pytest.raises(ValueError, match=f"`mean` must be above 0 and below 10, but is {mean}"):
        chance.poisson(keys[0], mean)


def test_a_gradient_keeps_the_draws_of_a_step(keys):
    def loss(x, **options):
        step = jax.checkpoint(lambda x: jnp.sin(x * jnp.sum(chance.normal(keys[0], (16,)))), **options)
        return step(x)

    kept, drawn = (
        str(jax.make_jaxpr(jax.grad(lambda x, o=options: loss(x, **o)))(1.0)).count("erf_inv")
        for options in ({"policy": chance.KEEP}, {})
    )
    assert (kept, drawn) == (1, 2)
