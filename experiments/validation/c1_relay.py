"""C1: the Goldbeter-Koshland function and its steepness, in each stage; closed Michaelis-Menten."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.keys import Noise, Words

WORLD: Any = load("C1")
GOLDBETER = "Goldbeter & Koshland 1981, doi:10.1073/pnas.78.11.6840"
SCHNELL = "Schnell & Mendoza 1997, doi:10.1006/jtbi.1997.0425"
CLOSED = {"F": 0.0, "u": 0.0, "V2": 0.0}


def state(**fields: Any) -> Any:
    """A state with some fields, the others those of the initial one."""
    return WORLD.initial(WORLD.limit(), Noise(Words(0, 0), 0))._replace(**fields)


def goldbeter_koshland(v1: float, v2: float, J1: float, J2: float) -> float:
    """G = 2 v1 J2 / (B + sqrt(B^2 - 4 (v2 - v1) v1 J2)), B = v2 - v1 + v2 J1 + v1 J2."""
    B = v2 - v1 + v2 * J1 + v1 * J2
    return 2 * v1 * J2 / (B + np.sqrt(B**2 - 4 * (v2 - v1) * v1 * J2))


def steepness(K: float) -> float:
    """The signal at 90 % over that at 10 %, EC90 / EC10 = 81 ((K + .1) / (K + .9))^2."""
    return 81 * ((K + 0.1) / (K + 0.9)) ** 2


def fuel_left(S0: float, Km: float, V: float, t: float) -> float:
    """S(t) = Km W[(S0 / Km) exp((S0 - V t) / Km)], with Lambert's W by Newton's method."""
    x = S0 / Km * np.exp((S0 - V * t) / Km)
    w = np.log1p(x)
    for _ in range(50):
        w -= (w - x * np.exp(-w)) / (1 + w)
    return float(Km * w)


def first_stage(v1: float, v2: float, J1: float, J2: float) -> Measured:
    """w1 after 100 time units at constant rates."""
    run = Run(WORLD, WORLD.limit(v1=v1, K1=J1, K2=J2), {"F": 0.0, "u": 1.0, "V2": v2})
    run.ticks(200)
    return Measured(float(run.state.w1[0]))


def second_stage(v1: float, v2: float, J1: float, J2: float) -> Measured:
    """w2 after 100 time units; neither enzyme of the first stage works, so that w1 stays at one half."""
    run = Run(WORLD, WORLD.limit(k=2 * v1, kr=v2, J1=J1, J2=J2), CLOSED)
    run.ticks(200)
    if run.state.w1[0] != 0.5:
        raise ValueError(f"the first stage must stand still, but w1 is {run.state.w1[0]}")
    return Measured(float(run.state.w2[0]))


def signal_for(w1: float, K: float) -> float:
    """The signal u at which the law's w1' is 0; the rate is linear in u."""
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, WORLD.limit(K1=K, K2=K))
        at = state(w1=jnp.float64(w1))
        rates = [WORLD.drift(at, WORLD.drive_type(0.0, u, 1.0, 25.0), params).w1 for u in (0.0, 1.0)]
        return float(rates[0] / (rates[0] - rates[1]))


def law_steepness(K: float) -> float:
    """EC90 / EC10 of the first stage."""
    return signal_for(0.9, K) / signal_for(0.1, K)


def hill_coefficient(K: float) -> Measured:
    """The Hill coefficient with the same EC90 / EC10: ln 81 / ln(EC90 / EC10)."""
    return Measured(float(np.log(81) / np.log(law_steepness(K))))


def closed_reaction() -> Any:
    """The state after 6 time units from S = 10, P = 0 at a constant w2 = 1."""
    start = state(w1=0.5, w2=1.0, S=10.0, P=0.0)
    run = Run(WORLD, WORLD.limit(kr=0.0), CLOSED, state=start)
    run.ticks(12)
    return run.state


def checks() -> Iterator[Check]:
    """Formulas against published values, the law against formulas."""
    for at, published in (((1.1, 1.0, 0.05, 0.05), 0.717041), ((2.0, 1.0, 0.5, 0.2), 0.684429)):
        exact = goldbeter_koshland(*at)
        named = "G(" + ", ".join(f"{x:g}" for x in at) + ")"
        yield Check("C1", f"{named}: the formula", published, GOLDBETER, partial(Measured, exact), 5e-7)
        for place, stage in (("w1", first_stage), ("w2", second_stage)):
            yield Check("C1", f"{named}: {place} at rest", exact, GOLDBETER, partial(stage, *at), 1e-9)
    for K, published, rounding in ((1.0, 27.150, 5e-4), (0.1, 3.24, 5e-5), (0.02, 1.3781, 5e-5)):
        ratio = steepness(K)
        name = f"EC90/EC10 at K = {K:g}"
        yield Check("C1", f"{name}: the formula", published, GOLDBETER, partial(Measured, ratio), rounding)
        yield Check("C1", name, ratio, GOLDBETER, lambda K=K: Measured(law_steepness(K)), 1e-9 * ratio)
        for level in (0.1, 0.9):
            measure = partial(first_stage, signal_for(level, K), 1.0, K, K)
            yield Check(
                "C1", f"w1 at rest at EC{100 * level:.0f}, K = {K:g}", level, GOLDBETER, measure, 1e-6
            )
    yield Check("C1", "Hill coefficient at K = .02", 13.70, GOLDBETER, partial(hill_coefficient, 0.02), 5e-3)
    left = fuel_left(10.0, 2.0, 1.5, 6.0)
    yield Check("C1", "closed reaction, S(6): the formula", 3.248675, SCHNELL, partial(Measured, left), 5e-7)
    yield Check(
        "C1", "closed reaction, S(6)", left, SCHNELL, lambda: Measured(float(closed_reaction().S[0])), 1e-9
    )
    yield Check(
        "C1",
        "closed reaction, P(6)",
        10 - left,
        SCHNELL,
        lambda: Measured(float(closed_reaction().P[0])),
        1e-9,
    )
