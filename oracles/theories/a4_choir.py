"""The compact oracle of A4: a few circular moments of each section, in a field that finite numbers make noisy.

Section a is described by z_k = <exp(i k th)>, k = 1..M, with z_0 = 1:

    dz_k/dt = k [(i om_a - gamma - k D_a) z_k + (H_a z_(k-1) - conj(H_a) z_(k+1)) / 2]
    H_a = sum_b K_ab p_b z_b exp(-i lam) + F exp(i phi) + eta_a

A Lorentzian of half width gamma enters exactly: the moments are continued to its pole. A Gaussian of width sigma acts
as further diffusion, cut short by whatever mixes first, D_a = D + sigma^2 / (D + sqrt(pi/2) sigma + |H_a|): right
for fast diffusion, at the threshold without diffusion, and for strong locking. The hierarchy ends with
z_(M+1) = z_M z_1 |z_1|^q: a wrapped Gaussian has q = 2 M, a Lorentzian q = 0. That singers are few acts as white
noise eta_a on the field: <|z_1|^2> is 1/N_a without order, the phase of z diffuses at D / N_a with it.

A step is a midpoint rule with D_a, q and the noise held, in which decay is implicit.

Sources: Sakaguchi 1988 (doi:10.1143/PTP.79.39); Ott & Antonsen 2008 (doi:10.1063/1.2930766).
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oracles.theory import CompactTheory, History, Ports

SIZE, MODES, STEPS, FILTER = 128, 3, 8, 5.0
DT = 1 / STEPS
FADE = float(np.exp(-DT / FILTER))


class Law(NamedTuple):
    """Share of the first section; centres [2] and width of frequencies; coupling [2, 2] over K; lag; first phase."""

    share: Any
    center: Any
    spread: Any
    k: Any
    lam: Any
    phi0: Any


class Closure(NamedTuple):
    """Logarithms of factors: noise strength, diffusion from a Gaussian spread, its cut by the field, the tail's q."""

    noise: Any
    broad: Any
    lock: Any
    tail: Any


class Structure(NamedTuple):
    """1 for Lorentzian frequencies, 0 for Gaussian ones."""

    lorentzian: Any


class State(NamedTuple):
    """Moments (M complex arrays [2]), the conductor's phase, the lock-in's filters."""

    z: Any
    phi: Any
    lock: Any
    power: Any


def _modulus(z: Any) -> Any:
    return jnp.sqrt(z.real**2 + z.imag**2 + 1e-8)


def _turn(angle: Any) -> Any:
    return jax.lax.complex(jnp.cos(angle), jnp.sin(angle))


class ChoirTheory(CompactTheory):
    """The choir in moments."""

    world: ClassVar[str] = "A4"
    law: Law
    ports: Ports
    closure: Closure
    structure: Structure

    @classmethod
    def from_god(cls, params: Any, ports: Ports) -> "ChoirTheory":
        """The theory of an instance; the share of the first section is counted."""
        p = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
        law = Law(jnp.mean(p.first), p.center, p.spread, p.k, p.lam, p.phi0)
        return cls(law, ports, Closure(*jnp.zeros(4)), Structure(p.lorentzian))

    def init(self, history: History, *, key: jax.Array) -> State:
        """Independent phases: each moment is complex normal with variance 1 / N_a."""
        spread = jnp.sqrt(1 / (SIZE * self._shares()))
        z = tuple(spread * x for x in jax.random.normal(key, (MODES, 2), jnp.complex64))
        return State(z, self.law.phi0, jnp.zeros((), jnp.complex64), jnp.zeros(()))

    def step(self, state: State, levels: jax.Array, *, key: jax.Array) -> tuple[State, jax.Array]:
        """A tick of `STEPS` steps; readings are means by the trapezoidal rule."""
        process, sensor = jax.random.split(key)
        u = self.ports.levels(levels)
        drive = (4 * u[0], 0.05 + 1.15 * u[1], u[2], 4 * u[3] - 2)
        eta = jax.random.normal(process, (STEPS, 2), jnp.complex64)

        def body(i: Any, carry: Any) -> Any:
            x = self._move(carry[0], drive, eta[i])
            return x, carry[1] + self._read(x, drive)

        first = self._read(state, drive)
        state, total = jax.lax.fori_loop(0, STEPS, body, (state, first / 2))
        return state, self.ports.readings(DT * (total - self._read(state, drive) / 2), key=sensor)

    def _move(self, x: State, drive: Any, eta: Any) -> State:
        law, p, (_, D, _, nu) = self.law, self._shares(), drive
        noise, broad, lock, tail = jnp.exp(jnp.stack(self.closure))
        cut = D + np.sqrt(np.pi / 2) * law.spread + lock * _modulus(self._field(x.z, _turn(x.phi), drive))
        d = D + (1 - self.structure.lorentzian) * broad * law.spread**2 / cut
        pole = self.structure.lorentzian * law.spread
        end = jnp.exp(2 * MODES * tail * d / (d + 2 * pole) * jnp.log(jnp.minimum(_modulus(x.z[0]), 1)))
        kick = eta * jnp.sqrt(8 * noise * (d + pole) / (DT * SIZE * p * (1 + _modulus(x.z[1]) ** 2)))
        decay = [DT / 2 * k * (pole + k * d) for k in range(1, MODES + 1)]
        middle = _turn(x.phi + DT / 2 * nu)

        def pulled(z: Any) -> Any:
            h = self._field(z, middle, drive) + kick
            z = (1, *z, end * z[-1] * z[0])
            pull = [h * z[k - 1] - jnp.conj(h) * z[k + 1] for k in range(1, MODES + 1)]
            return [DT * (k + 1) * (1j * law.center * z[k + 1] + s / 2) for k, s in enumerate(pull)]

        half = [(z + s / 2) / (1 + r) for z, s, r in zip(x.z, pulled(x.z), decay, strict=True)]
        z = [((1 - r) * z + s) / (1 + r) for z, s, r in zip(x.z, pulled(half), decay, strict=True)]
        z = tuple(s / jnp.maximum(_modulus(s), 1) for s in z)
        w = jnp.sum(p * (x.z[0] + z[0])) / 2 * jnp.conj(middle)
        lock_in = w + FADE * (x.lock - w)
        beat = _modulus(w - (x.lock + lock_in) / 2) ** 2
        return State(z, x.phi + DT * nu, lock_in, beat + FADE * (x.power - beat))

    def _shares(self) -> Any:
        return jnp.stack([self.law.share, 1 - self.law.share])

    def _field(self, z: Any, beat: Any, drive: Any) -> Any:
        coupling = drive[0] * _turn(-self.law.lam) * self.law.k * self._shares()[None]
        return coupling[:, 0] * z[0][0] + coupling[:, 1] * z[0][1] + drive[2] * beat

    def _read(self, x: State, drive: Any) -> Any:
        pull = self._field(x.z, _turn(x.phi), drive) * jnp.conj(x.z[0])
        velocity = jnp.sum(self._shares() * (self.law.center + pull.imag))
        every = _modulus(jnp.sum(self._shares() * x.z[0]))
        return jnp.stack([every, _modulus(x.z[0][0]), velocity, _modulus(x.lock), x.power])
