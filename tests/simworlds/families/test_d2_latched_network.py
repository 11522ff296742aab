"""D2 against an independent solver; its structure, memory and delays; its parameters."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from simworlds.catalogue import load
from simworlds.integrate import advance
from simworlds.keys import Noise, Words

WORLD = load("D2")
NO_WORDS = Words(np.uint32(0), np.uint32(0))
TAU = WORLD.counter_time
SEEDS = range(64)
REST = 0.5


def drawn(seed):
    return jax.tree.map(np.float64, WORLD.instance(seed, redraws=0).params)


@partial(jax.jit, static_argnums=2)
def _run(params, levels, dtype):
    def tick(state, row):
        state, mean = advance(WORLD, params, state, WORLD.physical(row), NO_WORDS, jnp.int32(0))
        return state, (state, jnp.stack(mean))

    start = WORLD.initial(params, Noise(NO_WORDS, jnp.uint32(0)))
    return jax.lax.scan(tick, jax.tree.map(dtype, start), levels)[1]


def run(params, levels, dtype=jnp.float64):
    """States at the end of each tick, and readings ``[tick, sensor]``."""
    return jax.device_get(_run(jax.tree.map(dtype, params), jnp.asarray(levels, dtype), dtype))


def protocol(*segments):
    """Levels ``[tick, 3]`` from segments (ticks, I1, I2, I3)."""
    return np.concatenate([np.tile(levels, (ticks, 1)) for ticks, *levels in segments])


def solved(p, levels):
    """Readings by an adaptive solver that stops at each edge; wiring is read as indices, tables by row."""
    first, second, lag = p.A.argmax(1), p.B.argmax(1), p.D.argmax(0)
    x, b, switched, rows = p.x, p.x > p.th, [], []
    for tick in range(len(levels)):
        I = [4 * levels[tick - lag[k], k] - 2 if tick >= lag[k] else 0.0 for k in range(3)]
        now, area = 0.0, np.zeros(8)
        while now < 1:
            f = p.g * p.F[np.arange(8), 2 * b[first] + b[second]] + p.E @ I
            edges = [lambda t, y, j=j: y[j] - p.th[j] - (-p.h[j] if b[j] else p.h[j]) for j in range(8)]  # noqa: B023
            for j, edge in enumerate(edges):
                edge.terminal, edge.direction = True, -1 if b[j] else 1
            path = solve_ivp(
                lambda t, y: np.concatenate([(f - y[:8]) / p.T, y[:8]]),  # noqa: B023
                (now, 1),
                np.concatenate([x, area]),
                method="DOP853",
                rtol=1e-11,
                atol=1e-12,
                events=edges,
            )
            now, x, area = path.t[-1], path.y[:8, -1], path.y[8:, -1]
            for j in range(8):
                if len(path.t_events[j]):
                    b = b.copy()
                    b[j] = not b[j]
                    switched.append(tick + now)
        ago = tick - np.array(switched)
        rate = np.sum(np.exp(-np.maximum(ago, 0) / TAU) - np.exp(-(ago + 1) / TAU))
        rows.append([*(p.m @ area), rate])
    return np.array(rows), len(switched)


@pytest.mark.usefixtures("x64")
class TestAgainstAnAdaptiveSolver:
    @pytest.mark.parametrize("seed", [0, 3, 28])
    def test_a_drawn_network_under_switched_drives(self, seed):
        levels = protocol((12, 0.5, 0.5, 0.5), (15, 1.0, 0.5, 0.2), (15, 0.5, 0.1, 0.5), (18, 0.3, 0.5, 0.9))
        expected, switches = solved(drawn(seed), levels)
        assert switches >= 10
        np.testing.assert_allclose(run(drawn(seed), levels)[1], expected, rtol=0, atol=1e-8)

    def test_an_oscillation_with_hysteresis(self):
        h = np.array([0.3, 0.1, 0.2, 0, 0, 0, 0, 0])
        th = np.array([0.0, 0.1, -0.1, 1, 1, 1, 1, 1])  # the nodes that rest do so away from their edges
        params = WORLD.limit(h=h, th=th, T=np.array([1.0, 2.0, 0.7, 1, 1, 1, 1, 1]))
        levels = protocol((60, REST, REST, REST))
        expected, switches = solved(params, levels)
        assert switches > 30
        np.testing.assert_allclose(run(params, levels)[1], expected, rtol=0, atol=1e-8)


class TestStructure:
    def test_draws_stay_in_their_ranges(self):
        for p in map(drawn, SEEDS):
            there = p.g > 0
            n = there.sum()
            assert 6 <= n <= 8
            assert there[:n].all()
            assert ((p.T > 0.5) & (p.T < 5)).all()
            assert ((p.h >= 0) & (p.h <= 0.4) & (np.abs(p.th) <= 0.2)).all()
            for wires in (p.A, p.B):
                assert (wires[:n].sum(1) == 1).all()
                assert set(np.unique(wires)) == {0, 1}
                assert not np.diag(wires).any()
                assert not wires[:, n:].any()
            assert (np.abs(p.F[:n]) == 1).all()
            assert (p.D.sum(0) == 1).all()
            assert p.D[1:].sum() <= 1
            assert ((p.E != 0).sum(0) == 1).all()
            assert ((p.E != 0).sum(1) <= 1).all()
            assert not p.m[:, n:].any()
            assert (np.abs(p.m) @ (p.g + 2 * np.abs(p.E).sum(1)) <= 1 + 1e-6).all()

    def test_gates_hold_at_rest_and_give_way_to_a_full_drive(self):
        """Of every node: g > |th| + h; of those with a drive: 2 |E| > g + |th| + h."""
        for p in map(drawn, SEEDS):
            edge = np.abs(p.th) + p.h
            there, entry = p.g > 0, np.abs(p.E).sum(1)
            assert (p.g[there] > edge[there]).all()
            assert (2 * entry > p.g + edge)[entry > 0].all()

    def test_each_has_a_latch_and_a_ring(self):
        """Loops of nodes that hear their predecessor: of even parity from node 0, of odd parity behind it."""
        for p in map(drawn, SEEDS):
            latch = 2 if p.A[0, 1] else 3
            ring = int(p.A[latch].argmax()) - latch + 1
            assert ring in (3, 4)
            for first, size, parity in ((0, latch, 1), (latch, ring, -1)):
                signs, held = [], 0
                for k in range(size):
                    node, before = first + k, first + (k - 1) % size
                    assert p.A[node, before] == 1
                    heard = [p.F[node, 2 + q] - p.F[node, q] for q in (0, 1)]
                    held += 0 in heard
                    signs.append(np.sign(sum(heard)))
                assert np.prod(signs) == parity
                assert held <= (size == ring and first > 0)

    def test_flags_and_wiring_vary(self):
        every = [drawn(seed) for seed in SEEDS]
        assert {int((p.g > 0).sum()) for p in every} == {6, 7, 8}
        assert {int(np.dot(p.D.sum(1), np.arange(4))) for p in every} == {0, 1, 2, 3}
        assert len({p.A.tobytes() + p.B.tobytes() + p.F.tobytes() for p in every}) == len(SEEDS)


class TestMemory:
    SPAN = 24

    def after(self, p, *order):
        """States over 100 ticks at rest, and readings, after the latch's drive went through some levels."""
        latch = 2 if p.A[0, 1] else 3
        port = int(np.abs(p.E[:latch]).sum(0).argmax())
        node = int(np.abs(p.E[:, port]).argmax())
        levels = np.full((self.SPAN * len(order) + 100, 3), REST)
        for k, level in enumerate(order):
            levels[self.SPAN * k : self.SPAN * (k + 1), port] = level
        state, readings = run(p, levels, jnp.float32)
        high = p.E[node, port] * (order[-1] - REST) > 0
        return state.b[self.SPAN * len(order) :, node], readings[-60:].mean(0), float(high)

    @pytest.mark.parametrize("seed", range(16))
    def test_a_drive_sets_and_resets_a_bit_that_stays(self, seed):
        p = drawn(seed)
        for order in ((0.0, 1.0), (1.0, 0.0)):
            bit, _, expected = self.after(p, *order)
            assert (bit == expected).all()

    @pytest.mark.parametrize("seed", range(16))
    def test_the_order_of_drives_shows_in_the_sensors(self, seed):
        p = drawn(seed)
        one, other = (self.after(p, *order)[1] for order in ((0.0, 1.0), (1.0, 0.0)))
        assert np.abs(one - other).max() > 0.1


