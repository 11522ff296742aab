"""The diffusion limit of a jump law: what derivatives are taken through."""

from typing import Any

import jax.numpy as jnp

from simworlds.integrate.jumps import expected_flow
from simworlds.integrate.scheme import Params, Scheme, State, shift
from simworlds.keys import Noise

# Of the variance of a reaction's number in a step: keeps the slope of its root finite where none occurs.
_LEAST = 1e-3


class LangevinLeap(Scheme):
    """The chemical Langevin equation of a jump law, by the midpoint rule for the drift.

    Each reaction occurs ``a dt + sqrt(a dt) z`` times in a step, with z standard normal (Gillespie 2000,
    doi:10.1063/1.481811), but takes no more than there is; counts become real. With the same numbers z a
    trajectory is a smooth function of parameters and drives. The limit is good where counts are large against
    1; a species of a few individuals dies out at other odds than the law's.
    """

    def randoms(self, law: Any, params: Params, carried: State, drive: Any, noise: Noise) -> Any:
        """A standard normal for each reaction."""
        del params, drive
        return [noise.normal(r, carried.n[0].dtype) for r in range(len(law.changes))]

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One step."""
        middle = shift(carried, self.dt / 2, expected_flow(law, params, carried, drive))
        middle = middle._replace(n=tuple(jnp.maximum(x, 0) for x in middle.n))
        now = law.propensities(carried, drive, params)
        ahead = law.propensities(middle, drive, params)
        counts = list(carried.n)
        for change, a, b, z in zip(law.changes, now, ahead, randoms, strict=True):
            variance = self.dt * a
            times = self.dt * b + variance / jnp.sqrt(variance + _LEAST) * z
            # Neither way does a reaction take more than there is, so what the law conserves stays conserved.
            for i, c in enumerate(change):
                if c < 0:
                    times = jnp.minimum(times, counts[i] / -c)
                elif c > 0:
                    times = jnp.maximum(times, -counts[i] / c)
            for i, c in enumerate(change):
                if c:
                    counts[i] = counts[i] + c * times
        still = law.drift(middle, drive, params)._replace(n=tuple(jnp.zeros_like(x) for x in carried.n))
        after = shift(carried, self.dt, still)._replace(n=tuple(jnp.maximum(x, 0) for x in counts))
        return law.landed(carried, after, drive, params)
