"""The adaptive reference path on diffrax: a world's law as terms, and readings by an adaptive solve.

Fixed steps serve ensembles; this path certifies their step, and lets any diffrax solver run on any world.
Only this file imports diffrax, and only when called, because that import costs a second.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from simworlds.errors import Diverged, UnsupportedLaw
from simworlds.keys import Noise, clone_words, key_for, role_words
from simworlds.world import OdeWorld, SdeWorld, World


def terms(world: World, params: Any, levels: Callable[[Any], Any], *, key: jax.Array | None = None) -> Any:
    """A world's law as diffrax terms, over the world's own state and in its own time units.

    Args:
        world: the family; its state's leaves must be floating-point arrays.
        params: parameters, as `World.draw` or `World.limit` gives them.
        levels: a function of time that returns levels ``[drive]`` in family order.
        key: of the Brownian path of a world with noise, which covers the horizon and suits any solver; by
            default a fixed one, so that the same call gives the same path.

    Returns:
        An ``ODETerm``, or a ``MultiTerm`` of one and of a ``ControlTerm`` with diagonal noise.

    Raises:
        UnsupportedLaw: if the law is no differential equation: if it jumps, switches or has delays.
    """
    import diffrax
    import lineax

    if not isinstance(world, OdeWorld | SdeWorld):
        raise UnsupportedLaw(
            f"world {world.id} is neither an ordinary nor a stochastic differential equation; use `simulate`"
        )
    params = jax.tree.map(jnp.asarray, params)

    def drift(t: Any, state: Any, args: Any) -> Any:
        del args
        rates = world.drift(state, world.physical(levels(t)), params)
        return jax.tree.map(lambda x, v: jnp.broadcast_to(v, jnp.shape(x)).astype(x.dtype), state, rates)

    if isinstance(world, OdeWorld):
        return diffrax.ODETerm(drift)

    def diffusion(t: Any, state: Any, args: Any) -> Any:
        del args
        amplitude = world.diffusion(state, world.physical(levels(t)), params)
        full = [
            jnp.zeros_like(x) if b is None else jnp.broadcast_to(b, jnp.shape(x)).astype(x.dtype)
            for x, b in zip(state, amplitude, strict=True)
        ]
        return lineax.DiagonalLinearOperator(type(state)(*full))

    shape = jax.eval_shape(lambda: _initial(world, params))
    key = key_for(world.id, 0, "process", "terms") if key is None else key
    end = world.horizon * world.scheme.tick_time
    path = diffrax.VirtualBrownianTree(0.0, end, tol=world.scheme.dt / 4, shape=shape, key=key)
    return diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, path))


def reference_readings(
    world: World,
    params: Any,
    levels: Float[np.ndarray, "tick drive"],
    *,
    initial: Any = None,
    rtol: float = 1e-9,
    atol: float = 1e-9,
) -> Float[np.ndarray, "tick sensor"]:
    """Tick means of a world's raw sensors by an adaptive solve in float64, whatever the ambient types.

    The solver (Dormand-Prince 8) starts anew at each tick, where drives switch, and integrates the sensors
    along with the state, so that the error control holds for the means too.

    Args:
        world: a family of ordinary differential equations.
        params: parameters, as `World.draw` or `World.limit` gives them.
        levels: levels in family order.
        initial: the initial state; by default one that the world draws under a fixed key.
        rtol: relative tolerance.
        atol: absolute tolerance.

    Raises:
        UnsupportedLaw: if the law is not an ordinary differential equation.
        Diverged: if the solver gave up; names the world and the tick.
    """
    if not isinstance(world, OdeWorld):
        raise UnsupportedLaw(
            f"world {world.id} is no ordinary differential equation, so it has no reference path"
        )
    with jax.enable_x64(True):
        params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
        state = _initial(world, params) if initial is None else initial
        state = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), state)
        rows = jnp.asarray(levels, jnp.float64)
        means, failed = jax.device_get(
            _solve(world, params, state, rows, jnp.float64(rtol), jnp.float64(atol))
        )
    if np.any(failed):
        raise Diverged(f"world {world.id}: the adaptive solve failed in tick {int(np.argmax(failed))}")
    return means


def _initial(world: World, params: Any) -> Any:
    return world.initial(
        params, Noise(clone_words(role_words(world.id, 0, "initial", "reference"), 0), jnp.uint32(0))
    )


def adaptive_solve(
    rates: Callable[[Any, Any, Any], Any],
    start: Any,
    span: Any,
    args: Any = None,
    *,
    rtol: Any,
    atol: Any,
    stiff: bool = False,
) -> tuple[Any, Any]:
    """The state at the end of a span by an adaptive solve: the path that certifies everything else.

    Args:
        rates: from time, state and `args` to the rate of change of the state.
        start: the state at time 0.
        span: the time at the end.
        args: handed to `rates`.
        rtol: relative tolerance.
        atol: absolute tolerance.
        stiff: take Kvaerno's fifth-order implicit solver instead of Dormand-Prince 8.

    Returns:
        The state at the end, and whether the solver gave up or the state is not finite.
    """
    import diffrax

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rates),
        diffrax.Kvaerno5() if stiff else diffrax.Dopri8(),
        0.0,
        span,
        dt0=None,
        y0=start,
        args=args,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        max_steps=1_000_000 if stiff else 100_000,
        throw=False,
    )
    end = jax.tree.map(lambda x: x[-1], solution.ys)
    finite = jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(end)])
    return end, (solution.result != diffrax.RESULTS.successful) | ~jnp.all(finite)


@partial(jax.jit, static_argnums=0)
def _solve(world: OdeWorld, params: Any, state: Any, levels: Any, rtol: Any, atol: Any) -> tuple[Any, Any]:
    """Means ``[tick, sensor]``, and whether each tick's solve failed ``[tick]``."""
    span = world.scheme.tick_time

    def rates(t: Any, both: Any, drive: Any) -> Any:
        del t
        return world.drift(both[0], drive, params), jnp.stack(world.read(both[0], drive, params)) / span

    def tick(state: Any, row: Any) -> Any:
        start = state, jnp.zeros(len(world.sensors), row.dtype)
        (state, mean), failed = adaptive_solve(rates, start, span, world.physical(row), rtol=rtol, atol=atol)
        return world.wrap(state), (mean, failed)

    return jax.lax.scan(tick, state, levels)[1]
