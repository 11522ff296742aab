"""Adaptive ensembles against diffrax, closed forms and themselves: on any lanes, in any company."""

import hashlib
import inspect
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds import adaptive
from simworlds.adaptive import measure_adaptive
from simworlds.catalogue import load, worlds
from simworlds.ensemble import Readout, Request, measure
from simworlds.errors import Diverged, InvalidRequest, UnsupportedLaw
from simworlds.instance import Instance
from simworlds.integrate import RK4, begin, tsitouras
from simworlds.integrate.tsitouras import Status, Tolerance, attempt, begin_walk
from simworlds.keys import Noise, clone_words, role_words
from simworlds.ports import canonical_ports
from simworlds.protocol import Protocol, Segment
from simworlds.reference import adaptive_solve, reference_readings
from simworlds.world import Drive, Grammar, OdeWorld, Sensor

ODES = [world for world in worlds() if isinstance(world, OdeWorld)]


class Scale(NamedTuple):
    a: Any


class Place(NamedTuple):
    x: Any
    v: Any
    angle: Any


class Relaxing(OdeWorld):
    """x'' = mu (1 - x^2) x' - x + b x^3, which blows up where b is driven, and an angle that turns."""

    id, title, track, phenomenon = "T5", "Relaxing", "T", "relaxation oscillations"
    drives = (Drive("mu", 0.1, 1000.0, rest=0.25, log=True), Drive("b", 0.0, 10.0, rest=0.0))
    sensors = (Sensor("x", -3.0, 3.0), Sensor("sine", -1.0, 1.0))
    scheme = RK4(dt=0.01, substeps=100)
    grammar = Grammar((1, 1), (2, 2), (2, 2), (1, 1), {"x": 1.0})
    branches = ("right", "left")
    horizon = 64
    mean_fraction = sd_fraction = 0.03

    def draw(self, draws):
        return Scale(np.float32(1))

    def limit(self, **changes):
        return Scale(np.float32(1))._replace(**changes)

    def initial(self, params, noise):
        return Place(params.a + noise.normal(0) / 4, jnp.zeros_like(params.a), jnp.zeros_like(params.a))

    def drift(self, state, drive, params):
        pull = drive.mu * (1 - state.x**2) * state.v - state.x + drive.b * state.x**3
        return Place(state.v, pull, jnp.ones_like(state.angle))

    def read(self, state, drive, params):
        return state.x, jnp.sin(state.angle)

    def wrap(self, state):
        return state._replace(angle=jnp.mod(state.angle, 2 * np.pi))

    def branch(self, state, params):
        return jnp.int32(state.x < 0)


def toy(seed: int = 7) -> Instance:
    world = Relaxing()
    wiring, gauge = canonical_ports(world)
    gauge = gauge._replace(sigma=np.full(2, 0.25, np.float32), gain=np.array([2.0, -0.5], np.float32))
    return Instance(world, seed, world.limit(), gauge, wiring)


TOY = toy()


def asked(*, many: int = 3) -> list[Request]:
    """Protocols of unlike length and stiffness."""
    return [
        Request(
            Protocol((Segment(8 + 4 * k, {"u0": 0.2 + 0.08 * k}), Segment(6, {}))),
            ("adaptive", k),
            Readout(k % 2, 2 + k, 12 + 4 * k, sd=k % 2 == 0),
        )
        for k in range(many)
    ]


@pytest.fixture(scope="module")
def run():
    return measure_adaptive(TOY, asked(), 40)


# One step


