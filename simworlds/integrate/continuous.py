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
        normals, component = [], 0
        for x, amplitude in zip(carried, law.diffusion(carried, drive, params), strict=True):
            if amplitude is None:
                normals.append(None)
                continue
            index = jnp.uint32(component) + jnp.arange(jnp.size(x), dtype=jnp.uint32).reshape(jnp.shape(x))
            normals.append(noise.normal(index, x.dtype))
            component += jnp.size(x)
        return normals

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One step: predictor and corrector share the same increments."""
        amplitude = law.diffusion(carried, drive, params)
        root = float(np.sqrt(self.dt))  # a NumPy number would widen the increments under x64
        kick = [
            None if z is None else (root * b * z).astype(z.dtype)
            for b, z in zip(amplitude, randoms, strict=True)
        ]
        slope = law.drift(carried, drive, params)
        ahead = law.drift(_add(shift(carried, self.dt, slope), kick), drive, params)
        moved = jax.tree.map(lambda x, a, b: x + self.dt / 2 * (a + b), carried, slope, ahead)
        return _add(moved, kick)


def _add(state: State, kicks: list[Any]) -> State:
    moved = [x if k is None else x + k for x, k in zip(state, kicks, strict=True)]
    return type(state)(*moved)
