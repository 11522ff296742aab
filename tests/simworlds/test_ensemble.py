"""Ensembles: a clone's numbers are its own, statistics are those of its readings, bad input costs nothing."""

import inspect
import json
import os
import subprocess
import sys
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from simworlds import ensemble, lanes
from simworlds.catalogue import load, worlds
from simworlds.ensemble import Readout, Request, measure, simulate
from simworlds.errors import Diverged, InvalidRequest
from simworlds.instance import Instance
from simworlds.integrate import RK4
from simworlds.keys import bits, clone_words, normal_from, role_words
from simworlds.ports import canonical_ports
from simworlds.protocol import Protocol, Segment
from simworlds.world import Drive, Grammar, OdeWorld, Sensor

LIMIT = stats.norm.isf(1e-6 / 2)
every_world = pytest.mark.parametrize("world", list(worlds()), ids=lambda world: world.id)


def protocol_of(instance, *ticks):
    """Segments of the given lengths, each of which moves every port to a level of its own."""
    ports = instance.drive_ports
    return Protocol(
        tuple(
            Segment(n, {port: round(0.35 + 0.1 * ((k + j) % 4), 2) for j, port in enumerate(ports)})
            for k, n in enumerate(ticks)
        )
    )


def requests_of(instance):
    """Three requests of different lengths, windows and channels; the last asks for an sd."""
    return [
        Request(protocol_of(instance, 5, 7), ("test", 0), Readout(0, 2, 9, sd=False)),
        Request(protocol_of(instance, 24), ("test", 1), Readout(1, 20, 24, sd=False)),
        Request(protocol_of(instance, 4, 4, 9), ("test", 2), Readout(2, 3, 17, sd=True)),
    ]


@pytest.fixture(scope="module", params=list(worlds()), ids=lambda world: world.id)
def run(request):
    """An instance of each world, its three requests, and both functions' results on five clones."""
    instance = request.param.instance(3, redraws=0)
    requests = requests_of(instance)
    return instance, requests, simulate(instance, requests, 5), measure(instance, requests, 5)


# A clone's numbers are its own


def same(one, other):
    np.testing.assert_array_equal(one, other)


def test_wide_types_elsewhere_in_the_process_change_no_bit(run):
    instance, requests, _, statistics = run
    with jax.enable_x64(True):
        wide = measure(instance, requests, 5)
    same(wide.values, statistics.values)
    same(wide.branch, statistics.branch)


def test_more_clones_leave_the_first_ones_unchanged(run):
    instance, requests, readings, statistics = run
    more = simulate(instance, requests, 40)
    same(more.values[:, :5], readings.values)
    same(more.branch[:, :5], readings.branch)
    many = measure(instance, requests, 40)
    same(many.values[:, :5], statistics.values)
    same(many.branch[:, :5], statistics.branch)
    assert len(np.unique(many.values)) > 100, "clones must differ for the comparison to say anything"


def test_a_clone_is_the_same_alone_and_beside_others(run):
    instance, requests, readings, statistics = run
    for k, request in enumerate(requests):
        alone = simulate(instance, [request], 1)
        same(alone.values[0, 0], readings.values[k, 0, : request.protocol.ticks])
        same(alone.branch[0, 0], readings.branch[k, 0])
        single = measure(instance, [request], 2)
        same(single.values[0], statistics.values[k, :2])
        same(single.branch[0], statistics.branch[k, :2])


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (0, 0, 2)])
def test_the_order_of_requests_changes_nothing(run, order):
    instance, requests, readings, statistics = run
    shuffled = simulate(instance, [requests[k] for k in order], 5)
    longest = shuffled.values.shape[2]
    same(shuffled.values, readings.values[list(order), :, :longest])
    same(measure(instance, [requests[k] for k in order], 5).values, statistics.values[list(order)])


def test_a_clone_is_the_same_in_another_chunk(run):
    instance, requests, readings, _ = run
    width = instance.world.lanes * len(jax.devices())
    short = [requests[0]]
    across = simulate(instance, short, width + 5)
    same(across.values[0, :5], readings.values[0, :5, : short[0].protocol.ticks])
    crowded = simulate(
        instance, [requests[1], requests[0]], width - 2
    )  # request 0 starts in the first chunk's end
    same(crowded.values[1, :, : short[0].protocol.ticks], across.values[0, : width - 2])


