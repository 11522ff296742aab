"""A4 against closed forms of the Kuramoto model, its sensors, its step, its parameters.

Values marked "catalogue" are those of the catalogue of worlds, A4; each is first found again from its
formula. Where a finite choir has a closed form too, it is held against that: its size needs no allowance.
"""

import dataclasses
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.families.a4_choir import SIZE, Choir, quantiles
from simworlds.integrate import advance
from simworlds.keys import Draws, Noise, Words, clone_words, role_words
from simworlds.reference import reference_readings
from simworlds.world import OdeWorld

WORLD = load("A4")
SIGMAS = 4
MANY = 2048
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


def spectrum(spread, n, lorentzian):
    return spread * quantiles(n)[int(lorentzian)]


def drive(K=0.0, D=0.0, F=0.0, nu=0.0):
    return WORLD.drive_type(*(jnp.float32(x) for x in (K, D, F, nu)))


def limit(om=None, n=SIZE, **changes):
    om = np.zeros(n) if om is None else om
    first = (np.arange(len(om)) < len(om) // 2).astype(float)
    params = WORLD.limit(normal=om, cauchy=np.zeros(len(om)), spread=1.0, first=first, **changes)
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)


class Observed(NamedTuple):
    """Time averages over the clones: of each sensor's tick means, and of its squares at the ends of ticks."""

    mean: np.ndarray
    square: np.ndarray
    mean_error: np.ndarray
    square_error: np.ndarray


@partial(jax.jit, static_argnums=0)
def _averages(clones, params, drive, stream, warm, ticks):
    numbers = jnp.arange(clones, dtype=jnp.uint32)
    keys = jax.vmap(partial(clone_words, stream))(numbers)
    fresh = jax.vmap(partial(clone_words, Words(stream.low, stream.high)))(numbers)
    states = jax.vmap(lambda key: WORLD.initial(params, Noise(key, jnp.uint32(0))))(fresh)

    def one(state, key, t):
        state, mean = advance(WORLD, params, state, drive, key, t)
        return state, jnp.stack(mean), jnp.stack(WORLD.read(state, drive, params)) ** 2

    def tick(t, carry):
        states, mean, square = carry
        states, m, s = jax.vmap(one, in_axes=(0, 0, None))(states, keys, t)
        return states, mean + jnp.where(t >= warm, m, 0), square + jnp.where(t >= warm, s, 0)

    zero = jnp.zeros((clones, len(WORLD.sensors)))
    _, mean, square = jax.lax.fori_loop(0, warm + ticks, tick, (states, zero, zero))
    return mean / ticks, square / ticks


def observe(params, drive, name, clones=8, warm=40, ticks=60):
    got = [np.asarray(x, float) for x in _averages(clones, params, drive, words(name), warm, ticks)]
    return Observed(*(x.mean(0) for x in got), *(x.std(0, ddof=1) / np.sqrt(clones) for x in got))


def fixed_point(rise, r=1.0):
    """The order r = rise(r), from above."""
    for _ in range(4000):
        r = rise(r)
    return r


def bessel_ratio(kappa):
    """I1 / I0."""
    turn = np.linspace(0, 2 * np.pi, 512, endpoint=False)
    weight = np.exp(kappa * (np.cos(turn) - 1))
    return (weight @ np.cos(turn)) / weight.sum()


def mean_square_order(K, D, n):
    """<|z|^2> of n identical noisy oscillators, exactly.

    They are the mean-field XY model at inverse temperature b = K / D: p(th) ~ exp(b |sum exp(i th)|^2 / 2n).
    With a Gaussian field y (Hubbard 1959, doi:10.1103/PhysRevLett.3.77), p(y) ~ y exp(-n y^2 / 2b) I0(y)^n
    and <|z|^2> = (<y^2> - 2b / n) / b^2.
    """
    if K == 0:
        return 1 / n
    b = K / D
    y = np.linspace(1e-4, 3 * b + 3, 40001)
    log_weight = np.log(y) - n * y**2 / (2 * b) + n * np.log(np.i0(y))
    weight = np.exp(log_weight - log_weight.max())
    return ((weight @ y**2) / weight.sum() - 2 * b / n) / b**2


