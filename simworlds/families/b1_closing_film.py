"""B1 Closing film: bilayer patches grow, bend, and close into vesicles that trap what was outside.

A patch of area a is a spherical cap: R = sqrt(a / 4 pi) is the radius of the vesicle it would make, s its rim
relative to the flat disc's (1 flat, 0 closed), x = 1 - s^2 its curvature. While it is open,

    E(s) = 4 pi kt [x + xi (s - 1)] - 4 pi q R sqrt(x + w^2),      xi = gam R / kt
    gam  = gam0 [1 - phi e / (e + Ke)] [1 - aT (T - 1)]
    ds   = -Mob E'(s) / T dt + sqrt(2 Mob) dW          reflected at 1; absorbed at 0, where it closes: z = 1
    a'   = k_on rim (m - m_c)+,                        rim = 2 sqrt(pi a) s;      c_in = c_out

and once it is closed,

    a'    = k_face a (m - m_c)
    c_in' = -P (c_in - c_out);                         |c_in - c_out| > Pi_c bursts it: z = 0, s = 0.3
    m'    = feed - k_out m - sum a' / Vol + k_cat sum z c_in                     (open or closed)

Energies in units of kT at T = 1: kt = 2 kappa + kappa_G bends (Helfrich), gam R is the rim's tension, q a
spontaneous curvature, whose cusp at the flat disc is rounded by w = 0.1. One to six patches share the monomer
m. The time unit is a tick. Flat and closed patches have like energies at xi = 1, and the flat one loses its
stability at xi = 2; between the two, noise decides when a patch closes.

Sources: Helfrich 1973 (doi:10.1515/znc-1973-11-1209); Fromherz 1983 (doi:10.1016/0009-2614(83)87083-3);
Hu, Briguglio, Deserno 2012 (doi:10.1016/j.bpj.2012.02.013); Chen, Roberts, Szostak 2004
(doi:10.1126/science.1100757).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import FirstPassage, SoftPassage
from simworlds.keys import Draws, Noise
from simworlds.world import AbsorbingWorld, Drive, Grammar, Relaxation, Sensor

PATCHES = 6
_CUSP = 0.1  # w
_REOPENED = 0.3  # the rim of a patch that burst
_SOFT = 0.2  # how far above Pi_c a patch of the relaxation surely bursts


class Params(NamedTuple):
    """Parameters of an instance, padded to six patches."""

    kt: Any  # bending modulus 2 kappa + kappa_G
    gam0: Any  # line tension of the rim without additive at T = 1
    phi: Any  # share of it that the additive takes off (or, negative, adds)
    Ke: Any  # half-saturation of the additive
    aT: Any  # share of it lost per unit of T
    q: Any  # spontaneous curvature, 0 for a symmetric film
    Mob: Any  # mobility of the rim
    k_on: Any  # growth at the rim
    k_face: Any  # exchange through the face of a closed patch
    m_c: Any  # saturation of the monomer
    k_out: Any  # loss of the monomer
    Vol: Any  # volume that the patches share
    k_cat: Any  # monomer made by the trapped dye of a closed patch, 0 without autopoiesis
    P: Any  # permeability to the dye
    Pi_c: Any  # difference of dye that bursts a closed patch
    lam: Any  # conductivity of the monomer, relative to the dye's
    a_0: Any  # mean initial area, 0 for an absent patch [6]
    wide: Any  # relative half width of the law of initial areas


class State(NamedTuple):
    """Of each patch ``[6]``: rim, area, dye inside, whether closed, whether it ever burst; the monomer."""

    s: Any
    a: Any
    c_in: Any
    z: Any
    b: Any
    m: Any


def _force(state: State, drive: Any, params: Params) -> Any:
    """-Mob E'(s) / T of each patch."""
    p = params
    R = jnp.sqrt(state.a / (4 * np.pi) + 1e-12)
    gam = p.gam0 * (1 - p.phi * drive.e / (drive.e + p.Ke)) * (1 - p.aT * (drive.T - 1))
    xi = gam * R / p.kt
    s = jnp.clip(state.s, 0, 1)
    slope = 4 * np.pi * (p.kt * (xi - 2 * s) + p.q * R * s / jnp.sqrt(1 - s * s + _CUSP**2))
    return -p.Mob * slope / drive.T


def _at_risk(state: State, params: Params) -> Any:
    """1 for patches that are there and not wholly closed, else 0."""
    return jnp.where((params.a_0 > 0) & (state.z < 1), jnp.ones_like(state.s), 0)


