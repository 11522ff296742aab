"""The event map: closed forms of one gate, exactness for any step, switches without end, derivatives."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.ensemble import Request, simulate
from simworlds.errors import Diverged
from simworlds.integrate import EventMap, advance, begin
from simworlds.keys import Noise, Words
from simworlds.world import Drive, Grammar, Sensor, SwitchedWorld

NETWORK = load("D2")
NO_WORDS = Words(np.uint32(0), np.uint32(0))
TAU = 4.0


class Relays(NamedTuple):
    T: Any
    eps: Any
    back: Any  # what a gate that is on takes off its own target, twice


class Nodes(NamedTuple):
    x: Any
    b: Any
    rate: Any


class Pair(SwitchedWorld):
    """Two relays: T x' = I + back (1 - 2 b) - x, edges -eps and eps."""

    id, title, track, phenomenon = "T1", "Pair", "T", "none"
    drives = (Drive("I", -1.0, 1.0, rest=0.5),)
    sensors = (Sensor("x", -1.0, 1.0), Sensor("b", 0.0, 1.0), Sensor("rate", 0.0, 1.0))
    scheme = EventMap(dt=1.0, substeps=1)
    grammar = Grammar((1, 1), (2, 2), (2, 2), (1, 1), {"x": 1.0})
    counter_time = TAU

    def draw(self, draws):
        raise NotImplementedError

    def limit(self, **changes):
        plain = Relays(T=np.ones(2), eps=np.zeros(2), back=np.zeros(2))
        return plain._replace(**changes)

    def initial(self, params, noise):
        raise NotImplementedError

    def targets(self, state, drive, params):
        return drive.I + params.back * (1 - 2 * state.b)

    def times(self, params):
        return params.T

    def edges(self, params):
        return -params.eps, params.eps

    def read(self, state, drive, params):
        return state.x[0], state.b[0], state.rate


PAIR = Pair()


def run(params, drive, ticks=1, *, x=(-0.5, 9.0), scheme=PAIR.scheme, dtype=np.float64):
    """The end state, and readings ``[tick, sensor]``; the second relay is by default far above its edges."""
    law = type("Stepped", (Pair,), {"scheme": scheme})()
    x = jnp.asarray(x, dtype)
    state = Nodes(x, (x > 0).astype(dtype), jnp.zeros((), dtype))
    params = jax.tree.map(lambda p: jnp.asarray(p, dtype), params)
    means = []
    step = jax.jit(partial(advance, law))
    for k in range(ticks):
        I = law.drive_type(jnp.asarray(drive, dtype))
        state, mean = step(params, state, I, NO_WORDS, jnp.int32(k))
        means.append(jnp.stack(mean))
    return jax.device_get(state), np.array(means)


@pytest.mark.usefixtures("x64")
class TestOneSwitch:
    """x rises from -0.5 toward I = 1 through 0 at ln 1.5."""

    AT = np.log(1.5)

    def test_state_and_means_are_those_of_the_closed_form(self):
        state, [mean] = run(PAIR.limit(), 1.0)
        assert state.x[0] == pytest.approx(1 - 1.5 / np.e, abs=1e-14)
        assert mean[0] == pytest.approx(1 - 1.5 * (1 - 1 / np.e), abs=1e-14)
        assert mean[1] == pytest.approx(1 - self.AT, abs=1e-14)  # the share of the tick that it was on
        assert state.rate == pytest.approx(np.exp(-(1 - self.AT) / TAU) / TAU, abs=1e-14)
        assert mean[2] == pytest.approx(1 - np.exp(-(1 - self.AT) / TAU), abs=1e-14)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_without_hysteresis_it_switches_once(self, dtype):
        state, means = run(PAIR.limit(), 1.0, 40, dtype=dtype)
        counted = TAU * state.rate + means[:, 2].sum()
        assert counted == pytest.approx(1, abs=1e-5)
        assert state.b[0] == 1

    def test_gates_that_are_due_together_switch_together(self):
        state, means = run(PAIR.limit(), 1.0, x=(-0.5, -0.5))
        assert TAU * state.rate + means[:, 2].sum() == pytest.approx(2, abs=1e-14)
        assert state.b.tolist() == [1, 1]