def test_other_purposes_and_seeds_give_other_clones(run):
    instance, requests, readings, _ = run
    moved = [requests[0].__class__(requests[0].protocol, ("test", 7))]
    assert not np.array_equal(simulate(instance, moved, 1).values[0, 0], readings.values[0, 0, :12])
    other = simulate(instance.world.instance(4, redraws=0), requests[:1], 1)
    assert not np.array_equal(other.values[0, 0], readings.values[0, 0, :12])


def test_a_run_repeats_itself(run):
    instance, requests, readings, _ = run
    same(simulate(instance.world.instance(3, redraws=0), requests, 5).values, readings.values)


# Statistics are those of the readings


def test_measure_gives_the_statistics_of_simulate(run):
    _, requests, readings, statistics = run
    values = readings.values.astype(np.float64)
    for k, request in enumerate(requests):
        readout = request.readout
        window = values[k, :, readout.start : readout.stop, readout.port]
        expected = window.std(1) if readout.sd else window.mean(1)
        size = np.abs(window).max()
        np.testing.assert_allclose(statistics.values[k], expected, rtol=1e-5, atol=2e-6 * size)


def test_a_window_has_no_memory_of_its_surroundings(run):
    instance, requests, readings, _ = run
    protocol = requests[2].protocol
    edges = [(0, 2), (0, protocol.ticks), (protocol.ticks - 2, protocol.ticks), (7, 9)]
    asked = [
        Request(protocol, requests[2].purpose, Readout(1, start, stop, sd))
        for start, stop in edges
        for sd in (False, True)
    ]
    found = measure(instance, asked, 3).values.reshape(len(edges), 2, 3)
    rows = readings.values[2, :3, :, 1].astype(np.float64)
    for (start, stop), (mean, sd) in zip(edges, found, strict=True):
        size = np.abs(rows[:, :17]).max()
        np.testing.assert_allclose(mean, rows[:, start:stop].mean(1), rtol=1e-5, atol=2e-6 * size)
        np.testing.assert_allclose(sd, rows[:, start:stop].std(1), rtol=1e-4, atol=2e-6 * size)


def test_readings_are_finite_and_of_the_stated_shape(run):
    instance, requests, readings, statistics = run
    assert readings.values.shape == (3, 5, 24, len(instance.world.sensors))
    assert readings.values.dtype == np.float32
    assert statistics.values.shape == statistics.branch.shape == readings.branch.shape == (3, 5)
    for k, request in enumerate(requests):
        assert np.isfinite(readings.values[k, :, : request.protocol.ticks]).all()
        assert np.isnan(readings.values[k, :, request.protocol.ticks :]).all()
    assert np.isfinite(statistics.values).all()
    assert statistics.branch.min() >= 0
    assert statistics.branch.max() < len(instance.world.branches)


@every_world
def test_float32_stays_finite_over_the_whole_horizon(world):
    """Every corner of the drives that the grammar allows, held for a horizon."""
    instance = world.instance(1, redraws=0)
    behind = [world.drives[k] for k in instance.wiring.drives]
    ranges = [world.grammar.levels.get(drive.name, (0.0, 1.0)) for drive in behind]
    half = world.horizon // 2
    requests = []
    for corner in range(2 ** len(ranges)):
        side = [(corner >> k) & 1 for k in range(len(ranges))]
        levels = {f"u{k}": float(ranges[k][s]) for k, s in enumerate(side)}
        mirrored = {f"u{k}": float(ranges[k][1 - s]) for k, s in enumerate(side)}
        protocol = Protocol((Segment(half, levels), Segment(world.horizon - half, mirrored)))
        requests.append(Request(protocol, ("corner", corner)))
    values = simulate(instance, requests, 1).values
    assert values.shape == (len(requests), 1, world.horizon, len(world.sensors))
    assert np.isfinite(values).all()


# Sensor noise


@pytest.fixture(scope="module")
def noise():
    """Sensor noise in its own sigmas, ``[clone, tick, sensor]``, of a world whose law is quick."""
    instance = load("B2").instance(2, redraws=0)
    request = Request(Protocol((Segment(64, {}),)), ("noise",))
    noisy, clean = (
        simulate(instance, [request], 200, noise=on).values[0].astype(np.float64) for on in (True, False)
    )
    return instance, (noisy - clean) / instance.gauge.sigma