class TestStep:
    """A single attempt on x' = -x^2 and v' = x v, whose solutions and means are known."""

    class Slowing(Relaxing):
        id = "T6"

        def drift(self, state, drive, params):
            return Place(-(state.x**2), state.x * state.v, jnp.zeros_like(state.angle))

        def read(self, state, drive, params):
            return state.x, state.v

    def error(self, size: float) -> np.ndarray:
        """Errors of x, v and the two means in a step: root mean squares over starts."""
        world = self.Slowing()
        tolerance = Tolerance(jnp.float64(0.1), jnp.float64(0.1))
        drive = world.physical(jnp.zeros(2))

        def one(x: Any) -> Any:
            walk = begin_walk(world, world.limit(), drive, Place(x, jnp.ones_like(x), jnp.zeros_like(x)))
            walk = walk._replace(size=jnp.full_like(x, size), left=jnp.full_like(x, 9.0))
            return attempt(world, world.limit(), tolerance, drive, walk)

        x = np.linspace(0.5, 2.0, 16)
        walk = jax.jit(jax.vmap(one))(jnp.array(x))
        assert not np.any(walk.rejected)
        exact = x / (1 + x * size), 1 + x * size, np.log(1 + x * size), size + x * size**2 / 2
        found = (walk.state.x, walk.state.v, *walk.means)
        return np.sqrt(np.mean((np.array(found) - np.array(exact)) ** 2, axis=1))

    def order(self) -> np.ndarray:
        """Of the errors of x, of v and of the mean of x."""
        return np.log2(self.error(0.2) / self.error(0.1))[:3]

    def test_the_error_of_a_step_is_of_sixth_order(self, x64):
        assert self.order().min() > 5.7

    @pytest.mark.parametrize(("stage", "weight"), [(0, 0), (5, 4)])
    def test_a_wrong_coefficient_is_seen(self, stage, weight, x64, monkeypatch):
        rows = [list(row) for row in tsitouras.STAGES]
        rows[stage][weight] *= 1.02
        monkeypatch.setattr(tsitouras, "STAGES", tuple(tuple(row) for row in rows))
        assert self.order().min() < 5

    def test_too_many_steps_and_too_short_ones_are_given_up(self):
        """At the most attempts; and where a step that fails is as short as its dtype allows."""
        world = self.Slowing()
        drive = world.physical(jnp.zeros(2))

        def one(attempts: Any, size: Any, slope: Any) -> Any:
            x = jnp.ones_like(size)
            walk = begin_walk(world, world.limit(), drive, Place(x, x, x))
            walk = walk._replace(attempts=attempts, size=size)
            # A slope that fits nothing makes each step fail.
            walk = walk._replace(slope=jax.tree.map(lambda v: v * slope, walk.slope))
            return attempt(world, world.limit(), Tolerance(1e-4, 1e-4), drive, walk).status

        counts = jnp.array([0, tsitouras.MOST_ATTEMPTS, 0, 0, 0])
        sizes = jnp.array([1e-3, 1e-3, 1e-3, 1e-7, 1e-7])
        slopes = jnp.array([1.0, 1.0, 1e12, 1e12, jnp.inf])
        found = jax.jit(jax.vmap(one))(counts, sizes, slopes)
        assert list(found) == [
            Status.RUNNING, Status.TOO_MANY, Status.RUNNING, Status.TOO_SHORT, Status.NOT_FINITE
        ]  # fmt: skip

    def test_the_pair_is_the_one_of_diffrax(self):
        import diffrax

        table = diffrax.Tsit5.tableau
        for ours, theirs in zip(tsitouras.STAGES, table.a_lower, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-15)
        np.testing.assert_allclose(tsitouras.ERROR, table.b_error, rtol=1e-10)


# Certificates


def certificate(instance: Instance, protocol: Protocol, start: int, **options: Any) -> np.ndarray:
    """Errors of mean and sd of each sensor over a window, in shares of nominal ranges, against diffrax."""
    world, ticks = instance.world, protocol.ticks
    requests = [
        Request(protocol, ("certificate",), Readout(port, start, ticks, sd))
        for port in range(len(world.sensors))
        for sd in (False, True)
    ]
    got = measure_adaptive(instance, requests, 2, noise=False, **options).values
    key = role_words(world.id, instance.seed, "initial", "certificate")
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, instance.params)
        for clone in range(2):
            noise = Noise(clone_words(key, np.uint32(clone)), np.uint32(0))
            state = begin(world, params, noise, jnp.float64)
            means = reference_readings(
                world, params, instance.levels(protocol), initial=state, rtol=1e-11, atol=1e-11
            )[start:]
            got[::2, clone] -= means.mean(axis=0)
            got[1::2, clone] -= means.std(axis=0)
    spans = np.array([sensor.high - sensor.low for sensor in world.sensors])
    return np.abs(got) / np.repeat(spans, 2)[:, None]


def wandering(instance: Instance, ticks: int) -> Protocol:
    """Random levels that change every eight ticks."""
    random = np.random.default_rng(20)
    count = ticks // 8
    levels = random.uniform(0.2, 0.8, (count, len(instance.drive_ports)))
    return Protocol(
        tuple(Segment(8, dict(zip(instance.drive_ports, map(float, row), strict=True))) for row in levels)
    )


