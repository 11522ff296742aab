"""D2 Latched network: nodes relax to targets that other nodes' Schmitt gates set; a latch, a ring.

    T_i x_i' = f_i - x_i
    f_i = g_i F_i(p_i, q_i) + sum_k E_ik v_k,    p_i = sum_j A_ij b_j,    q_i = sum_j B_ij b_j
    b_j: on (1) when x_j rises to th_j + h_j, off (0) when it falls to th_j - h_j
    v_k = sum_a D_ak I_k(t - a),    a = 0 .. 3 ticks

Each row of A and B picks one gate, so that a node hears two gates (or one, twice); F_i is its truth table,
with values -1 and +1 in the order (p, q) = 00, 01, 10, 11. Drives I_k enter three nodes; a column of D picks
the delay of one. Time constants are in ticks, the rest is dimensionless; a tick is one time unit.

The first nodes form a latch, a loop with an even number of inversions whose nodes hear one another alone: it
holds a bit, which a drive sets and resets. The next form a ring, a loop with an odd number of inversions,
which oscillates; in most instances one of its nodes is held while a gate outside, often the latch, says so.
The others hear any two gates through a table in which both matter. Sensors are four mixtures of nodes and the
rate of switches, with tau rate' = -rate + sum delta(t - t_switch), tau = 5.

Sources: Glass & Kauffman 1973 (doi:10.1016/0022-5193(73)90208-7); Glass & Pasternack 1978
(doi:10.1007/BF02547797); Preisach 1935 (doi:10.1007/BF01349418).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import EventMap
from simworlds.keys import Draws, Noise
from simworlds.world import Drive, Grammar, Sensor, SwitchedWorld

NODES = 8
AGES = 4  # delays of 0 to 3 ticks
_REACH = 2.0  # of a drive, either way
# Truth tables in which both inputs matter.
_ESSENTIAL = tuple(
    table
    for table in np.ndindex(2, 2, 2, 2)
    if table[:2] != table[2:] and (table[0], table[2]) != (table[1], table[3])
)


class Params(NamedTuple):
    """Parameters of an instance, padded to eight nodes (rows)."""

    T: Any  # time constants [8]
    th: Any  # middles of the thresholds [8]
    h: Any  # half-widths of the hysteresis [8]
    g: Any  # gains; 0 for an absent node [8]
    A: Any  # first input of each node: weights of the gates [8, 8]
    B: Any  # second input [8, 8]
    F: Any  # truth tables [8, 4]
    E: Any  # how drives enter nodes [8, 3]
    D: Any  # weight of each age of each drive [4, 3]
    m: Any  # mixtures that the sensors read [4, 8]
    x: Any  # initial x [8]


class State(NamedTuple):
    """Nodes [8], gates [8], the rate of switches, and drives of the past three ticks, latest first [3, 3]."""

    x: Any
    b: Any
    rate: Any
    past: Any


class LatchedNetwork(SwitchedWorld):
    """D2: memory bits and oscillations that depend on the order of what was done."""

    id = "D2"
    title = "Latched network"
    track = "D"
    phenomenon = "latched bits that depend on the order of drives; a ring that they start and stop"
    drives = (
        Drive("I1", -_REACH, _REACH, rest=0.5),
        Drive("I2", -_REACH, _REACH, rest=0.5),
        Drive("I3", -_REACH, _REACH, rest=0.5),
    )
    sensors = (
        Sensor("mixture 1", -1.0, 1.0),
        Sensor("mixture 2", -1.0, 1.0),
        Sensor("mixture 3", -1.0, 1.0),
        Sensor("mixture 4", -1.0, 1.0),
        Sensor("switching rate", 0.0, 2.0),
    )
    scheme = EventMap(dt=1.0, substeps=1)
    grammar = Grammar(
        segments=(2, 5),
        ticks=(16, 56),
        window=(8, 32),
        changes=(1, 2),
        ask={"mixture 1": 1.0, "mixture 2": 1.0, "mixture 3": 1.0, "mixture 4": 1.0, "switching rate": 0.8},
        sd_share=0.3,
    )
    mean_fraction = 0.03
    sd_fraction = 0.015
    counter_time = 5.0

    def draw(self, draws: Draws) -> Params:
        """A latch of 2 or 3 nodes, a ring of 3 or 4, and others; in most instances one drive is late."""
        latch, ring = draws.integer(2, 3), draws.integer(3, 4)
        nodes = draws.integer(max(6, latch + ring + 1), NODES)
        A, B, F = _wire(draws, latch, ring, nodes)
        T = [draws.log_uniform(0.5, 5.0) for _ in range(NODES)]
        g = np.array([draws.uniform(0.7, 1.1) for _ in range(NODES)]) * (np.arange(NODES) < nodes)
        E = _entries(draws, latch, ring, nodes)
        D = np.zeros((AGES, 3))
        late = draws.integer(0, 2) if draws.chance(0.6) else None
        lag = draws.integer(1, AGES - 1)
        for k in range(3):
            D[lag if k == late else 0, k] = 1
        values = Params(
            T=T,
            th=[draws.uniform(-0.2, 0.2) for _ in range(NODES)],
            h=[draws.uniform(0.0, 0.4) for _ in range(NODES)],
            g=g,
            A=A,
            B=B,
            F=F,
            E=E,
            D=D,
            m=_mixtures(draws, nodes, g + _REACH * np.abs(E).sum(1)),
            x=g * [draws.uniform(-0.9, 0.9) for _ in range(NODES)],
        )
        return Params(*(np.asarray(value, np.float32) for value in values))

    def limit(self, **changes: Any) -> Params:
        """A ring of three equal inverters without hysteresis, nodes 0 to 2; the others rest."""
        ring = np.zeros((NODES, NODES))
        ring[[0, 1, 2], [2, 0, 1]] = 1
        some = (np.arange(NODES) < 3).astype(float)
        plain = Params(
            T=np.ones(NODES),
            th=np.zeros(NODES),
            h=np.zeros(NODES),
            g=some,
            A=ring,
            B=ring,
            F=some[:, None] * np.array([1.0, 1.0, -1.0, -1.0]),
            E=np.zeros((NODES, 3)),
            D=np.eye(AGES)[:, :1] * np.ones(3),
            m=np.eye(4, NODES),
            x=some * np.array([0.9, -0.5, 0.3, 0, 0, 0, 0, 0]),
        )
        return plain._replace(**changes)

    def initial(self, params: Params, noise: Noise) -> State:
        """A point: the instance's own x, each gate on where x is above th; past drives 0, their rest."""
        del noise
        b = (params.x > params.th).astype(jnp.result_type(params.x))
        zero = jnp.zeros_like(params.x)
        return State(x=params.x, b=b, rate=zero[0], past=jnp.zeros((AGES - 1, 3), zero.dtype))

    def targets(self, state: State, drive: Any, params: Params) -> Any:
        """f: each node's table at its two gates, and what drives add."""
        p = jnp.sum(params.A * state.b[None, :], axis=1)
        q = jnp.sum(params.B * state.b[None, :], axis=1)
        F = params.F
        table = (1 - p) * ((1 - q) * F[:, 0] + q * F[:, 1]) + p * ((1 - q) * F[:, 2] + q * F[:, 3])
        v = jnp.sum(params.D * _ages(state, drive), axis=0)
        return params.g * table + jnp.sum(params.E * v[None, :], axis=1)

    def times(self, params: Params) -> Any:
        """The time constants, T."""
        return params.T

    def edges(self, params: Params) -> tuple[Any, Any]:
        """Where gates turn off, th - h, and on, th + h."""
        return params.th - params.h, params.th + params.h

    def clocked(self, state: State, drive: Any, params: Params) -> State:
        """The register of past drives moves on by a tick."""
        del params
        return state._replace(past=_ages(state, drive)[:-1])

    def read(self, state: State, drive: Any, params: Params) -> tuple[Any, ...]:
        """Four mixtures of x, and the rate."""
        del drive
        mixed = jnp.sum(params.m * state.x[None, :], axis=1)
        return mixed[0], mixed[1], mixed[2], mixed[3], state.rate


