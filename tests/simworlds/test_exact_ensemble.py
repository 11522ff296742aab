"""Ensembles of exact runs: each run is the one that is walked alone, and laws come out right."""

import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.errors import InvalidRequest
from simworlds.exact import ssa, ssa_network
from simworlds.exact_ensemble import run_process, ssa_network_runs, ssa_runs
from simworlds.families.b2_contest import Contest
from simworlds.keys import Noise, key_for, role_words
from simworlds.network import Network, _Exact, exact_runs

WORLD = Contest()
SIGMAS = 4.9  # alpha 1e-6, both tails
KEY = key_for("tests", 0, "exact ensemble")
BIRTH_DEATH = np.array([[1], [-1]])


def immigration(n):
    """In at rate 5, out at rate 1/2 each: Poisson with mean 10 in the end."""
    return jnp.stack([jnp.full_like(n[0], 5.0), 0.5 * n[0]])


def branching(n):
    """Births at 1 and deaths at 2 each: extinct by t with probability 2 (e - 1) / (2 e - 1), e = exp(t)."""
    return jnp.stack([n[0], 2.0 * n[0]])


def high(n):
    return n[0] >= 12


def several(n):
    """X <-> Y, and Z made by both: three species, four reactions."""
    return jnp.stack([2.0 * n[0], 0.5 * n[1], 0.01 * n[0] * n[1], 0.3 * n[2]])


NETWORK = Network(
    {
        "species": {"X": 4, "Y": 0},
        "reactions": [
            {"propensity": "5", "change": {"X": 1}},
            {"propensity": "X*(X-1)/8", "change": {"X": -2, "Y": 1}},
            {"propensity": "Y", "change": {"Y": -1}},
        ],
    }
)
SEVERAL = np.array([[-1, 1, 0], [1, -1, 0], [-1, -1, 1], [1, 1, -1]])


def sigmas(values, expected):
    return abs(values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values)))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("law", "changes", "start", "options"),
    [
        (several, SEVERAL, [20.0, 10.0, 0.0], {"until": 3.0}),
        (immigration, BIRTH_DEATH, [3.0], {"until": 6.0, "stop": high, "max_events": 30}),
        *(
            pytest.param(*case, marks=pytest.mark.validation)
            for case in (
                (immigration, BIRTH_DEATH, [3.0], {"until": 6.0}),
                (immigration, BIRTH_DEATH, [12.0], {"until": 6.0, "stop": high}),
                (immigration, BIRTH_DEATH, [3.0], {"until": 6.0, "max_events": 20}),
                (branching, BIRTH_DEATH, [2.0], {}),
            )
        ),
    ],
    ids=["several species", "outcome", "until", "outcome at the start", "given up", "absorbed"],
)
def test_each_run_is_the_one_walked_alone(law, changes, start, options):
    counts = np.array(start, np.float32)
    runs = ssa_network_runs(law, changes, counts, 150, key=KEY, **options)
    alone = jax.vmap(lambda key: ssa_network(law, changes, counts, key=key, **options))(
        jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.arange(150))
    )
    assert same(runs, alone)
    assert runs.counts.shape == (150, len(start))


def test_worlds_run_as_they_do_alone():
    params = jax.tree.map(jnp.asarray, WORLD.instance(0, redraws=0).params)
    drive = WORLD.physical(jnp.asarray(WORLD.rest, jnp.float32))
    state = WORLD.initial(params, Noise(role_words("tests", 0, "initial"), jnp.uint32(0)))
    runs = ssa_runs(WORLD, params, state, drive, 5, key=KEY, until=1.0)
    one = ssa(WORLD, params, state, drive, key=jax.random.fold_in(KEY, 3), until=1.0)
    assert same([x[3] for x in runs], one)
    assert runs.events.min() > 0


