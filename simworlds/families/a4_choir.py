"""A4 Choir: noisy Kuramoto-Sakaguchi oscillators in two hidden sections, and a conductor.

    dth_i = [om_i + sum_b K_ab p_b r_b sin(psi_b - th_i - lam) + F sin(phi - th_i)] dt + sqrt(2 D) dW_i,
    phi' = nu

for i in section a; z_b = r_b exp(i psi_b) is the mean of exp(i th) over section b, which holds a share p_b of
the N = 128 oscillators. K_aa = K, K_ab = K k_ab. Frequencies are the quantiles of a Lorentzian or a Gaussian
around each section's centre. Time units are those of 1/om; a tick is one unit. A lock-in amplifier at the
conductor's phase reads w = z exp(-i phi) through a filter of 5 ticks:

    tau L' = w - L,      tau P' = |w - L|^2 - P

Sources: Kuramoto 1984; Sakaguchi 1988 (doi:10.1143/PTP.79.39); Strogatz & Mirollo 1991
(doi:10.1007/BF01029202); Acebron et al. 2005 (doi:10.1103/RevModPhys.77.137); Ott & Antonsen 2008
(doi:10.1063/1.2930766).
"""

from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.elementary import sincos
from simworlds.integrate import Heun
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, SdeWorld, Sensor

SIZE = 128


class Params(NamedTuple):
    """Parameters of an instance. N is the number of oscillators, taken from the arrays."""

    first: Any  # 1 for members of the first section, 0 for the second [N]
    normal: Any  # standard Gaussian quantile of each member within its section [N]
    cauchy: Any  # standard Lorentzian quantile likewise [N]
    k: Any  # coupling of section a to section b, relative to K [2, 2]
    lam: Any  # phase lag
    phi0: Any  # the conductor's initial phase
    center: Any  # centres of the two sections' frequencies [2]
    spread: Any  # their half width (Lorentzian) or standard deviation (Gaussian)
    lorentzian: Any  # 1 if Lorentzian, 0 if Gaussian


class State(NamedTuple):
    """Phases [N], the conductor's phase and the lock-in's filters (scalars)."""

    th: Any
    phi: Any
    lock_re: Any
    lock_im: Any
    power: Any