@pytest.mark.parametrize(
    "world",
    [w if w.id == "C4" else pytest.param(w, marks=pytest.mark.validation) for w in ODES],
    ids=lambda world: world.id,
)
def test_statistics_of_every_ode_agree_with_diffrax(world, x64):
    instance = world.instance(1, redraws=0).canonical()
    protocol = wandering(instance, 32)
    errors = certificate(instance, protocol, 4, rtol=1e-8, atol=1e-9, dtype=np.float64)
    assert errors.max() < 1e-6


@pytest.mark.validation
@pytest.mark.parametrize("world", ODES, ids=lambda world: world.id)
def test_the_defaults_in_single_precision_are_within_ten_tolerances_of_the_range(world):
    instance = world.instance(1, redraws=0).canonical()
    assert certificate(instance, wandering(instance, 32), 4).max() < 1e-4


def test_errors_fall_with_the_tolerance(x64):
    instance = TOY.canonical()
    protocol = Protocol((Segment(16, {"u0": 0.6}), Segment(8, {"u0": 0.1})))  # mu = 25, then 0.25
    errors = [
        certificate(instance, protocol, 2, rtol=r, atol=r, dtype=np.float64).max() for r in (1e-4, 1e-6, 1e-8)
    ]
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 20
    assert errors[2] < errors[1] / 20
    assert errors[2] < 1e-6


@pytest.mark.validation
def test_a_stiff_relaxation_agrees_with_an_implicit_solver(x64):
    """mu = 1000: after the jump at x = 1, a fixed step would have to be shorter than a thousandth."""
    instance = TOY.canonical()
    protocol = Protocol((Segment(64, {"u0": 1.0}),))
    clones = 3
    request = Request(protocol, ("stiff",), Readout(0, 62, 64, sd=False))
    got = measure_adaptive(instance, [request], clones, rtol=1e-7, atol=1e-8, dtype=np.float64).values[0]
    key = role_words("T5", 7, "initial", "stiff")

    def rates(t: Any, both: Any, args: Any) -> Any:
        x, v, _, mean = both
        late = jnp.where(t > 62, x / 2, 0)
        return v, 1000 * (1 - x**2) * v - x, jnp.ones_like(x), late

    for clone in range(clones):
        noise = Noise(clone_words(key, np.uint32(clone)), np.uint32(0))
        start = begin(instance.world, jax.tree.map(jnp.float64, instance.params), noise, jnp.float64)
        state = (*start, jnp.float64(0))
        middle, failed = adaptive_solve(rates, state, 62.0, rtol=1e-9, atol=1e-9, stiff=True)
        end, failed_too = adaptive_solve(
            lambda t, both, args: rates(63.0, both, args), middle, 2.0, rtol=1e-9, atol=1e-9, stiff=True
        )
        assert not failed
        assert not failed_too
        assert got[clone] == pytest.approx(float(end[3]), abs=6e-6)


# What it shares with `measure`


def test_noise_and_gauges_are_those_of_measure(run):
    """On smooth protocols both integrate alike, so that readings agree with their noise."""
    requests = [
        Request(Protocol((Segment(9, {"u0": 0.1}),)), ("noise", k), Readout(k, 1, 9, sd=k == 0))
        for k in (0, 1)
    ]
    ours, theirs = measure_adaptive(TOY, requests, 30), measure(TOY, requests, 30)
    np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(ours.branch, theirs.branch)
    assert np.ptp(ours.values, axis=1).min() > 0.05
    silent = measure_adaptive(TOY, requests, 30, noise=False)
    np.testing.assert_allclose(silent.values, measure(TOY, requests, 30, noise=False).values, atol=1e-4)
    assert np.abs(silent.values - ours.values).max() > 0.05
    assert silent.values.dtype == np.float32
    assert set(np.unique(run.branch)) == {0, 1}


def test_nudges_displace_the_start():
    request = Request(Protocol((Segment(4, {"u0": 0.1}),)), ("nudge",), Readout(0, 0, 2, sd=False))
    nudged = Request(request.protocol, request.purpose, request.readout, nudge=0.5)
    ours, theirs = measure_adaptive(TOY, [request, nudged], 3), measure(TOY, [request, nudged], 3)
    np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-4)
    assert np.abs(ours.values[0] - ours.values[1]).min() > 0.3


# A clone's result is its own


def test_more_clones_and_requests_change_no_clone(run):
    np.testing.assert_array_equal(measure_adaptive(TOY, asked(), 3).values, run.values[:, :3])
    np.testing.assert_array_equal(measure_adaptive(TOY, asked()[1:2], 40).values, run.values[1:2])
    later = measure_adaptive(TOY, asked(), 5, first=21)
    np.testing.assert_array_equal(later.values, run.values[:, 21:26])
    np.testing.assert_array_equal(later.branch, run.branch[:, 21:26])


