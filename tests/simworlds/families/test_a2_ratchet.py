"""A2: rectification, separation, what each sensor reads, what each parameter does.

Published values are measured in `experiments.validation.a2_ratchet`. Statistical assertions are at five
standard errors over clones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.families.a2_ratchet import SIZE
from simworlds.integrate import advance, begin
from simworlds.keys import Noise, clone_words, role_words

WORLD = load("A2")
SPAN = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
SIGMAS = 5
PARTICLES, CLONES, ROWS = 1024, 8, 4
FLASHING = dict(a2=0.35, phi=0.3, steady=0.0, flashing=1.0)
ROCKING = dict(a2=0.35, phi=0.3, R=3.5)


def words(clone):
    """The initial and the process keys of a clone."""
    return tuple(clone_words(role_words("A2", 0, role, "test"), clone) for role in ("initial", "process"))


def trajectory(params, drive, clone, ticks):
    """The last state and raw readings ``[tick, sensor]`` of one clone."""
    first, later = words(clone)
    start = begin(WORLD, params, Noise(first, jnp.uint32(0)), jnp.float32)

    def tick(state, t):
        state, read = advance(WORLD, params, state, drive, later, t)
        return state, jnp.stack(read)

    return jax.lax.scan(tick, start, jnp.arange(ticks, dtype=jnp.int32))


@jax.jit
def _ensembles(params, drives):
    one = lambda p, d: jax.vmap(lambda c: trajectory(p, d, c, 96)[1])(jnp.arange(CLONES, dtype=jnp.uint32))  # noqa: E731
    return jax.vmap(one)(params, drives)


def runs(*rows):
    """Means of readings over ticks 32 to 96 ``[row, clone, sensor]`` of pairs (changes, physical drives).

    Those are 32 time units, in which a wave of f = k / 32 makes k turns.
    """
    rest = {d.name: d.physical(d.rest) for d in WORLD.drives}
    plain = WORLD.limit(slow=np.arange(PARTICLES) % 2.0)
    pairs = [(plain._replace(**c), WORLD.drive_type(**{**rest, **d})) for c, d in rows]
    pairs += pairs[-1:] * (ROWS - len(pairs))
    stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *pairs)
    return np.asarray(_ensembles(*stacked), np.float64)[: len(rows), :, 32:].mean(2)


def sigmas(values, expected=0.0):
    """How many standard errors the clones' mean is above its expectation."""
    return (values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values)))


class TestRectification:
    def test_a_flashing_potential_drives_a_current_without_force(self):
        """In its mirror image (phi to pi - phi) the current is opposite; a standing potential drives none."""
        at = {"A": 5.0, "F": 0.0, "T": 0.5, "f": 6 / 32}
        mirror = {**FLASHING, "phi": np.pi - 0.3}
        flashed, mirrored, standing = runs((FLASHING, at), (mirror, at), (dict(a2=0.35, phi=0.3), at))[..., 0]
        assert sigmas(flashed) > SIGMAS
        assert sigmas(mirrored) < -SIGMAS
        assert abs(sigmas(flashed + mirrored)) < SIGMAS
        assert abs(sigmas(standing)) < SIGMAS

    def test_a_rocking_force_drives_a_current_that_reverses_with_its_rate(self):
        """In its mirror image the current is opposite."""
        at, mirror = {"A": 2.0, "F": 0.0, "T": 0.5}, {**ROCKING, "phi": np.pi - 0.3}
        slow, quick, mirrored, standing = runs(
            (ROCKING, {**at, "f": 5 / 32}),
            (ROCKING, {**at, "f": 14 / 32}),
            (mirror, {**at, "f": 5 / 32}),
            ({**ROCKING, "R": 0.0}, {**at, "f": 5 / 32}),
        )[..., 0]
        assert sigmas(slow) < -SIGMAS
        assert sigmas(quick) > SIGMAS
        assert sigmas(mirrored) > SIGMAS
        assert abs(sigmas(standing)) < SIGMAS

    def test_kinds_separate(self):
        """Slow and fast particles drift at different velocities; the slow sensor reads the slow ones."""
        both, same = runs(
            ({**FLASHING, "m": np.array([1.0, 0.3])}, {"A": 5.0, "F": 0.0, "T": 0.5, "f": 6 / 32}),
            (FLASHING, {"A": 5.0, "F": 0.0, "T": 0.5, "f": 6 / 32}),
        )
        assert sigmas(both[:, 0] - both[:, 4]) > SIGMAS
        assert abs(sigmas(same[:, 0] - same[:, 4])) < SIGMAS