def quantiles(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n mid-point quantiles of the standard Gaussian and of the standard Lorentzian, ``[n]`` each."""
    level = (np.arange(n) + 0.5) / n
    return np.array([NormalDist().inv_cdf(float(u)) for u in level]), np.tan(np.pi * (level - 0.5))


def frequencies(params: Params) -> Any:
    """om_i: the section's centre, and a quantile of the Gaussian or the Lorentzian."""
    p = params
    shape = p.normal + p.lorentzian * (p.cauchy - p.normal)
    return p.center[1] + p.first * (p.center[0] - p.center[1]) + p.spread * shape


class Choir(SdeWorld):
    """A4: a synchronisation threshold, partial order of two hidden sections, entrainment."""

    id = "A4"
    title = "Choir"
    track = "A"
    phenomenon = "synchronisation threshold, two hidden sections, entrainment"
    drives = (
        Drive("K", 0.0, 4.0, rest=0.25),
        Drive("D", 0.05, 1.2, rest=0.2),
        Drive("F", 0.0, 1.0, rest=0.0),
        Drive("nu", -2.0, 2.0, rest=0.5),
    )
    sensors = (
        Sensor("order of all", 0.0, 1.0),
        Sensor("order of one section", 0.0, 1.0),
        Sensor("mean phase velocity", -1.5, 1.5),
        Sensor("lock-in amplitude", 0.0, 1.0),
        Sensor("beat power", 0.0, 0.8),
    )
    scheme = Heun(dt=0.05, substeps=20)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(16, 56),
        window=(8, 32),
        changes=(1, 3),
        ask={
            "order of all": 1.0,
            "order of one section": 1.0,
            "mean phase velocity": 0.8,
            "lock-in amplitude": 0.8,
            "beat power": 0.4,
        },
    )
    lanes = 32
    mean_fraction = 0.10
    sd_fraction = 0.05
    filter_time = 5.0

    def draw(self, draws: Draws) -> Params:
        """Two sections of hidden size on either side of 0, conformist or (one in five) contrarian."""
        n1 = round(SIZE * draws.uniform(0.3, 0.7))
        side = draws.choice((1.0, -1.0))
        center = (side * draws.uniform(0.2, 0.8), -side * draws.uniform(0.2, 0.8))
        spread, lorentzian = draws.uniform(0.02, 0.3), draws.chance(0.5)
        sign = -1.0 if draws.chance(0.2) else 1.0
        across = (draws.uniform(0.2, 1.0), sign * draws.uniform(0.2, 1.0))
        normal, cauchy = (
            np.concatenate(pair) for pair in zip(quantiles(n1), quantiles(SIZE - n1), strict=True)
        )
        return Params(
            first=(np.arange(SIZE) < n1).astype(np.float32),
            normal=normal.astype(np.float32),
            cauchy=cauchy.astype(np.float32),
            k=np.array([[1.0, across[0]], [across[1], 1.0]], np.float32),
            lam=np.float32(draws.uniform(0.0, 0.6)),
            phi0=np.float32(draws.uniform(0.0, 2 * np.pi)),
            center=np.array(center, np.float32),
            spread=np.float32(spread),
            lorentzian=np.float32(lorentzian),
        )

    def limit(self, **changes: Any) -> Params:
        """The noisy Kuramoto model of identical oscillators; with a spread, `normal` holds frequencies."""
        half = (np.arange(SIZE) < SIZE // 2).astype(np.float64)
        still = np.zeros(SIZE)
        plain = Params(half, still, still, np.ones((2, 2)), 0.0, 0.0, np.zeros(2), 0.0, 0.0)
        return plain._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A distribution: phases independent and uniform on the circle."""
        n = params.first.shape[0]
        zero = jnp.zeros_like(params.lam)
        th = 2 * np.pi * noise.uniform(jnp.arange(n, dtype=jnp.uint32))
        return State(th=th, phi=params.phi0, lock_re=zero, lock_im=zero, power=zero)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """Velocities of all phases, and the lock-in's filters."""
        s, c = sincos(state.th)
        c1, s1, c2, s2 = self._halves(c, s, params)
        lag_c, lag_s = jnp.cos(params.lam), jnp.sin(params.lam)
        # The field on section a is sum_b K_ab p_b z_b exp(-i lam) + F exp(i phi); c1 ... are p_b z_b.
        u1, v1 = c1 * lag_c + s1 * lag_s, s1 * lag_c - c1 * lag_s
        u2, v2 = c2 * lag_c + s2 * lag_s, s2 * lag_c - c2 * lag_s
        sp, cp = sincos(state.phi)
        k = drive.K * params.k
        a1, b1 = k[0, 0] * u1 + k[0, 1] * u2 + drive.F * cp, k[0, 0] * v1 + k[0, 1] * v2 + drive.F * sp
        a2, b2 = k[1, 0] * u1 + k[1, 1] * u2 + drive.F * cp, k[1, 0] * v1 + k[1, 1] * v2 + drive.F * sp
        a, b = a2 + params.first * (a1 - a2), b2 + params.first * (b1 - b2)
        w_re, w_im = (c1 + c2) * cp + (s1 + s2) * sp, (s1 + s2) * cp - (c1 + c2) * sp
        beat = (w_re - state.lock_re) ** 2 + (w_im - state.lock_im) ** 2
        return State(
            th=frequencies(params) + b * c - a * s,
            phi=jnp.broadcast_to(drive.nu, jnp.shape(state.phi)),
            lock_re=(w_re - state.lock_re) / self.filter_time,
            lock_im=(w_im - state.lock_im) / self.filter_time,
            power=(beat - state.power) / self.filter_time,
        )

    def diffusion(self, state: State, drive: Any, params: Params) -> State:
        """sqrt(2 D) on every phase."""
        del params
        amplitude = jnp.sqrt(2 * drive.D) * jnp.ones_like(state.th)
        return State(th=amplitude, phi=None, lock_re=None, lock_im=None, power=None)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """|z|, |z_1|, the mean velocity (without the noise), |L| and P."""
        s, c = sincos(state.th)
        c1, s1, c2, s2 = self._halves(c, s, params)
        share = jnp.mean(params.first)
        lag_c, lag_s = jnp.cos(params.lam), jnp.sin(params.lam)
        sp, cp = sincos(state.phi)
        k = params.k
        # Mean over i of sin(psi_b - th_i - lam): the imaginary part of z_b exp(-i lam) conj(z_a); equal pairs
        # leave -sin(lam).
        own = -lag_s * (k[0, 0] * (c1 * c1 + s1 * s1) + k[1, 1] * (c2 * c2 + s2 * s2))
        odd, even = s2 * c1 - c2 * s1, c1 * c2 + s1 * s2
        cross = k[0, 1] * (odd * lag_c - even * lag_s) - k[1, 0] * (odd * lag_c + even * lag_s)
        pull = drive.F * (sp * (c1 + c2) - cp * (s1 + s2))
        velocity = jnp.mean(frequencies(params)) + drive.K * (own + cross) + pull
        everyone = jnp.sqrt((c1 + c2) ** 2 + (s1 + s2) ** 2 + 1e-12)
        one = jnp.sqrt(c1 * c1 + s1 * s1 + 1e-12) / share
        lock = jnp.sqrt(state.lock_re**2 + state.lock_im**2 + 1e-12)
        return everyone, one, velocity, lock, state.power

    def wrap(self, state: State) -> State:
        """Phases within one turn."""
        return state._replace(th=jnp.mod(state.th, 2 * np.pi), phi=jnp.mod(state.phi, 2 * np.pi))

    def _halves(self, c: Any, s: Any, params: Params) -> tuple[Any, Any, Any, Any]:
        c1, s1 = jnp.mean(c * params.first), jnp.mean(s * params.first)
        return c1, s1, jnp.mean(c) - c1, jnp.mean(s) - s1