def test_sensor_noise_is_the_addressed_normal(noise):
    instance, z = noise
    role = role_words(instance.world.id, instance.seed, "sensor", "noise")
    clone, tick, port = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in z.shape), indexing="ij")
    expected = normal_from(bits(clone_words(role, clone), tick, port))
    np.testing.assert_allclose(z, expected, atol=2e-3)  # the rounding of readings, in units of sigma


def product_score(one, other):
    return float(np.sum(one * other) / np.sqrt(one.size))


def noise_scores(z):
    """Departures of ``[clone, tick, sensor]`` from independent standard normals, in standard errors."""
    scores = {
        "mean": z.mean() * np.sqrt(z.size),
        "variance": ((z**2).mean() - 1) * np.sqrt(z.size / 2),
        "next clone": product_score(z[1:], z[:-1]),
        "next tick": product_score(z[:, 1:], z[:, :-1]),
        "two ticks on": product_score(z[:, 2:], z[:, :-2]),
        "next clone, next tick": product_score(z[1:, 1:], z[:-1, :-1]),
    }
    pairs = combinations(range(z.shape[2]), 2)
    return scores | {f"ports {a} and {b}": product_score(z[..., a], z[..., b]) for a, b in pairs}


def test_sensor_noise_is_independent_over_clones_ticks_and_ports(noise):
    scores = noise_scores(noise[1])
    assert {name: score for name, score in scores.items() if abs(score) > LIMIT} == {}


@pytest.mark.parametrize(
    ("defect", "seen_by"),
    [
        (lambda z: np.repeat(z[::2], 2, axis=0), "next clone"),
        (lambda z: np.repeat(z[:, ::2], 2, axis=1), "next tick"),
        (lambda z: z[..., [0, 0, 2, 3, 4]], "ports 0 and 1"),
        (lambda z: z * 1.02, "variance"),
        (lambda z: z + 0.03, "mean"),
    ],
    ids=["clones", "ticks", "ports", "sigma", "offset"],
)
def test_a_planted_defect_of_sensor_noise_is_seen(noise, defect, seen_by):
    assert abs(noise_scores(defect(noise[1]))[seen_by]) > LIMIT


def test_clones_of_a_random_world_are_independent():
    """The inocula and births of B2's clones: turbidity of clone i against that of clone i + 1."""
    request = Request(Protocol((Segment(12, {}),)), ("clones",), Readout(0, 2, 12, sd=False))
    instance = load("B2").instance(2, redraws=0).canonical()
    values = measure(instance, [request], 500).values[0].astype(np.float64)
    ranks = stats.norm.ppf((stats.rankdata(values) - 0.5) / len(values))
    scores = {lag: product_score(ranks[lag:], ranks[:-lag]) for lag in (1, 2, 128, 256)}
    assert {lag: score for lag, score in scores.items() if abs(score) > LIMIT} == {}
    assert len(np.unique(values)) > 450


@pytest.mark.parametrize("name", ["C2", "D4"])
def test_without_noise_clones_of_a_certain_world_are_one(name):
    instance = load(name).instance(3, redraws=0)
    requests = requests_of(instance)
    silent = simulate(instance, requests, 4, noise=False).values
    np.testing.assert_array_equal(silent, np.broadcast_to(silent[:, :1], silent.shape))
    noisy = simulate(instance, requests, 4).values
    assert not np.array_equal(noisy, silent, equal_nan=True)
    statistics = [measure(instance, requests, 4, noise=on).values for on in (False, True)]
    assert (np.ptp(statistics[0], axis=1) == 0).all()
    assert (np.ptp(statistics[1], axis=1) > 0).all()


# Devices and compilation

DEVICE_SCRIPT = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
import jax
from simworlds.catalogue import load
from simworlds.ensemble import Readout, Request, measure, simulate
from simworlds.protocol import Protocol, Segment

