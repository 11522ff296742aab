"""The delay scheme: closed forms, its order for each kind of delay, kinks, angles, types, derivatives."""

from functools import partial
from math import exp, factorial, floor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.runs import with_scheme
from simworlds.integrate import DelayRK4, advance, begin
from simworlds.keys import Noise, Words
from simworlds.world import DelayWorld, Drive, Grammar, Sensor

NO_WORDS = Words(np.uint32(0), np.uint32(0))
HALF = 0.5  # a tick, in time units


class Delays(NamedTuple):
    tau: Any
    sign: Any


class Echoes(NamedTuple):
    u: Any
    phi: Any
    seen: Any


class Echo(DelayWorld):
    """u' = sign u(t - tau) + I, and an angle phi' = 2 + sin(phi(t - tau)) / 2; `seen` follows u at once."""

    id, title, track, phenomenon = "T1", "Echo", "T", "none"
    drives = (Drive("I", 0.0, 1.0, rest=0.0),)
    sensors = (Sensor("u", -1.0, 1.0), Sensor("sine", -1.0, 1.0))
    scheme = DelayRK4(dt=0.1, substeps=5)
    grammar = Grammar((1, 1), (2, 2), (2, 2), (1, 1), {"u": 1.0})
    longest_lag = 1.2

    def draw(self, draws):
        raise NotImplementedError

    def limit(self, **changes):
        return Delays(tau=1.0, sign=-1.0)._replace(**changes)

    def initial(self, params, noise):
        one = jnp.ones_like(params.tau)
        return Echoes(one, one, one)

    def lags(self, params):
        return (params.tau,)

    def remembered(self, state):
        return state._replace(seen=None)

    def drift(self, state, drive, params, past):
        (then,) = past
        assert then.seen is None
        return Echoes(params.sign * then.u + drive.I, 2 + jnp.sin(then.phi) / 2, state.u - state.seen)

    def read(self, state, drive, params):
        return state.u, jnp.sin(state.phi)

    def wrap(self, state):
        return state._replace(phi=jnp.mod(state.phi, 2 * np.pi))


class Unwrapped(Echo):
    def wrap(self, state):
        return state


ECHO, UNWRAPPED = Echo(), Unwrapped()


@partial(jax.jit, static_argnums=0)
def _path(world, params, drives):
    start = begin(world, params, Noise(NO_WORDS, jnp.uint32(0)), params.tau.dtype)

    def tick(carried, row):
        carried, _ = advance(world, params, carried, world.drive_type(row[1]), NO_WORDS, row[0])
        return carried, carried

    return jax.lax.scan(tick, start, (jnp.arange(len(drives), dtype=jnp.int32), drives))[1]


def path(world, dt=0.1, drives=(0.0,) * 10, dtype=np.float64, **changes):
    """What is carried at the end of each tick of half a time unit, ``[tick]``."""
    scheme = DelayRK4(dt=dt, substeps=round(HALF / dt))
    same = with_scheme(world, scheme)
    params = jax.tree.map(partial(jnp.asarray, dtype=dtype), world.limit(**changes))
    return _path(same, params, jnp.asarray(drives, dtype))


def end(world, dt=0.1, **more):
    return float(path(world, dt, **more).state.u[-1])


def steps(t, tau, drive=0.0, since=0.0):
    """u(t) of u' = -u(t - tau), u = 1 up to 0, with a constant drive from a time on: method of steps."""
    own = sum((-1) ** k * (t - (k - 1) * tau) ** k / factorial(k) for k in range(floor(t / tau) + 2))
    late = t - since
    push = sum(
        (-1) ** k * (late - k * tau) ** (k + 1) / factorial(k + 1) for k in range(floor(late / tau) + 1)
    )
    return own + drive * push


