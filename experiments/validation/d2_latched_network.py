"""D2: periods of rings and of the relay in closed form; wiping-out and congruency of a bank of latches.

The repressilator's Hopf condition (Elowitz & Leibler 2000) is for a smooth law and has no counterpart here.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run
from simworlds.catalogue import load

WORLD = load("D2")
NODES = len(WORLD.limit().T)
GLASS = "Glass & Pasternack 1978, doi:10.1007/BF02547797"
ASTROM = "Astrom & Hagglund 1984, doi:10.1016/0005-1098(84)90014-1"
PREISACH = "Preisach 1935, doi:10.1007/BF01349418; Mayergoyz 1986"
TICKS = 16000
PRECISION = 1e-8  # of a period: what the bump leaves of the oscillation
INVERTER = np.array([1.0, 1.0, -1.0, -1.0])


def ring_period(nodes: int) -> float:
    """P = -2 N ln z of N equal inverters with th = h = 0; z in (0, 1) solves z^N - 2 z + 1 = 0."""
    z = 0.5
    for _ in range(200):
        z = (1 + z**nodes) / 2
    return float(-2 * nodes * np.log(z))


def relay_period(T: float, d: float, eps: float) -> float:
    """P = 2 T ln((d + eps) / (d - eps)) of a relay of level d with hysteresis eps."""
    return float(2 * T * np.log((d + eps) / (d - eps)))


def period(params: Any, switches: int) -> Measured:
    """The period of an oscillation with so many switches in each.

    The mean of the switching rate is taken under a smooth bump, which suppresses what is left of a period.
    """
    run = Run(WORLD, params)
    run.ticks(TICKS)
    rate = run.ticks(TICKS)[0, :, -1]
    at = (np.arange(TICKS) + 0.5) / TICKS
    return Measured(switches / float(np.average(rate, weights=np.exp(-1 / (at * (1 - at))))))


def ring(nodes: int) -> Measured:
    """The period of a ring of equal inverters."""
    first = np.arange(NODES) < nodes
    wires = np.zeros((NODES, NODES))
    wires[np.arange(nodes), np.arange(-1, nodes - 1) % nodes] = 1
    tables = first[:, None] * INVERTER
    if nodes % 2 == 0:
        tables[0] *= -1  # an odd number of inversions is left
    x = first * np.linspace(0.9, -0.5, NODES)
    return period(WORLD.limit(A=wires, B=wires, F=tables, g=first * 1.0, x=x), 2 * nodes)


def relay(T: float, d: float, eps: float) -> Measured:
    """The period of one node that hears its own gate and turns against it."""
    one = np.eye(NODES)[0]
    itself = np.outer(one, one)
    params = WORLD.limit(
        T=T * np.ones(NODES), g=d * one, h=eps * one, A=itself, B=itself, F=np.outer(one, INVERTER), x=0 * one
    )
    return period(params, 2)


TH = np.linspace(-0.9, 0.9, NODES)
H = np.array([0.15, 0.5, 0.3, 0.7, 0.2, 0.6, 0.4, 0.25])
WEIGHTS = np.array([1.0, 2.3, 0.7, 1.9, 1.1, 0.4, 1.6, 0.8])


@cache
def bank(history: tuple[float, ...]) -> np.ndarray:
    """The output sum_j w_j b_j of eight latches under one drive, after each level of a slow history."""
    nothing = np.zeros((NODES, NODES))
    params = WORLD.limit(
        T=0.05 * np.ones(NODES),
        th=TH,
        h=H,
        g=np.zeros(NODES),
        A=nothing,
        B=nothing,
        E=np.eye(3)[0] * np.ones((NODES, 1)),
        x=np.zeros(NODES) - 2,
    )
    run = Run(WORLD, params)
    outputs = []
    for level in history:
        run.drive(I1=level)
        run.ticks(2)  # 40 time constants
        outputs.append(float(run.state.b[0] @ WEIGHTS))
    return np.array(outputs)


def relays(history: tuple[float, ...]) -> np.ndarray:
    """The same by the definition: each relay up at th + h, down at th - h, else as it was; at first down."""
    up, outputs = np.zeros(NODES, bool), []
    for level in history:
        up = (level >= TH + H) | (up & (level > TH - H))
        outputs.append(up @ WEIGHTS)
    return np.array(outputs)


def definition() -> Measured:
    """The largest difference of the bank from its definition, over 60 levels."""
    history = tuple(1.7 * np.sin(np.arange(60) ** 1.5))
    if np.ptp(relays(history)) < WEIGHTS.sum() / 2:
        raise ValueError("the history must turn most latches")
    return Measured(float(np.abs(bank(history) - relays(history)).max()))


def wiped(inner: tuple[float, ...]) -> Measured:
    """What inner extrema leave behind once the drive has gone beyond them: a difference of outputs."""
    outer, beyond = (1.8, -1.5), (1.2, 0.6, 0.0, -0.7, 0.3)
    with_inner, without = bank((*outer, *inner, *beyond)), bank((*outer, *beyond))
    before = bank((*outer, *inner, 0.0))[-1] - bank((*outer, 0.0))[-1]
    if before == 0:
        raise ValueError("the inner extrema must leave a trace before they are wiped out")
    return Measured(float(np.abs(with_inner[-len(beyond) :] - without[-len(beyond) :]).max()))


def congruent() -> Measured:
    """How far two minor loops between the same reversals are from a shift of one another."""
    up = tuple(np.linspace(-0.1, 0.4, 11))
    loop = (*up, *up[::-1], *up)
    rising, falling = (bank((start, *loop))[1 + len(up) :] for start in (-1.9, 1.9))
    if np.ptp(rising) == 0 or rising[0] == falling[0]:
        raise ValueError("the loops must be open and lie apart")
    return Measured(float(np.abs((rising - rising[0]) - (falling - falling[0])).max()))


def checks() -> Iterator[Check]:
    """Deterministic values in float64."""
    golden = 6 * float(np.log((1 + np.sqrt(5)) / 2))
    yield Check("D2", "6 ln((1 + sqrt 5) / 2)", 2.887271, "catalogue", lambda: Measured(golden), 5e-7)
    yield Check("D2", "period of a ring of 3 inverters", golden, GLASS, partial(ring, 3), PRECISION)
    for nodes in (4, 5):
        quantity = f"period of a ring of {nodes}, z^{nodes} - 2 z + 1 = 0"
        yield Check("D2", quantity, ring_period(nodes), GLASS, partial(ring, nodes), PRECISION)
    for T, d, eps in ((1.0, 1.0, 0.2), (5.0, 0.8, 0.4), (0.5, 1.1, 0.05)):
        quantity = f"period of a relay, T = {T}, d = {d}, eps = {eps}"
        yield Check("D2", quantity, relay_period(T, d, eps), ASTROM, partial(relay, T, d, eps), PRECISION)
    yield Check("D2", "bank of latches v sum of relays, largest difference", 0.0, PREISACH, definition, 1e-12)
    for inner in ((0.9, -0.6), (0.9, -0.6, 0.5, -0.1), (0.8,)):
        quantity = f"trace of inner extrema {inner} after wiping-out"
        yield Check("D2", quantity, 0.0, PREISACH, partial(wiped, inner), 1e-12)
    yield Check("D2", "difference of two minor loops, congruency", 0.0, PREISACH, congruent, 1e-12)
