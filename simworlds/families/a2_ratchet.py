"""A2 Ratchet conveyor: Brownian particles of two mobilities on a periodic potential, flashed or rocked.

    dx_i = v_i dt + sqrt(2 m_i T) dW_i,    v_i = m_i [-A U'(x_i) z + F + R sin psi],    psi' = 2 pi f
    U = sin x + a2 sin(2 x + phi),         z = steady + flashing (1 + tanh(3 sin psi)) / 2

for N = 128 particles; m_i is the mobility of particle i's kind. The potential flashes, flashes in part
(shares of both terms of z), or stands while a force of amplitude R rocks the particles. The square wave
has soft edges, 12 % of a period from 10 to 90 %, so that a step resolves them at every f. The potential's
period is 2 pi, the fast kind's mobility 1; a tick is half a time unit. The sensors are

    <v>,    <1 / (1 + exp(-20 (cos(x - x0) - cos(pi / 4))))>,    (F + R sin psi) <v> + A <U> z',
    2 var(x - u) / tau

and <v> over the slow kind, where <> is the mean over particles: the mean velocity (noise left out), the
share within pi / 4 of a hidden place, the power put in by the forces and the wave, which leaves as heat,
and the growth of spread. For the last each particle has a follower, tau u' = x - u, so that free
particles give 2 m T.

A potential A U sin psi in place of the rocking force would drive no current at F = 0 (Reimann 2001,
doi:10.1103/PhysRevLett.86.4992).

Sources: Stratonovich 1958; Ambegaokar & Halperin 1969 (doi:10.1103/PhysRevLett.22.1364); Astumian & Bier 1994
(doi:10.1103/PhysRevLett.72.1766); Reimann et al. 2001 (doi:10.1103/PhysRevLett.87.010602); Reimann 2002
(doi:10.1016/S0370-1573(01)00081-3).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.elementary import sincos
from simworlds.integrate import Heun
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, SdeWorld, Sensor

SIZE = 128


class Params(NamedTuple):
    """Parameters of an instance. N is the number of particles, taken from `slow`."""

    slow: Any  # 1 for particles of the slow kind, 0 for the fast one [N]
    m: Any  # mobilities of the fast and of the slow kind [2]
    a2: Any  # second harmonic of the potential
    phi: Any  # its phase
    steady: Any  # share of the potential that stands
    flashing: Any  # share that is switched on and off
    R: Any  # amplitude of the rocking force
    psi0: Any  # the wave's initial phase
    x0: Any  # centre of the hidden window
    tau: Any  # the followers' time constant


class State(NamedTuple):
    """Positions and followers [N], and the wave's phase (a scalar)."""

    x: Any
    u: Any
    psi: Any


