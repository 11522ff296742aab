"""Fixed-step integrators over pytrees: one step of a law, and one tick of readings.

A scheme advances the state of one clone by one step; `advance` runs a tick's steps and averages the sensors.
Everything is written for one clone: only `simworlds.ensemble` batches. Drives are constant within a tick, so
no step crosses a switch.
"""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simworlds.keys import Noise, Words, binomial_from, poisson_from

State = Any
Params = Any


def _shift(state: State, factor: float, slope: State) -> State:
    return jax.tree.map(lambda x, v: x + factor * v, state, slope)


@dataclasses.dataclass(frozen=True)
class Scheme(abc.ABC):
    """A fixed-step scheme: the step's length and how many of them make a tick.

    Attributes:
        dt: the step, in the world's time units.
        substeps: steps a tick.
    """

    dt: float
    substeps: int

    @property
    def tick_time(self) -> float:
        """The length of a tick in the world's time units."""
        return self.dt * self.substeps

    def refined(self, factor: int) -> "Scheme":
        """The same scheme with a step that is `factor` times shorter and the same tick."""
        return dataclasses.replace(self, dt=self.dt / factor, substeps=self.substeps * factor)

    def randoms(self, law: Any, params: Params, state: State, drive: Any, noise: Noise) -> Any:
        """The random numbers that a step needs; their values depend on the noise's address alone."""
        del law, params, state, drive, noise
        return ()

    @abc.abstractmethod
    def step(self, law: Any, params: Params, state: State, drive: Any, randoms: Any) -> State:
        """Advance one clone by one step under constant drives."""


class RK4(Scheme):
    """The classical fourth-order Runge-Kutta scheme for ``dx/dt = law.drift(x, drive, params)``."""

    def step(self, law: Any, params: Params, state: State, drive: Any, randoms: Any) -> State:
        """One step; there are no random numbers."""
        del randoms
        k1 = law.drift(state, drive, params)
        k2 = law.drift(_shift(state, self.dt / 2, k1), drive, params)
        k3 = law.drift(_shift(state, self.dt / 2, k2), drive, params)
        k4 = law.drift(_shift(state, self.dt, k3), drive, params)
        sixth = self.dt / 6
        return jax.tree.map(lambda x, a, b, c, d: x + sixth * (a + 2 * (b + c) + d), state, k1, k2, k3, k4)


class Heun(Scheme):
    """The stochastic Heun scheme for additive noise, ``dx = drift dt + diffusion dW``.

    Weak order two for additive noise (Greiner, Strittmatter, Honerkamp 1988, doi:10.1007/BF01016411).
    `law.diffusion` returns a state of amplitudes in which a field without noise is None. Components are
    counted through the noisy fields in their order.
    """

    def randoms(self, law: Any, params: Params, state: State, drive: Any, noise: Noise) -> Any:
        """A standard normal for each element of each noisy field, None for the others."""
        normals, component = [], 0
        for x, amplitude in zip(state, law.diffusion(state, drive, params), strict=True):
            if amplitude is None:
                normals.append(None)
                continue
            index = jnp.uint32(component) + jnp.arange(jnp.size(x), dtype=jnp.uint32).reshape(jnp.shape(x))
            normals.append(noise.normal(index, x.dtype))
            component += jnp.size(x)
        return normals

    def step(self, law: Any, params: Params, state: State, drive: Any, randoms: Any) -> State:
        """One step: predictor and corrector share the same increments."""
        amplitude = law.diffusion(state, drive, params)
        root = float(np.sqrt(self.dt))  # a NumPy number would widen the increments under x64
        kick = [
            None if z is None else (root * b * z).astype(z.dtype)
            for b, z in zip(amplitude, randoms, strict=True)
        ]
        slope = law.drift(state, drive, params)
        ahead = law.drift(_add(_shift(state, self.dt, slope), kick), drive, params)
        moved = jax.tree.map(lambda x, a, b: x + self.dt / 2 * (a + b), state, slope, ahead)
        return _add(moved, kick)


def _add(state: State, kicks: list[Any]) -> State:
    moved = [x if k is None else x + k for x, k in zip(state, kicks, strict=True)]
    return type(state)(*moved)


class TauLeap(Scheme):
    """Midpoint tau-leaping for births and deaths beside continuous fields.

    The state has a field ``n``, a tuple of counts (whole numbers as floats); the other fields follow
    ``law.drift``, whose ``n`` is ignored. ``law.propensities(state, drive, params)`` gives ``(births,
    hazards)``: the total birth rate of each count and the death rate per individual. Births are Poisson,
    deaths binomial, so no count turns negative; propensities are taken at the expected midpoint (Gillespie
    2001, doi:10.1063/1.1378322), which makes means second order in the step.
    """

    def randoms(self, law: Any, params: Params, state: State, drive: Any, noise: Noise) -> Any:
        """Uniform numbers: component 2i for the births of count i, component 2i + 1 for its deaths."""
        del law, params, drive
        return [noise.uniform(component, state.n[0].dtype) for component in range(2 * len(state.n))]

    def step(self, law: Any, params: Params, state: State, drive: Any, randoms: Any) -> State:
        """One leap."""
        births, hazards = law.propensities(state, drive, params)
        flow = law.drift(state, drive, params)
        growth = tuple(b - h * n for b, h, n in zip(births, hazards, state.n, strict=True))
        middle = _shift(state, self.dt / 2, flow._replace(n=growth))
        births, hazards = law.propensities(middle, drive, params)
        flow = law.drift(middle, drive, params)
        counts = []
        for i, n in enumerate(state.n):
            lost = self.dt * hazards[i] * middle.n[i] / jnp.maximum(n, 1)
            born = poisson_from(randoms[2 * i], self.dt * births[i])
            died = binomial_from(randoms[2 * i + 1], n, jnp.clip(lost, 0, 1))
            counts.append(n + born - died)
        still = flow._replace(n=tuple(jnp.zeros_like(n) for n in state.n))
        return _shift(state, self.dt, still)._replace(n=tuple(counts))


def advance(
    law: Any, params: Params, state: State, drive: Any, key: Words, tick: Any
) -> tuple[State, tuple[Any, ...]]:
    """Advance one clone by one tick and wrap its angles.

    Returns:
        The state at the tick's end and the tick's mean of each sensor (trapezoidal rule over the steps).
    """
    scheme = law.scheme
    first = law.read(state, drive, params)

    def randoms(k: Any, state: State) -> Any:
        noise = Noise(key, (tick * scheme.substeps + k).astype(jnp.uint32))
        return scheme.randoms(law, params, state, drive, noise)

    def body(k: Any, carry: Any) -> Any:
        state, total, now = carry
        # The next step's numbers are made here and carried: a carried buffer is written once, where the
        # compiler would otherwise compute them again for each of their uses.
        later = randoms(k + 1, state)
        state = scheme.step(law, params, state, drive, now)
        total = tuple(a + b for a, b in zip(total, law.read(state, drive, params), strict=True))
        return state, total, later

    zeros = tuple(jnp.zeros_like(x) for x in first)
    state, total, _ = jax.lax.fori_loop(
        0, scheme.substeps, body, (state, zeros, randoms(jnp.int32(0), state))
    )
    last = law.read(state, drive, params)
    mean = tuple((s + (a - b) / 2) / scheme.substeps for s, a, b in zip(total, first, last, strict=True))
    return law.wrap(state), mean
