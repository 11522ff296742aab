"""C3: where enrichment starts cycles, how fast they grow; the mass balance; what algae and grazers leave."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.keys import Noise, Words

WORLD: Any = load("C3")
ROSENZWEIG = "Rosenzweig & MacArthur 1963, doi:10.1086/282272"
CATALOGUE = "catalogue"
BALANCE = "mass balance"
MONOD = "Monod: R* = K D / (mu - D)"
BLOOM = dict(R=0.5, C=0.5, P=0.2, z=0.2, X=0.2, O=1.0)


def bloom(**fields: Any) -> Any:
    """The state `BLOOM` with some fields replaced."""
    return WORLD.initial(WORLD.limit(), Noise(Words(0, 0), 0))._replace(**(BLOOM | fields))


class Chain(NamedTuple):
    """N' = r N (1 - N / S) - a N P / (1 + a h N), P' = e a N P / (1 + a h N) - m P."""

    r: float = 1.0
    a: float = 1.5
    h: float = 0.6
    e: float = 0.8
    m: float = 0.35

    @property
    def onset(self) -> float:
        """The capacity beyond which cycles start, K_H = (e + m h) / (a h (e - m h))."""
        return (self.e + self.m * self.h) / (self.a * self.h * (self.e - self.m * self.h))

    @property
    def prey(self) -> float:
        """The prey at rest, N* = m / (a (e - m h))."""
        return self.m / (self.a * (self.e - self.m * self.h))

    def growth(self, capacity: float) -> float:
        """The growth of cycles about rest, r N* (1 / K_H - 1 / S) [2 - 1 / (1 + a h N*)] / 2."""
        slope = self.r * self.prey * (2 - 1 / (1 + self.a * self.h * self.prey)) / 2
        return slope * (1 / self.onset - 1 / capacity)

    @property
    def params(self) -> Any:
        """The world's parameters: g = 1 / h, H = 1 / (a h), dp = m."""
        own = dict(mu=self.r, g=1 / self.h, H=1 / (self.a * self.h), e=self.e, dp=self.m)
        return WORLD.limit(lg=1.0, **own)

    def grazers(self, capacity: float) -> float:
        """The grazers at rest, P* = (r / a) (1 - N* / S) (1 + a h N*)."""
        return self.r / self.a * (1 - self.prey / capacity) * (1 + self.a * self.h * self.prey)


CHAIN = Chain()


def mode(capacity: float) -> complex:
    """The eigenvalue of the law's Jacobian in C and P at rest: growth + i angular frequency."""
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, CHAIN.params)
        drive = WORLD.drive_type(D=0.0, S=capacity, I=1.0, th=1.0)

        def rates(x: jax.Array) -> jax.Array:
            flow = WORLD.drift(bloom(C=x[0], P=x[1]), drive, params)
            return jnp.stack([flow.C, flow.P])

        rest = jnp.array([CHAIN.prey, CHAIN.grazers(capacity)])
        if jnp.abs(rates(rest)).max() > 1e-12:
            raise ValueError("prey and grazers are not at rest where they should be")
        roots = np.linalg.eigvals(np.asarray(jax.jacfwd(rates)(rest)))
    return complex(roots[np.argmax(roots.imag)])


def onset() -> Measured:
    """The capacity at which the growth changes its sign, by bisection."""
    low, high = 1.0, 3.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if mode(middle).real < 0 else (low, middle)
    return Measured((low + high) / 2)


@cache
def simulated_mode(capacity: float) -> complex:
    """The same from a trajectory: its tick means obey d[n+1] = 2 e^g cos(w) d[n] - e^2g d[n-1]."""
    start = bloom(C=CHAIN.prey + 1e-5, P=CHAIN.grazers(capacity))
    run = Run(WORLD, CHAIN.params._replace(px=0.0), {"D": 0.0, "S": capacity}, state=start)
    d = run.ticks(200)[0, :, 0] - CHAIN.prey
    (twice, minus), *_ = np.linalg.lstsq(np.stack([d[1:-1], d[:-2]], 1), d[2:], rcond=None)
    root = np.roots([1, -twice, -minus])
    return complex(np.log(root[np.argmax(root.imag)]))