def digest(*arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()

found = {"devices": len(jax.devices())}
for name in sys.argv[2].split(","):
    instance = load(name).instance(0, redraws=0)
    requests = [
        Request(Protocol((Segment(n, {"u1": 0.6}),)), ("devices", n), Readout(k, 1, n, sd=k == 1))
        for k, n in enumerate((9, 14))
    ]
    found[name] = digest(*measure(instance, requests, 150))
    if name == "C2":
        found["readings"] = digest(*simulate(instance, requests, 70))
print(json.dumps(found))
"""


def digests_on(devices, *, plain=False, names="C2,B2"):
    """Digests on some devices, compiled as `start_jax` has it or as JAX does by itself."""
    kept = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag and not plain]
    flags = " ".join([*kept, f"--xla_force_host_platform_device_count={devices}"])
    root = os.path.dirname(os.path.dirname(os.path.abspath(ensemble.__file__)))
    done = subprocess.run(
        [sys.executable, "-c", DEVICE_SCRIPT, root, names],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("plain", "counts"), [(False, (2, 4)), (True, (1, 2, 4))])
def test_the_number_of_devices_changes_no_bit(plain, counts):
    found = [digests_on(devices, plain=plain) for devices in counts]
    assert tuple(digests.pop("devices") for digests in found) == counts
    assert all(digests == found[0] for digests in found)


@pytest.mark.validation
@every_world
def test_every_world_gives_the_same_bits_on_two_and_on_four_devices(world):
    two, four = (digests_on(devices, names=world.id) for devices in (2, 4))
    assert (two.pop("devices"), four.pop("devices")) == (2, 4)
    assert two == four


def test_nothing_compiles_again_for_another_seed_protocol_window_channel_or_clones(run):
    instance, requests, _, _ = run
    programs = lanes.run_round._cache_size()
    other = instance.world.instance("sealed", redraws=0)
    for clones in (1, 7, 70):
        measure(other, [requests[1]], clones)
        simulate(other, requests[:2], clones, noise=False)
    whole = Protocol((Segment(3, {}), Segment(30, {other.drive_ports[-1]: 1.0})))
    last = len(other.sensor_ports) - 1
    measure(other, [Request(whole, ("else", "where"), Readout(last, 0, 33, sd=True))], 2, noise=False)
    assert lanes.run_round._cache_size() == programs


def test_the_count_of_programs_sees_a_new_shape():
    programs = lanes.run_round._cache_size()
    request = Request(Protocol((Segment(2, {}),)), ("shape",), Readout(0, 0, 2, sd=False))
    for rate in (jnp.float32(1), jnp.ones(2)):
        measure(toy(Runaway(), rate=rate), [request], 1)
    assert lanes.run_round._cache_size() == programs + 2


# Divergence


class Rate(NamedTuple):
    rate: Any


class Level(NamedTuple):
    x: Any


class Runaway(OdeWorld):
    """x' = rate x^2 u: infinite after 1 / (rate u) where it is driven, still where it is not."""

    id, title, track, phenomenon = "T1", "Runaway", "T", "blows up"
    drives = (Drive("u", 0.0, 1.0, rest=0.0), Drive("v", 0.0, 1.0, rest=0.0))
    sensors = (Sensor("x", 0.0, 1.0), Sensor("v", 0.0, 1.0))
    scheme = RK4(dt=0.125, substeps=8)
    grammar = Grammar((2, 3), (2, 8), (2, 8), (1, 1), {"x": 1.0})
    horizon, lanes = 32, 4
    mean_fraction = sd_fraction = 0.03

    def draw(self, draws):
        return Rate(np.float32(draws.uniform(0.5, 1.0)))

    def limit(self, **changes):
        return Rate(np.float32(1))._replace(**changes)

    def initial(self, params, noise):
        return Level(jnp.float32(1))

    def drift(self, state, drive, params):
        return Level(jnp.max(params.rate) * state.x**2 * drive.u)

    def read(self, state, drive, params):
        return state.x, drive.v * jnp.ones_like(state.x)


def toy(world, **changes):
    wiring, gauge = canonical_ports(world)
    return Instance(world, 20, world.limit(**changes), gauge, wiring)


def driven(ticks, *, after=0, purpose="driven"):
    segments = [Segment(after, {})] if after else []
    readout = Readout(0, 0, ticks + after, sd=False)
    return Request(Protocol((*segments, Segment(ticks, {"u0": 1.0}))), (purpose,), readout)


@pytest.mark.parametrize("function", [measure, simulate])
@pytest.mark.parametrize("after", [0, 9])
def test_a_divergence_names_world_seed_clone_and_tick(function, after):
    calm = Request(Protocol((Segment(20, {}),)), ("calm",), Readout(0, 0, 20, sd=False))
    expected = rf"world T1, seed 20: clone \d+ of request 1 was no longer finite at tick {after + 1}\b"
    with pytest.raises(Diverged, match=expected) as caught:
        function(toy(Runaway()), [calm, driven(6, after=after)], 3)
    assert caught.value.code == "diverged"


def test_what_happens_behind_a_protocol_s_end_is_no_divergence():
    # A lane goes on under its last levels for as long as its chunk lasts.
    calm = Request(Protocol((Segment(30, {}),)), ("calm",), Readout(0, 0, 30, sd=False))
    instance = toy(Runaway(), rate=np.float32(0.25))
    values = measure(instance, [calm, driven(3)], 2).values
    assert np.isfinite(values).all()
    readings = simulate(instance, [calm, driven(3)], 2).values
    assert np.isfinite(readings[0]).all()
    assert np.isfinite(readings[1, :, :3]).all()
    assert np.isnan(readings[1, :, 3:]).all()
    with pytest.raises(Diverged, match="seed 20"):
        measure(instance, [calm, driven(8)], 2)


def test_a_drive_acts_in_its_own_ticks_and_ports_in_their_own_order():
    instance = toy(Runaway())
    held = Protocol((Segment(2, {"u1": 0.5}), Segment(3, {}), Segment(2, {"u1": 1.0})))
    readings = simulate(instance, [Request(held, ("held",))], 1).values[0, 0]
    np.testing.assert_allclose(readings[:, 1], [0.5] * 5 + [1.0] * 2)
    swapped = Instance(
        instance.world, 20, instance.params, instance.gauge, instance.wiring._replace(drives=(1, 0))
    )
    held = Protocol((Segment(2, {"u0": 0.5}),))
    readings = simulate(swapped, [Request(held, ("held",))], 1).values[0, 0]
    np.testing.assert_allclose(readings, [[1.0, 0.5]] * 2)


# Bad input


@pytest.fixture(scope="module")
def instance():
    return load("C2").instance(0, redraws=0)


unchecked_measure, unchecked_simulate = inspect.unwrap(measure), inspect.unwrap(simulate)


@pytest.mark.parametrize("function", [unchecked_measure, unchecked_simulate])
@pytest.mark.parametrize("clones", [0, -1, 2.0, 1.5, "3", None, True, float("nan"), 2**31 + 1])
def test_a_number_of_clones_is_checked(instance, function, clones):
    with pytest.raises(InvalidRequest, match="`clones` must be a whole number from 1 to"):
        function(instance, [driven(4)], clones)


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 3), (0, 1), (0, 0), (3, 2), (0, 5), (4, 6), (2**31, 2**31 + 2)]
)
def test_a_window_is_checked(instance, start, stop):
    request = Request(Protocol((Segment(4, {}),)), ("bad",), Readout(0, start, stop, sd=False))
    with pytest.raises(InvalidRequest, match=rf"a window must .* 0\.\.4, but is \[{start}, {stop}\)"):
        measure(instance, [request], 1)