class TestIdenticalWithNoise:
    """r = I1(K r / D) / I0(K r / D); K_c = 2 D. Sakaguchi 1988, doi:10.1143/PTP.79.39."""

    PUBLISHED = ((2.0, 0.5, 0.831462), (3.0, 1.0, 0.724159))  # catalogue

    @pytest.mark.parametrize(("K", "D", "expected"), PUBLISHED)
    def test_the_formulas_give_the_published_order(self, K, D, expected):
        assert fixed_point(lambda r: bessel_ratio(K * r / D)) == pytest.approx(expected, abs=1e-6)
        assert np.sqrt(mean_square_order(K, D, 10**6)) == pytest.approx(expected, abs=1e-5)

    @pytest.mark.parametrize(("K", "D", "expected"), PUBLISHED)
    def test_many_have_the_published_order(self, K, D, expected):
        got = observe(limit(n=MANY), drive(K, D), f"published {K}")
        # Besides the standard error: of order 1 / N for the finite choir, and the step's own error.
        assert abs(got.mean[ALL] - expected) < SIGMAS * got.mean_error[ALL] + 2 / MANY

    @staticmethod
    @cache
    def choir(K, D):
        return observe(limit(), drive(K, D), f"choir {K} {D}", clones=64, ticks=80)

    # Far above the threshold, above it, on it, and below it, where r ~ 1 / sqrt(N).
    @pytest.mark.parametrize(
        ("K", "D"), [(2.0, 0.5), (3.0, 1.0), (2.4, 1.0), (2.0, 1.0), (1.0, 1.0), (0.0, 1.0)]
    )
    def test_128_have_the_order_of_128(self, K, D):
        got, expected = self.choir(K, D), mean_square_order(K, D, SIZE)
        assert abs(got.square[ALL] - expected) < SIGMAS * got.square_error[ALL]

    def test_below_the_threshold_there_is_none(self):
        assert mean_square_order(1.0, 1.0, SIZE) * SIZE == pytest.approx(1 / (1 - 1.0 / 2), rel=0.05)
        assert np.sqrt(SIZE * self.choir(0.0, 1.0).square[ALL]) == pytest.approx(1, rel=0.05)

    def test_four_percent_more_noise_would_show(self):
        got = self.choir(2.0, 0.5)
        assert abs(got.square[ALL] - mean_square_order(2.0, 0.52, SIZE)) > SIGMAS * got.square_error[ALL]


def locked_order(om, K):
    """r = <sqrt(1 - (om / K r)^2)> over those that lock, |om| < K r; drifters on either side cancel."""
    return fixed_point(lambda r: np.sqrt(np.maximum(1 - (om / (K * max(r, 1e-9))) ** 2, 0)).mean())