class TestLaws:
    def test_immigration_and_death_are_poisson_at_every_reading(self):
        times = [1.0, 2.0, 40.0]
        runs = ssa_network_runs(
            immigration, BIRTH_DEATH, np.zeros(1, np.float32), 20_000, key=KEY, until=times
        )
        for column, time in zip(runs.counts[:, :, 0].T.astype(float), times, strict=True):
            mean = 10 * (1 - np.exp(-time / 2))
            assert sigmas(column, mean) < SIGMAS
            assert sigmas((column - mean) ** 2, mean) < SIGMAS
            assert sigmas(column, 1.02 * mean) > SIGMAS or time < 40  # a bias of 2 % would be seen
        assert np.all(runs.time == np.array(times, np.float32))
        assert np.all(np.diff(runs.events, axis=1) >= 0)

    def test_extinction_has_its_probability_and_stays(self):
        runs = ssa_network_runs(
            branching, BIRTH_DEATH, np.ones(1, np.float32), 20_000, key=KEY, until=[0.5, 1.0]
        )
        for k, e in enumerate(np.exp([0.5, 1.0])):
            assert sigmas((runs.counts[:, k, 0] == 0).astype(float), 2 * (e - 1) / (2 * e - 1)) < SIGMAS
        early = runs.counts[:, 0, 0] == 0
        assert np.array_equal(runs.time[early, 1], runs.time[early, 0])
        assert np.all(runs.time[early, 0] < 0.5)

    def test_an_outcome_is_kept_at_later_readings(self):
        runs = ssa_network_runs(
            immigration, BIRTH_DEATH, np.full(1, 9, np.float32), 500, key=KEY, until=[1.0, 4.0], stop=high
        )
        hit = runs.counts[:, 0, 0] == 12
        assert 0 < hit.sum() < 500
        assert same([x[hit, 1] for x in runs], [x[hit, 0] for x in runs])
        assert np.all(runs.finished)


class TestIndependence:
    def runs(self, count=300, until=(2.0, 5.0), **more):
        return ssa_network_runs(
            several, SEVERAL, np.array([20, 10, 0], np.float32), count, key=KEY, until=list(until), **more
        )

    def test_lanes_steps_and_chunks_change_no_run(self):
        """With 5 lanes a chunk is 320 runs a device."""
        usual = exact_runs(NETWORK, [0.0, 1.0, 2.0], 900)
        process, role = _Exact(NETWORK, 10_000_000), role_words("network", 0, "process", "network")
        grid = np.array([0, 1, 2], np.float32)
        values, finished = run_process(process, (), role, grid, 900, lanes=5, steps=3)
        assert np.array_equal(values, usual[:, 1:])
        assert np.all(finished)

    def test_more_runs_change_no_earlier_one(self):
        assert same([x[:7] for x in self.runs()], self.runs(count=7))

    def test_another_key_is_another_ensemble(self):
        other = ssa_network_runs(
            several, SEVERAL, np.array([20, 10, 0], np.float32), 300, key=jax.random.key(1), until=[2.0, 5.0]
        )
        assert not np.array_equal(other.events, self.runs().events)

    @pytest.mark.validation
    @pytest.mark.parametrize("devices", [1, 4])
    def test_devices_change_no_run(self, devices):
        script = (
            "import jax, sys; sys.path.insert(0, 'tests/simworlds')\n"
            f"assert len(jax.devices()) == {devices}\n"
            "from test_exact_ensemble import TestIndependence, digest\n"
            "print(digest(TestIndependence().runs(count=1000)))"
        )
        flags = f"--xla_force_host_platform_device_count={devices}"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "XLA_FLAGS": flags},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == digest(self.runs(count=1000))


def digest(runs):
    return hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in runs)).hexdigest()


@pytest.mark.parametrize("runs", [0, -1, True])
def test_runs_must_be_a_whole_number(runs):
    with pytest.raises(InvalidRequest, match="`runs` must be a whole number from 1"):
        ssa_network_runs(immigration, BIRTH_DEATH, np.zeros(1, np.float32), runs, key=KEY, until=1.0)


@pytest.mark.parametrize("until", [0.0, -1.0, [1.0, 1.0], [2.0, 1.0], [[1.0]], float("nan")])
def test_times_must_increase_from_above_0(until):
    with pytest.raises(InvalidRequest, match="`until` must be a time above 0, or times that increase"):
        ssa_network_runs(immigration, BIRTH_DEATH, np.zeros(1, np.float32), 3, key=KEY, until=until)