def _ages(state: State, drive: Any) -> Any:
    """Drives now and in the past three ticks ``[4, 3]``."""
    now = jnp.stack([jnp.asarray(u, state.past.dtype) for u in drive])
    return jnp.concatenate([now[None, :], state.past])


def _wire(draws: Draws, latch: int, ring: int, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and F."""
    A, B, F = np.zeros((NODES, NODES)), np.zeros((NODES, NODES)), np.zeros((NODES, 4))
    for first, size, odd in ((0, latch, 0), (latch, ring, 1)):
        signs = [draws.choice((1, -1)) for _ in range(size - 1)]
        signs.append(int(np.prod(signs)) * (-1 if odd else 1))
        for k, sign in enumerate(signs):
            node = first + k
            A[node, first + (k - 1) % size] = B[node, first + (k - 1) % size] = 1
            F[node] = sign * np.array([-1, -1, 1, 1])
    outside = [*range(latch), *range(latch + ring, nodes)]
    if draws.chance(0.8):  # one node of the ring is held while a gate outside is on, or while it is off
        node = latch + draws.integer(0, ring - 1)
        by = draws.integer(0, latch - 1) if draws.chance(0.7) else draws.choice(outside)
        B[node] = np.eye(NODES)[by]
        F[node, draws.integer(0, 1) :: 2] = draws.choice((1, -1))
    for node in range(latch + ring, nodes):
        one, two = [j for j in draws.permutation(nodes) if j != node][:2]
        A[node, one] = B[node, two] = 1
        F[node] = 2 * np.array(draws.choice(_ESSENTIAL)) - 1
    return A, B, F


def _entries(draws: Draws, latch: int, ring: int, nodes: int) -> np.ndarray:
    """E: one drive into the latch, one into the latch or the ring, one into any node that has none."""
    taken: list[int] = []
    for low, high in ((0, latch - 1), (0, latch + ring - 1), (latch, nodes - 1)):
        taken.append(draws.choice([j for j in range(low, high + 1) if j not in taken]))
    E = np.zeros((NODES, 3))
    for node, drive in zip(taken, draws.permutation(3), strict=True):
        # Enough at either end of its range to turn the gate whatever the node hears.
        E[node, drive] = draws.uniform(0.9, 1.1) * draws.choice((1.0, -1.0))
    return E


def _mixtures(draws: Draws, nodes: int, span: np.ndarray) -> np.ndarray:
    """m: four nodes, half of them with a share of another, each brought to a span of about 1."""
    m = np.zeros((4, NODES))
    order = draws.permutation(nodes)
    for k in range(4):
        m[k, order[k]] = 1 / span[order[k]]
        other = draws.choice([j for j in range(nodes) if j != order[k]])
        share = draws.uniform(0.2, 0.6)
        if draws.chance(0.5):
            m[k] *= 1 - share
            m[k, other] = share * draws.choice((1.0, -1.0)) / span[other]
    return m