class TestHeterogeneous:
    """K_c = 2 / (pi g(0)) without noise: Kuramoto 1984; Strogatz & Mirollo 1991, doi:10.1007/BF01029202."""

    LORENTZIAN, GAUSSIAN = (spectrum(s, MANY, kind) for s, kind in ((0.5, True), (1.0, False)))
    # The error of a finite choir's mean order that is not in its standard error.
    ALLOWED = 0.001

    def test_lorentzian_has_the_published_order(self):
        expected = np.sqrt(1 - 2 * 0.5 / 2)
        assert expected == pytest.approx(0.707107, abs=1e-6)  # catalogue
        assert locked_order(self.LORENTZIAN, 2.0) == pytest.approx(expected, abs=1e-3)
        got = observe(limit(self.LORENTZIAN), drive(K=2.0), "lorentzian")
        assert abs(got.mean[ALL] - expected) < SIGMAS * got.mean_error[ALL] + self.ALLOWED

    def test_lorentzian_threshold_is_twice_the_half_width(self):
        low = observe(limit(self.LORENTZIAN), drive(K=0.8), "lorentzian below")
        high = observe(limit(self.LORENTZIAN), drive(K=1.25), "lorentzian above", warm=80)
        assert low.mean[ALL] < 0.1
        assert abs(high.mean[ALL] - np.sqrt(1 - 1 / 1.25)) < SIGMAS * high.mean_error[ALL] + self.ALLOWED

    def test_gaussian_threshold(self):
        assert np.sqrt(8 / np.pi) == pytest.approx(1.595769, abs=1e-6)  # catalogue: K_c
        assert locked_order(self.GAUSSIAN, 1.55) < 0.01
        assert locked_order(self.GAUSSIAN, 1.65) > 0.2
        low = observe(limit(self.GAUSSIAN), drive(K=1.3), "gaussian below")
        high = observe(limit(self.GAUSSIAN), drive(K=1.9), "gaussian above", warm=80)
        assert low.mean[ALL] < 0.1
        expected = locked_order(self.GAUSSIAN, 1.9)
        assert abs(high.mean[ALL] - expected) < SIGMAS * high.mean_error[ALL] + self.ALLOWED

    @staticmethod
    def moments(K, gamma, D, modes=64):
        """r of the exact hierarchy (gamma + k D) z_k = K r (z_(k-1) - z_(k+1)) / 2, for a Lorentzian."""

        def first(r):
            ratio = 0.0
            for k in range(modes, 0, -1):
                ratio = K * r / 2 / (gamma + k * D + K * r / 2 * ratio)
            return ratio

        return fixed_point(first)

    def test_lorentzian_with_noise(self):
        gamma, D = 0.2, 0.3  # K_c = 2 (gamma + D) = 1, catalogue
        assert self.moments(0.98, gamma, D) < 1e-3
        assert self.moments(1.02, gamma, D) > 0.1
        assert self.moments(2.0, 0.0, 0.5) == pytest.approx(0.831462, abs=1e-6)
        assert self.moments(2.0, 0.5, 1e-9) == pytest.approx(0.707107, abs=1e-5)
        params = limit(spectrum(gamma, MANY, True))
        low = observe(params, drive(K=0.7, D=D), "both below")
        high = observe(params, drive(K=2.0, D=D), "both above")
        assert low.mean[ALL] < 0.1
        expected = self.moments(2.0, gamma, D)
        assert abs(high.mean[ALL] - expected) < SIGMAS * high.mean_error[ALL] + self.ALLOWED


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
        got = observe(limit(np.full(MANY, 0.4)), drive(D=0.5, F=1.0, nu=0.4), "followers")
        assert abs(got.mean[LOCK] - bessel_ratio(2.0)) < SIGMAS * got.mean_error[LOCK] + 2 / MANY
        assert got.mean[BEAT] < 4 / MANY
        assert got.mean[VELOCITY] == pytest.approx(0.4, abs=0.01)

    def test_an_entrained_choir_has_all_its_order_at_the_conductors_phase(self):
        got = observe(limit(np.full(MANY, 0.4)), drive(K=2.0, D=0.5, F=0.5, nu=0.4), "entrained")
        expected = fixed_point(lambda r: bessel_ratio((2 * r + 0.5) / 0.5))
        for sensor in (ALL, ONE, LOCK):
            assert abs(got.mean[sensor] - expected) < SIGMAS * got.mean_error[sensor] + 2 / MANY

    def test_a_free_choir_beats_against_the_conductor(self):
        # w turns at -nu, so the filter of time tau leaves |L| = r / sqrt(1 + (nu tau)^2), P = r^2 - |L|^2.
        got = observe(limit(n=MANY), drive(K=2.0, D=0.5, nu=1.0), "free")
        r, passed = 0.831462, 1 / (1 + WORLD.filter_time**2)
        for sensor, expected in ((LOCK, r * np.sqrt(passed)), (BEAT, r**2 * (1 - passed))):
            assert abs(got.mean[sensor] - expected) < SIGMAS * got.mean_error[sensor] + 2 / MANY


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
