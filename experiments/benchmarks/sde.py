"""SDE ensembles against C on the same stream, numba, and `jax.random` a path: a noisy double well.

Ours is `measure` on an `SdeWorld`: stochastic Heun, two normals a step, each addressed by (clone, step,
component). C and numba draw the same numbers from the same addresses. The rival that users write first is a
scan under `vmap` with ``jax.random.normal(jax.random.fold_in(key, step), (2,))`` for each path, here sharded
over the same devices, without sensors or statistics.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.benchmarks.harness import Party, Row, Tell
from experiments.benchmarks.laws import DoubleWell, Pair, bench_instance
from experiments.benchmarks.ode import Case, against_c, race_case, times_faster
from simworlds.integrate.continuous import kicked, kicks
from simworlds.integrate.scheme import shift
from simworlds.keys import key_for

NAME = "sde"
TITLE = "SDE ensembles against C on the same stream"

CASE = Case("SDE, addressed noise", "sde.c", "double_well", DoubleWell(), 0.5, 0.5, 1e-3, 1.5)
PER_PATH = "jax.random a path"
FASTER_THAN_PER_PATH = 5.0


def per_path(clones: int) -> Callable[[], Any]:
    """The double well with `jax.random` keys folded a path and a step; returns the final states."""
    world = DoubleWell()
    params = bench_instance(world).params
    drive = world.physical(jnp.float32([CASE.lively]))
    dt, steps = world.scheme.dt, world.horizon * world.scheme.substeps

    def step(state: Any, key: Any, number: Any) -> Any:
        z = jax.random.normal(jax.random.fold_in(key, number), (2,))
        kick = kicks(world.diffusion(state, drive, params), [z[0], z[1]], dt)
        slope = world.drift(state, drive, params)
        ahead = world.drift(kicked(shift(state, dt, slope), kick), drive, params)
        return kicked(jax.tree.map(lambda x, a, b: x + dt / 2 * (a + b), state, slope, ahead), kick)

    @jax.jit
    def run(keys: Any) -> Any:
        start = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, steps), (2,)))(keys)
        state = Pair(start[:, 0], start[:, 1])
        body = jax.vmap(step, in_axes=(0, 0, None))
        return jax.lax.fori_loop(0, steps, lambda number, state: body(state, keys, number), state)

    sharding = NamedSharding(Mesh(np.array(jax.local_devices()), ("path",)), PartitionSpec("path"))
    keys = jax.random.split(key_for("benchmark", 0, "per path"), clones)
    placed = jax.device_put(keys, sharding) if clones % len(jax.local_devices()) == 0 else keys
    return lambda: jax.block_until_ready(run(placed))


def rows(quick: bool, tell: Tell) -> list[Row]:
    """The double well against C, numba and per-path `jax.random`."""
    tell(f"{CASE.name}: compiling and racing")
    clones = 2_048 if quick else 10_000
    rival = Party(PER_PATH, per_path(clones))
    found = race_case(CASE, clones=clones, repeats=3 if quick else 7, more={PER_PATH: rival})
    name = f"{CASE.name}, against {PER_PATH}"
    return [against_c(CASE, found), times_faster(name, PER_PATH, FASTER_THAN_PER_PATH, found)]
