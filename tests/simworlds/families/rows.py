"""Runs of a family without noise under many parameters and drives at once, by one compiled program."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from simworlds.integrate import advance
from simworlds.keys import Noise, Words

NO_KEY = Words(jnp.uint32(0), jnp.uint32(0))


class Rows:
    """Runs of `ticks` ticks in float32, padded to `size` rows, so that one compiled program serves all tests.

    Drives are physical values by name; those left out are `calm`, by default at rest. A drive is a number, or
    several, each of which holds for an equal time.
    """

    def __init__(self, world, size, ticks, calm=None):
        self.world, self.size, self.ticks = world, size, ticks
        self.calm = calm or {d.name: d.physical(d.rest) for d in world.drives}

    def __call__(self, *rows):
        """States and raw readings ``[row, tick, sensor]`` of pairs (parameters, drives)."""
        pairs = []
        for params, drive in rows:
            values = {**self.calm, **drive}
            columns = {name: np.repeat(v, self.ticks // np.size(v)) for name, v in values.items()}
            pairs.append((params, self.world.drive_type(**columns)))
        pairs += pairs[-1:] * (self.size - len(pairs))
        stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *pairs)
        return jax.tree.map(lambda x: np.asarray(x)[: len(rows)], _run(self.world, *stacked))


@partial(jax.jit, static_argnums=0)
def _run(world, params, drives):
    def one(params, drives):
        start = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), world.initial(params, Noise(NO_KEY, 0)))

        def tick(state, row):
            number, drive = row
            state, read = advance(world, params, state, drive, NO_KEY, number)
            return state, (state, jnp.stack(read))

        numbers = jnp.arange(len(drives[0]), dtype=jnp.int32)
        return jax.lax.scan(tick, start, (numbers, drives))[1]

    return jax.vmap(one)(params, drives)
