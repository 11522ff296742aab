"""What every registered family obeys: stated ports, finite float32 readings, independent clones."""

import dataclasses
import inspect

import jax
import numpy as np
import pytest

from simworlds.catalogue import load, worlds
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.errors import UnknownWorld
from simworlds.keys import Draws
from simworlds.protocol import Protocol, Segment

every = pytest.mark.parametrize("world", list(worlds()), ids=lambda world: world.id)
CLONES, TICKS = 64, 48


def test_all_sixteen_are_there():
    ids = [f"{track}{number}" for track in "ABCD" for number in range(1, 5)]
    assert [world.id for world in worlds() if world.id in ids] == ids


def test_a_name_that_no_world_has_is_refused():
    with pytest.raises(UnknownWorld, match="there is no world 'Z9'; the worlds are A1"):
        load("Z9")


@pytest.fixture(scope="module")
def ensembles():
    """Readings without sensor noise of 64 clones of seed 0 under one random protocol, by world."""
    found = {}

    def of(world):
        if world.id not in found:
            instance = world.instance(0, redraws=0).canonical()
            draws = Draws.for_role(world.id, 0, "test", "catalogue")
            protocol = grammar_protocol(instance, draws).first(TICKS)
            protocol = Protocol((*protocol.segments, Segment(max(1, TICKS - protocol.ticks), {})))
            found[world.id] = simulate(instance, [Request(protocol, ("test",))], CLONES, noise=False).values[
                0
            ]
        return found[world.id][:, :TICKS]

    return of


@every
class TestStatements:
    def test_ports_are_stated(self, world):
        assert len({d.name for d in world.drives}) == len(world.drives) >= 3
        assert len({s.name for s in world.sensors}) == len(world.sensors) >= 4
        assert all(d.low < d.high and 0 <= d.rest <= 1 and (not d.log or d.low > 0) for d in world.drives)
        assert all(s.low < s.high for s in world.sensors)

    def test_the_grammar_names_ports_and_fits_the_horizon(self, world):
        grammar = world.grammar
        assert set(grammar.ask) <= {s.name for s in world.sensors}
        assert set(grammar.levels) <= {d.name for d in world.drives}
        assert any(weight > 0 for weight in grammar.ask.values())
        assert grammar.segments[0] * grammar.ticks[0] >= grammar.window[1] >= grammar.window[0] >= 2
        assert grammar.segments[1] * grammar.ticks[0] <= world.horizon
        assert 1 <= grammar.changes[0] <= grammar.changes[1] <= len(world.drives)

    def test_the_module_states_equations_and_sources(self, world):
        text = inspect.getmodule(type(world)).__doc__
        assert text.startswith(f"{world.id} ")
        assert "=" in text
        assert "doi:" in text.lower() or "10.10" in text

    def test_each_parameter_is_a_float32_array_of_one_shape(self, world):
        """Whatever differs between instances is in values: one compiled program serves a family."""
        shapes = set()
        for seed in range(8):
            params = world.instance(seed, redraws=0).params
            assert all(np.asarray(leaf).dtype == np.float32 for leaf in jax.tree.leaves(params))
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(params))
            shapes.add(tuple(np.shape(leaf) for leaf in jax.tree.leaves(params)))
        assert len(shapes) == 1
        assert type(world.limit()) is type(params)


@every
class TestRuns:
    def test_readings_are_finite_and_within_reach_of_their_nominal_range(self, world, ensembles):
        readings = ensembles(world)
        assert readings.dtype == np.float32
        assert np.all(np.isfinite(readings))
        span = np.array([s.high - s.low for s in world.sensors])
        middle = np.array([(s.high + s.low) / 2 for s in world.sensors])
        assert np.all(np.abs(readings - middle) < 10 * span)

    def test_clones_are_independent(self, world, ensembles):
        """Neighbouring clones' deviations from the ensemble mean are uncorrelated, at 5 standard errors."""
        last = ensembles(world)[:, -1].astype(np.float64)
        spread = last.std(0)
        noisy = spread > 1e-5 * (np.abs(last).max(0) + 1e-3)
        if world.track in ("C", "D"):
            assert not np.any(noisy)  # one law, one start, no noise
            return
        assert np.any(noisy)
        deviation = (last - last.mean(0))[:, noisy]
        pairs = np.mean(deviation[::2] * deviation[1::2], axis=0) / spread[noisy] ** 2
        assert np.all(np.abs(pairs) < 5 / np.sqrt(CLONES / 2))
        doubled = np.mean(deviation[::2] * deviation[::2], axis=0) / spread[noisy] ** 2
        assert np.all(np.abs(doubled) > 5 / np.sqrt(CLONES / 2) - 0.6)  # a shared stream would be seen

    def test_sensor_noise_is_independent_of_clone_tick_and_port(self, world, ensembles):
        instance = world.instance(0, redraws=0).canonical()
        sigma = np.ones(len(world.sensors), np.float32)
        noisy = dataclasses.replace(instance, gauge=instance.gauge._replace(sigma=sigma))
        protocol = instance.protocol([{"ticks": 32}])
        request = [Request(protocol, ("test", "noise"))]
        noise = (simulate(noisy, request, 8).values - simulate(instance, request, 8).values)[0]
        flat = noise.astype(np.float64)
        assert abs(flat.mean()) < 5 / np.sqrt(flat.size)
        assert abs(flat.var() - 1) < 5 * np.sqrt(2 / flat.size)
        for a, b in ((flat[1:], flat[:-1]), (flat[:, 1:], flat[:, :-1]), (flat[:, :, 1:], flat[:, :, :-1])):
            assert abs(np.mean(a * b)) < 5 / np.sqrt(a.size)

    def test_more_ticks_and_clones_change_no_earlier_one(self, world, ensembles):
        instance = world.instance(0, redraws=0).canonical()
        draws = Draws.for_role(world.id, 0, "test", "catalogue")
        few = grammar_protocol(instance, draws).first(8)
        readings = simulate(instance, [Request(few, ("test",))], 3, noise=False).values[0]
        assert np.array_equal(readings, ensembles(world)[:3, :8])
