"""Schemes for smooth laws: ordinary differential equations, and those with additive noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simworlds.integrate.scheme import Params, Scheme, State, shift
from simworlds.keys import Noise


class RK4(Scheme):
    """The classical fourth-order Runge-Kutta scheme for ``dx/dt = law.drift(x, drive, params)``."""

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One step; there are no random numbers."""
        del randoms
        k1 = law.drift(carried, drive, params)
        k2 = law.drift(shift(carried, self.dt / 2, k1), drive, params)
        k3 = law.drift(shift(carried, self.dt / 2, k2), drive, params)
        k4 = law.drift(shift(carried, self.dt, k3), drive, params)
        sixth = self.dt / 6
        return jax.tree.map(lambda x, a, b, c, d: x + sixth * (a + 2 * (b + c) + d), carried, k1, k2, k3, k4)


class Heun(Scheme):
    """The stochastic Heun scheme for additive noise, ``dx = drift dt + diffusion dW``.

    Weak order two for additive noise (Greiner, Strittmatter, Honerkamp 1988, doi:10.1007/BF01016411).
    `law.diffusion` returns a state of amplitudes in which a field without noise is None. Components are
    counted through the noisy fields in their order.
    """

    def randoms(self, law: Any, params: Params, carried: State, drive: Any, noise: Noise) -> Any:
        """A standard normal for each element of each noisy field, None for the others."""
        return normals(law.diffusion(carried, drive, params), carried, noise)[0]

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One step: predictor and corrector share the same increments."""
        kick = kicks(law.diffusion(carried, drive, params), randoms, self.dt)
        slope = law.drift(carried, drive, params)
        ahead = law.drift(kicked(shift(carried, self.dt, slope), kick), drive, params)
        moved = jax.tree.map(lambda x, a, b: x + self.dt / 2 * (a + b), carried, slope, ahead)
        return kicked(moved, kick)


def normals(amplitude: State, state: State, noise: Noise) -> tuple[list[Any], int]:
    """A standard normal for each element of each noisy field, None for the others.

    Returns:
        The normals, field by field, and the number of components that they took.
    """
    drawn, component = [], 0
    for x, b in zip(state, amplitude, strict=True):
        if b is None:
            drawn.append(None)
            continue
        drawn.append(noise.normal(components(component, x), x.dtype))
        component += jnp.size(x)
    return drawn, component


def components(first: int, x: Any) -> Any:
    """The components of noise for the elements of a field, counted from the first one's."""
    return jnp.uint32(first) + jnp.arange(jnp.size(x), dtype=jnp.uint32).reshape(jnp.shape(x))


def kicks(amplitude: State, drawn: list[Any], dt: float) -> list[Any]:
    """The noise of one step, ``amplitude sqrt(dt) z``, field by field; None where there is none."""
    root = float(np.sqrt(dt))  # a NumPy number would widen the increments under x64
    return [
        None if z is None else (root * b * z).astype(z.dtype) for b, z in zip(amplitude, drawn, strict=True)
    ]


def kicked(state: State, kick: list[Any]) -> State:
    """The state plus the noise of one step."""
    moved = [x if k is None else x + k for x, k in zip(state, kick, strict=True)]
    return type(state)(*moved)
