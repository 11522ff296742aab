"""Schemes for laws with additive noise of which one field is absorbed when it first reaches 0."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from simworlds.integrate.continuous import components, kicked, kicks, normals
from simworlds.integrate.scheme import Params, Scheme, State, shift
from simworlds.keys import Noise


class FirstPassage(Scheme):
    """The stochastic Heun scheme with a first-passage test at 0 and a reflecting wall above.

    ``law.absorbing`` names a noisy field, a scalar or ``[M]``, each element of which is absorbed at 0 by
    itself and reflected at ``law.wall`` above. A path seen above 0 at both ends of a step, at x0 and x1, was
    at 0 between them with the probability of a Brownian bridge, where b is the amplitude of its noise,

        exp(-2 x0 x1 / (b^2 dt)),

    and its highest point between them is ``(x0 + x1 + sqrt((x1 - x0)^2 - 2 b^2 dt ln u)) / 2`` with u
    uniform. The path is put back by what that exceeds the wall (Lepingle 1995, Mathematics and Computers in
    Simulation 38, 119). Both are exact for a constant drift; seen at its ends alone, a path would pass 0 too
    late and feel the wall too little, by order sqrt(dt). An element whose amplitude is 0 is not at risk. What
    absorption does, `law.landed` says, which sees every step; it comes at the step's end.
    """

    smooth: ClassVar[bool] = False

    def randoms(self, law: Any, params: Params, carried: State, drive: Any, noise: Noise) -> Any:
        """The normals of the Heun scheme, and behind their components two uniform numbers an element."""
        drawn, used = normals(law.diffusion(carried, drive, params), carried, noise)
        x = getattr(carried, law.absorbing)
        below = noise.uniform(components(used + jnp.size(x), x), x.dtype)
        return drawn, noise.uniform(components(used, x), x.dtype), below

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One step: predictor and corrector share the increments and the bridge's highest point."""
        drawn, above, below = randoms
        after, reached = reflected_step(law, params, carried, drive, drawn, above, self.dt)
        return law.landed(carried, after, below < reached, drive, params)


class SoftPassage(Scheme):
    """`FirstPassage` with the probability of each absorption in place of its outcome.

    `law.landed` is given a number from 0 to 1 for each element. A law that keeps the share of an element that
    is absorbed, ``z -> 1 - (1 - z) (1 - hit)``, thereby has the expectation of what the outcomes would give
    along the same path, and derivatives flow through it. Where the rest of the state answers to that share,
    it answers to the expectation.
    """

    def randoms(self, law: Any, params: Params, carried: State, drive: Any, noise: Noise) -> Any:
        """Those of `FirstPassage` but the last: the same components, so the same path."""
        drawn, used = normals(law.diffusion(carried, drive, params), carried, noise)
        x = getattr(carried, law.absorbing)
        return drawn, noise.uniform(components(used, x), x.dtype)

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One step."""
        drawn, above = randoms
        after, reached = reflected_step(law, params, carried, drive, drawn, above, self.dt)
        return law.landed(carried, after, reached, drive, params)


def reflected_step(
    law: Any, params: Params, carried: State, drive: Any, drawn: list[Any], above: Any, dt: float
) -> tuple[State, Any]:
    """A Heun step with the wall but without absorption, and the probability that each element reached 0."""
    amplitude = law.diffusion(carried, drive, params)
    kick = kicks(amplitude, drawn, dt)
    x = getattr(carried, law.absorbing)
    variance = dt * getattr(amplitude, law.absorbing) ** 2

    def reflected(state: State) -> State:
        end = reflect(x, getattr(state, law.absorbing), variance, law.wall, above)
        return state._replace(**{law.absorbing: end})

    slope = law.drift(carried, drive, params)
    ahead = law.drift(reflected(kicked(shift(carried, dt, slope), kick)), drive, params)
    moved = jax.tree.map(lambda y, a, b: y + dt / 2 * (a + b), carried, slope, ahead)
    after = reflected(kicked(moved, kick))
    return after, reached_zero(x, getattr(after, law.absorbing), variance)


def reflect(start: Any, end: Any, variance: Any, wall: float, uniform: Any) -> Any:
    """The end of a step whose path is reflected at a wall above, from that of the free path.

    Args:
        start: where the step begins, at most at the wall.
        end: where the free path ends.
        variance: of the noise in the step.
        wall: where paths are reflected.
        uniform: numbers inside (0, 1).
    """
    # The floor keeps the slope of the root finite where nothing moves.
    square = jnp.maximum((end - start) ** 2 - 2 * variance * jnp.log(uniform), 1e-12)
    return end - jnp.maximum((start + end + jnp.sqrt(square)) / 2 - wall, 0)


def reached_zero(start: Any, end: Any, variance: Any) -> Any:
    """The probability that the path of a step from `start` above 0 to `end` reached 0; 0 without noise."""
    risk = variance > 0
    exponent = -2 * start * end / jnp.where(risk, variance, 1)
    return jnp.where(risk, jnp.exp(jnp.minimum(exponent, 0)), 0)
