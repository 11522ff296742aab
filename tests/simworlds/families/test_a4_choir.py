"""A4: its sensors, its step, its parameters.

Order and thresholds against closed forms stand in `experiments/validation/a4_choir.py`.
"""

import dataclasses
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.a4_choir import (
    MANY,
    SIZE,
    bessel_ratio,
    choir,
    fixed_point,
    mean_square_order,
    noisy_order,
    square,
)
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.families.a4_choir import Choir
from simworlds.integrate import advance
from simworlds.keys import Draws, Noise, Words, clone_words, role_words
from simworlds.reference import reference_readings
from simworlds.world import OdeWorld

WORLD = load("A4")
SIGMAS = 4
ALL, ONE, VELOCITY, LOCK, BEAT = range(5)


class Halved(Choir):
    scheme = Choir.scheme.refined(2)


class Silent(OdeWorld):
    """The choir without noise, whatever the drive D."""

    id, title, track, phenomenon = Choir.id, Choir.title, Choir.track, Choir.phenomenon
    drives, sensors, scheme, filter_time = Choir.drives, Choir.sensors, Choir.scheme, Choir.filter_time
    draw, limit, initial, drift, read, wrap = (
        Choir.draw,
        Choir.limit,
        Choir.initial,
        Choir.drift,
        Choir.read,
        Choir.wrap,
    )
    _halves = Choir._halves


HALVED = Halved()


def words(*address):
    return Words(*(jnp.uint32(x) for x in role_words("A4", 0, "test", *address)))


def drive(K=0.0, D=0.0, F=0.0, nu=0.0):
    return WORLD.drive_type(*(jnp.float32(x) for x in (K, D, F, nu)))


class Observed(NamedTuple):
    """Averages of each sensor over time and clones, with standard errors."""

    mean: np.ndarray
    error: np.ndarray


def observe(om, clones=8, warm=40, ticks=60, K=0.0, D=0.0, F=0.0, nu=0.0):
    """Oscillators of one frequency under constant drives."""
    drives = {"K": K, "D": D, "F": F, "nu": nu}
    run = Run(WORLD, choir(np.full(MANY, om)), drives, clones=clones, dtype=np.float32)
    run.ticks(warm)
    rows = run.ticks(ticks).astype(float).mean(1)
    return Observed(rows.mean(0), rows.std(0, ddof=1) / np.sqrt(clones))


class TestOrder:
    def test_four_percent_more_noise_would_show(self):
        got, error = square(2.0, 0.5)
        assert abs(got - mean_square_order(2.0, 0.5, SIZE)) < SIGMAS * error
        assert abs(got - mean_square_order(2.0, 0.52, SIZE)) > SIGMAS * error


class TestSensors:
    def test_velocity_is_the_mean_of_the_drift(self):
        for seed in range(6):
            params = jax.tree.map(jnp.asarray, WORLD.instance(seed, redraws=0).params)
            state = WORLD.initial(params, Noise(words("velocity", seed), jnp.uint32(0)))
            # Half the phases are drawn together, so that there is order to measure.
            state = state._replace(th=state.th * jnp.where(jnp.arange(SIZE) % 2, 1.0, 0.1))
            now = drive(K=3.0, D=0.3, F=0.8, nu=1.0)
            drift = np.asarray(WORLD.drift(state, now, params).th, float)
            assert WORLD.read(state, now, params)[VELOCITY] == pytest.approx(
                drift.mean(), abs=2e-6 * np.abs(drift).max()
            )

    def test_orders_are_those_of_the_phases(self):
        params = jax.tree.map(jnp.asarray, WORLD.instance(0, redraws=0).params)
        state = WORLD.initial(params, Noise(words("orders"), jnp.uint32(0)))
        read = WORLD.read(state, drive(), params)
        z, first = np.exp(1j * np.asarray(state.th, float)), np.asarray(params.first) == 1
        assert read[ALL] == pytest.approx(abs(z.mean()), abs=1e-6)
        assert read[ONE] == pytest.approx(abs(z[first].mean()), abs=1e-6)

    def test_each_follows_the_conductor_alone(self):
        # Uncoupled, at the conductor's frequency, phases are von Mises about his: |L| = I1 / I0 (F / D).
        got = observe(0.4, D=0.5, F=1.0, nu=0.4)
        assert abs(got.mean[LOCK] - bessel_ratio(2.0)) < SIGMAS * got.error[LOCK] + 2 / MANY
        assert got.mean[BEAT] < 4 / MANY
        assert got.mean[VELOCITY] == pytest.approx(0.4, abs=0.01)

    def test_an_entrained_choir_has_all_its_order_at_the_conductors_phase(self):
        got = observe(0.4, K=2.0, D=0.5, F=0.5, nu=0.4)
        expected = fixed_point(lambda r: bessel_ratio((2 * r + 0.5) / 0.5))
        for sensor in (ALL, ONE, LOCK):
            assert abs(got.mean[sensor] - expected) < SIGMAS * got.error[sensor] + 2 / MANY

    def test_a_free_choir_beats_against_the_conductor(self):
        # w turns at -nu, so the filter of time tau leaves |L| = r / sqrt(1 + (nu tau)^2), P = r^2 - |L|^2.
        got = observe(0.0, K=2.0, D=0.5, nu=1.0)
        r, passed = noisy_order(2.0, 0.5), 1 / (1 + WORLD.filter_time**2)
        for sensor, expected in ((LOCK, r * np.sqrt(passed)), (BEAT, r**2 * (1 - passed))):
            assert abs(got.mean[sensor] - expected) < SIGMAS * got.error[sensor] + 2 / MANY


