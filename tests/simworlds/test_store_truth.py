"""The store serves whole entries or none; truth ensembles and ranges are what the definitions say."""

import dataclasses
import inspect
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simworlds import truth
from simworlds.catalogue import load
from simworlds.contracts import contracts_of, grammar_protocol
from simworlds.ensemble import Request, Statistics, measure, simulate
from simworlds.errors import InvalidRequest
from simworlds.keys import Draws
from simworlds.store import (
    Store,
    canonical_json,
    default_home,
    environment,
    package_version,
    write_atomically,
)
from simworlds.truth import calibrate, ensemble_of, truth_of

ADDRESS = {"kind": "test", "seed": 3, "list": [1, 2.5, None], "nested": {"b": "x", "a": True}}
ARRAYS = {"values": np.arange(12, dtype=np.float32).reshape(3, 4), "branch": np.array([1, 2], np.int32)}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


class Counted:
    """A computation that counts how often it is made."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return ARRAYS


def check_arrays(found):
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


# Entries


def test_an_entry_is_computed_once_and_comes_back_whole(store):
    compute = Counted()
    assert store.get(ADDRESS) is None
    check_arrays(store.fetch(ADDRESS, compute))
    check_arrays(store.fetch(ADDRESS, compute))
    check_arrays(Store(store.folder).get(ADDRESS))
    assert compute.calls == 1


def test_equal_addresses_are_one_entry_and_others_are_not(store):
    reordered = {"nested": {"a": True, "b": "x"}, "list": (1, 2.5, None), "seed": 3, "kind": "test"}
    assert store.path(reordered) == store.path(ADDRESS)
    store.put(ADDRESS, ARRAYS)
    check_arrays(store.get(reordered))
    others = [ADDRESS | change for change in ({"seed": 4}, {"seed": "3"}, {"list": [1, 2.5]}, {"more": None})]
    assert len({store.path(address) for address in (ADDRESS, *others)}) == 5
    assert [store.get(address) for address in others] == [None] * 4


def test_an_entry_holds_any_shape(store):
    arrays = {
        "scalar": np.array(2.0),
        "empty": np.empty((0, 3)),
        "flags": np.array([True]),
        "text": np.array(["ä"]),
    }
    store.put(ADDRESS, arrays)
    found = store.get(ADDRESS)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_same_entry_has_the_same_bytes(tmp_path):
    paths = []
    for name in ("one", "two"):
        store = Store(tmp_path / name)
        store.put(ADDRESS, ARRAYS)
        paths.append(store.path(ADDRESS))
    for suffix in (".npz", ".json"):
        one, two = (path.with_suffix(suffix).read_bytes() for path in paths)
        assert one == two


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def rewrite(path, **changes):
    manifest = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps(manifest))


DAMAGES = {
    "arrays missing": lambda npz, manifest: npz.unlink(),
    "arrays empty": lambda npz, manifest: npz.write_bytes(b""),
    "arrays cut": lambda npz, manifest: npz.write_bytes(npz.read_bytes()[:-7]),
    "arrays longer": lambda npz, manifest: npz.write_bytes(npz.read_bytes() + b"\0"),
    "first bit": lambda npz, manifest: flip(npz, 0),
    "middle bit": lambda npz, manifest: flip(npz, npz.stat().st_size // 2),
    "last bit": lambda npz, manifest: flip(npz, -1),
    "arrays of another entry": lambda npz, manifest: npz.write_bytes(b"PK\x05\x06" + bytes(18)),
    "manifest missing": lambda npz, manifest: manifest.unlink(),
    "manifest empty": lambda npz, manifest: manifest.write_bytes(b""),
    "manifest cut": lambda npz, manifest: manifest.write_bytes(manifest.read_bytes()[:-9]),
    "manifest no text": lambda npz, manifest: manifest.write_bytes(b"\xff\xfe\x00"),
    "manifest a list": lambda npz, manifest: manifest.write_text("[1]"),
    "manifest null": lambda npz, manifest: manifest.write_text("null"),
    "manifest nested": lambda npz, manifest: manifest.write_text("[" * 100_000),
    "manifest without digest": lambda npz, manifest: manifest.write_text(json.dumps({"address": ADDRESS})),
    "wrong digest": lambda npz, manifest: rewrite(manifest, sha256="0" * 64),
    "wrong address": lambda npz, manifest: rewrite(manifest, address=ADDRESS | {"seed": 4}),
    "address missing": lambda npz, manifest: manifest.write_text(
        json.dumps({"sha256": json.loads(manifest.read_bytes())["sha256"]})
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_computed_again(store, damage):
    store.put(ADDRESS, ARRAYS)
    path = store.path(ADDRESS)
    damage(path, path.with_suffix(".json"))
    assert store.get(ADDRESS) is None
    compute = Counted()
    check_arrays(store.fetch(ADDRESS, compute))
    check_arrays(store.fetch(ADDRESS, compute))
    assert compute.calls == 1


def test_a_failed_computation_leaves_nothing(store):
    def fail():
        raise RuntimeError("no result")

    with pytest.raises(RuntimeError, match="no result"):
        store.fetch(ADDRESS, fail)
    assert store.get(ADDRESS) is None
    assert not store.folder.exists()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_address_that_is_no_number_is_refused(store, value):
    for function in (store.path, store.get, lambda address: store.put(address, ARRAYS)):
        with pytest.raises(ValueError, match="not JSON compliant"):
            function({"scale": [value]})
    assert not store.folder.exists()


@pytest.mark.parametrize(
    "value", [np.arange(2), {1, 2}, object(), b"x"], ids=["array", "set", "object", "bytes"]
)
def test_an_address_is_plain_data(store, value):
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.path({"value": value})


# Writing


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "deep" / "er" / "file.bin"
    for data in (b"first", b"", b"second, longer"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path, monkeypatch):
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    # Permissions do not bind root; a path below a regular file binds everybody.
    (tmp_path / "file").write_text("no folder")
    store = Store(tmp_path / "file" / "store")
    assert store.get(ADDRESS) is None
    compute = Counted()
    with pytest.raises(OSError, match="file"):
        store.fetch(ADDRESS, compute)
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file" / "x", b"")
    assert (tmp_path / "file").read_text() == "no folder"


WRITER = """
import sys
import numpy as np
from simworlds.store import Store
store, number = Store(sys.argv[1]), int(sys.argv[2])
for k in range(60):
    store.put({"kind": "shared"}, {"values": np.full(1000 + 700 * number, number)})
