"""Compact oracle of C2: the law itself, two Brusselators and a temperature, stepped by RK4.

    X_i' = k [A_i - (B + 1) X_i + X_i^2 Y_i] + sig (X_j - X_i),     A_1 = A (1 + m),   A_2 = A (1 - m)
    Y_i' = k [B X_i - X_i^2 Y_i] + sig q (Y_j - Y_i)
    th'  = (th_b + w r / E - th) / tau,     r = k (X_1^2 Y_1 + X_2^2 Y_2),     k = exp(E (1 - 1/th))

Heating enters as w = E h tau, the strength of the thermal feedback, which decides whether heat runs away.
Rates see contents between 0 and 20, which no true one leaves, so that steps too long for a spike stay finite.
Only sensor noise tells clones apart, and the law is complete, so the closure has no constants.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from oracles.theory import CompactTheory, History, Ports

_RANGES = ((0.5, 1.5), (1.0, 4.0), (0.0, 1.0), (0.9, 1.1))  # of A, B, sig, th_b
_STEPS = 25  # a tick, which is one time unit


class Law(NamedTuple):
    """Mismatch, transport of Y, activation energy, feedback and its time, first X; E and w may be idle."""

    m: Any
    q: Any
    E: Any
    w: Any
    tau: Any
    x1: Any
    x2: Any


class Closure(NamedTuple):
    """Nothing: the law is complete."""


class Structure(NamedTuple):
    """Whether there is thermal feedback: 0 or 1."""

    thermal: Any


class ChemicalClockTheory(CompactTheory):
    """C2 as it is."""

    world: ClassVar[str] = "C2"
    law: Law
    ports: Ports
    closure: Closure
    structure: Structure

    @classmethod
    def from_god(cls, params: Any, ports: Ports) -> "ChemicalClockTheory":
        p = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
        hot = p.E > 0
        E, w = jnp.where(hot, p.E, 1.75), jnp.where(hot, p.E * p.h * p.tau, 0.02)
        law = Law(p.m, p.q, E, w, p.tau, p.x1, p.x2)
        return cls(law, ports, Closure(), Structure(hot.astype(jnp.float32)))

    def init(self, history: History, *, key: jax.Array) -> Any:
        one = jnp.ones_like(self.law.x1)
        return self.law.x1, 1.5 * one, self.law.x2, 1.5 * one, one

    def step(self, state: Any, levels: jax.Array, *, key: jax.Array) -> tuple[Any, jax.Array]:
        law, h, levels = self.law, 1 / _STEPS, self.ports.levels(levels)
        A, B, sig, bath = (a + (b - a) * u for (a, b), u in zip(_RANGES, levels, strict=True))
        A1, A2 = A * (1 + law.m), A * (1 - law.m)

        def rates(both: Any) -> Any:
            (*contents, th), _ = both
            x1, y1, x2, y2 = (jnp.clip(content, 0, 20) for content in contents)
            k = jnp.exp(self.structure.thermal * law.E * (1 - 1 / th))
            r1, r2 = k * x1 * x1 * y1, k * x2 * x2 * y2
            mix, mix_y = sig * (x2 - x1), sig * law.q * (y2 - y1)
            rate = (
                k * (A1 - (B + 1) * x1) + r1 + mix,
                k * B * x1 - r1 + mix_y,
                k * (A2 - (B + 1) * x2) + r2 - mix,
                k * B * x2 - r2 - mix_y,
                (bath + law.w / law.E * (r1 + r2) - th) / law.tau,
            )
            return rate, (x1, y1 + y2, r1 + r2, x1 - x2)

        def go(x: Any, d: float, v: Any) -> Any:
            return jax.tree.map(lambda a, b: a + d * b, x, v)

        def substep(x: Any, _: Any) -> tuple[Any, None]:
            k1 = rates(x)
            k2 = rates(go(x, h / 2, k1))
            k3 = rates(go(x, h / 2, k2))
            k4 = rates(go(x, h, k3))
            return go(x, h / 6, jax.tree.map(lambda a, b, c, d: a + 2 * (b + c) + d, k1, k2, k3, k4)), None

        # Sensors are integrated along: a sum over steps would miss a spike that is shorter than a step.
        zeros = (jnp.zeros_like(law.tau),) * 4
        (state, mean), _ = jax.lax.scan(substep, (state, zeros), length=_STEPS)
        return state, self.ports.readings(mean, key=key)