@pytest.mark.parametrize("port", [-1, 4, 99])
def test_a_channel_is_checked(instance, port):
    request = Request(Protocol((Segment(4, {}),)), ("bad",), Readout(port, 0, 4, sd=False))
    with pytest.raises(InvalidRequest, match=rf"port.*{port}"):
        measure(instance, [request], 1)


@pytest.mark.parametrize("function", [measure, simulate])
def test_a_protocol_beyond_the_horizon_is_refused(instance, function):
    with pytest.raises(InvalidRequest, match="a protocol may last 256 ticks, but lasts 257"):
        function(instance, [Request(Protocol((Segment(257, {}),)), ("bad",), Readout(0, 0, 4, sd=False))], 1)


def test_measure_needs_readouts(instance):
    fine = Request(Protocol((Segment(4, {}),)), ("fine",), Readout(0, 0, 4, sd=False))
    with pytest.raises(InvalidRequest, match="statistics need a readout in every request"):
        measure(instance, [fine, Request(fine.protocol, ("none",))], 1)


def test_no_requests_give_no_results(instance):
    assert measure(instance, [], 3).values.shape == (0, 3)
    assert simulate(instance, [], 3).values.shape == (0, 3, 0, 4)


def test_progress_counts_every_clone(instance):
    for function in (measure, simulate):
        steps = []
        function(instance, [driven(3), driven(3, purpose="again")], 150, progress=steps.append)
        assert sum(steps) == 300
        assert len(steps) == -(-300 // (instance.world.lanes * len(jax.devices())))