def _landed(after: State, hit: Any, opening: Any, drive: Any) -> State:
    """Shares `hit` of the open and `opening` of the closed film change over.

    The law's shares, and with them its z and b, are 0 or 1; those of its relaxation lie between. What closes
    traps c_out.
    """
    z = 1 - (1 - after.z) * (1 - hit)
    c_in = drive.c_out + (after.c_in - drive.c_out) * after.z / jnp.maximum(z, 1e-12)
    reopened = after.z * opening
    rim = ((1 - z) * after.s + reopened * _REOPENED) / jnp.maximum(1 - z + reopened, 1e-12)
    return after._replace(
        s=rim,
        c_in=jnp.where(opening < 1, c_in, drive.c_out),
        z=z - reopened,
        b=1 - (1 - after.b) * (1 - reopened),
    )


class ClosingFilm(AbsorbingWorld):
    """B1: before a patch closes, its dye follows the outside; after it, the dye remembers."""

    id = "B1"
    title = "Closing film"
    track = "B"
    phenomenon = "a film closes or stays open, and traps for good what was outside when it closed"
    drives = (
        Drive("feed", 0.0, 0.12, rest=0.4),
        Drive("e", 0.0, 1.0, rest=0.0),
        Drive("T", 0.8, 1.3, rest=0.4),
        Drive("c_out", 0.0, 4.0, rest=0.5),
    )
    sensors = (
        Sensor("turbidity", 0.0, 25.0),
        Sensor("retained dye", 0.0, 40.0),
        Sensor("monomer", 0.0, 1.5),
        Sensor("anisotropy", 0.0, 6.0),
        Sensor("conductivity", 0.0, 4.5),
    )
    scheme = FirstPassage(dt=0.05, substeps=20)
    absorbing = "s"
    grammar = Grammar(
        segments=(2, 5),
        ticks=(20, 64),
        window=(8, 32),
        changes=(1, 3),
        ask={"turbidity": 1.0, "retained dye": 1.6, "monomer": 0.7, "anisotropy": 1.2, "conductivity": 0.2},
        sd_share=0.15,
    )
    branches = ("open", "partly closed", "closed", "burst")
    mean_fraction = 0.10
    sd_fraction = 0.05

    def draw(self, draws: Draws) -> Params:
        """Number and size of patches, elasticity, an additive of either sign, growth, dye."""
        patches = draws.integer(1, PATCHES)
        R_0 = 0.2 * patches ** (-1 / 3)  # so that few patches scatter as much light as many
        area = 4 * np.pi * R_0**2
        kt = draws.uniform(10.0, 40.0) / (4 * np.pi)
        values = Params(
            kt=kt,
            gam0=draws.uniform(0.45, 0.6) * kt / R_0,
            phi=draws.uniform(0.3, 0.8) * draws.choice((1.0, -1.0)),
            Ke=draws.uniform(0.3, 1.0),
            aT=draws.uniform(0.7, 1.6),
            q=draws.uniform(0.04, 0.12) * kt / R_0 * draws.chance(0.4),
            Mob=draws.log_uniform(0.01, 0.05),
            k_on=draws.uniform(0.15, 0.4) * R_0,
            k_face=draws.uniform(0.001, 0.005),
            m_c=draws.uniform(0.2, 0.4),
            k_out=draws.uniform(0.05, 0.12),
            Vol=draws.uniform(6.0, 15.0) * patches * area,
            k_cat=draws.uniform(0.005, 0.02) / patches * draws.chance(0.4),
            P=draws.log_uniform(0.002, 0.05),
            Pi_c=draws.uniform(1.0, 3.0),
            lam=draws.uniform(0.3, 1.0),
            a_0=[draws.uniform(0.8, 1.2) * area * (i < patches) for i in range(PATCHES)],
            wide=0.1,
        )
        return Params(*(np.asarray(value, np.float32) for value in values))

    def limit(self, **changes: Any) -> Params:
        """Six like patches with R = 1 and xi = gam0 that neither grow nor leak nor burst; times 1 / Mob."""
        plain = Params(
            kt=1.0,
            gam0=1.0,
            phi=0.0,
            Ke=1.0,
            aT=0.0,
            q=0.0,
            Mob=1.0,
            k_on=0.0,
            k_face=0.0,
            m_c=0.3,
            k_out=0.1,
            Vol=10.0,
            k_cat=0.0,
            P=0.0,
            Pi_c=1e9,
            lam=0.0,
            a_0=np.full(PATCHES, 4 * np.pi),
            wide=0.0,
        )
        return plain._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A distribution: open and flat, areas uniform about their means; the monomer saturated, no dye."""
        level = noise.uniform(jnp.arange(params.a_0.shape[0], dtype=jnp.uint32), params.a_0.dtype)
        zero = jnp.zeros_like(params.a_0)
        a = params.a_0 * (1 + params.wide * (2 * level - 1))
        return State(s=zero + 1, a=a, c_in=zero, z=zero, b=zero, m=jnp.asarray(params.m_c))

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """Rim, areas, dye and monomer; closing and bursting are jumps."""
        p = params
        excess = state.m - p.m_c
        rim = 2 * jnp.sqrt(np.pi * state.a + 1e-12) * state.s
        grown = (1 - state.z) * p.k_on * rim * jnp.maximum(excess, 0) + state.z * p.k_face * state.a * excess
        grown = jnp.where(p.a_0 > 0, grown, 0)
        made = p.k_cat * jnp.sum(state.z * state.c_in)
        return State(
            s=_at_risk(state, p) * _force(state, drive, p),
            a=grown,
            c_in=-state.z * p.P * (state.c_in - drive.c_out),
            z=jnp.zeros_like(state.z),
            b=jnp.zeros_like(state.b),
            m=drive.feed - p.k_out * state.m - jnp.sum(grown) / p.Vol + made,
        )

    def diffusion(self, state: State, drive: Any, params: Params) -> State:
        """sqrt(2 Mob) on the rim of each open patch."""
        amplitude = jnp.sqrt(2 * params.Mob) * _at_risk(state, params)
        return State(s=amplitude, a=None, c_in=None, z=None, b=None, m=None)

    def landed(self, before: State, after: State, hit: Any, drive: Any, params: Params) -> State:
        """Patches that reached 0 close and trap c_out; closed ones whose dye differs too much burst."""
        tense = jnp.abs(after.c_in - drive.c_out) > params.Pi_c
        closing, opening = (share.astype(after.z.dtype) for share in (hit, tense))
        return _landed(after, closing, opening, drive)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Of the patches sum a^1.5, sum z a^1.5 c_in and, if open, sum a s; m; c_out + lam m."""
        volume = state.a * jnp.sqrt(state.a + 1e-12)
        return (
            jnp.sum(volume),
            jnp.sum(state.z * volume * state.c_in),
            state.m,
            jnp.sum((1 - state.z) * state.a * state.s),
            drive.c_out + params.lam * state.m,
        )

    def branch(self, state: State, params: Params) -> Any:
        """Whether any patch ever burst; if none did, whether none, some or all are closed."""
        there = params.a_0 > 0
        shut = there & (state.z > 0.5)
        label = jnp.where(jnp.any(shut), 1, 0) + jnp.where(jnp.all(shut | ~there), 1, 0)
        return jnp.where(jnp.any(there & (state.b > 0.5)), 3, label).astype(jnp.int32)

    def relaxed(self) -> "SoftFilm":
        """The law with shares of patches in place of closing and bursting; see `SoftFilm`."""
        return _RELAXED


