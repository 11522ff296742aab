"""D1 Delayed regulator: a substance whose production answers to its own past, wired differently each time.

    x' = b P F(v(t - t1)) - gam C (1 + e z) x + I,     v = x or y
    y' = k x(t - t2) - y / Ty
    z' = G(s(t - t3)) - z / Tz,                        s = x or y
    w' = (x - w) / Tw

    F(v) = 1 / (1 + v^n) or v / (1 + v^n),     G(s) = s^2 / (1 + s^2)

Production falls with the substance, or rises and falls (hump). Each of the drives `u1` and `u2` multiplies
production (P) or clearance (C); with e > 0 the second product z speeds clearance up. Concentrations are
dimensionless, a tick is two time units, and w is a sensor's own filter of one tick. Beyond a delay the
regulator cycles; `period_doubling` bounds the delays such that no cycle doubles its period.

Sources: Mackey & Glass 1977 (doi:10.1126/science.267326); Hayes 1950; Farmer 1982
(doi:10.1016/0167-2789(82)90042-2); Mallet-Paret & Sell 1996, Journal of Differential Equations 125, 441.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import DelayRK4
from simworlds.keys import Draws, Noise
from simworlds.world import DelayWorld, Drive, Grammar, Sensor

_GRID = 0.05  # of delays: the step


class Params(NamedTuple):
    """Parameters of an instance: scalars."""

    b: Any  # production at full rate
    gam: Any  # clearance
    n: Any  # Hill exponent of the feedback
    hump: Any  # 1 if F rises before it falls, 0 if it only falls
    y_back: Any  # 1 if y feeds back on production, 0 if x does
    t1: Any  # delay of the feedback
    k: Any  # production of y
    Ty: Any  # lifetime of y
    t2: Any  # delay from x to y
    y_on: Any  # 1 if z is made from y, 0 if from x
    Tz: Any  # lifetime of z
    t3: Any  # delay from that to z
    e: Any  # what z adds to clearance; 0 without that loop
    p1: Any  # 1 if u1 multiplies production, 0 if clearance
    p2: Any  # 1 if u2 multiplies production, 0 if clearance
    x0: Any  # initial x


class State(NamedTuple):
    """The substance, its two products, and the filtered substance: scalars."""

    x: Any
    y: Any
    z: Any
    w: Any


class DelayedRegulator(DelayWorld):
    """D1: hidden delays and wiring; steady regulation turns into cycles."""

    id = "D1"
    title = "Delayed regulator"
    track = "D"
    phenomenon = "hidden delays and the sign of a feedback; onset of cycles; wiring that differs by instance"
    drives = (
        Drive("u1", 0.6, 1.4, rest=0.5),
        Drive("u2", 0.6, 1.4, rest=0.5),
        Drive("I", 0.0, 0.1, rest=0.0),
    )
    sensors = (
        Sensor("mediator", 0.0, 3.0),
        Sensor("effector", 0.0, 3.0),
        Sensor("clearance flux", 0.0, 0.8),
        Sensor("filtered x", 0.0, 3.0),
    )
    scheme = DelayRK4(dt=_GRID, substeps=40)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(24, 64),
        window=(8, 32),
        changes=(1, 3),
        ask={"mediator": 1.0, "effector": 1.0, "clearance flux": 1.0, "filtered x": 1.0},
        sd_share=0.4,
    )
    mean_fraction = 0.03
    sd_fraction = 0.015
    longest_lag = 12.0
    filter_time = 2.0

    def draw(self, draws: Draws) -> Params:
        """Rates, delays and wiring; under a hump the feedback's delays stay short of `period_doubling`."""
        gam, b = draws.uniform(0.1, 0.3), draws.uniform(2.0, 4.0)
        n, hump, y_back = draws.uniform(3.0, 8.0), draws.chance(0.4), draws.chance(0.5)
        t1, t2, t3 = draws.uniform(0.0, 1.0), draws.uniform(0.0, 8.0), draws.uniform(0.0, 5.0)
        Ty, Tz, k = draws.uniform(1.0, 5.0), draws.uniform(1.0, 5.0), draws.uniform(0.7, 1.3)
        e, y_on = draws.uniform(0.2, 0.8) * draws.chance(0.5), draws.chance(0.5)
        p1, p2 = draws.choice(((1, 0), (0, 1), (1, 1), (0, 0)), (0.35, 0.35, 0.15, 0.15))
        shortest, longest = 2.0, self.longest_lag
        if hump:
            # The greatest rate of clearance: drives at their highest, z half full.
            fastest = gam * 1.4 ** (2 - p1 - p2) * (1 + e / 2)
            n = min(n, 0.9 * period_doubling(2.2 * fastest))
            total = 0.9 * period_doubling(n * fastest)
            t2 = min(t2, (total - 2.0) / 2) if y_back else t2
            longest = min(longest, total - t2 * y_back)
            shortest = max(shortest, longest / 2)
        values = Params(
            b=gam * b,
            gam=gam,
            n=n,
            hump=hump,
            y_back=y_back,
            t1=_whole(shortest + t1 * (longest - shortest)),
            k=k / Ty,
            Ty=Ty,
            t2=_whole(t2),
            y_on=y_on,
            Tz=Tz,
            t3=_whole(t3),
            e=e / Tz,
            p1=p1,
            p2=p2,
            x0=draws.uniform(0.3, 1.5),
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """The Mackey-Glass equation, b = .2, gam = .1, n = 10, t1 = 6; y and z only follow x."""
        alone = Params(
            b=0.2,
            gam=0.1,
            n=10.0,
            hump=1.0,
            y_back=0.0,
            t1=6.0,
            k=1.0,
            Ty=1.0,
            t2=0.0,
            y_on=0.0,
            Tz=1.0,
            t3=0.0,
            e=0.0,
            p1=1.0,
            p2=0.0,
            x0=0.5,
        )
        return alone._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: x its own, y, z and w where that x would hold them."""
        del noise
        x = params.x0 * jnp.ones_like(params.x0)
        y = params.k * params.Ty * x
        return State(x=x, y=y, z=params.Tz * _saturation(_either(params.y_on, x, y)), w=x)

    def lags(self, params: Params) -> tuple[Any, ...]:
        """The three delays."""
        return params.t1, params.t2, params.t3

    def remembered(self, state: State) -> State:
        """Only x and y act late."""
        return state._replace(z=None, w=None)

    def drift(self, state: State, drive: Any, params: Params, past: tuple[State, ...]) -> State:
        """The law, term by term."""
        x, y, z, w = state
        p = params
        back, made, seen = past
        P = (1 + p.p1 * (drive.u1 - 1)) * (1 + p.p2 * (drive.u2 - 1))
        v = _either(p.y_back, back.x, back.y)
        F = _either(p.hump, 1, v) / (1 + _power(v, p.n))
        return State(
            x=p.b * P * F - self._clearance(state, drive, params) + drive.I,
            y=p.k * made.x - y / p.Ty,
            z=_saturation(_either(p.y_on, seen.x, seen.y)) - z / p.Tz,
            w=(x - w) / self.filter_time,
        )

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """The two products, what is cleared of x, and x behind its filter."""
        return state.y, state.z, self._clearance(state, drive, params), state.w

    def _clearance(self, state: State, drive: Any, params: Params) -> Any:
        p = params
        C = (1 + (1 - p.p1) * (drive.u1 - 1)) * (1 + (1 - p.p2) * (drive.u2 - 1))
        return p.gam * C * (1 + p.e * state.z) * state.x


def period_doubling(rate: float) -> float:
    """The tau for a given ``n gam``, or the n for a given ``gam tau``, below which a hump's cycle is simple.

    In ``x' = b v / (1 + v^n) - gam x``, v = x(t - tau), no cycle doubles its period while ``n gam tau < 12``,
    whatever b is. So it is in a scan of n from 3 to 10 and of b / gam from 1.2 to 12, where the earliest
    doubling is at ``n gam tau`` = 12.1, for n between 7 and 8 and b / gam near 2.6. Infusion, and a filter
    between x and v, put it off. Where F only falls there is none (Mallet-Paret & Sell 1996).
    """
    return 12 / rate


def _whole(delay: float) -> float:
    """The delay in whole steps, which keeps the scheme's full order where the slope has jumped."""
    return _GRID * np.floor(delay / _GRID + 1e-6)


def _either(flag: Any, without: Any, with_: Any) -> Any:
    return (1 - flag) * without + flag * with_


def _saturation(s: Any) -> Any:
    return s * s / (1 + s * s)


def _power(v: Any, n: Any) -> Any:
    """``v^n`` for v > 0, and next to nothing below."""
    return jnp.exp(n * jnp.log(jnp.maximum(v, 1e-12)))