@pytest.mark.usefixtures("x64")
class TestRelay:
    PARAMS = PAIR.limit(T=np.array([0.3, 1.0]), eps=np.array([0.2, 0.0]), back=np.array([1.0, 0.0]))

    def test_its_switches_come_at_the_published_times(self):
        """The half period at level d is T ln((d + eps) / (d - eps)); from 0, upward, the first is earlier."""
        half, first = 0.3 * np.log(1.2 / 0.8), 0.3 * np.log(1 / 0.8)
        state, means = run(self.PARAMS, 0.0, 20, x=(0.0, -9.0))
        times = np.arange(first, 20, half)
        assert TAU * state.rate + means[:, 2].sum() == pytest.approx(len(times), abs=1e-11)
        assert state.rate == pytest.approx(np.sum(np.exp(-(20 - times) / TAU)) / TAU, abs=1e-12)

    @pytest.mark.parametrize("factor", [2, 7])
    def test_the_step_changes_nothing(self, factor):
        state, means = run(self.PARAMS, 0.13, 12)
        fine, finer = run(self.PARAMS, 0.13, 12, scheme=PAIR.scheme.refined(factor))
        np.testing.assert_allclose(finer, means, rtol=0, atol=1e-12)
        for one, other in zip(state, fine, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)

    @pytest.mark.parametrize(("most", "finite"), [(8, True), (7, False)])
    def test_a_step_holds_so_many_switches(self, most, finite):
        """Switches are at .0669 + .1216 k: eight in the first tick."""
        scheme = dataclasses.replace(PAIR.scheme, most=most)
        state, means = run(self.PARAMS, 0.0, x=(0.0, -9.0), scheme=scheme)
        assert np.isfinite(means).all() == finite
        assert np.isfinite(state.x).all() == finite


class TestSwitchesWithoutEnd:
    def test_are_reported_as_divergence(self):
        """A node that turns against its own gate, without hysteresis."""
        one = np.eye(8)[0]
        itself = np.outer(one, one)
        table = np.outer(one, [1.0, 1.0, -1.0, -1.0])
        params = NETWORK.limit(A=itself, B=itself, F=table, g=one, x=0.5 * one)
        instance = NETWORK.instance(0, redraws=0).canonical()
        endless = dataclasses.replace(instance, params=jax.tree.map(np.float32, params))
        request = Request(instance.protocol([{"ticks": 8, "set": {}}]), ("test",))
        with pytest.raises(Diverged, match="no longer finite at tick 0"):
            simulate(endless, [request], 1)


LEVELS = np.full((40, 3), 0.5)
LEVELS[3:18, 0], LEVELS[15:28, 1], LEVELS[25:, 2] = 0.9, 0.13, 0.77


@jax.jit
def total(params, levels):
    """A weighted sum of means and variances: one number, so that reverse mode takes one pass."""

    def tick(state, row):
        state, mean = advance(NETWORK, params, state, NETWORK.physical(row), NO_WORDS, jnp.int32(0))
        return state, jnp.stack(mean)

    start = begin(NETWORK, params, Noise(NO_WORDS, jnp.uint32(0)), jnp.float64)
    readings = jax.lax.scan(tick, start, levels)[1][10:]
    weights = jnp.arange(1.0, 6.0)
    return jnp.sum(weights * readings.mean(0)) + jnp.sum(weights * readings.var(0))


@jax.jit
def slopes(at, toward):
    """The derivative along a direction, by forward and by reverse mode."""
    gradient = jax.grad(total, argnums=(0, 1))(*at)
    terms = jax.tree.map(jnp.vdot, gradient, toward)
    return jax.jvp(total, at, toward)[1], sum(jax.tree.leaves(terms))


@pytest.mark.usefixtures("x64")
class TestDerivatives:
    @pytest.mark.parametrize("seed", [0, 3])
    def test_both_modes_agree_with_central_differences(self, seed):
        at = (jax.tree.map(jnp.float64, NETWORK.instance(seed, redraws=0).params), jnp.asarray(LEVELS))
        rng = np.random.default_rng(seed)
        params, levels = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)) * (x != 0), at)
        still, steady = jax.tree.map(jnp.zeros_like, at)
        only = {name: (still._replace(**{name: d}), steady) for name, d in params._asdict().items()}
        only["levels"] = (still, levels)
        for name, toward in only.items():
            up = total(*jax.tree.map(lambda x, d: x + 1e-6 * d, at, toward))
            down = total(*jax.tree.map(lambda x, d: x - 1e-6 * d, at, toward))
            slope = float(up - down) / 2e-6
            assert abs(slope) > 1e-3, name
            for mode in slopes(at, toward):
                assert float(mode) == pytest.approx(slope, rel=1e-4), name
