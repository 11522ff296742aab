"""D4 against harmonic balance and linear response: the fold, the notch, the lock-in, its parameters.

Values marked "catalogue" are those of the catalogue of worlds, found again from its formula first.
The law is the world's own in its limit configuration; its step is certified in `test_reference.py`.
"""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.ensemble import Request, simulate
from simworlds.integrate import advance
from simworlds.keys import Noise, Words

WORLD = load("D4")
DT = WORLD.scheme.dt
NO_NOISE = Noise(Words(np.uint32(0), np.uint32(0)), np.uint32(0))
FORCE = 0.25
TWO_MODES = dict(be=0.0, g=0.3)  # of the limit configuration: w0 = 1, de = .1, w2 = 1.3, d2 = .05
# Catalogue: W and |H|. For W = .9 it prints 7.713087, which its own formula does not give.
LINEAR = ((0.9, 7.713085), (1.6, 0.681554))


def limit(**changes):
    return jax.tree.map(jnp.float64, WORLD.limit(**changes))


def drive(F, W, bias=0.0, c=1.0):
    return WORLD.drive_type(*(jnp.float64(x) for x in (F, W, bias, c)))


@partial(jax.jit, static_argnums=(3, 4))
def _run(params, state, drive, wait, keep):
    def step(state, _):
        state = WORLD.scheme.step(WORLD, params, state, drive, ())
        return state, state

    state, _ = jax.lax.scan(lambda s, _: (step(s, _)[0], None), state, length=wait)
    state, path = jax.lax.scan(step, state, length=keep)
    return WORLD.wrap(state), path


def settled(params, drive, state=None, wait=600.0, keep=60.0):
    """The end state, and the states of the last `keep` time units, step by step: fields ``[step]``."""
    state = WORLD.initial(params, NO_NOISE) if state is None else state
    return _run(params, state, drive, round(wait / DT), round(keep / DT))


def amplitude(path, W):
    """The amplitude of x at the drive's frequency, from a fit of odd harmonics to the path."""
    angle = W * DT * np.arange(len(path.x))
    basis = [f(k * angle) for k in (1, 3, 5) for f in (np.cos, np.sin)] + [np.ones_like(angle)]
    coefficients, *_ = np.linalg.lstsq(np.stack(basis, 1), np.asarray(path.x), rcond=None)
    return np.hypot(*coefficients[:2])


def harmonic_balance(W, params):
    """Amplitudes A with [(w0^2 - W^2 + .75 be A^2)^2 + (de W)^2] A^2 = F^2, in order: one or three."""
    detuning, stiffness = params.w0**2 - W**2, 0.75 * params.be
    cubic = [stiffness**2, 2 * detuning * stiffness, detuning**2 + (params.de * W) ** 2, -(FORCE**2)]
    roots = np.roots(cubic)
    return np.sort(np.sqrt(roots[np.abs(roots.imag) < 1e-9].real))


def response(W, p):
    """H = (w2^2 - W^2 + i d2 W) / [(w0^2 - W^2 + i de W) (w2^2 - W^2 + i d2 W) - g^2]."""
    latent = p.w2**2 - W**2 + 1j * p.d2 * W
    return latent / ((p.w0**2 - W**2 + 1j * p.de * W) * latent - p.g**2)


@cache
def swept_up():
    """The amplitude at W = 1.25 after the drive's frequency rose from 0.8."""
    with jax.enable_x64(True):
        params, state = limit(), None
        for W in np.linspace(0.8, 1.25, 10):
            state, path = settled(params, drive(FORCE, W), state, wait=400.0)
        return amplitude(path, 1.25)


@pytest.mark.usefixtures("x64")
class TestFold:
    """The Duffing oscillator w0 = 1, be = .2, de = .1, F = .25."""

    def test_harmonic_balance_gives_the_published_amplitudes(self):
        assert harmonic_balance(1.25, WORLD.limit()) == pytest.approx([0.45829, 1.84388, 1.97233], abs=6e-6)
        assert harmonic_balance(1.5, WORLD.limit()) == pytest.approx([0.19951], abs=6e-6)

    @pytest.mark.parametrize(("W", "simulated"), [(1.25, 0.45831), (1.5, 0.19951)])  # catalogue
    def test_from_rest_it_stays_on_the_lower_branch(self, W, simulated):
        _, path = settled(limit(), drive(FORCE, W))
        assert amplitude(path, W) == pytest.approx(simulated, abs=6e-6)

    def test_a_rising_frequency_carries_it_along_the_upper_branch(self):
        assert swept_up() == pytest.approx(1.9606, abs=6e-5)  # catalogue

    def test_harmonic_balance_is_good_to_six_thousandths(self):
        lower, _, upper = harmonic_balance(1.25, WORLD.limit())
        _, path = settled(limit(), drive(FORCE, 1.25))
        assert amplitude(path, 1.25) == pytest.approx(lower, rel=6e-3)
        assert swept_up() == pytest.approx(upper, rel=6.1e-3)
        assert swept_up() != pytest.approx(upper, rel=3e-3)


