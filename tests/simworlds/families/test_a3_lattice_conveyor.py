"""A3: what its flags, drives and sensors do, its symmetries, its mean field.

Published currents, phases and shocks are checked in `experiments.validation.a3_lattice_conveyor`, the
scheme in
`tests/simworlds/integrate/test_lattice.py`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.a3_lattice_conveyor import chain_readings, exact_current
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.errors import UnsupportedLaw
from simworlds.gradients import window_statistics
from simworlds.integrate import advance, cast
from simworlds.keys import Noise, Words, role_words

WORLD = load("A3")
FIELD = WORLD.relaxed()
SIGMAS = 4
EXIT, ENTRY, LEFT, MIDDLE, RIGHT = range(5)
FREE = {"Omega_A": 0.0, "Omega_D": 0.0, "speed": 1.0}


def readings(params, drive, ticks, keep, label="test", clones=32):
    """Means over the last ticks, ``[clone, sensor]``."""
    run = Run(WORLD, params, {**FREE, **drive}, clones=clones, label=label, dtype=np.float32)
    return run.ticks(ticks)[:, -keep:].mean(1).astype(float)


def apart(one, other):
    """By how many standard errors the means of two ensembles differ, ``[sensor]``."""
    error = np.sqrt((one.var(0, ddof=1) + other.var(0, ddof=1)) / len(one))
    return np.abs(one.mean(0) - other.mean(0)) / error


class TestDraw:
    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        for p in drawn:
            assert 64 <= p.N <= 128
            assert p.N == round(float(p.N))
            assert p.at == round(float(p.at))
            assert 0.2 * p.N - 0.5 <= p.at <= 0.8 * p.N + 0.5
            assert 0.3 <= p.q <= 0.9
            assert p.slow in (0, 1)
        assert 0.5 < np.mean([p.slow for p in drawn]) < 0.9
        assert len({float(p.N) for p in drawn}) > 20

    @pytest.mark.parametrize("N", [64.0, 100.0, 128.0])
    def test_probabilities_leave_room_at_the_largest_drives(self, N):
        bonds = jnp.arange(int(N) + 1, dtype=jnp.uint32)
        top = WORLD.physical(jnp.ones(len(WORLD.drives)))
        hop, attach, detach = WORLD.rates(bonds, top, cast(WORLD.limit(N=N), jnp.float32))
        scheme = WORLD.scheme
        share = scheme.dt * (N + 1) / scheme.attempts
        assert float(jnp.max(share * (hop + jnp.maximum(attach, detach)))) <= 1


class TestLaw:
    def test_without_the_flag_the_slow_bond_does_nothing(self):
        plain = readings(WORLD.limit(N=80.0), {"alpha": 0.9, "beta": 0.9}, 20, 20, clones=4)
        off = WORLD.limit(N=80.0, slow=0.0, q=0.3, at=20.0)
        np.testing.assert_array_equal(readings(off, {"alpha": 0.9, "beta": 0.9}, 20, 20, clones=4), plain)

    @pytest.mark.parametrize("at", [32.0, 64.0])
    def test_a_queue_stands_before_the_slow_bond(self, at):
        jam = WORLD.limit(N=96.0, slow=1.0, q=0.3, at=at)
        found = readings(jam, {"alpha": 0.9, "beta": 0.9}, 200, 60)
        rho, error = found.mean(0), found.std(0, ddof=1) / np.sqrt(len(found))
        # Thirds lie wholly before or behind the bond; a long tube has densities r, 1 - r with r (1 - r) = J.
        before = (LEFT,) if at == 32 else (LEFT, MIDDLE)
        for third in (LEFT, MIDDLE, RIGHT):
            expected = 0.742 if third in before else 0.258
            assert abs(rho[third] - expected) < SIGMAS * error[third] + 0.02
        assert abs(rho[EXIT] - 0.1918) < SIGMAS * error[EXIT] + 0.001

    def test_holes_move_like_particles(self):
        # Particles to the right are holes to the left: ends and exchanges swap, and so do thirds.
        one = readings(
            WORLD.limit(N=90.0, slow=1.0, q=0.5, at=30.0),
            {"alpha": 0.7, "beta": 0.3, "Omega_A": 0.5, "Omega_D": 0.1},
            120,
            60,
        )
        other = readings(
            WORLD.limit(N=90.0, slow=1.0, q=0.5, at=60.0),
            {"alpha": 0.3, "beta": 0.7, "Omega_A": 0.1, "Omega_D": 0.5},
            120,
            60,
            label="holes",
        )
        mirrored = np.column_stack([other[:, [ENTRY, EXIT]], 1 - other[:, [RIGHT, MIDDLE, LEFT]]])
        assert apart(one, mirrored).max() < SIGMAS
        assert apart(one, other).max() > SIGMAS

    def test_speed_is_a_unit_of_time(self):
        drive = {"alpha": 0.8, "beta": 0.4, "Omega_A": 0.2, "Omega_D": 0.4}
        params = WORLD.limit(N=128.0)
        slow = readings(params, {**drive, "speed": 1.0}, 24, 8)
        fast = readings(params, {**drive, "speed": 2.0}, 12, 4, label="fast")
        assert apart(slow, fast / [2, 2, 1, 1, 1]).max() < SIGMAS
        assert apart(slow, fast).max() > SIGMAS

    def test_without_ends_tubes_fill_to_the_ratio_of_exchange_rates(self):
        closed = {"alpha": 0.0, "beta": 0.0, "Omega_A": 0.6, "Omega_D": 0.2, "speed": 2.0}
        found = readings(WORLD.limit(N=64.0), closed, 200, 20)
        assert (found[:, [EXIT, ENTRY]] == 0).all()
        density = found[:, [LEFT, MIDDLE, RIGHT]] @ [21, 21, 22] / 64
        assert abs(density.mean() - 0.75) < SIGMAS * density.std(ddof=1) / np.sqrt(len(density))
        assert (found.mean(0)[[LEFT, RIGHT]] - 0.75) @ [-1, 1] > 0.1, (
            "hops pile particles up at the right end"
        )

    def test_derivatives_are_refused(self):
        with pytest.raises(UnsupportedLaw, match=r"world A3 moves by jumps"):
            window_statistics(WORLD, WORLD.limit(), jnp.full((4, 5), 0.5), (0, 4))


class TestParameters:
    def test_each_moves_a_sensor(self):
        base = WORLD.limit(N=80.0, slow=1.0, q=0.5, at=30.0)
        changed = [
            base,
            base._replace(N=100.0),
            base._replace(slow=0.0),
            base._replace(q=0.8),
            base._replace(at=50.0),
        ]
        stacked = jax.tree.map(lambda *column: jnp.asarray(column, jnp.float32), *changed)
        read = np.asarray(self.readings(stacked))
        assert len(changed) == 1 + len(base)
        assert (np.abs(read[1:] - read[0]).max(axis=(1, 2)) > 1e-3).all()

    @staticmethod
    @jax.jit
    @jax.vmap
    def readings(params):
        """Readings ``[tick, sensor]`` of a clone at rest; all parameters meet the same noise."""
        stream = Words(*(jnp.uint32(x) for x in role_words("A3", 0, "test", "parameters")))
        state = WORLD.initial(params, Noise(stream, jnp.uint32(0)))
        drive = WORLD.physical(jnp.asarray(WORLD.rest, jnp.float32))
        one = partial(advance, WORLD, params)
        ticks = jnp.arange(24, dtype=jnp.int32)

        def tick(state, t):
            state, read = one(state, drive, stream, t)
            return state, jnp.stack(read)

        return jax.lax.scan(tick, state, ticks)[1]


class TestMeanField:
    def settled(self, params, drive, ticks=300):
        run = Run(FIELD, params, {**FREE, **drive})
        return run.ticks(ticks)[0, -1], run.state.rho[0]

    def test_phases_have_the_exact_current(self):
        for alpha, beta, J, rho in ((0.2, 0.7, 0.16, 0.2), (0.7, 0.2, 0.16, 0.8)):
            read, profile = self.settled(WORLD.limit(N=100.0), {"alpha": alpha, "beta": beta})
            assert read[[EXIT, ENTRY, MIDDLE]] == pytest.approx([J, J, rho], abs=1e-4)
            assert (profile[100:] == 0).all()
        read, _ = self.settled(WORLD.limit(N=128.0), {"alpha": 0.9, "beta": 0.9}, 2000)
        assert read[EXIT] == pytest.approx(exact_current(128, 0.9, 0.9), abs=0.004)

    def test_it_is_near_the_law_where_sites_are_few_but_not_equal(self):
        drive = {"alpha": 0.6, "beta": 0.8, "Omega_A": 0.5, "Omega_D": 0.3, "speed": 2.0}
        read, _ = self.settled(WORLD.limit(N=5.0, slow=1.0, q=0.4, at=2.0), drive)
        bias = np.abs(read - chain_readings(5, 0.4, 2, drive))
        assert 0.005 < bias.max() < 0.06

    def test_its_derivatives_are_those_of_differences(self, x64):
        params = cast(WORLD.limit(N=70.0, slow=1.0, q=0.5, at=30.0), jnp.float64)
        levels = np.full((12, 5), 0.4)

        def means(q, alpha):
            rows = jnp.asarray(levels).at[:, 0].set(alpha)
            return window_statistics(FIELD, params._replace(q=q), rows, (4, 12)).mean[0]

        at = (0.5, 0.4)
        slopes = jax.jacfwd(means, argnums=(0, 1))(*at)
        for k, slope in enumerate(slopes):
            step = 1e-5 * np.eye(2)[k]
            difference = (means(*(at + step)) - means(*(at - step))) / 2e-5
            np.testing.assert_allclose(slope, difference, atol=1e-7)
            assert np.abs(slope).max() > 1e-3
