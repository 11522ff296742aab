"""What every scheme is: a step of a fixed length, and how steps make a tick of readings."""

import abc
import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from simworlds.errors import UnsupportedLaw
from simworlds.keys import Noise, Words

State = Any
Params = Any


def shift(state: State, factor: float, slope: State) -> State:
    """``state + factor * slope``, leaf by leaf."""
    return jax.tree.map(lambda x, v: x + factor * v, state, slope)


@dataclasses.dataclass(frozen=True)
class Scheme(abc.ABC):
    """A fixed-step scheme: the step's length and how many of them make a tick.

    A scheme may carry more than the law's state from step to step, such as a delayed past: `start` makes what
    it carries, `seen` gives the law's state in it.

    Attributes:
        dt: the step, in the world's time units.
        substeps: steps a tick.
        smooth: whether derivatives of a trajectory are those of its statistics.
    """

    dt: float
    substeps: int
    smooth: ClassVar[bool] = True

    @property
    def tick_time(self) -> float:
        """The length of a tick in the world's time units."""
        return self.dt * self.substeps

    def refined(self, factor: int) -> "Scheme":
        """The same scheme with a step that is `factor` times shorter and the same tick."""
        return dataclasses.replace(self, dt=self.dt / factor, substeps=self.substeps * factor)

    def start(self, law: Any, params: Params, state: State) -> Any:
        """What the scheme carries, from the law's initial state."""
        del law, params
        return state

    def seen(self, carried: Any) -> State:
        """The law's state in what the scheme carries."""
        return carried

    def wrap(self, law: Any, carried: Any) -> Any:
        """What is carried, with the law's angles brought back to one turn."""
        return law.wrap(carried)

    def randoms(self, law: Any, params: Params, carried: Any, drive: Any, noise: Noise) -> Any:
        """What a step needs beside the state: its random numbers, or its number ``noise.step``.

        The values depend on the noise's address alone.
        """
        del law, params, carried, drive, noise
        return ()

    @abc.abstractmethod
    def step(self, law: Any, params: Params, carried: Any, drive: Any, randoms: Any) -> Any:
        """Advance one clone by one step under constant drives."""

    def tick(
        self, law: Any, params: Params, carried: Any, drive: Any, key: Words, tick: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        """Advance one clone by one tick.

        Returns:
            What is carried at the tick's end, and the tick's mean of each sensor (trapezoidal rule over the
            steps).
        """

        def read(carried: Any) -> tuple[Any, ...]:
            return law.read(self.seen(carried), drive, params)

        def randoms(k: Any, carried: Any) -> Any:
            noise = Noise(key, (tick * self.substeps + k).astype(jnp.uint32))
            return self.randoms(law, params, carried, drive, noise)

        def body(k: Any, carry: Any) -> Any:
            carried, total, now = carry
            # The next step's numbers are made here and carried: a carried buffer is written once, where the
            # compiler would otherwise compute them again for each of their uses.
            later = randoms(k + 1, carried)
            carried = self.step(law, params, carried, drive, now)
            total = tuple(a + b for a, b in zip(total, read(carried), strict=True))
            return carried, total, later

        first = read(carried)
        zeros = tuple(jnp.zeros_like(x) for x in first)
        carry = carried, zeros, randoms(jnp.int32(0), carried)
        carried, total, _ = jax.lax.fori_loop(0, self.substeps, body, carry)
        last = read(carried)
        mean = tuple((s + (a - b) / 2) / self.substeps for s, a, b in zip(total, first, last, strict=True))
        return carried, mean


def cast(tree: Any, dtype: Any) -> Any:
    """The numbers of a tree in a dtype; packed bits (unsigned integers) stay as they are."""

    def one(x: Any) -> Any:
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else x.astype(dtype)

    return jax.tree.map(one, tree)


def begin(law: Any, params: Params, noise: Noise, dtype: Any, nudge: Any = None) -> Any:
    """What the law's scheme carries at the start of one clone, its numbers in a dtype.

    Args:
        law: the family.
        params: its parameters.
        noise: of the initial state.
        dtype: of all numbers but packed bits.
        nudge: moves each number x of the initial state by ``nudge |x|``, or by `nudge` where x is 0.
    """
    state = cast(law.initial(params, noise), dtype)
    if nudge is not None:
        state = jax.tree.map(partial(_nudged, nudge=nudge), state)
    return law.scheme.start(law, params, state)


def _nudged(x: Any, nudge: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return x
    return x + nudge * jnp.where(x == 0, 1, jnp.abs(x))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _undifferentiated(name: str, tree: Any) -> Any:
    del name
    return tree


def _refuse(name: str, primals: Any, tangents: Any) -> Any:
    zero = jax.custom_derivatives.SymbolicZero
    if all(isinstance(t, zero) for t in jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, zero))):
        return primals[0], tangents[0]
    raise UnsupportedLaw(
        f"world {name} moves by jumps, through which derivatives are zero or wrong; "
        "differentiate its relaxation, `world.relaxed()`"
    )


_undifferentiated.defjvp(_refuse, symbolic_zeros=True)


def advance(
    law: Any, params: Params, carried: Any, drive: Any, key: Words, tick: Any
) -> tuple[Any, tuple[Any, ...]]:
    """Advance one clone by one tick and wrap its angles.

    Returns:
        What the law's scheme carries at the tick's end, and the tick's mean of each sensor.

    Raises:
        UnsupportedLaw: if a derivative is taken through a law whose trajectories have none of use.
    """
    scheme = law.scheme
    if not scheme.smooth:
        params, drive, carried = _undifferentiated(law.id, (params, drive, carried))
    carried, mean = scheme.tick(law, params, carried, drive, key, tick)
    return scheme.wrap(law, carried), mean
