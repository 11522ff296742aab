"""C4 Homeostat: daisies of two or three shades that hold their planet's temperature, until they cannot.

    a_k' = r [a_k (x beta(T_k) - gam) + p_k seed],    x = 1 - sum_k a_k
    beta(T) = max(0, 1 - 0.003265 (To - T)^2)
    A = 0.5 x + sum_k alb_k a_k,    T_k = qq (A - alb_k) + T
    c T' = s L (1 - A - dust) (1 + G) - sigma (T + 273.15)^4

a_k is the share of the ground that kind k covers, alb_k its albedo, T_k its local temperature and T that of
the planet, in degrees Celsius; p_k is 1 for a kind that exists, else 0. s = 917 W/m2 at luminosity L = 1,
sigma = 5.67e-8 W/m2/K4; dust hangs above the planet and shades all kinds alike. Time is in units of the
daisies' turnover at r = 1; a tick is one unit.

While a light and a dark kind both live, beta is the same for both, at To -+ qq (alb_1 - alb_2) / 2 whatever
L: the cover is 1 - gam / beta, and the planet cools as the sun warms.

Sensors are T, the albedo A + dust, the cover sum_k a_k, the flux that leaves the planet,
sigma (T + 273.15)^4 / (1 + G), and the near infrared that it reflects, 0.2 x + sum_k w_k a_k.

Sources: Watson & Lovelock 1983 (doi:10.1111/j.1600-0889.1983.tb00031.x); Wood, Ackland, Dyke, Williams,
Lenton 2008 (doi:10.1029/2006RG000217).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import RK4
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, OdeWorld, Sensor

KINDS = 3
SOLAR = 917.0
SIGMA = 5.67e-8
ZERO = 273.15
CURVATURE = 0.003265


class Params(NamedTuple):
    """Parameters of an instance: arrays ``[kind]`` where said, else scalars."""

    p: Any  # 1 for a kind that exists, else 0, [kind]
    alb: Any  # albedo, [kind]
    w: Any  # reflectance in the near infrared, [kind]
    r: Any  # pace of growth and death
    seed: Any  # cover that comes from seeds per unit of time
    To: Any  # temperature of fastest growth, degrees Celsius
    qq: Any  # local heating by a difference of albedo, K
    c: Any  # heat capacity, in W/m2/K times the time unit


class State(NamedTuple):
    """The cover of each kind, a tuple of scalars, and the planet's temperature."""

    a: Any
    T: Any


class Homeostat(OdeWorld):
    """C4: the planet's temperature answers little to the sun, until the cover collapses."""

    id = "C4"
    title = "Homeostat"
    track = "C"
    phenomenon = "regulation hides the drive's power; beyond its edge the cover collapses, with hysteresis"
    drives = (
        Drive("L", 0.5, 1.7, rest=0.45),
        Drive("G", 0.0, 0.15, rest=0.2),
        Drive("gam", 0.1, 0.5, rest=0.5),
        Drive("dust", 0.0, 0.2, rest=0.1),
    )
    sensors = (
        Sensor("temperature", -20.0, 70.0, "degC"),
        Sensor("albedo", 0.2, 0.8),
        Sensor("cover", 0.0, 0.9),
        Sensor("outgoing flux", 200.0, 700.0, "W/m2"),
        Sensor("near infrared", 0.1, 0.8),
    )
    scheme = RK4(dt=0.02, substeps=50)
    grammar = Grammar(
        segments=(2, 4),
        ticks=(32, 80),
        window=(8, 32),
        changes=(1, 3),
        ask={"temperature": 1.2, "albedo": 0.8, "cover": 1.2, "outgoing flux": 0.6, "near infrared": 0.8},
        sd_share=0.25,
        levels={"L": (0.1, 0.9)},
    )
    mean_fraction = 0.03
    sd_fraction = 0.015

    def draw(self, draws: Draws) -> Params:
        """A light and a dark kind, in half of the instances also a grey one."""
        grey = draws.chance(0.5)
        values = Params(
            p=[1.0, 1.0, grey],
            alb=[draws.uniform(0.65, 0.85), draws.uniform(0.15, 0.35), draws.uniform(0.4, 0.6)],
            w=[draws.uniform(0.3, 0.9) for _ in range(KINDS)],
            r=draws.uniform(0.7, 1.4),
            seed=draws.log_uniform(3e-5, 1e-3),
            To=draws.uniform(20.0, 25.0),
            qq=draws.uniform(15.0, 25.0),
            c=5.8 * draws.log_uniform(0.2, 5.0),  # 5.8 = 4 sigma T^3 at 22 degrees
        )
        return Params(*(np.asarray(value, np.float32) for value in values))

    def limit(self, **changes: Any) -> Params:
        """Watson and Lovelock's planet: a light and a dark kind, nearly no seeds."""
        return Params(
            p=np.array([1.0, 1.0, 0.0]),
            alb=np.array([0.75, 0.25, 0.5]),
            w=np.array([0.6, 0.4, 0.5]),
            r=1.0,
            seed=1e-9,
            To=22.5,
            qq=20.0,
            c=5.8,
        )._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: each kind that exists on a fifth of the ground, at 22.5 degrees Celsius."""
        del noise
        return State(a=tuple(0.2 * params.p[k] for k in range(KINDS)), T=22.5 * jnp.ones_like(params.To))

    def drift(self, state: State, drive: Any, params: Params) -> State:
        """The law, term by term."""
        a, T = state
        p = params
        x, A = _ground(a, p)
        growth = []
        for k in range(KINDS):
            T_k = p.qq * (A - p.alb[k]) + T
            beta = jnp.maximum(0, 1 - CURVATURE * (p.To - T_k) ** 2)
            growth.append(p.r * (a[k] * (x * beta - drive.gam) + p.p[k] * p.seed))
        absorbed = SOLAR * drive.L * (1 - A - drive.dust) * (1 + drive.G)
        return State(a=tuple(growth), T=(absorbed - _glow(T)) / p.c)

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Temperature, albedo with the dust's, cover of all kinds, flux to space, reflected infrared."""
        a, T = state
        x, A = _ground(a, params)
        infrared = 0.2 * x + sum(params.w[k] * a[k] for k in range(KINDS))
        return T, A + drive.dust, 1 - x, _glow(T) / (1 + drive.G), infrared


def _ground(a: Any, params: Params) -> tuple[Any, Any]:
    """The share x of bare ground, and the albedo A of all ground."""
    x = 1 - sum(a)
    return x, 0.5 * x + sum(params.alb[k] * a[k] for k in range(KINDS))


def _glow(T: Any) -> Any:
    """What a black body of T degrees Celsius radiates, W/m2."""
    return SIGMA * (T + ZERO) ** 4