@pytest.mark.usefixtures("x64")
class TestOrder:
    @pytest.mark.parametrize("tau", [1.0, 0.7, 0.1])
    def test_a_delay_of_whole_steps_keeps_order_four(self, tau):
        drives = [0.0] * 4 + [0.5] * 6
        exact = steps(5.0, tau, 0.5, 2.0) if tau > 0.1 else end(ECHO, 0.1 / 32, drives=drives, tau=tau)
        coarse, fine = (abs(end(ECHO, dt, drives=drives, tau=tau) - exact) for dt in (0.1, 0.05))
        assert coarse < 1e-6
        assert fine < coarse / 14

    def test_no_delay_is_the_state_itself(self):
        coarse, fine = (abs(end(ECHO, dt, tau=0.0) - exp(-5)) for dt in (0.1, 0.05))
        assert coarse < 1e-7
        assert fine < coarse / 14

    @pytest.mark.parametrize("tau", [0.973, 0.62])
    def test_a_delay_of_broken_steps_sees_kinks_to_order_three(self, tau):
        drives = [0.0] * 4 + [0.5] * 6
        errors = [
            abs(end(ECHO, dt, drives=drives, tau=tau) - steps(5.0, tau, 0.5, 2.0)) for dt in (0.1, 0.0125)
        ]
        assert errors[0] < 1e-5
        assert errors[1] < errors[0] / 200  # order two, without the correction at mid-step, would give 64

    @pytest.mark.parametrize("tau", [0.03, 0.08])
    def test_a_delay_below_a_step_keeps_order_two(self, tau):
        exact = end(ECHO, 0.1 / 64, tau=tau)
        assert abs(end(ECHO, tau=tau) - exact) < 1e-5

    @pytest.mark.parametrize("edge", [0.0, 0.1, 0.5])
    def test_it_is_continuous_in_the_delay(self, edge):
        at = end(ECHO, tau=edge)
        assert abs(end(ECHO, tau=edge + 1e-7) - at) < 1e-6
        if edge:
            assert abs(end(ECHO, tau=edge - 1e-7) - at) < 1e-6


class TestMemory:
    @pytest.mark.parametrize("tau", [1.3, -0.1])
    def test_a_delay_that_the_rings_do_not_hold_is_not_a_number(self, tau):
        assert np.isnan(end(ECHO, tau=tau, dtype=np.float32))

    def test_the_longest_is_held_and_no_ring_forgets_too_soon(self, x64):
        drives = [0.0] * 4 + [0.5] * 16
        assert end(ECHO, drives=drives, tau=1.2) == pytest.approx(steps(10.0, 1.2, 0.5, 2.0), abs=1e-6)

    def test_an_angle_is_wrapped_with_its_past(self, x64):
        drives = [0.0] * 40
        wrapped, free = (path(world, drives=drives).state.phi for world in (ECHO, UNWRAPPED))
        assert free[-1] > 30
        assert np.asarray(wrapped) == pytest.approx(np.mod(free, 2 * np.pi), abs=1e-9)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_rings_are_of_the_engines_type(self, dtype, x64):
        carried = path(ECHO, dtype=dtype)
        assert {x.dtype for x in jax.tree.leaves(carried)} == {np.dtype(dtype)}
        assert carried.value.seen is None

    def test_a_finer_step_has_a_longer_ring(self):
        assert ECHO.scheme.refined(2).length(ECHO) - 3 == 2 * (ECHO.scheme.length(ECHO) - 3)

    def test_a_batch_slices_its_rings(self):
        """Steps and delays are those of the whole batch, so nothing is gathered or scattered."""
        params = jax.tree.map(jnp.float32, ECHO.limit())
        start = jax.vmap(lambda _: begin(ECHO, params, Noise(NO_WORDS, 0), jnp.float32))(jnp.arange(8))
        tick = jax.vmap(partial(advance, ECHO), in_axes=(None, 0, None, None, None))
        drive = ECHO.drive_type(jnp.float32(0.0))
        text = jax.jit(tick).lower(params, start, drive, NO_WORDS, jnp.int32(0)).compile().as_text()
        assert "dynamic-slice(" in text
        assert " gather(" not in text
        assert " scatter(" not in text


@pytest.mark.usefixtures("x64")
class TestDerivatives:
    @staticmethod
    def figure(tau):
        params = Delays(tau, jnp.float64(-1.0))
        return _path(ECHO, params, jnp.asarray([0.0] * 4 + [0.5] * 6)).state.u[-1]

    @pytest.mark.parametrize("tau", [0.7, 0.973])
    def test_with_respect_to_a_delay_it_is_that_of_the_closed_form(self, tau):
        exact = (steps(5.0, tau + 1e-6, 0.5, 2.0) - steps(5.0, tau - 1e-6, 0.5, 2.0)) / 2e-6
        forward = float(jax.jacfwd(self.figure)(jnp.float64(tau)))
        assert forward == pytest.approx(exact, abs=2e-4)
        assert float(jax.grad(self.figure)(jnp.float64(tau))) == pytest.approx(forward, rel=1e-12)