@cache
def statistics(seed, purpose, protocols=1, clones=256, world=WORLD, coupling=1.0):
    """Sensor means and sds over the last 16 ticks: ``[protocol, clone, statistic]``."""
    instance = WORLD.instance(seed, redraws=0).canonical()
    params = instance.params._replace(k=instance.params.k * np.float32(coupling))
    instance = dataclasses.replace(instance, world=world, params=params)
    draws = [Draws.for_role("A4", seed, "test", "protocol", k) for k in range(protocols)]
    requests = [Request(grammar_protocol(instance, d), (purpose, k)) for k, d in enumerate(draws)]
    got = simulate(instance, requests, clones, noise=False)
    ends = [request.protocol.ticks for request in requests]
    cut = np.stack([got.values[k, :, end - 16 : end] for k, end in enumerate(ends)]).astype(float)
    return np.concatenate([cut.mean(2), cut.std(2)], -1)


def differences(seed, protocols=1, clones=256, **other):
    """How many statistics have means that are more than 4 standard errors apart from those of the world."""
    first = statistics(seed, "own", protocols, clones)
    second = statistics(seed, "other", protocols, clones, **other)
    error = np.sqrt((first.var(1) + second.var(1)) / clones)
    return int(np.sum(np.abs(first.mean(1) - second.mean(1)) > SIGMAS * error + 1e-6))


class TestStep:
    @pytest.mark.parametrize("seed", range(2))
    def test_half_the_step_gives_the_same_statistics(self, seed):
        assert differences(seed, world=HALVED) == 0

    @pytest.mark.validation
    @pytest.mark.parametrize("seed", range(8))
    def test_half_the_step_gives_the_same_statistics_on_many_clones(self, seed):
        assert differences(seed, protocols=3, clones=512, world=HALVED) == 0

    def test_a_coupling_five_percent_stronger_would_show(self):
        assert differences(1, coupling=1.05) > 0

    @pytest.mark.parametrize("seed", [0, 1])  # Gaussian and Lorentzian
    def test_without_noise_it_is_that_of_an_adaptive_solve(self, seed):
        params = WORLD.instance(seed, redraws=0).params
        levels = np.array([[0.75, 0.0, 0.5, 0.6]] * 4 + [[0.4, 0.0, 1.0, 0.3]] * 2)
        exact = reference_readings(Silent(), params, levels, rtol=1e-9, atol=1e-9)
        with jax.enable_x64(True):
            coarse, fine = (np.abs(noiseless(w, params, levels) - exact).max() for w in (WORLD, HALVED))
        # The worst of all readings is within a twentieth of what counts as understanding (0.1 of the range).
        assert coarse < 0.005
        assert coarse / fine > 3  # second order


def noiseless(world, params, levels):
    """Raw tick means ``[tick, sensor]`` in float64 from the state from which `reference_readings` starts."""
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
    key = clone_words(role_words("A4", 0, "initial", "reference"), 0)
    state = world.initial(params, Noise(key, jnp.uint32(0)))
    state = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), state)

    def tick(state, inputs):
        t, row = inputs
        now = world.physical(row)._replace(D=jnp.zeros(()))
        state, mean = advance(world, params, state, now, words("noiseless"), t)
        return state, jnp.stack(mean)

    ticks = jnp.arange(len(levels), dtype=jnp.int32)
    return np.asarray(jax.jit(lambda s: jax.lax.scan(tick, s, (ticks, jnp.asarray(levels))))(state)[1])


class TestParameters:
    def test_each_element_moves_a_sensor(self):
        # Half way between the two laws of frequencies, both quantiles count.
        params = WORLD.instance(0, redraws=0).params._replace(lorentzian=np.float32(0.5))
        names, rows = ["nothing"], [params]
        for name in params._fields:
            leaf = np.asarray(getattr(params, name))
            for at in np.ndindex(leaf.shape):
                changed = leaf.copy()
                changed[at] = 1 - changed[at] if name == "first" else changed[at] + 0.5
                names.append(f"{name}{list(at)}")
                rows.append(params._replace(**{name: changed}))
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        read = np.asarray(self.readings(stacked))
        apart = np.abs(read - read[0]).max(axis=(1, 2))
        still = [name for name, moved in zip(names[1:], apart[1:], strict=True) if moved < 1e-5]
        assert still == []

    @staticmethod
    @jax.jit
    @jax.vmap
    def readings(params):
        """Noise-free readings ``[tick, sensor]`` of a clone; all parameters meet the same noise."""
        start = WORLD.initial(params, Noise(words("parameters", "initial"), jnp.uint32(0)))
        now = drive(K=2.0, D=0.2, F=0.5, nu=0.5)

        def tick(state, t):
            state, read = advance(WORLD, params, state, now, words("parameters", "process"), t)
            return state, jnp.stack(read)

        return jax.lax.scan(tick, start, jnp.arange(8, dtype=jnp.int32))[1]
