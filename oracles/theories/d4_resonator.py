"""Compact oracle of D4: the law itself, a Duffing oscillator and its unseen partner, stepped by RK4.

    x'' + de c x' + w0^2 x + be x^3 + b5 x^5 + (g + 2 al x) y + bias = F cos(phi),   phi' = W
    y'' + d2 y' + w2^2 y + g x + al x^2 = 0

A lock-in reads x through filters of 5 ticks: I of 2 x cos(phi), Q of 2 x sin(phi), m of x, s of x^2; the
sensors are I, Q, m and sqrt(s). Nothing depends on the filters, so they are summed up after a tick's steps.
b5 = min(be, 0)^2 / 2 follows from be, so that no fit lets the mass escape. Only sensor noise tells clones
apart, and the law is complete, so the closure has no constants.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oracles.theory import CompactTheory, History, Ports

_RANGES = ((0.0, 0.6), (0.5, 2.2), (-0.4, 0.4), (1.0, 4.0))  # of F, W, bias, c
_STEPS, _TICK, _FILTER = 48, 6.4, 32.0  # steps a tick; times in units of 1 / w0


class Law(NamedTuple):
    """Frequency, damping and stiffness; those of the latent mode; couplings, of which al may be idle."""

    w0: Any
    de: Any
    be: Any
    w2: Any
    d2: Any
    g: Any
    al: Any


class Closure(NamedTuple):
    """Nothing: the law is complete."""


class Structure(NamedTuple):
    """Whether the latent mode is also driven by x^2: 0 or 1."""

    quadratic: Any


class ResonatorTheory(CompactTheory):
    """D4 as it is."""

    world: ClassVar[str] = "D4"
    law: Law
    ports: Ports
    closure: Closure
    structure: Structure

    @classmethod
    def from_god(cls, params: Any, ports: Ports) -> "ResonatorTheory":
        p = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
        law = Law(p.w0, p.de, p.be, p.w2, p.d2, p.g, jnp.where(p.al > 0, p.al, 0.125))
        return cls(law, ports, Closure(), Structure((p.al > 0).astype(jnp.float32)))

    def init(self, history: History, *, key: jax.Array) -> Any:
        zero = jnp.zeros_like(self.law.w0)
        return (zero, zero, zero, zero), zero, jnp.stack([zero, zero, zero, zero])

    def step(self, state: Any, levels: jax.Array, *, key: jax.Array) -> tuple[Any, jax.Array]:
        (motion, phi, filters), p, h = state, self.law, _TICK / _STEPS
        levels = self.ports.levels(levels)
        F, W, bias, c = (a + (b - a) * x for (a, b), x in zip(_RANGES, levels, strict=True))
        b5, al = jnp.minimum(p.be, 0) ** 2 / 2, self.structure.quadratic * p.al

        def rates(motion: Any, force: Any) -> Any:
            x, v, y, u = motion
            spring = (p.w0**2 + (p.be + b5 * x * x) * x * x) * x
            latent = -p.d2 * u - p.w2**2 * y - p.g * x - al * x * x
            return v, force - p.de * c * v - spring - (p.g + 2 * al * x) * y, u, latent

        def go(x: Any, d: float, v: Any) -> Any:
            return jax.tree.map(lambda a, b: a + d * b, x, v)

        def substep(x: Any, force: Any) -> Any:
            k1 = rates(x, force[0])
            k2 = rates(go(x, h / 2, k1), force[1])
            k3 = rates(go(x, h / 2, k2), force[1])
            k4 = rates(go(x, h, k3), force[2])
            moved = go(x, h / 6, jax.tree.map(lambda a, b, c, d: a + 2 * (b + c) + d, k1, k2, k3, k4))
            return moved, moved[0]

        angle = phi + W * np.linspace(0, _TICK, 2 * _STEPS + 1, dtype=np.float32)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        pull = F * cosine - bias
        motion, later = jax.lax.scan(substep, motion, (pull[:-1:2], pull[1::2], pull[2::2]))
        x = jnp.concatenate([state[0][0][None], later])
        fade = np.exp(-np.linspace(0, _TICK, _STEPS + 1, dtype=np.float32) / _FILTER)
        fed = jnp.stack([2 * x * cosine[::2], 2 * x * sine[::2], x, x * x]) / fade[None]
        total = filters[:, None] + jnp.cumsum(fed[:, 1:] + fed[:, :-1], axis=1) * (h / 2 / _FILTER)
        path = jnp.concatenate([filters[:, None], total * fade[None, 1:]], axis=1)
        seen = path.at[3].set(jnp.sqrt(jnp.maximum(path[3], 0) + 1e-12))
        mean = jnp.mean((seen[:, 1:] + seen[:, :-1]) / 2, axis=1)
        return (motion, jnp.mod(angle[-1], 2 * np.pi), path[:, -1]), self.ports.readings(mean, key=key)
