"""D3 Excitable cell: the Hodgkin-Huxley membrane, plus one hidden channel that no sensor names.

    V' = I - (1 - y B) gNa m^3 h (V - ENa) - (1 - (1 - y) B) gK n^4 (V - E_K) - gL (V - EL)
         - (gA a^3 b + gM w + gC c / (c + kc)) (V - E_K) - gh q (V + 43)
    x' = k [al_x(V) (1 - x) - be_x(V) x]  for the gates m, h, n,        k = 3^((T - 6.3) / 10)
    x' = k [x_inf(V) - x] / tau_x(V)      for the hidden ones: a, b (A-type), w (M-type), q (h-current)

V is in mV, time in ms, currents in uA/cm2, conductances in mS/cm2, the capacitance is 1 uF/cm2; a tick is
5 ms. The blocker B acts on sodium (y = 1) or potassium (y = 0). One of gA, gM, gC and gh is not 0.
Sensors are

    tau_f f' = V - f,     tau_r r' = 1000 d(V + 10) max(-V', 0) - r
    c' = k [s(V) - c] / tau_c,     Na' = I_Na - pump,     pump = k Na / tau_p

the low-passed V (tau_f = 5 ms), the spike rate in Hz (tau_r = 20 ms), a calcium-like integrator of s = 1
/ (1 + exp(-(V + 20) / 5)), and the pump's heat in proportion to its current; I_Na is the sodium current
inwards. The Gaussian bump d, of sd 9 mV and integral 1, makes each spike add 1 to the integral of r /
1000 as it falls through -10 mV (falls are slower than rises, so that a step resolves them).

Sources: Hodgkin & Huxley 1952 (doi:10.1113/jphysiol.1952.sp004764) with V absolute and positive inwards
currents; the A-type of Connor, Walter & McKown 1977; Hassard 1978 (doi:10.1016/0022-5193(78)90168-6); Rinzel
& Miller 1980 (doi:10.1016/0025-5564(80)90109-1).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import RK4
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, OdeWorld, Sensor


class Params(NamedTuple):
    """Parameters of an instance: scalars. Conductances in mS/cm2, potentials in mV, times in ms at 6.3 C."""

    gNa: Any  # sodium conductance
    gK: Any  # potassium conductance
    gL: Any  # leak
    ENa: Any  # sodium's reversal potential
    EL: Any  # the leak's
    y: Any  # 1 if the blocker acts on sodium, 0 if on potassium
    gA: Any  # hidden A-type potassium conductance
    gM: Any  # hidden M-type one
    gC: Any  # hidden calcium-gated one
    gh: Any  # hidden inward rectifier, the h-current
    tau_w: Any  # time constant of the M-type gate
    tau_q: Any  # of the h-current's gate
    tau_c: Any  # of the calcium-like integrator
    kc: Any  # its level that half opens gC
    tau_p: Any  # time constant of the sodium pump


class State(NamedTuple):
    """Potential, gates, calcium-like integrator, filters, and sodium above rest: scalars."""

    V: Any
    m: Any
    h: Any
    n: Any
    a: Any
    b: Any
    w: Any
    q: Any
    c: Any
    f: Any
    r: Any
    Na: Any


def _linoid(x: Any) -> Any:
    """The function x / (1 - exp(-x)), by its series about the removable singularity."""
    near = jnp.abs(x) < 0.1
    far = jnp.where(near, 1, x)
    square = x * x
    series = 1 + x / 2 + square / 12 * (1 - square / 60 * (1 - square / 42))
    return jnp.where(near, series, far / (1 - jnp.exp(-far)))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + jnp.exp(-x))


def _rates(V: Any) -> tuple[tuple[Any, Any], ...]:
    """Opening and closing rates (al, be) of m, h and n, in 1/ms at 6.3 C."""
    v = V + 65
    return (
        (_linoid((v - 25) / 10), 4 * jnp.exp(-v / 18)),
        (0.07 * jnp.exp(-v / 20), _sigmoid((v - 30) / 10)),
        (0.1 * _linoid((v - 10) / 10), 0.125 * jnp.exp(-v / 80)),
    )


def _hidden(V: Any, params: Params) -> tuple[tuple[Any, Any], ...]:
    """Steady states and time constants (x_inf, tau_x) of the hidden gates a, b, w and q."""
    cube = 0.0761 * jnp.exp((V + 94.22) / 31.84) * _sigmoid(-(V + 1.17) / 28.93)
    return (
        (jnp.cbrt(cube), 0.3632 + 1.158 * _sigmoid(-(V + 55.96) / 20.12)),
        (_sigmoid(-(V + 53.3) / 14.54) ** 4, 1.24 + 2.678 * _sigmoid(-(V + 50) / 16.027)),
        (_sigmoid((V + 35) / 10), params.tau_w),
        (_sigmoid(-(V + 75) / 6), params.tau_q),
    )


def _bump(V: Any) -> Any:
    """The bump d(V + 10), Gaussian, in 1/mV."""
    return float(1 / np.sqrt(2 * np.pi)) / 9 * jnp.exp(-(((V + 10) / 9) ** 2) / 2)


class ExcitableCell(OdeWorld):
    """D3: threshold, rest beside firing, depolarisation block, and adaptation by a hidden channel."""

    id = "D3"
    title = "Excitable cell"
    track = "D"
    phenomenon = "threshold, rest beside firing, depolarisation block; a hidden channel adapts or delays"
    drives = (
        Drive("I", -10.0, 40.0, rest=0.2, unit="uA/cm2"),
        Drive("E_K", -90.0, -65.0, rest=0.52, unit="mV"),
        Drive("B", 0.0, 0.6, rest=0.0),
        Drive("T", 3.0, 15.0, rest=0.275, unit="C"),
    )
    sensors = (
        Sensor("low-passed potential", -85.0, -40.0, "mV"),
        Sensor("spike rate", 0.0, 200.0, "Hz"),
        Sensor("calcium", 0.0, 0.16),
        Sensor("pump heat", 0.0, 110.0, "uA/cm2"),
    )
    scheme = RK4(dt=0.025, substeps=200)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(16, 56),
        window=(8, 32),
        changes=(1, 3),
        ask={"low-passed potential": 1.0, "spike rate": 1.2, "calcium": 0.8, "pump heat": 0.8},
    )
    mean_fraction = 0.03
    sd_fraction = 0.015
    filter_time = 5.0
    rate_time = 20.0

    def draw(self, draws: Draws) -> Params:
        """Membranes near the squid's, a blocker of sodium or potassium, and one hidden channel."""
        hidden = draws.choice(("A", "M", "C", "h"), (0.3, 0.2, 0.2, 0.3))
        values = Params(
            gNa=draws.uniform(105.0, 135.0),
            gK=draws.uniform(32.0, 40.0),
            gL=draws.uniform(0.25, 0.35),
            ENa=draws.uniform(47.0, 53.0),
            EL=draws.uniform(-55.5, -53.5),
            y=draws.chance(0.5),
            gA=draws.uniform(4.0, 16.0) * (hidden == "A"),
            gM=draws.uniform(0.5, 3.0) * (hidden == "M"),
            gC=draws.uniform(0.2, 0.8) * (hidden == "C"),
            gh=draws.uniform(0.1, 0.6) * (hidden == "h"),
            tau_w=draws.log_uniform(50.0, 300.0),
            tau_q=draws.log_uniform(50.0, 300.0),
            tau_c=draws.log_uniform(50.0, 300.0),
            kc=draws.uniform(0.05, 0.15),
            tau_p=draws.uniform(20.0, 100.0),
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """The squid axon of Hodgkin and Huxley at any temperature: no hidden channel."""
        axon = Params(
            gNa=120.0,
            gK=36.0,
            gL=0.3,
            ENa=50.0,
            EL=-54.387,
            y=1.0,
            gA=0.0,
            gM=0.0,
            gC=0.0,
            gh=0.0,
            tau_w=100.0,
            tau_q=100.0,
            tau_c=100.0,
            kc=0.1,
            tau_p=50.0,
        )
        return axon._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: V = -65 mV, gates at their steady states there, filters settled, no sodium to pump."""
        del noise
        zero = jnp.zeros_like(params.gNa)
        V = zero - 65
        m, h, n = (al / (al + be) for al, be in _rates(V))
        a, b, w, q = (x_inf for x_inf, _ in _hidden(V, params))
        return State(V=V, m=m, h=h, n=n, a=a, b=b, w=w, q=q, c=zero, f=V, r=zero, Na=zero)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The law, term by term."""
        p, s = params, state
        V = s.V
        k = 3 ** ((drive.T - 6.3) / 10)
        I_Na = (1 - p.y * drive.B) * p.gNa * s.m**3 * s.h * (p.ENa - V)
        g_K = (1 - (1 - p.y) * drive.B) * p.gK * s.n**4
        g_hidden = p.gA * s.a**3 * s.b + p.gM * s.w + p.gC * s.c / (s.c + p.kc)
        rise = drive.I + I_Na - (g_K + g_hidden) * (V - drive.E_K) - p.gL * (V - p.EL) - p.gh * s.q * (V + 43)
        gates = {
            name: k * (al * (1 - getattr(s, name)) - be * getattr(s, name))
            for name, (al, be) in zip("mhn", _rates(V), strict=True)
        }
        hidden = {
            name: k * (x_inf - getattr(s, name)) / tau
            for name, (x_inf, tau) in zip("abwq", _hidden(V, p), strict=True)
        }
        return State(
            V=rise,
            **gates,
            **hidden,
            c=k * (_sigmoid((V + 20) / 5) - s.c) / p.tau_c,
            f=(V - s.f) / self.filter_time,
            r=(1000 * _bump(V) * jnp.maximum(-rise, 0) - s.r) / self.rate_time,
            Na=I_Na - k * s.Na / p.tau_p,
        )

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """The low-passed potential, the spike rate, calcium, and the pump's current."""
        k = 3 ** ((drive.T - 6.3) / 10)
        return state.f, state.r, state.c, k * state.Na / params.tau_p