"""


def test_two_writers_never_show_half_an_entry(store):
    root = str(Path(truth.__file__).parents[1])
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.folder), str(number)], cwd=root)
        for number in (1, 2)
    ]
    seen = []
    while any(writer.poll() is None for writer in writers):
        found = store.get({"kind": "shared"})
        seen.append(None if found is None else (len(found["values"]), *np.unique(found["values"])))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert set(seen) <= {None, (1700, 1), (2400, 2)}
    assert not list(store.folder.rglob("*.part"))
    store.put({"kind": "shared"}, {"values": np.zeros(1)})
    assert store.get({"kind": "shared"})["values"].tolist() == [0]


def test_the_home_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SIMWORLDS_HOME", str(tmp_path))
    assert default_home() == tmp_path
    assert Store().folder == tmp_path / "store"
    monkeypatch.delenv("SIMWORLDS_HOME")
    assert default_home().name == "simworlds"


def test_the_environment_is_part_of_an_address():
    assert environment()["dtype"] == "float32"
    assert environment(np.float64)["dtype"] == "float64"
    assert environment()["backend"] == "cpu"
    assert environment()["version"] == package_version()
    assert canonical_json(environment())


# Truth


@pytest.fixture(scope="module")
def clock():
    instance = load("C2").instance(0, redraws=0)
    return instance, contracts_of(instance)


@pytest.fixture(scope="module")
def contest():
    instance = load("B2").instance(0, redraws=0)
    return instance, contracts_of(instance)


def test_more_clones_leave_the_first_eight_unchanged(clock):
    few, many = (truth_of(*clock, clones) for clones in (8, 64))
    np.testing.assert_array_equal(many.draws[:, :8], few.draws)
    np.testing.assert_array_equal(many.branch[:, :8], few.branch)
    assert many.draws.shape == (8, 64)
    assert few.draws.dtype == np.float64
    np.testing.assert_array_equal(many.dynamic_range, few.dynamic_range)


def test_a_warm_truth_is_the_cold_one(clock, tmp_path):
    cold, warm = (truth_of(*clock, store=Store(tmp_path)) for _ in range(2))
    for one, other in zip(cold, warm, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_damaged_truth_is_never_served(clock, tmp_path):
    cold = truth_of(*clock, store=Store(tmp_path))
    damaged = sorted(tmp_path.rglob("*.npz"))
    assert len(damaged) == 2  # the draws and the ranges
    for path in damaged:
        flip(path, path.stat().st_size // 2)
    again = truth_of(*clock, store=Store(tmp_path))
    for one, other in zip(cold, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_truth_is_of_noisy_readings_under_the_truth_s_own_purpose(clock):
    instance, contracts = clock
    draws = truth_of(instance, contracts).draws
    for contract, row in zip(contracts, draws, strict=True):
        readings = simulate(instance, [Request(contract.protocol, ("truth", contract.id))], 8).values[0]
        window = readings[:, slice(*contract.window), int(contract.port[1:])].astype(np.float64)
        expected = window.std(1) if contract.statistic == "sd" else window.mean(1)
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5 * np.abs(window).max())


def test_one_contract_alone_has_the_draws_that_it_has_among_eight(contest):
    instance, contracts = contest
    whole, alone = truth_of(instance, contracts), truth_of(instance, contracts[5:6])
    np.testing.assert_array_equal(alone.draws[0], whole.draws[5])
    np.testing.assert_array_equal(alone.branch[0], whole.branch[5])


def test_another_role_has_other_clones(contest):
    instance, contracts = contest
    ensembles = [
        ensemble_of(instance, contracts, 8, role).values
        for role in ("truth", "replication", "ensemble_replication")
    ]
    for k in range(3):
        assert not (ensembles[k] == ensembles[k - 1]).any()


@pytest.mark.parametrize("clones", [3, 0, -8, 8.0, "8", None, True])
def test_truth_needs_four_clones(clock, clones):
    with pytest.raises(
        InvalidRequest, match="truth needs a whole number of at least 4 clones, but `clones` is"
    ):
        inspect.unwrap(truth_of)(*clock, clones)


def test_truth_takes_four_clones_and_numpy_s_numbers(clock):
    assert truth_of(*clock, 4).draws.shape == (8, 4)
    found = inspect.unwrap(truth_of)(*clock, np.int64(8))
    np.testing.assert_array_equal(found.draws, truth_of(*clock, 8).draws)


def test_fractions_are_the_family_s(clock):
    instance, contracts = clock
    expected = [{"mean": 0.03, "sd": 0.015}[contract.statistic] for contract in contracts]
    np.testing.assert_array_equal(truth_of(instance, contracts).fraction, expected)


def pooled_sd(draws, branch):
    """Within-branch spread by its definition: squared deviations over clones less branches."""
    labels = np.unique(branch)
    square = sum(((draws[branch == k] - draws[branch == k].mean()) ** 2).sum() for k in labels)
    return math.sqrt(square / (len(draws) - len(labels)))


def test_tau_and_freedom_come_from_the_draws_where_they_suffice(contest):
    ensemble = truth_of(*contest, 8)
    assert len(np.unique(ensemble.branch)) > 1
    for k, branch in enumerate(ensemble.branch):
        assert ensemble.freedom[k] == 8 - len(np.unique(branch)) >= 3
        assert ensemble.tau[k] == pytest.approx(pooled_sd(ensemble.draws[k], branch), rel=1e-12)


def test_tau_is_topped_up_where_branches_leave_few_degrees_of_freedom(contest):
    few, many = truth_of(*contest, 4), truth_of(*contest, 64)
    thin = np.array([len(np.unique(branch)) > 1 for branch in few.branch])
    assert thin.any()
    assert not thin.all()
    np.testing.assert_array_equal(few.draws, many.draws[:, :4])
    np.testing.assert_array_equal(few.tau[thin], many.tau[thin])
    np.testing.assert_array_equal(few.freedom[thin], many.freedom[thin])
    np.testing.assert_array_equal(few.freedom[~thin], 3)
    assert (few.tau[~thin] != many.tau[~thin]).all()


def test_tau_is_topped_up_when_every_draw_is_a_branch_of_its_own(clock, monkeypatch, tmp_path):
    """Where no clone shares its branch, the spread within branches is 0: it must not reach the scale."""

    def scattered(instance, requests, clones, progress=None):
        values = measure(instance, requests, clones).values
        return Statistics(values, np.broadcast_to(np.arange(clones, dtype=np.int32) % 6, values.shape))

    monkeypatch.setattr(truth, "measure", scattered)
    ensemble = truth_of(*clock, 8, Store(tmp_path))
    assert set(ensemble.freedom) == {64 - 6}
    assert (ensemble.tau > 0).all()


# Ranges


def test_the_range_is_that_of_noise_free_calibration_readings(clock):
    instance = clock[0]
    requests = [
        Request(
            grammar_protocol(instance, Draws.for_role("C2", 0, "calibration", "protocol", k)),
            ("calibration", k),
        )
        for k in range(64)
    ]
    values = simulate(instance, requests, 4, noise=False).values.reshape(-1, 4).astype(np.float64)
    values = values[~np.isnan(values[:, 0])]
    low, high = np.quantile(values, [0.01, 0.99], axis=0, method="inverted_cdf")
    found = calibrate(instance)
    np.testing.assert_array_equal(found.dynamic_range, np.maximum(high - low, 10.0 * instance.gauge.sigma))
    assert found.lively.all()


def test_a_range_below_ten_sigma_is_raised_to_it(clock, tmp_path):
    instance = clock[0]
    sigma = np.array([1e-6, 5.0, 1e-6, 1e3], np.float32)
    loud = dataclasses.replace(instance, gauge=instance.gauge._replace(sigma=sigma))
    found, store = calibrate(instance), Store(tmp_path)
    raised = calibrate(loud, store)
    assert raised.lively.tolist() == [True, False, True, False]
    np.testing.assert_allclose(
        raised.dynamic_range, [found.dynamic_range[0], 50, found.dynamic_range[2], 1e4]
    )


def test_an_altered_instance_has_entries_of_its_own(clock, tmp_path):
    """The store holds what an instance gave; an instance with other ports or parameters must not get it."""
    instance, contracts = clock
    store = Store(tmp_path)
    slower = dataclasses.replace(instance, params=instance.params._replace(q=np.float32(0.05)))
    altered = {"canonical": instance.canonical(), "parameters": slower}
    ranges, draws = calibrate(instance, store), truth_of(instance, contracts, store=store).draws
    for name, other in altered.items():
        apart = Store(tmp_path / name)
        np.testing.assert_array_equal(calibrate(other, store), calibrate(other, apart), err_msg=name)
        assert not np.array_equal(calibrate(other, store).dynamic_range, ranges.dynamic_range)
        found = truth_of(other, contracts, store=store).draws
        np.testing.assert_array_equal(found, truth_of(other, contracts, store=apart).draws, err_msg=name)
        assert not np.array_equal(found, draws)


def test_progress_is_reported_when_something_is_computed(clock, tmp_path):
    steps, store = [], Store(tmp_path)
    calibrate(clock[0], store, steps.append)
    assert sum(steps) == 256
    calibrate(clock[0], store, steps.append)
    assert sum(steps) == 256
