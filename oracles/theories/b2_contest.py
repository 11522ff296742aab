"""Compact oracle of B2: the contest as a diffusion, competitors as real numbers that can die out.

The world counts individuals. Here their births and deaths are a chemical Langevin equation (Gillespie 2000,
doi:10.1063/1.481811), which has a gradient where counts have none:

    dn_i = n_i (beta_i - delta_i) dt + sqrt(n_i (beta_i + delta_i)) dW_i,        n_i = 0 once below 1/10
    beta_i = sum_k u_ik R_k,                  delta_i = D + del_i + sum_j A_ij n_j / V
    u_ik = w_ik mu_i(T) / (K_ik + R_k),       mu_i(T) = mu_i exp(-((T - T_i) / 0.08)^2 / 2)
    R_k' = D (S_k - R_k) - sum_i y_ik u_ik R_k n_i / V
    P'   = sum_i b_i n_i / V - (D + k_P) P

Of n founders a diffusion leaves nobody with probability exp(-2 x n), x = (beta - delta) / (beta + delta),
where counts do with exp(-2 n atanh x): the same for near-equal rates, and six founders rarely fail in either.
A step grows n exponentially and takes R and P implicitly, so that a quarter of a generation is short enough.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from oracles.chance import normal, poisson, split
from oracles.theory import CompactTheory, History, Ports

_RANGES = ((0.02, 0.5), (0.5, 3.0), (0.1, 0.9), (0.9, 1.1))  # of D, S, rho, T
_STEPS = 4  # a tick


class Law(NamedTuple):
    """Rates of four species; an entry that the structure switches off holds the centre of its range."""

    mu: Any
    T: Any
    taste: Any  # w of the first resource
    K: Any
    y: Any
    loss: Any
    A: Any
    b: Any
    c: Any
    k_P: Any
    V: Any


class Closure(NamedTuple):
    """Logarithms of factors on the amplitude of the noise and on the number of founders."""

    noise: Any
    founders: Any


class Structure(NamedTuple):
    """Which species there are, which inhibits which, which make pigment: 0 or 1."""

    present: Any
    inhibits: Any
    makes: Any


class State(NamedTuple):
    """Individuals [4], resources [2], pigment."""

    n: Any
    R: Any
    P: Any


class ContestTheory(CompactTheory):
    """B2 as a diffusion."""

    world: ClassVar[str] = "B2"
    law: Law
    ports: Ports
    closure: Closure
    structure: Structure

    @classmethod
    def from_god(cls, params: Any, ports: Ports) -> "ContestTheory":
        p = jax.tree.map(jnp.asarray, params)
        masks = Structure(*((x > 0).astype(p.V.dtype) for x in (p.inoculum, p.A, p.b)))
        A, b = jnp.where(p.A > 0, p.A, 1), jnp.where(p.b > 0, p.b, 1)
        law = Law(p.mu, p.T, p.w[:, 0], p.K, p.y, p.loss, A, b, p.c, p.k_P, p.V)
        return cls(law, ports, Closure(jnp.zeros_like(p.V), jnp.zeros_like(p.V)), masks)

    def init(self, history: History, *, key: jax.Array) -> State:
        founders = jnp.maximum(poisson(key, 6, (4,)), 1) * jnp.exp(self.closure.founders)
        zero = jnp.zeros_like(self.law.V)
        return State(founders * self.structure.present, jnp.stack([zero, zero]) + 0.75, zero)

    def step(self, state: State, levels: jax.Array, *, key: jax.Array) -> tuple[State, jax.Array]:
        law, h, zero = self.law, 1 / _STEPS, jnp.zeros_like(self.law.V)
        D, S, rho, T = (a + (b - a) * x for (a, b), x in zip(_RANGES, self.ports.levels(levels), strict=True))
        feed, diet = S * jnp.stack([rho, 1 - rho]), jnp.stack([law.taste, 1 - law.taste], axis=1)
        appetite = diet * (law.mu * jnp.exp(-(((T - law.T) / 0.08) ** 2) / 2))[:, None]
        toxin, pigment = law.A * self.structure.inhibits, law.b * self.structure.makes
        process, sensor = split(key)
        kicks = jnp.exp(self.closure.noise) * normal(process, (_STEPS, 4))

        def substep(k: Any, carry: Any) -> Any:
            (n, R, P), total = carry
            density, uptake = n / law.V, appetite / (law.K + R[None])
            birth, death = uptake @ R, D + law.loss + toxin @ density
            read = jnp.stack([density.sum(), R[0], P, density @ law.c, density @ birth])
            growth = jnp.exp(h * (birth - death))
            # The least variance keeps the root's slope finite and is too small to raise the dead.
            spread = jnp.sqrt(jnp.maximum(h * n * (birth + death) * growth, 1e-7))
            moved = n * growth + spread * kicks[k]
            R = (R + h * D * feed) / (1 + h * (D + density @ (law.y * uptake)))
            P = (P + h * density @ pigment) / (1 + h * (D + law.k_P))
            return State(jnp.where(moved > 0.1, moved, 0), R, P), total + h * read

        state, mean = jax.lax.fori_loop(0, _STEPS, substep, (state, jnp.zeros(5, zero.dtype)))
        return state, self.ports.readings(mean, key=sensor)