def total(state: Any, params: Any) -> float:
    """T = y R + C + P / e."""
    return float(params.y * state.R[0] + state.C[0] + state.P[0] / params.e)


def imbalance(**changes: float) -> Measured:
    """The largest difference from T_in + (T(0) - T_in) exp(-D t) over 100 days of cycles."""
    params, D, S = WORLD.limit(**changes), 0.08, 4.0
    run = Run(WORLD, params, {"D": D, "S": S, "I": 1.1, "th": 1.2})
    fed, first = params.y * S + params.c0 + params.p0 / params.e, total(run.state, params)
    worst, grazers = 0.0, []
    for day in range(1, 101):
        grazers.append(run.ticks(1)[0, 0, 1])
        law = fed + (first - fed) * np.exp(-D * day)
        worst = max(worst, abs(total(run.state, params) - law))
    if np.ptp(grazers) < 0.1:
        raise ValueError("the grazers hardly move, so that the balance is no test")
    return Measured(worst)


def nutrient_left(D: float) -> Measured:
    """R at rest with algae alone."""
    run = Run(WORLD, WORLD.limit(), {"D": D, "S": 2.0, "I": 1.0}, state=bloom(P=0.0))
    run.ticks(800)
    return Measured(float(run.state.R[0]))


def algae_left(D: float) -> Measured:
    """C at rest with grazers, whose need is C* = H D / (e g - D), under too little food to cycle."""
    run = Run(WORLD, WORLD.limit(), {"D": D, "S": 1.0, "I": 1.0, "th": 1.0})
    run.ticks(1600)
    return Measured(float(run.state.C[0]))


def checks() -> Iterator[Check]:
    """Formulas against published values, the law against formulas."""
    check = partial(Check, "C3")
    yield check("K_H: the formula", 1.902072, ROSENZWEIG, lambda: Measured(CHAIN.onset), 5e-7)
    yield check("N*: the formula", 0.395480, ROSENZWEIG, lambda: Measured(CHAIN.prey), 5e-7)
    yield check("K_H, where the law's rest turns unstable", CHAIN.onset, ROSENZWEIG, onset, 1e-9, slow=True)
    yield check("omega at K_H", 0.45217, CATALOGUE, lambda: Measured(mode(CHAIN.onset).imag), 5e-6)
    yield check(
        "omega at K_H, of a trajectory",
        mode(CHAIN.onset).imag,
        "the law's Jacobian",
        lambda: Measured(simulated_mode(CHAIN.onset).imag),
        1e-6,
    )
    # The catalogue has .0027 on both sides; the formula gives .0026 above.
    for share, published in ((0.98, -0.0027), (1.02, 0.0026)):
        at, name = CHAIN.onset * share, f"growth at {share} K_H"
        exact = CHAIN.growth(at)
        yield check(f"{name}: the formula", published, CATALOGUE, partial(Measured, exact), 5e-5)
        yield check(name, exact, ROSENZWEIG, lambda at=at: Measured(mode(at).real), 1e-12)
        path = partial(simulated_mode, at)
        yield check(f"{name}, of a trajectory", exact, ROSENZWEIG, lambda p=path: Measured(p().real), 1e-6)
    yield check("y R + C + P / e, away from its exact law", 0.0, BALANCE, imbalance, 1e-9)
    fed = partial(imbalance, c0=0.05, p0=0.03, df=1.0)
    yield check("the same with traces in the feed and a defence", 0.0, BALANCE, fed, 1e-9)
    for D in (0.1, 0.4):
        yield check(f"R* at D = {D}", 0.3 * D / (1 - D), MONOD, partial(nutrient_left, D), 1e-9)
    yield check(
        "C* at D = 0.1", 0.5 * 0.1 / (0.6 - 0.1), "C* = H D / (e g - D)", partial(algae_left, 0.1), 1e-7
    )
