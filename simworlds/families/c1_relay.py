"""C1 Relay: a cascade of two covalent modification cycles that burns fuel and is throttled by its product.

    w1' = q [V1 (1 - w1) / (K1 + 1 - w1) - V2 w1 / (K2 + w1)],    V1 = v1 u / (1 + fb (P / KI)^h)
    w2' = q [k w1 (1 - w2) / (J1 + 1 - w2) - kr w2 / (J2 + w2)]
    S'  = F - q [Vs w2 S / (Ks + S) + kl S]
    P'  = q [Vs w2 S / (Ks + S) - kd P],    q = Q10^((th - 25) / 10)

w1 and w2 are the modified shares of two proteins, S the fuel and P its product. The second stage makes the
enzyme that consumes S, so a signal starves its own reaction. Reactions follow the temperature th, in degrees
Celsius; the feed F is pumped and does not. Concentrations and time are dimensionless; a tick is half a time
unit. A stage alone with constant rates V1, V2 rests at the Goldbeter-Koshland function; at constant w2,
without feed and losses, S follows Michaelis-Menten.

Sensors are P, S, the fluorescence a w1 + b w2, and the heat of the three reactions that spend fuel,

    q [V1 (1 - w1) / (K1 + 1 - w1) + k w1 (1 - w2) / (J1 + 1 - w2) + Vs w2 S / (Ks + S)]

Sources: Michaelis & Menten 1913; Goldbeter & Koshland 1981 (doi:10.1073/pnas.78.11.6840); Schnell & Mendoza
1997 (doi:10.1006/jtbi.1997.0425).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import RK4
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, OdeWorld, Sensor


class Params(NamedTuple):
    """Parameters of an instance: scalars."""

    v1: Any  # rate of the first stage's kinase per unit of signal
    K1: Any  # its half saturation
    K2: Any  # half saturation of the first phosphatase
    k: Any  # rate of the second stage's kinase per unit of w1
    J1: Any  # its half saturation
    kr: Any  # rate of the second phosphatase
    J2: Any  # its half saturation
    fb: Any  # 1 if the product inhibits the first kinase, else 0
    KI: Any  # product at which it is inhibited by half
    h: Any  # steepness of the inhibition
    Vs: Any  # turnover of the fuel at w2 = 1
    Ks: Any  # its half saturation
    kl: Any  # loss of fuel
    kd: Any  # loss of product
    Q10: Any  # factor of all reaction rates per 10 degrees
    a: Any  # brightness of w1
    b: Any  # brightness of w2


class State(NamedTuple):
    """Modified shares, fuel and product: scalars."""

    w1: Any
    w2: Any
    S: Any
    P: Any


class Relay(OdeWorld):
    """C1: a near-digital second stage that depletes its fuel, with or without feedback."""

    id = "C1"
    title = "Relay"
    track = "C"
    phenomenon = "a near-digital stage inside a cascade; feedback on or off; fuel that the signal depletes"
    drives = (
        Drive("F", 0.0, 2.0, rest=0.5),
        Drive("u", 0.0, 2.0, rest=0.5),
        Drive("V2", 0.3, 2.0, rest=0.3),
        Drive("th", 15.0, 40.0, rest=0.4, unit="degC"),
    )
    sensors = (
        Sensor("product", 0.0, 4.0),
        Sensor("substrate", 0.0, 8.0),
        Sensor("fluorescence", 0.0, 1.0),
        Sensor("heat", 0.0, 6.0),
    )
    scheme = RK4(dt=0.0025, substeps=200)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(20, 64),
        window=(8, 32),
        changes=(1, 3),
        ask={"product": 1.2, "substrate": 1.0, "fluorescence": 1.0, "heat": 0.8},
    )
    mean_fraction = 0.03
    sd_fraction = 0.015

    def draw(self, draws: Draws) -> Params:
        """Two stages, the second the steeper; feedback in three instances of five."""
        k = draws.uniform(1.0, 3.0)
        a = draws.uniform(0.3, 0.7)
        values = Params(
            v1=draws.log_uniform(0.6, 2.0),
            K1=draws.log_uniform(0.05, 1.0),
            K2=draws.log_uniform(0.05, 1.0),
            k=k,
            J1=draws.log_uniform(0.02, 0.2),
            kr=k * draws.uniform(0.25, 0.7),  # the second stage switches where w1 passes kr / k
            J2=draws.log_uniform(0.02, 0.2),
            fb=draws.chance(0.6),
            KI=draws.uniform(0.3, 1.5),
            h=draws.uniform(1.0, 4.0),
            Vs=draws.uniform(1.0, 3.0),
            Ks=draws.uniform(0.1, 1.0),
            kl=draws.uniform(0.2, 0.5),
            kd=draws.uniform(0.2, 0.6),
            Q10=draws.uniform(1.5, 2.5),
            a=a,
            b=1 - a,
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """Closed Michaelis-Menten: no feedback, no losses of S and P, Vs = 1.5, Ks = 2.

        Each stage is Goldbeter-Koshland: V1 = u against V2 in the first, and k w1 against kr in the second,
        whose input stands still where u = V2 = 0.
        """
        return Params(
            v1=1.0,
            K1=0.05,
            K2=0.05,
            k=1.0,
            J1=0.05,
            kr=1.0,
            J2=0.05,
            fb=0.0,
            KI=1.0,
            h=2.0,
            Vs=1.5,
            Ks=2.0,
            kl=0.0,
            kd=0.0,
            Q10=2.0,
            a=0.5,
            b=0.5,
        )._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: both proteins half modified, S = P = 1."""
        del noise
        one = jnp.ones_like(params.v1)
        return State(w1=0.5 * one, w2=0.5 * one, S=one, P=one)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The law, term by term."""
        w1, w2, S, P = state
        p, q = params, _pace(drive, params)
        on, up, burnt = _spent(state, drive, params)
        return State(
            w1=q * (on - drive.V2 * w1 / (p.K2 + w1)),
            w2=q * (up - p.kr * w2 / (p.J2 + w2)),
            S=drive.F - q * (burnt + p.kl * S),
            P=q * (burnt - p.kd * P),
        )

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Product, fuel, the fluorescence of both proteins, and the heat of what spends fuel."""
        heat = _pace(drive, params) * sum(_spent(state, drive, params))
        return state.P, state.S, params.a * state.w1 + params.b * state.w2, heat


def _pace(drive: Any, params: Params) -> Any:
    """The factor q of all reaction rates."""
    return jnp.exp(jnp.log(params.Q10) * (drive.th - 25) / 10)


def _spent(state: State, drive: Any, params: Params) -> tuple[Any, Any, Any]:
    """The rates, at 25 degrees, of the two phosphorylations and of the turnover of S."""
    w1, w2, S, P = state
    p = params
    # The floor keeps the derivative of the power finite at P = 0.
    V1 = p.v1 * drive.u / (1 + p.fb * (jnp.maximum(P, 1e-6) / p.KI) ** p.h)
    return (
        V1 * (1 - w1) / (p.K1 + 1 - w1),
        p.k * w1 * (1 - w2) / (p.J1 + 1 - w2),
        p.Vs * w2 * S / (p.Ks + S),
    )