class Ratchet(SdeWorld):
    """A2: a current without a net force, whose sign depends on the rate; kinds that separate."""

    id = "A2"
    title = "Ratchet conveyor"
    track = "A"
    phenomenon = "net current without net force, its reversal with the rate, separation of two kinds"
    drives = (
        Drive("F", -3.0, 3.0, rest=0.5),
        Drive("A", 0.0, 5.0, rest=0.4),
        Drive("f", 0.04, 3.0, rest=0.5, log=True),
        Drive("T", 0.5, 2.0, rest=0.33),
    )
    sensors = (
        Sensor("mean velocity", -2.5, 2.5),
        Sensor("occupancy", 0.0, 0.6),
        Sensor("power", -2.0, 12.0),
        Sensor("growth of spread", 0.0, 8.0),
        Sensor("velocity of the slow kind", -1.2, 1.2),
    )
    scheme = Heun(dt=0.0125, substeps=40)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(16, 56),
        window=(8, 32),
        changes=(1, 3),
        ask={
            "mean velocity": 1.2,
            "occupancy": 1.0,
            "power": 0.8,
            "growth of spread": 0.7,
            "velocity of the slow kind": 0.8,
        },
        # Beyond f = 2 what waves put into particles at A = 5 depends on the step by up to 0.2 % of the range.
        levels={"f": (0.0, 0.9)},
    )
    lanes = 32
    mean_fraction = 0.10
    sd_fraction = 0.05

    def draw(self, draws: Draws) -> Params:
        """A hidden share of slow particles; a potential that flashes, maybe in part, or a rocking force."""
        share = draws.uniform(0.2, 0.8)
        mode = draws.choice(("flashing", "partly", "rocking"), (0.45, 0.15, 0.4))
        part = draws.uniform(0.3, 0.7)
        steady = {"flashing": 0.0, "partly": part, "rocking": 1.0}[mode]
        return Params(
            slow=(np.arange(SIZE) < round(SIZE * share)).astype(np.float32),
            m=np.array([1.0, draws.uniform(0.2, 0.5)], np.float32),
            a2=np.float32(draws.uniform(0.15, 0.35)),
            phi=np.float32(draws.uniform(0.3, 1.2)),
            steady=np.float32(steady),
            flashing=np.float32(1 - steady),
            R=np.float32(draws.uniform(1.5, 4.0) * (mode == "rocking")),
            psi0=np.float32(draws.uniform(0.0, 2 * np.pi)),
            x0=np.float32(draws.uniform(0.0, 2 * np.pi)),
            tau=np.float32(draws.uniform(2.0, 4.0)),
        )

    def limit(self, **changes: Any) -> Params:
        """One kind of mobility 1 on a standing potential, a2 = 0.25, phi = 0.6; half is called slow."""
        half = (np.arange(SIZE) < SIZE // 2).astype(np.float64)
        plain = Params(half, np.ones(2), 0.25, 0.6, 1.0, 0.0, 0.0, 0.0, 0.0, 3.0)
        return plain._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A distribution: positions independent and uniform over the period, followers at them."""
        n = params.slow.shape[0]
        x = 2 * np.pi * noise.uniform(jnp.arange(n, dtype=jnp.uint32))
        return State(x=x, u=x, psi=params.psi0)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """Velocities without noise, the followers, and the phase."""
        z, _, force = self._wave(state, drive, params)
        _, slope = self._potential(*sincos(state.x), params)
        return State(
            x=self._mobility(params) * (force - drive.A * z * slope),
            u=(state.x - state.u) / params.tau,
            psi=jnp.broadcast_to(2 * np.pi * drive.f, jnp.shape(state.psi)),
        )

    def diffusion(self, state: State, drive: Any, params: Params) -> State:
        """sqrt(2 m T) on every position."""
        return State(x=jnp.sqrt(2 * drive.T * self._mobility(params)), u=None, psi=None)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Mean velocity, occupancy, power, growth of spread, mean velocity of the slow kind."""
        s, c = sincos(state.x)
        z, z_rate, force = self._wave(state, drive, params)
        U, slope = self._potential(s, c, params)
        v = self._mobility(params) * (force - drive.A * z * slope)
        near = c * jnp.cos(params.x0) + s * jnp.sin(params.x0) - float(np.cos(np.pi / 4))
        away = state.x - state.u
        return (
            jnp.mean(v),
            jnp.mean(1 / (1 + jnp.exp(-20 * near))),
            force * jnp.mean(v) + drive.A * jnp.mean(U) * z_rate,
            2 * jnp.mean((away - jnp.mean(away)) ** 2) / params.tau,
            jnp.mean(v * params.slow) / jnp.mean(params.slow),
        )

    def wrap(self, state: State) -> State:
        """Positions within one period, each follower as far from its particle as before; phase likewise."""
        x = jnp.mod(state.x, 2 * np.pi)
        return State(x=x, u=state.u - (state.x - x), psi=jnp.mod(state.psi, 2 * np.pi))

    def _mobility(self, params: Params) -> Any:
        return params.m[0] + params.slow * (params.m[1] - params.m[0])

    def _wave(self, state: State, drive: Any, params: Params) -> tuple[Any, Any, Any]:
        """The wave z, its rate of change z', and the force F + R sin psi."""
        sine, cosine = jnp.sin(state.psi), jnp.cos(state.psi)
        edge = jnp.tanh(3 * sine)
        z = params.steady + params.flashing * (1 + edge) / 2
        z_rate = 2 * np.pi * drive.f * params.flashing * 1.5 * (1 - edge * edge) * cosine
        return z, z_rate, drive.F + params.R * sine

    def _potential(self, s: Any, c: Any, params: Params) -> tuple[Any, Any]:
        """U and U', from the sine and cosine of x."""
        p, q = params.a2 * jnp.cos(params.phi), params.a2 * jnp.sin(params.phi)
        s2, c2 = 2 * s * c, c * c - s * s
        return s + p * s2 + q * c2, c + 2 * (p * c2 - q * s2)
