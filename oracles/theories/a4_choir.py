"""Compact oracle of A4: a few circular moments of each section, in a field that finite numbers make noisy.

Section a is described by z_k = <exp(i k th)>, k = 1..M, with z_0 = 1:

    dz_k/dt = k [(i om_a - gamma - k D_a) z_k + (H_a z_(k-1) - conj(H_a) z_(k+1)) / 2]
    H_a = sum_b K_ab p_b z_b exp(-i lam) + F exp(i phi) + eta_a

A Lorentzian of half width gamma enters exactly: the moments are continued to its pole. A Gaussian of width
sigma acts as further diffusion, cut short by whatever mixes first,

    D_a = D + sigma^2 / (D + sqrt(pi/2) sigma + |H_a|),

right for fast diffusion, at the threshold without diffusion, and for strong locking. The hierarchy ends with
z_(M+1) = z_M z_1 |z_1|^q: a wrapped Gaussian has q = 2 M, a Lorentzian q = 0. That singers are few acts as
white noise eta_a on the field: <|z_1|^2> is 1 / N_a without order, and with it z turns like a mean of N_a
walkers. A step is a midpoint rule in which decay is implicit, with D_a, q and the noise's strength held.

Sources: Sakaguchi 1988 (doi:10.1143/PTP.79.39); Ott & Antonsen 2008 (doi:10.1063/1.2930766).
"""

from collections import namedtuple
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from oracles.chance import complex_normal, split
from oracles.theory import CompactTheory, History, Ports

SIZE, MODES, STEPS, FILTER = 128, 5, 8, 5.0
DT, FADE = 1 / STEPS, float(np.exp(-1 / STEPS / FILTER))

# Share of the first section, centres [2] and spread of frequencies, coupling [2, 2] over K, lag, first phase.
Law = namedtuple("Law", "share center spread k lam phi0")
# Logarithms of factors: the noise's variance, a Gaussian's further diffusion, its cut by the field, q.
Closure = namedtuple("Closure", "noise broad lock tail")
# 1 for Lorentzian frequencies, 0 for Gaussian ones.
Structure = namedtuple("Structure", "lorentzian")
# Moments (M complex arrays [2]), the conductor's phase, the lock-in's filters.
State = namedtuple("State", "z phi lock power")


def _modulus(z: Any) -> Any:
    return jnp.sqrt(z.real**2 + z.imag**2 + 1e-8)


def _turn(angle: Any) -> Any:
    return jax.lax.complex(jnp.cos(angle), jnp.sin(angle))


class ChoirTheory(CompactTheory):
    """A4 in moments."""

    world: ClassVar[str] = "A4"
    law: Law
    ports: Ports
    closure: Closure
    structure: Structure

    @classmethod
    def from_god(cls, params: Any, ports: Ports) -> "ChoirTheory":
        p = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
        law = Law(jnp.mean(p.first), p.center, p.spread, p.k, p.lam, p.phi0)
        return cls(law, ports, Closure(*jnp.zeros(4, jnp.float32)), Structure(p.lorentzian))

    def init(self, history: History, *, key: jax.Array) -> State:
        spread, zero = jnp.sqrt(1 / (SIZE * self._shares())), jnp.zeros_like(self.law.phi0)
        z = tuple(spread * x for x in complex_normal(key, (MODES, 2)))
        return State(z, self.law.phi0, jax.lax.complex(zero, zero), zero)

    def step(self, state: State, levels: jax.Array, *, key: jax.Array) -> tuple[State, jax.Array]:
        process, sensor = split(key)
        u = self.ports.levels(levels)
        drive = (4 * u[0], 0.05 + 1.15 * u[1], u[2], 4 * u[3] - 2)
        # A step is cheaper to repeat in a gradient than to keep.
        move = jax.checkpoint(lambda x, eta: self._move(x, drive, eta))
        state, reads = jax.lax.scan(move, state, complex_normal(process, (STEPS, 2)))
        return state, self.ports.readings(jnp.mean(reads, axis=0), key=sensor)

    def _shares(self) -> Any:
        return jnp.stack([self.law.share, 1 - self.law.share])

    def _field(self, z: Any, phi: Any, drive: Any) -> Any:
        c = drive[0] * _turn(-self.law.lam) * self.law.k * self._shares()[None]
        return c[:, 0] * z[0][0] + c[:, 1] * z[0][1] + drive[2] * _turn(phi)

    def _move(self, x: State, drive: Any, eta: Any) -> tuple[State, Any]:
        law, p, (_, D, _, nu) = self.law, self._shares(), drive
        noise, broad, lock, tail = jnp.exp(jnp.stack(self.closure))
        pole, wide = self.structure.lorentzian * law.spread, (1 - self.structure.lorentzian) * law.spread
        cut = D + np.sqrt(np.pi / 2) * wide + lock * _modulus(self._field(x.z, x.phi, drive))
        d = D + broad * wide**2 / cut
        end = jnp.exp(2 * MODES * tail * d / (d + 2 * pole) * jnp.log(jnp.minimum(_modulus(x.z[0]), 1)))
        kick = eta * jnp.sqrt(8 * noise * (d + pole) / (DT * SIZE * p * (1 + _modulus(x.z[1]) ** 2)))
        decay = [DT / 2 * k * (pole + k * d) for k in range(1, MODES + 1)]
        middle, after = x.phi + DT / 2 * nu, x.phi + DT * nu

        def pulled(z: Any) -> Any:
            h = self._field(z, middle, drive) + kick
            z = (1, *z, end * z[-1] * z[0])
            pull = [(h * a - jnp.conj(h) * b) / 2 for a, b in zip(z, z[2:], strict=False)]
            return [DT * (k + 1) * (1j * law.center * z[k + 1] + s) for k, s in enumerate(pull)]

        half = [(z + s / 2) / (1 + r) for z, s, r in zip(x.z, pulled(x.z), decay, strict=True)]
        new = [((1 - r) * z + s) / (1 + r) for z, s, r in zip(x.z, pulled(half), decay, strict=True)]
        z = tuple(s / jnp.maximum(_modulus(s), 1) for s in new)
        w = jnp.sum(p * (x.z[0] + z[0])) / 2 * _turn(-middle)
        lock_in = w + FADE * (x.lock - w)
        power = FADE * x.power + (1 - FADE) * _modulus(w - (x.lock + lock_in) / 2) ** 2
        velocity = jnp.sum(p * (law.center + (self._field(z, after, drive) * jnp.conj(z[0])).imag))
        read = (_modulus(jnp.sum(p * z[0])), _modulus(z[0][0]), velocity, _modulus(lock_in), power)
        return State(z, after, lock_in, power), jnp.stack(read)