class SoftFilm(Relaxation, AbsorbingWorld):
    """The relaxation of B1: a share of each patch is closed, which moves with the probability to close.

    A path of the rim is the law's until it closes. Of a closed share, (|c_in - c_out| - Pi_c) / 0.2, held
    within 0 and 1, bursts in a step. Derivatives flow through both.
    """

    law = ClosingFilm()
    id = "B1-relaxed"
    scheme = SoftPassage(law.scheme.dt, law.scheme.substeps)
    absorbing = law.absorbing

    def initial(self, params: Params, noise: Noise) -> State:
        return self.law.initial(params, noise)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        return self.law.drift(state, drive, params)

    def diffusion(self, state: State, drive: Any, params: Params) -> State:
        return self.law.diffusion(state, drive, params)

    def landed(self, before: State, after: State, hit: Any, drive: Any, params: Params) -> State:
        """The shares that close and that burst."""
        tension = jnp.sqrt((after.c_in - drive.c_out) ** 2 + 1e-12)
        return _landed(after, hit, jnp.clip((tension - params.Pi_c) / _SOFT, 0, 1), drive)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        return self.law.read(state, drive, params)

    def branch(self, state: State, params: Params) -> Any:
        return self.law.branch(state, params)


_RELAXED = SoftFilm()
