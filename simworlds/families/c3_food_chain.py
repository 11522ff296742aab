"""C3 Food chain: algae and their grazers in a chemostat, where more food destabilises both.

    R'  = D (S - R) - up / y
    C'  = up + gr - eat - (D + dc) C + D c0
    P'  = e eat - (D + dp) P + D p0
    z'  = [P / (Pz + P) - z] / tz
    X'  = (1 - e) eat + dc C - (D + kx) X
    O'  = ka (1 - O) + om (up + gr) - [oc C + op eat] O / (0.1 + O)

    up  = (1 - lg) mu I R C / (K + R),    gr = lg mu I C (1 - C / S)
    eat = g th (1 - df dz z) C P / (H + C)

R is the nutrient, C the algae, P the grazers, z the algae's induced defence, X dead pigment, and O oxygen in
units of its saturation. D dilutes, with a feed of S nutrient and traces c0 and p0 of both species; I is the
light and th the grazers' pace in the warmth. Concentrations are dimensionless, time is in days; a tick is a
day. With lg = 1 algae do not feed on R but grow logistically towards S, which without dilution is the model
of Rosenzweig and MacArthur. Without dc, dp and lg the total T = y R + C + P / e follows

    T(t) = T_in + (T(0) - T_in) exp(-D t),    T_in = y S + c0 + p0 / e

Sources: Rosenzweig & MacArthur 1963 (doi:10.1086/282272); Rosenzweig 1971 (doi:10.1126/science.171.3969.385);
Fussmann, Ellner, Shertzer, Hairston 2000 (doi:10.1126/science.290.5495.1358).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import RK4
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, OdeWorld, Sensor


class Params(NamedTuple):
    """Parameters of an instance: scalars."""

    mu: Any  # growth rate of algae at I = 1
    K: Any  # nutrient at half growth
    y: Any  # algae made of a unit of nutrient
    dc: Any  # death of algae
    c0: Any  # algae in the feed
    lg: Any  # 1 if algae grow logistically, 0 if on nutrient
    g: Any  # ingestion rate of grazers at th = 1
    H: Any  # algae at half ingestion
    e: Any  # grazers made of a unit of algae
    dp: Any  # death of grazers
    p0: Any  # grazers in the feed
    df: Any  # 1 if algae defend themselves, else 0
    dz: Any  # share of ingestion that a full defence prevents
    Pz: Any  # grazers at half defence
    tz: Any  # time that defence takes, days
    kx: Any  # decay of dead pigment
    px: Any  # fluorescence of dead pigment relative to live
    ka: Any  # exchange of oxygen with air
    om: Any  # oxygen from growth
    oc: Any  # respiration of algae
    op: Any  # respiration of grazers per unit of ingestion


class State(NamedTuple):
    """Nutrient, algae, grazers, defence, dead pigment, oxygen: scalars."""

    R: Any
    C: Any
    P: Any
    z: Any
    X: Any
    O: Any


class FoodChain(OdeWorld):
    """C3: grazers and algae that cycle once there is food enough, some with an induced defence."""

    id = "C3"
    title = "Food chain"
    track = "C"
    phenomenon = "enrichment starts predator-prey cycles; an induced defence lags behind the grazers"
    drives = (
        Drive("D", 0.02, 0.5, rest=0.2, unit="1/d"),
        Drive("S", 0.5, 5.0, rest=0.3),
        Drive("I", 0.4, 1.2, rest=0.75),
        Drive("th", 0.6, 1.4, rest=0.5),
    )
    sensors = (
        Sensor("chlorophyll", 0.0, 4.0),
        Sensor("grazer count", 0.0, 1.5),
        Sensor("nutrient", 0.0, 4.0),
        Sensor("oxygen", 0.2, 2.0),
    )
    scheme = RK4(dt=0.025, substeps=40)
    grammar = Grammar(
        segments=(2, 4),
        ticks=(30, 80),
        window=(10, 40),
        changes=(1, 3),
        ask={"chlorophyll": 1.0, "grazer count": 1.3, "nutrient": 0.8, "oxygen": 0.8},
        sd_share=0.4,
        levels={"D": (0.0, 0.7)},
    )
    mean_fraction = 0.03
    sd_fraction = 0.015

    def draw(self, draws: Draws) -> Params:
        """Algae that defend themselves in half of the instances; grazers that can live on them."""
        values = Params(
            mu=draws.uniform(0.8, 1.5),
            K=draws.uniform(0.1, 0.5),
            y=draws.uniform(0.6, 1.0),
            dc=draws.uniform(0.0, 0.03),
            c0=draws.uniform(0.01, 0.05),
            lg=0.0,
            g=draws.uniform(0.7, 1.2),
            H=draws.uniform(0.2, 1.0),
            e=draws.uniform(0.4, 0.8),
            dp=draws.uniform(0.0, 0.1),
            p0=draws.uniform(0.01, 0.05),
            df=draws.chance(0.5),
            dz=draws.uniform(0.4, 0.8),
            Pz=draws.uniform(0.1, 0.5),
            tz=draws.uniform(4.0, 12.0),
            kx=draws.uniform(0.02, 0.2),
            px=draws.uniform(0.2, 0.8),
            ka=draws.uniform(0.4, 1.0),
            om=draws.uniform(0.8, 1.2),
            oc=draws.uniform(0.1, 0.3),
            op=draws.uniform(0.5, 1.5),
        )
        return Params(*(np.float32(value) for value in values))

    def limit(self, **changes: Any) -> Params:
        """The plain chain in a chemostat: no deaths but by dilution, no traces in the feed, no defence.

        With ``lg = 1`` and no dilution it is Rosenzweig and MacArthur's, of capacity S.
        """
        return Params(
            mu=1.0,
            K=0.3,
            y=0.8,
            dc=0.0,
            c0=0.0,
            lg=0.0,
            g=1.0,
            H=0.5,
            e=0.6,
            dp=0.0,
            p0=0.0,
            df=0.0,
            dz=0.5,
            Pz=0.3,
            tz=8.0,
            kx=0.1,
            px=0.5,
            ka=0.5,
            om=1.0,
            oc=0.2,
            op=1.0,
        )._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: R = C = 0.5, P = z = X = 0.2, oxygen at saturation."""
        del noise
        one = jnp.ones_like(params.mu)
        return State(R=0.5 * one, C=0.5 * one, P=0.2 * one, z=0.2 * one, X=0.2 * one, O=one)

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The law, term by term."""
        R, C, P, z, X, O = state
        p, D = params, drive.D
        up = (1 - p.lg) * p.mu * drive.I * R * C / (p.K + R)
        gr = p.lg * p.mu * drive.I * C * (1 - C / drive.S)
        eat = p.g * drive.th * (1 - p.df * p.dz * z) * C * P / (p.H + C)
        return State(
            R=D * (drive.S - R) - up / p.y,
            C=up + gr - eat - (D + p.dc) * C + D * p.c0,
            P=p.e * eat - (D + p.dp) * P + D * p.p0,
            z=(P / (p.Pz + P) - z) / p.tz,
            X=(1 - p.e) * eat + p.dc * C - (D + p.kx) * X,
            O=p.ka * (1 - O) + p.om * (up + gr) - (p.oc * C + p.op * eat) * O / (0.1 + O),
        )

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Chlorophyll of live algae and of what is left of dead ones, grazers, nutrient, oxygen."""
        del drive
        return state.C + params.px * state.X, state.P, state.R, state.O
