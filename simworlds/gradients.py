"""Differentiable ensemble statistics, and gradients in forward or reverse mode by a stated rule.

Forward mode carries one tangent a free number through the simulation: its cost grows with their number, its
memory does not grow with the ticks. Reverse mode costs the same for any number, keeps one state a tick
(`window_statistics` and a theory's replay are checkpointed there) and runs each tick a second time. Cost of
value and gradient in units of the value alone, CPU time, law of C2, protocols as the batch:

    free numbers            1      4      8     16     32
    16 protocols, forward   3.1    3.7    5.0   25     45
    16 protocols, reverse  19     16     20     19     24
    1,024, forward          8.8   23     39
    1,024, reverse         17     24     26

The fit losses of the oracles (128 noisy trajectories) cost in forward and in reverse mode 2.4 and 2.3 (B2, 2
numbers), 5.9 and 2.6 (B2, 8 numbers), and forward mode 1.6 times as much as reverse mode for A4 with 4. Hence
the rule: forward mode while tangents and trajectories together are few enough to be cheap beside the calls,
``numbers x trajectories <= 256``, but never beyond `FORWARD_UP_TO` numbers, and for one number always. Beyond
it reverse mode, which takes about twice as long to compile.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from simworlds.errors import InvalidRequest, UnsupportedLaw
from simworlds.integrate import advance, begin
from simworlds.keys import Noise, clone_words, role_words
from simworlds.world import World

FORWARD_UP_TO = 8  # free numbers
FORWARD_WIDTH = 256  # free numbers times trajectories
MODES = ("auto", "forward", "reverse")


def value_and_grad(
    function: Callable[..., Any],
    *,
    mode: str = "auto",
    trajectories: int = 1,
    forward_up_to: int = FORWARD_UP_TO,
) -> Callable[..., Any]:
    """A function that returns a scalar's value and its gradient in the first argument.

    Like ``jax.value_and_grad``, but in forward mode for few free numbers and in reverse mode for many. Use it
    under ``jax.jit``. What does not depend on the first argument, random numbers above all, is computed once
    in either mode.

    Args:
        function: returns a scalar; its first argument is a tree of float arrays, whose elements are the free
            numbers. Further arguments are held fixed.
        mode: ``"forward"``, ``"reverse"``, or ``"auto"`` for the rule; see the module.
        trajectories: how many the function simulates side by side (clones times protocols), for the rule.
        forward_up_to: the most free numbers for which the rule takes forward mode.

    Returns:
        A function of the same arguments that gives ``(value, gradient)``, the gradient a tree like the first
        argument.

    Raises:
        InvalidRequest: if `mode` is none of the three, `trajectories` below 1 or `forward_up_to` below 0;
            when called, if the first argument holds anything but float arrays.
    """
    if mode not in MODES:
        raise InvalidRequest(f"`mode` must be one of {', '.join(MODES)}, but is {mode!r}")
    if trajectories < 1:
        raise InvalidRequest(f"`trajectories` must be at least 1, but is {trajectories}")
    if forward_up_to < 0:
        raise InvalidRequest(f"`forward_up_to` must be at least 0, but is {forward_up_to}")

    def both(free: Any, *fixed: Any) -> Any:
        kinds = [jnp.result_type(x) for x in jax.tree.leaves(free)]
        strange = [str(kind) for kind in kinds if not jnp.issubdtype(kind, jnp.floating)]
        if strange:
            raise InvalidRequest(f"free numbers must be floats, but there is a leaf of {strange[0]}")
        chosen = mode if mode != "auto" else mode_for(free, trajectories, forward_up_to)
        if chosen == "reverse":
            return jax.value_and_grad(function)(free, *fixed)
        return _forward(function, free, *fixed)

    return both


def mode_for(free: Any, trajectories: int = 1, forward_up_to: int = FORWARD_UP_TO) -> str:
    """The mode of the rule for a tree of free numbers, ``"forward"`` or ``"reverse"``; see the module."""
    numbers = sum(jnp.size(x) for x in jax.tree.leaves(free))
    most = min(forward_up_to, max(1, FORWARD_WIDTH // trajectories))
    return "forward" if numbers <= most else "reverse"


def _forward(function: Callable[..., Any], free: Any, *fixed: Any) -> Any:
    """Value and gradient by one batch of tangents along the axes, beside one run of the function."""
    flat, tree_of = ravel_pytree(free)

    def along(tangent: Any) -> Any:
        return jax.jvp(lambda x: function(tree_of(x), *fixed), (flat,), (tangent,))

    if not flat.size:
        return function(free, *fixed), free
    value, slopes = jax.vmap(along, out_axes=(None, 0))(jnp.eye(flat.size, dtype=flat.dtype))
    return value, tree_of(slopes)


class WindowStatistics(NamedTuple):
    """Of each clone and raw sensor, over a window of ticks: arrays ``[clone, sensor]``."""

    mean: Float[Array, "clone sensor"]
    sd: Float[Array, "clone sensor"]


def window_statistics(
    world: World,
    params: Any,
    levels: Float[Array, "tick drive"],
    window: tuple[int, int],
    *,
    clones: int = 1,
    seed: int | str = 0,
) -> WindowStatistics:
    """Mean and sd (ddof 0) of each raw sensor over a window, as a differentiable function.

    A pure function of `params` and `levels`: use it under ``jax.jit``, with `value_and_grad`, ``jax.jacfwd``
    or ``jax.grad`` (memory grows by one state a tick). The noise is fixed, so a derivative is that of these
    trajectories, whose expectation is that of the ensemble.

    Args:
        world: a smooth family, or the `relaxed()` one of a family that jumps.
        params: parameters, as `World.draw` or `World.limit` gives them; their dtype is the simulation's.
        levels: levels in family order.
        window: ``[start, stop)`` in ticks.
        clones: how many.
        seed: names the noise.

    Raises:
        UnsupportedLaw: if the law jumps, so that its derivatives would be zero or wrong.
        InvalidRequest: if the window is not within the ticks, or holds fewer than two.
    """
    if not world.scheme.smooth:
        raise UnsupportedLaw(
            f"world {world.id} moves by jumps, through which derivatives are zero or wrong; "
            "use its relaxation, `world.relaxed()`"
        )
    start, stop = window
    ticks = len(levels)
    if not 0 <= start <= stop - 2 <= ticks - 2:
        raise InvalidRequest(
            f"a window must hold at least 2 ticks within 0..{ticks}, but is [{start}, {stop})"
        )
    params = jax.tree.map(jnp.asarray, params)
    dtype = jnp.result_type(*jax.tree.leaves(params), levels)
    initial, process = (role_words(world.id, seed, role, "gradient") for role in ("initial", "process"))

    def one(clone: Any) -> Any:
        carried = begin(world, params, Noise(clone_words(initial, clone), jnp.uint32(0)), dtype)
        key = clone_words(process, clone)

        @jax.checkpoint
        def tick(carried: Any, inputs: Any) -> Any:
            k, row = inputs
            return advance(world, params, carried, world.physical(row), key, k)

        rows = (jnp.arange(stop), levels[:stop])
        readings = jnp.stack(jax.lax.scan(tick, carried, rows)[1], axis=-1)[start:]
        middle = readings.mean(0, keepdims=True)
        # The root is smooth at 0: a channel that stands still has an sd of 1e-12 and a derivative of 0.
        return middle[0], jnp.sqrt(jnp.mean((readings - middle) ** 2, 0) + 1e-24)

    return WindowStatistics(*jax.vmap(one)(jnp.arange(clones, dtype=jnp.uint32)))