@pytest.mark.parametrize(
    "changes",
    [
        {"LANES": 8, "ROOM": 32, "PROTOCOLS": 2},
        pytest.param({"LANES": 64, "LOOKS": 3}, marks=pytest.mark.validation),
        pytest.param({"ROOM": 16, "LOOKS": 1}, marks=pytest.mark.validation),
    ],
    ids=lambda changes: ",".join(changes),
)
def test_lanes_queues_and_chunks_change_no_bit(run, changes, monkeypatch):
    for name, value in changes.items():
        monkeypatch.setattr(adaptive, name, value)
    instance = toy()  # another family object: compiled again, with the settings above
    again = measure_adaptive(instance, asked(), 40)
    np.testing.assert_array_equal(again.values, run.values)
    np.testing.assert_array_equal(again.branch, run.branch)


DEVICE_SCRIPT = """
import hashlib, json, sys
sys.path[:0] = sys.argv[1:3]
import jax
from simworlds.adaptive import measure_adaptive
from test_adaptive import TOY, asked
values = measure_adaptive(TOY, asked(), 40).values
print(json.dumps([len(jax.devices()), hashlib.sha256(values.tobytes()).hexdigest()]))
"""


@pytest.mark.parametrize("devices", [3, pytest.param(4, marks=pytest.mark.validation)])
def test_the_number_of_devices_changes_no_bit(run, devices):
    kept = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    flags = " ".join([*kept, f"--xla_force_host_platform_device_count={devices}"])
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    done = subprocess.run(
        [sys.executable, "-c", DEVICE_SCRIPT, root, here],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [devices, hashlib.sha256(run.values.tobytes()).hexdigest()]


def test_nothing_compiles_again_for_other_clones_requests_windows_or_tolerances(run):
    programs = adaptive._run._cache_size()
    for clones in (1, 50):
        measure_adaptive(TOY, asked(many=2), clones, rtol=1e-4, atol=1e-4, noise=False)
    other = Instance(TOY.world, "sealed", TOY.params, TOY.gauge, TOY.wiring)
    measure_adaptive(other, asked(many=5), 2)
    assert adaptive._run._cache_size() == programs


def test_progress_counts_every_clone():
    steps = []
    measure_adaptive(TOY, asked(), 40, progress=steps.append)
    assert sum(steps) == 120


def test_no_requests_give_no_results():
    assert measure_adaptive(TOY, [], 3).values.shape == (0, 3)


# What cannot be done


def test_a_divergence_names_world_seed_clone_request_and_tick():
    blown = Protocol((Segment(5, {"u0": 0.1}), Segment(4, {"u0": 0.1, "u1": 1.0})))
    requests = [*asked(), Request(blown, ("blown",), Readout(0, 0, 4, sd=False))]
    where = r"world T5, seed 7: clone \d+ of request 3 (was no longer finite at|needed .* in) tick [56]$"
    with pytest.raises(Diverged, match=where):
        measure_adaptive(TOY, requests, 4)


@pytest.mark.parametrize("name", ["A4", "B2", "D1"])
def test_other_laws_have_no_adaptive_steps(name):
    instance = load(name).instance(0, redraws=0)
    with pytest.raises(UnsupportedLaw, match=f"world {name} is no ordinary differential equation"):
        measure_adaptive(instance, [], 1)


@pytest.mark.parametrize("value", [0, -1e-3, 1e-9, 0.2, float("nan"), "1e-3", None, True])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_a_tolerance_is_checked(name, value):
    if name == "atol" and value == 1e-9:
        return
    unchecked = inspect.unwrap(measure_adaptive)
    with pytest.raises(InvalidRequest, match=f"`{name}` must be a number from .* to 0.1, but is"):
        unchecked(TOY, asked(), 1, **{name: value})


def test_bad_requests_are_refused_as_by_measure():
    short = Protocol((Segment(4, {}),))
    with pytest.raises(InvalidRequest, match="need.* a readout in every request"):
        measure_adaptive(TOY, [Request(short, ("none",))], 1)
    with pytest.raises(InvalidRequest, match=r"a window must .* 0\.\.4, but is \[0, 5\)"):
        measure_adaptive(TOY, [Request(short, ("long",), Readout(0, 0, 5, sd=False))], 1)
    with pytest.raises(InvalidRequest, match="`clones` must be a whole number"):
        measure_adaptive(TOY, asked(), 0)
