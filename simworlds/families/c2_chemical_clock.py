"""C2 Chemical clock: two coupled Brusselators that warm the vessel they react in.

    X_i' = k [A_i - (B + 1) X_i + X_i^2 Y_i] + sig (X_j - X_i)
    Y_i' = k [B X_i - X_i^2 Y_i] + sig q (Y_j - Y_i)
    th'  = -(th - th_b) / tau + h r,     k = exp(E (1 - 1/th)),     r = k (X_1^2 Y_1 + X_2^2 Y_2)

with A_1 = A (1 + m), A_2 = A (1 - m). Concentrations, time and temperature are dimensionless; a tick is one
time unit. One cell alone, without heat, oscillates beyond the Hopf point B = 1 + A^2, there with angular
frequency A.

Sources: Prigogine & Lefever 1968 (doi:10.1063/1.1668896); Kai & Tomita 1979.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import RK4
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, OdeWorld, Sensor


class Params(NamedTuple):
    """Parameters of an instance: scalars."""

    m: Any  # mismatch of the two cells' feeds
    q: Any  # transport of Y relative to X
    E: Any  # activation energy over the thermal energy; 0 without thermal feedback
    h: Any  # heating per unit of reaction rate
    tau: Any  # thermal relaxation time
    x1: Any  # initial X of cell 1
    x2: Any  # initial X of cell 2


class State(NamedTuple):
    """Concentrations of the two cells and the temperature: scalars."""

    x1: Any
    y1: Any
    x2: Any
    y2: Any
    th: Any


class ChemicalClock(OdeWorld):
    """C2: onset of oscillations, in phase or out of phase, with thermal feedback."""

    id = "C2"
    title = "Chemical clock"
    track = "C"
    phenomenon = "onset of oscillations, in-phase and anti-phase states of two cells, thermal feedback"
    drives = (
        Drive("A", 0.5, 1.5, rest=0.5),
        Drive("B", 1.0, 4.0, rest=0.2),
        Drive("sig", 0.0, 1.0, rest=0.2),
        Drive("th_b", 0.9, 1.1, rest=0.5),
    )
    sensors = (
        Sensor("X of cell 1", 0.0, 4.0),
        Sensor("Y of both cells", 0.0, 10.0),
        Sensor("heat", 0.0, 20.0),
        Sensor("X difference", -3.0, 3.0),
    )
    scheme = RK4(dt=0.005, substeps=200)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(24, 64),
        window=(12, 40),
        changes=(1, 3),
        ask={"X of cell 1": 1.0, "Y of both cells": 1.0, "heat": 0.8, "X difference": 1.2},
        sd_share=0.45,
        # Contracts leave out the corner of A near 0.5 and B near 4, where relaxation spikes are all there is
        # to see.
        levels={"A": (0.2, 1.0), "B": (0.0, 0.83)},
    )
    mean_fraction = 0.03
    sd_fraction = 0.015

    def draw(self, draws: Draws) -> Params:
        """Cells that differ by 5 to 15 %; with thermal feedback in three instances of four."""
        thermal = draws.chance(0.75)
        E, tau = draws.uniform(0.5, 3.0), draws.uniform(0.5, 5.0)
        values = Params(
            m=draws.uniform(0.05, 0.15) / 2 * draws.choice((1.0, -1.0)),
            q=draws.uniform(0.1, 1.0),
            E=E * thermal,
            # The feedback's strength is E h tau: beyond 0.03 temperature and rates run away.
            h=draws.uniform(0.01, 0.03) / (E * tau) * thermal,
            tau=tau,
            x1=draws.uniform(0.5, 1.5),
            x2=draws.uniform(0.5, 1.5),
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """Two equal cells without heat: each is the Brusselator."""
        return Params(m=0.0, q=1.0, E=0.0, h=0.0, tau=1.0, x1=1.0, x2=1.0)._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: the instance's own X, Y = 1.5 in both cells, temperature 1."""
        del noise
        one = jnp.ones_like(params.x1)
        return State(x1=params.x1 * one, y1=1.5 * one, x2=params.x2 * one, y2=1.5 * one, th=one)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The law, term by term."""
        x1, y1, x2, y2, th = state
        k = jnp.exp(params.E * (1 - 1 / th))
        c1, c2 = x1 * x1 * y1, x2 * x2 * y2
        mix, mix_y = drive.sig * (x2 - x1), drive.sig * params.q * (y2 - y1)
        return State(
            x1=k * (drive.A * (1 + params.m) - (drive.B + 1) * x1 + c1) + mix,
            y1=k * (drive.B * x1 - c1) + mix_y,
            x2=k * (drive.A * (1 - params.m) - (drive.B + 1) * x2 + c2) - mix,
            y2=k * (drive.B * x2 - c2) - mix_y,
            th=-(th - drive.th_b) / params.tau + params.h * k * (c1 + c2),
        )

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """X of cell 1, Y of both, the rate r that heats the vessel, and the cells' difference."""
        del drive
        x1, y1, x2, y2, th = state
        heat = jnp.exp(params.E * (1 - 1 / th)) * (x1 * x1 * y1 + x2 * x2 * y2)
        return x1, y1 + y2, heat, x1 - x2
