"""B3: the field against direct sums, what each flag and sensor does, what noise, pulse and drift decide."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.families.b3_swarm import LENGTH, MASS, SHAPE, SIZE, WAVES, State, bell
from simworlds.integrate import advance
from simworlds.keys import Noise, Words, role_words

WORLD = load("B3")
K = np.array(WAVES)
SIGMAS = 4
ORDER, TOTAL = 4, 3
ELSEWHERE, UNIFORM = 3, 4

pytestmark = pytest.mark.usefixtures("x64")


def drive(al=0.05, D=1.0, P=0.0, v0=0.0):
    return WORLD.drive_type(*(jnp.float64(x) for x in (al, D, P, v0)))


def limit(n=SIZE, **changes):
    params = WORLD.limit(second=np.zeros(n))._replace(**changes)
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)


def swarm(x, c0=2.0, a=0.0, b=0.0):
    none = np.zeros(len(K))
    return State(*(jnp.asarray(v, jnp.float64) for v in (x, c0, none + a, none + b)))


def lattice(n=SIZE):
    return (np.arange(n) + 0.5) * LENGTH / n


def words(*address):
    return Words(*(jnp.uint32(x) for x in role_words("B3", 0, "test", *address)))


def some(n, *shape):
    """Fixed numbers in (0, 1)."""
    noise = Noise(words("numbers", n), jnp.uint32(0))
    return (
        np.asarray(noise.uniform(jnp.arange(int(np.prod(shape)), dtype=jnp.uint32)))
        .reshape(shape)
        .astype(float)
    )


def static(x, params, al=0.05):
    """The signal of particles that have long been where they are, without a pulse."""
    phase = K[:, None] * np.asarray(x, float)
    feed = 2 * al * MASS / LENGTH * np.array(SHAPE) / (float(params.Dc) * K**2 + float(params.delta))
    return swarm(
        x,
        al * MASS / LENGTH / float(params.delta),
        feed * np.cos(phase).mean(1),
        feed * np.sin(phase).mean(1),
    )


class TestField:
    def test_a_particle_follows_the_slope_of_the_sum_of_modes(self):
        x, a, b = LENGTH * some(1, SIZE), some(2, len(K)) - 0.5, some(3, len(K)) - 0.5
        phase = K[:, None] * x
        c = 9 + a @ np.cos(phase) + b @ np.sin(phase)
        slope = (K * b) @ np.cos(phase) - (K * a) @ np.sin(phase)
        params = limit(chi=0.7, sat=1.0, c_s=3.0)
        speed = WORLD.drift(swarm(x, 9.0, a, b), drive(v0=0.3), params).x
        assert np.allclose(speed, 0.7 * slope / (1 + c / 3) + 0.3, rtol=0, atol=1e-12)

    def test_modes_relax_to_those_of_the_particles_and_the_pulse(self):
        x, q = LENGTH * some(4, SIZE), np.where(np.arange(SIZE) < 50, 0.4, 1.0)
        params = limit(second=(np.arange(SIZE) < 50) * 1.0, r_al=0.4, Dc=1.3, delta=0.4, x_p=7.0)
        flow = WORLD.drift(swarm(x, 0.0), drive(al=0.06, P=3.0), params)
        gauss = 3.0 / LENGTH * np.exp(-(K**2) / 2)
        rho = MASS / LENGTH * np.array(SHAPE) * (q * np.exp(1j * K[:, None] * x)).mean(1)
        expected = 2 * (0.06 * rho + gauss * np.exp(1j * K * 7.0))
        assert np.allclose(flow.a + 1j * flow.b, expected, rtol=0, atol=1e-12)
        assert float(flow.c0) == pytest.approx(0.06 * MASS / LENGTH * q.mean() + 3.0 / LENGTH)
        still = WORLD.drift(swarm(x, 1.0, np.ones(len(K))), drive(al=0.0), params)
        assert np.allclose(still.a, -(1.3 * K**2 + 0.4))
        assert float(still.c0) == pytest.approx(-0.4)

    @pytest.mark.parametrize("place", [0.0, 3.217, 11.9])
    def test_a_particle_feels_no_force_of_its_own(self, place):
        params = limit(1)
        own = static([place], params)
        assert abs(float(WORLD.drift(own, drive(), params).x[0])) < 1e-12
        # Its neighbour at a distance of 1 is drawn to it.
        assert float(WORLD.drift(own._replace(x=jnp.array([place + 1.0])), drive(), params).x[0]) < -1

    def test_the_mean_density_does_not_depend_on_the_number_of_particles(self):
        flows = [WORLD.drift(swarm(lattice(n)), drive(), limit(n)) for n in (64, 128, 500)]
        assert np.allclose([flow.c0 for flow in flows], -0.5 * 2.0 + 0.05 * 20)
        assert all(np.abs(flow.a).max() < 1e-12 for flow in flows)

    def test_the_ring_has_no_origin(self):
        x, a, b = LENGTH * some(5, SIZE), some(6, len(K)), some(7, len(K))
        params, shift = limit(x_p=2.0, x_w=jnp.array([1.0, 6.0, 9.0])), 4.567
        turned = (a + 1j * b) * np.exp(1j * K * shift)
        there = params._replace(x_p=params.x_p + shift, x_w=params.x_w + shift)
        first, second = swarm(x, 2.0, a, b), swarm(x + shift, 2.0, turned.real, turned.imag)
        now = drive(P=2.0)
        assert np.allclose(WORLD.drift(first, now, params).x, WORLD.drift(second, now, there).x)
        assert np.allclose(WORLD.read(first, now, params), WORLD.read(second, now, there))


class TestFlags:
    def test_a_saturating_response_is_halved_at_c_s(self):
        a = np.eye(len(K))[0]
        state = swarm([5.0], 3.0, a)  # cos k_1 x is 0 at 5, so c is 3 there
        full = WORLD.drift(state, drive(), limit(1)).x
        half = WORLD.drift(state, drive(), limit(1, sat=1.0, c_s=3.0)).x
        assert float(half[0] / full[0]) == pytest.approx(0.5)

    def test_the_second_type_has_its_own_sensitivity(self):
        state = swarm([6.0, 6.0], 3.0, np.eye(len(K))[0])
        speed = WORLD.drift(state, drive(), limit(2, second=jnp.array([0.0, 1.0]), r_chi=0.3)).x
        assert float(speed[1] / speed[0]) == pytest.approx(0.3)


class TestSensors:
    def test_an_even_swarm_reads_the_mean_density_and_no_order(self):
        read = WORLD.read(swarm(lattice()), drive(), limit())
        assert np.allclose(read[:3], MASS / LENGTH)
        assert float(read[TOTAL]) == pytest.approx(LENGTH * 2.0)
        assert float(read[ORDER]) < 2e-6

    def test_a_bell_is_two_wide_at_half_height(self):
        turn = WAVES[0] * np.array([0.0, 1.0, -1.0, 3.0])
        heights = bell(np.cos(turn), np.sin(turn), 0.0)
        assert np.allclose(heights[:3], [1, 0.5, 0.5], atol=0.002)
        assert heights[3] < 0.002

    @pytest.mark.parametrize("window", range(3))
    def test_a_bunch_is_read_in_its_window_and_labelled_so(self, window):
        params = limit(x_w=jnp.array([1.0, 6.0, 14.0]))
        state = swarm(np.full(SIZE, float(params.x_w[window])))
        read = np.array(WORLD.read(state, drive(), params))
        assert read[:3].argmax() == window
        assert np.sort(read[:3])[1] < 0.01 * read[:3].max()
        assert float(read[ORDER]) == pytest.approx(1)
        assert int(WORLD.branch(state, params)) == window

    def test_other_outcomes_have_their_labels(self):
        params = limit(x_w=jnp.array([1.0, 6.0, 14.0]))
        assert int(WORLD.branch(swarm(np.full(SIZE, 10.0)), params)) == ELSEWHERE
        assert int(WORLD.branch(swarm(lattice()), params)) == UNIFORM


class TestSwarms:
    """Ensembles of 64 clones in the limit's swarm, chi = 1, which is unstable."""

    @staticmethod
    @cache
    def run(ticks, chi=1.0, start=None, **levels):
        state = None if start is None else static(np.full(SIZE, start), WORLD.limit())
        run = Run(WORLD, WORLD.limit(chi=chi), levels, clones=64, dtype=np.float32, state=state)
        run.ticks(ticks)
        x = run.state.x.astype(float)
        return np.exp(1j * K[0] * x).mean(1)

    def test_an_unstable_swarm_gathers_anywhere(self):
        z = self.run(200)
        assert np.median(np.abs(z)) > 0.8
        way = z / np.abs(z)
        assert abs(way.mean()) < SIGMAS / np.sqrt(len(z))

    def test_a_stable_one_stays_uniform(self):
        assert np.median(np.abs(self.run(200, chi=0.2))) < 3 / np.sqrt(SIZE)

    def test_a_pulse_places_it(self):
        z = self.run(200, P=6.0)  # at 0
        assert (np.abs(np.angle(z)) < np.pi / 4).all()

    def test_an_aggregate_is_carried_by_the_drift(self):
        ticks, v0 = 20, 0.3
        moved = np.angle(self.run(ticks, start=0.0, v0=v0)) / K[0]
        # Internal forces do not cancel, for the signal lags behind: it may hold the aggregate back only.
        assert 0 < moved.mean() < v0 * ticks * WORLD.scheme.tick_time
        still = np.angle(self.run(ticks, start=0.0)) / K[0]
        assert abs(still.mean()) < SIGMAS * still.std(ddof=1) / np.sqrt(len(still))