class TestSensors:
    def test_free_particles(self):
        """v = m F; power = F v; occupancy that of a uniform density; spread grows by 2 m T."""
        (read,) = runs(({"m": np.array([0.4, 0.4]), "tau": 2.0}, {"A": 0.0, "F": 1.5, "T": 1.2}))
        x = np.linspace(0, 2 * np.pi, 4096, endpoint=False)
        window = np.mean(1 / (1 + np.exp(-20 * (np.cos(x) - np.cos(np.pi / 4)))))
        assert window == pytest.approx(0.25, abs=0.01)
        assert read[:, 0] == pytest.approx(0.6, rel=1e-5)
        assert read[:, 2] == pytest.approx(0.9, rel=1e-5)
        assert abs(sigmas(read[:, 1], window)) < SIGMAS
        assert abs(sigmas(read[:, 3], 0.96)) < SIGMAS

    def test_occupancy_is_boltzmanns(self):
        """Without force on a standing potential the density is exp(-V / T); the window is where x0 says."""
        x = np.linspace(0, 2 * np.pi, 4096, endpoint=False)
        density = np.exp(-2 * (np.sin(x) + 0.25 * np.sin(2 * x + 0.6)))
        at = {"A": 2.0, "F": 0.0, "T": 1.0}
        places = (0.0, 4.5)
        for x0, read in zip(places, runs(*(({"x0": x0}, at) for x0 in places)), strict=True):
            window = 1 / (1 + np.exp(-20 * (np.cos(x - x0) - np.cos(np.pi / 4))))
            assert abs(sigmas(read[:, 1], np.sum(window * density) / np.sum(density))) < SIGMAS

    def test_waves_put_power_in_and_standing_potentials_none(self):
        at = {"A": 4.0, "F": 0.0, "f": 0.5}
        flashed, standing, tilted = runs((FLASHING, at), ({}, at), ({}, {**at, "F": 2.0}))
        assert sigmas(flashed[:, 2]) > SIGMAS
        assert standing[:, 2] == pytest.approx(0.0, abs=1e-6)
        assert tilted[:, 2] == pytest.approx(2 * tilted[:, 0], rel=1e-4)


class TestParameters:
    def test_each_element_of_each_moves_some_sensor(self):
        """Each of the particles too: one that changes kind changes the means."""
        half = (np.arange(SIZE) < SIZE // 2).astype(float)
        plain = WORLD.limit(
            slow=half, m=np.array([1.0, 0.4]), steady=0.6, flashing=0.4, R=1.0, psi0=0.7, x0=2.0
        )
        changed, names = [plain], []
        for name, value in plain._asdict().items():
            for index in np.ndindex(np.shape(value)):
                other = np.array(value, float)
                other[index] = 1 - other[index] if name == "slow" else 0.7 * other[index]
                changed.append(plain._replace(**{name: other}))
                names.append((name, *index))
        stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *changed)
        drive = WORLD.drive_type(*(jnp.float32(x) for x in (0.5, 3.0, 0.5, 0.6)))
        read = np.asarray(jax.jit(jax.vmap(lambda p: trajectory(p, drive, jnp.uint32(0), 6)[1]))(stacked))
        moved = (np.abs(read[1:] - read[0]).max(axis=1) / SPAN).max(axis=1)
        assert len(names) == SIZE + 2 + 8
        assert [name for name, size in zip(names, moved, strict=True) if size < 1e-3] == []

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        kinds = [(p.steady == 1, p.flashing == 1, p.R > 0) for p in drawn]
        assert set(kinds) == {(True, False, True), (False, True, False), (False, False, False)}
        assert all(p.steady + p.flashing == pytest.approx(1) for p in drawn)
        assert all(0.2 <= p.slow.mean() + 0.01 and p.slow.mean() <= 0.81 for p in drawn)
        assert all(p.m[0] == 1 and 0.2 <= p.m[1] <= 0.5 for p in drawn)
        assert all(0.15 <= p.a2 <= 0.35 and 0.3 <= p.phi <= 1.2 for p in drawn)


class TestState:
    def test_wrapping_changes_no_reading(self):
        params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), WORLD.limit(**FLASHING))
        drive = WORLD.drive_type(*(jnp.float32(x) for x in (3.0, 1.0, 3.0, 1.0)))
        state = begin(WORLD, params, Noise(words(jnp.uint32(0))[0], jnp.uint32(0)), jnp.float32)
        far = state._replace(x=state.x + 7.0, u=state.u + 3.0, psi=state.psi + 9.0)
        wrapped = WORLD.wrap(far)
        assert float(wrapped.x.max()) < 2 * np.pi
        for a, b in zip(WORLD.read(far, drive, params), WORLD.read(wrapped, drive, params), strict=True):
            assert float(a) == pytest.approx(float(b), rel=1e-4, abs=1e-5)
