"""D4 Resonator with latent mode: a driven Duffing oscillator coupled to a mode that no sensor sees.

    x'' + de c x' + w0^2 x + be x^3 + b5 x^5 + g y + 2 al x y + bias = F cos(phi),    phi' = W
    y'' + d2 y' + w2^2 y + g x + al x^2 = 0

Both couplings come from the potential g x y + al x^2 y, so they work both ways.

Time is in units of 1/w0; a tick is 6.4 units. A lock-in amplifier reads x through first-order filters of 5
ticks:

    tau I' = 2 x cos(phi) - I,   tau Q' = 2 x sin(phi) - Q,   tau m' = x - m,   tau s' = x^2 - s

and the sensors are I, Q, m and sqrt(s). A softening spring (be < 0) carries b5 = be^2 / 2, which keeps the
restoring force monotone (9 be^2 < 20 b5 w0^2), so that no drive lets the mass escape; a hardening spring has
b5 = 0.

Sources: Duffing 1918; Nayfeh & Mook 1979, Nonlinear Oscillations; Holmes 1979 (doi:10.1098/rsta.1979.0068).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.elementary import sincos
from simworlds.integrate import RK4
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, OdeWorld, Sensor


class Params(NamedTuple):
    """Parameters of an instance: scalars, in units of w0 = 1."""

    w0: Any  # natural frequency of the sensed mode
    de: Any  # its damping
    be: Any  # cubic stiffness: hardening if positive
    b5: Any  # quintic stiffness
    w2: Any  # natural frequency of the latent mode
    d2: Any  # its damping
    g: Any  # linear coupling
    al: Any  # quadratic coupling; 0 without internal resonance


class State(NamedTuple):
    """Displacements, velocities, drive phase, and the lock-in's filters: scalars."""

    x: Any
    v: Any
    y: Any
    u: Any
    phi: Any
    in_phase: Any
    quadrature: Any
    shift: Any
    square: Any


class Resonator(OdeWorld):
    """D4: fold hysteresis, and the antiresonance of a mode that is never sensed."""

    id = "D4"
    title = "Resonator with latent mode"
    track = "D"
    phenomenon = "jumps up and down at different frequencies; a notch from a mode that no sensor sees"
    drives = (
        Drive("F", 0.0, 0.6, rest=0.0),
        Drive("W", 0.5, 2.2, rest=0.3),
        Drive("bias", -0.4, 0.4, rest=0.5),
        Drive("c", 1.0, 4.0, rest=0.0),
    )
    sensors = (
        Sensor("in-phase amplitude", -2.0, 2.0),
        Sensor("quadrature amplitude", -2.0, 2.0),
        Sensor("static shift", -1.0, 1.0),
        Sensor("rms displacement", 0.0, 2.0),
    )
    scheme = RK4(dt=0.05, substeps=128)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(16, 64),
        window=(6, 24),
        changes=(1, 3),
        ask={
            "in-phase amplitude": 1.0,
            "quadrature amplitude": 1.0,
            "static shift": 0.7,
            "rms displacement": 1.3,
        },
        levels={"F": (0.15, 1.0)},
    )
    mean_fraction = 0.03
    sd_fraction = 0.015
    filter_time = 32.0

    def draw(self, draws: Draws) -> Params:
        """Hardening or softening, the latent mode free or near an internal resonance (1:2 or 1:3)."""
        be = draws.uniform(0.05, 0.3) * draws.choice((1.0, -1.0), (0.7, 0.3))
        resonant = draws.chance(0.3)
        near = draws.choice((2.0, 3.0)) * draws.uniform(0.97, 1.03)
        free = draws.uniform(1.1, 2.2)
        values = Params(
            w0=1.0,
            de=draws.uniform(0.05, 0.2),
            be=be,
            b5=max(-be, 0.0) ** 2 / 2,
            w2=near if resonant else free,
            d2=draws.uniform(0.02, 0.1),
            g=draws.uniform(0.1, 0.4),
            al=draws.uniform(0.05, 0.2) * resonant,
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """One Duffing mode: no latent mode coupled, w0 = 1, be = 0.2, de = 0.1."""
        single = Params(w0=1.0, de=0.1, be=0.2, b5=0.0, w2=1.3, d2=0.05, g=0.0, al=0.0)
        return single._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: at rest in the origin, filters empty, drive phase 0."""
        del noise
        zero = jnp.zeros_like(params.w0)
        return State(*(zero for _ in State._fields))

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The two equations of motion as four first-order ones, the phase, and the four filters."""
        x, v, y, u, phi = state.x, state.v, state.y, state.u, state.phi
        p, tau = params, self.filter_time
        sine, cosine = sincos(phi)
        spring = (p.w0**2 + (p.be + p.b5 * x * x) * x * x) * x
        return State(
            x=v,
            v=drive.F * cosine - drive.bias - p.de * drive.c * v - spring - (p.g + 2 * p.al * x) * y,
            y=u,
            u=-p.d2 * u - p.w2**2 * y - p.g * x - p.al * x * x,
            phi=jnp.broadcast_to(drive.W, jnp.shape(phi)),
            in_phase=(2 * x * cosine - state.in_phase) / tau,
            quadrature=(2 * x * sine - state.quadrature) / tau,
            shift=(x - state.shift) / tau,
            square=(x * x - state.square) / tau,
        )

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """The lock-in's outputs; the root is smooth at 0 for gradients."""
        del drive, params
        rms = jnp.sqrt(jnp.maximum(state.square, 0) + 1e-12)
        return state.in_phase, state.quadrature, state.shift, rms

    def wrap(self, state: State) -> State:
        """The drive's phase within one turn."""
        return state._replace(phi=jnp.mod(state.phi, 2 * np.pi))