class TestParameters:
    def test_each_element_moves_a_sensor(self):
        drawn = (WORLD.instance(seed, redraws=0).params for seed in range(100))
        params = next(p for p in drawn if p.sat and p.second.any() and p.second.sum() < SIZE)
        leaves, tree = jax.tree.flatten(jax.tree.map(lambda x: np.asarray(x, float), params))
        names, rows = ["nothing"], [leaves]
        for k, (name, leaf) in enumerate(zip(params._fields, leaves, strict=True)):
            for at in np.ndindex(leaf.shape):
                changed = leaf.copy()
                changed[at] = 1 - changed[at] if name in ("second", "sat") else 1.2 * changed[at]
                names.append(f"{name}{list(at)}")
                rows.append([*leaves[:k], changed, *leaves[k + 1 :]])
        stacked = jax.tree.unflatten(tree, [jnp.stack(column) for column in zip(*rows, strict=True)])
        read = np.asarray(self.readings(stacked))
        apart = np.abs(read - read[0]).max(axis=(1, 2))
        assert [name for name, moved in zip(names[1:], apart[1:], strict=True) if moved < 1e-4] == []

    @staticmethod
    @jax.jit
    @jax.vmap
    def readings(params):
        """Readings ``[tick, sensor]`` of one clone; all parameters meet the same noise."""
        start = WORLD.initial(params, Noise(words("parameters", "initial"), jnp.uint32(0)))
        start = jax.tree.map(lambda x: x.astype(jnp.float64), start)
        one = partial(advance, WORLD, params)

        def tick(state, t):
            state, read = one(state, drive(P=3.0), words("parameters", "process"), t)
            return state, jnp.stack(read)

        return jax.lax.scan(tick, start, jnp.arange(8, dtype=jnp.int32))[1]

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        for p in drawn:
            assert 0.5 <= p.Dc <= 2
            assert 0.25 <= p.delta <= 1
            assert 0 <= p.x_p < LENGTH
            apart = np.abs(p.x_w - np.roll(p.x_w, 1))
            assert np.minimum(apart, LENGTH - apart).min() >= 3.99  # windows do not overlap
            assert p.second.any() == (p.r_chi != 1)
        assert {(float(p.sat), bool(p.second.any())) for p in drawn} == {
            (flag, mixed) for flag in (0.0, 1.0) for mixed in (False, True)
        }
