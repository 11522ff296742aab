"""Runs under which published values are measured: any parameters, any physical drive, any step."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Measured
from simworlds.integrate import Scheme, advance, begin, cast
from simworlds.keys import Noise, Words, clone_words, role_words
from simworlds.world import World


class Run:
    """Clones of a world under one constant drive, advanced as far as one asks.

    Unlike `simworlds.ensemble.simulate` it takes physical drive values, inside the ports' ranges or not, and
    keeps raw sensors.

    Args:
        world: the family.
        params: parameters, as `World.draw` or `World.limit` gives them.
        drive: physical values by name, such as ``{"K": 2.0, "D": 0.5}``; drives left out are at rest.
        clones: how many.
        label: names the noise; two runs with one label share it.
        dtype: float64 by default, whatever the ambient types.
        scheme: a scheme in place of the world's own, such as ``world.scheme.refined(2)``.
        state: the initial state of one clone; the world's own by default.
    """

    def __init__(
        self,
        world: World,
        params: Any,
        drive: dict[str, float] | None = None,
        *,
        clones: int = 1,
        label: str = "validation",
        dtype: Any = np.float64,
        scheme: Scheme | None = None,
        state: Any = None,
    ):
        self.world = world if scheme is None else with_scheme(world, scheme)
        self._wide = np.dtype(dtype) == np.float64
        self._dtype = dtype
        self._tick = 0
        rest = {d.name: d.physical(d.rest) for d in world.drives}
        unknown = set(drive or {}) - set(rest)
        if unknown:
            raise ValueError(f"there is no drive {', '.join(sorted(unknown))}; there are {', '.join(rest)}")
        self._drive = {**rest, **(drive or {})}
        self._roles = tuple(role_words(world.id, 0, role, label) for role in ("initial", "process"))
        with jax.enable_x64(self._wide):
            self._params = cast(params, dtype)
            given = None if state is None else cast(state, dtype)
            self._carried = _prepare(self.world, self._params, given, self._roles[0], clones, dtype)

    @property
    def state(self) -> Any:
        """The law's state now: arrays whose first axis is the clone."""
        return jax.device_get(jax.vmap(self.world.scheme.seen)(self._carried))

    def drive(self, **values: float) -> None:
        """Change some drives from here on, to physical values."""
        self._drive.update(values)

    def ticks(self, count: int) -> np.ndarray:
        """Advance by some ticks; the tick means of the raw sensors, ``[clone, tick, sensor]``."""
        with jax.enable_x64(self._wide):
            drive = self.world.drive_type(**{k: jnp.asarray(v, self._dtype) for k, v in self._drive.items()})
            self._carried, means = _advance(
                self.world, self._params, self._carried, drive, self._roles[1], self._tick, count
            )
            self._tick += count
            return np.moveaxis(np.asarray(means), 0, 1)


def state_type(world: World) -> Any:
    """The NamedTuple type of a family's states."""
    noise = Noise(Words(jnp.uint32(0), jnp.uint32(0)), jnp.uint32(0))
    return type(jax.eval_shape(lambda: world.initial(jax.tree.map(jnp.asarray, world.limit()), noise)))


def mean_of(values: Any) -> Measured:
    """The mean of independent values with its standard error."""
    flat = np.asarray(values, np.float64).ravel()
    return Measured(float(flat.mean()), float(flat.std(ddof=1) / np.sqrt(flat.size)))


@cache
def with_scheme(world: World, scheme: Scheme, lanes: int | None = None) -> World:
    """The same family with another scheme and, if given, another number of lanes."""
    fields = {"scheme": scheme, "lanes": lanes or world.lanes}
    return type(type(world).__name__, (type(world),), fields)()


@partial(jax.jit, static_argnums=(0, 4, 5))
def _prepare(world: World, params: Any, given: Any, role: Any, clones: int, dtype: Any) -> Any:
    def one(clone: Any) -> Any:
        if given is None:
            return begin(world, params, Noise(clone_words(role, clone), jnp.uint32(0)), dtype)
        return world.scheme.start(world, params, given)

    return jax.vmap(one)(jnp.arange(clones, dtype=jnp.uint32))


@partial(jax.jit, static_argnums=(0, 6))
def _advance(
    world: World, params: Any, carried: Any, drive: Any, role: Any, start: Any, count: int
) -> tuple[Any, Any]:
    clones = jax.tree.leaves(carried)[0].shape[0]
    keys = jax.vmap(partial(clone_words, role))(jnp.arange(clones, dtype=jnp.uint32))
    one = jax.vmap(partial(advance, world), in_axes=(None, 0, None, 0, None))

    def tick(carried: Any, k: Any) -> tuple[Any, Any]:
        carried, means = one(params, carried, drive, keys, jnp.asarray(start + k, jnp.int32))
        return carried, jnp.stack(means, axis=-1)

    return jax.lax.scan(tick, carried, jnp.arange(count))