@pytest.mark.usefixtures("x64")
class TestDelay:
    @pytest.mark.parametrize("lag", [1, 2, 3])
    def test_a_late_drive_acts_as_its_past(self, lag):
        p = drawn(3)._replace(D=np.eye(4)[0][:, None] * np.ones(3))
        late = p._replace(D=p.D.copy())
        late.D[:, 1] = np.eye(4)[lag]
        levels = protocol((20, 0.9, 0.1, 0.5), (20, 0.2, 0.8, 0.9))
        shifted = levels.copy()
        shifted[:, 1] = np.concatenate([np.full(lag, REST), levels[:-lag, 1]])
        np.testing.assert_allclose(run(late, levels)[1], run(p, shifted)[1], rtol=0, atol=1e-13)
        assert np.abs(run(late, levels)[1] - run(p, levels)[1]).max() > 1e-2


class TestParameters:
    @pytest.mark.parametrize("name", WORLD.limit()._fields)
    def test_each_element_moves_some_sensor(self, name):
        """Of a network in which every node hears all others a little, under drives that turn all gates."""
        rng = np.random.default_rng(2)
        weak = rng.uniform(0.05, 0.2, (2, 8, 8))
        dense = WORLD.limit(
            T=rng.uniform(0.6, 2, 8),
            th=rng.uniform(-0.1, 0.1, 8),
            h=rng.uniform(0.05, 0.2, 8),
            g=rng.uniform(0.7, 1, 8),
            A=weak[0],
            B=weak[1],
            F=rng.choice([-1.0, 1.0], (8, 4)) * rng.uniform(0.8, 1.2, (8, 4)),
            E=rng.uniform(0.5, 1.5, (8, 3)),
            D=rng.uniform(0.2, 0.4, (4, 3)),
            m=rng.uniform(0.3, 1, (4, 8)),
            x=rng.uniform(0.3, 0.9, 8) * rng.choice([-1.0, 1.0], 8),
        )
        levels = np.repeat(rng.uniform(0, 1, (10, 3)), 4, axis=0)
        value = getattr(dense, name)
        step = 0.05 * np.abs(value).mean() * np.eye(value.size).reshape(-1, *value.shape)
        fields = jax.tree.map(lambda x: np.repeat(x[None], value.size + 1, axis=0), dense)
        moved = fields._replace(**{name: np.concatenate([value[None], value + step])})
        moved = jax.tree.map(jnp.float32, moved)
        every = jax.vmap(lambda p: _run(p, jnp.float32(levels), jnp.float32)[1])(moved)
        assert (np.abs(every[1:] - every[:1]).max((1, 2)) > 1e-4).all()


class TestSensors:
    def test_they_are_affine_in_the_state(self):
        """What the exact means rest on."""
        params, drive = WORLD.instance(0, redraws=0).params, WORLD.physical(WORLD.rest)
        start = WORLD.initial(params, Noise(NO_WORDS, jnp.uint32(0)))
        one, two = (jax.tree.map(lambda x, s=s: x * s + s, start) for s in (0.4, -1.7))
        middle = jax.tree.map(lambda a, b: 0.3 * a + 0.7 * b, one, two)
        a, b, c = (np.array(WORLD.read(state, drive, params)) for state in (one, two, middle))
        np.testing.assert_allclose(c, 0.3 * a + 0.7 * b, atol=1e-6)