@pytest.mark.usefixtures("x64")
class TestTwoModes:
    @pytest.mark.parametrize(("W", "published"), LINEAR)
    def test_the_formula_gives_the_published_response(self, W, published):
        assert abs(response(W, WORLD.limit(**TWO_MODES))) == pytest.approx(published, abs=6e-7)

    @pytest.mark.parametrize(("W", "published"), LINEAR)
    def test_the_amplitude_is_the_linear_response(self, W, published):
        _, path = settled(limit(**TWO_MODES), drive(FORCE, W), wait=1200.0)
        assert amplitude(path, W) / FORCE == pytest.approx(published, rel=5e-6)

    def test_the_latent_mode_cuts_a_notch(self):
        """At W = w2 the sensed mode nearly stands still; without coupling it does not."""
        coupled, alone = (abs(response(1.3, WORLD.limit(be=0.0, g=g))) for g in (0.3, 0.0))
        _, path = settled(limit(**TWO_MODES), drive(FORCE, 1.3), wait=1200.0)
        assert amplitude(path, 1.3) / FORCE == pytest.approx(coupled, rel=5e-6)
        assert coupled < alone / 2

    @pytest.mark.parametrize(("W", "published"), LINEAR)
    def test_the_lock_in_reads_amplitude_and_phase(self, W, published):
        """x = Re H F exp(i phi), so on average I = F Re H, Q = -F Im H and s = |F H|^2 / 2."""
        params = limit(**TWO_MODES)
        state, _ = settled(params, drive(FORCE, W), wait=1200.0)

        @jax.jit
        def average(state):
            def tick(state, t):
                state, mean = advance(WORLD, params, state, drive(FORCE, W), Words(0, 0), t)
                return state, jnp.stack(mean)

            return jax.lax.scan(tick, state, jnp.arange(200))[1].mean(0)

        expected = FORCE * response(W, WORLD.limit(**TWO_MODES))
        wanted = (expected.real, -expected.imag, 0.0, abs(expected) / np.sqrt(2))
        assert np.asarray(average(state)) == pytest.approx(wanted, abs=2e-3 * FORCE * published)


@pytest.mark.usefixtures("x64")
class TestStaticShift:
    @pytest.mark.parametrize(
        "changes", [dict(g=0.3, al=0.15), dict(be=-0.3, b5=0.045, g=0.3), dict(w0=1.2, be=0.3)]
    )
    def test_a_bias_shifts_it_to_where_forces_balance(self, changes):
        params, bias = limit(**changes), 0.4
        state, _ = settled(params, drive(0.0, 1.0, bias), wait=1200.0)
        p, x = WORLD.limit(**changes), float(state.x)
        y = -(p.g * x + p.al * x**2) / p.w2**2
        assert float(state.y) == pytest.approx(y, abs=1e-9)
        spring = p.w0**2 * x + p.be * x**3 + p.b5 * x**5
        assert spring + (p.g + 2 * p.al * x) * y == pytest.approx(-bias, abs=1e-9)
        assert float(state.shift) == pytest.approx(x, abs=1e-6)

    def test_a_softening_spring_is_monotone(self):
        """The slope w0^2 + 3 be x^2 + 5 b5 x^4 has no root: (3 be)^2 < 4 w0^2 (5 b5)."""
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        softening = [p for p in drawn if p.be < 0]
        assert softening
        assert all(9 * p.be**2 < 20 * p.b5 * p.w0**2 for p in softening)
        assert all(p.b5 == 0 for p in drawn if p.be > 0)


SOFT = WORLD.limit(be=-0.2, b5=0.04, g=0.3, al=0.15)  # no parameter is 0


def readings(**changes):
    """Raw readings ``[tick, sensor]`` of the soft oscillator near its notch, with parameters replaced."""
    instance = WORLD.instance(0, redraws=0).canonical()
    levels = {"u0": 0.9, "u1": 0.42, "u2": 0.7, "u3": 0.0}
    request = Request(instance.protocol([{"ticks": 40, "set": levels}]), ("test",))
    params = jax.tree.map(np.float32, SOFT._replace(**changes))
    return simulate(dataclasses.replace(instance, params=params), [request], 1, noise=False).values[0, 0]


class TestParameters:
    @pytest.mark.parametrize("name", WORLD.limit()._fields)
    def test_each_moves_some_sensor(self, name):
        moved = readings(**{name: 1.2 * getattr(SOFT, name)}) - readings()
        span = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
        assert (np.abs(moved).max(0) / span).max() > 1e-3
