"""Lanes of several instances, ranges of clones, all sensors at once: each equals the plain call."""

import jax
import numpy as np
import pytest

from simworlds import lanes
from simworlds.catalogue import load
from simworlds.ensemble import Readout, Request, measure, measure_each, simulate, summarise
from simworlds.errors import InvalidRequest
from simworlds.protocol import Protocol, Segment


def request_of(ticks, port=0, *, sd=False, purpose=("lanes",)):
    window = Readout(port, ticks // 3, ticks, sd=sd)
    return Request(
        Protocol((Segment(ticks // 2, {"u0": 0.7}), Segment(ticks - ticks // 2, {}))), purpose, window
    )


@pytest.fixture(scope="module")
def contests():
    return [load("B2").instance(seed, redraws=0) for seed in range(5)]


def same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("clones", [1, 3, 131])
def test_instances_at_once_give_what_each_gives_alone(contests, clones):
    asked = [[request_of(9), request_of(14, 1, sd=True)][: 1 + k % 2] for k in range(5)]
    asked[3] = []
    together = measure_each(contests, asked, clones)
    for instance, requests, found in zip(contests, asked, together, strict=True):
        assert found.values.shape == (len(requests), clones)
        same(measure(instance, requests, clones), found)
    assert len(np.unique(np.concatenate([found.values.ravel() for found in together]))) > 3 * clones


def test_more_instances_than_devices_leave_no_lane_out(contests):
    counted = []
    measure_each(contests, [[request_of(9)]] * 5, 3, progress=counted.append)
    assert sum(counted) == 15
    devices = len(jax.local_devices())
    assert len(counted) == -(-5 // devices)


@pytest.mark.parametrize("first", [1, 100, 255, 2**32 - 4])
def test_a_range_of_clones_is_a_part_of_the_whole(contests, first):
    requests = [request_of(9), request_of(14, 1, sd=True)]
    part = measure(contests[0], requests, 4, first=first)
    if first < 1000:
        whole = measure(contests[0], requests, first + 4)
        same([column[:, first:] for column in whole], part)
    single = [measure(contests[0], requests, 1, first=first + k) for k in range(4)]
    same([np.concatenate([one[k] for one in single], axis=1) for k in range(2)], part)
    readings = simulate(contests[0], requests, 4, first=first)
    again = simulate(contests[0], requests, 2, first=first + 2)
    same([column[:, 2:] for column in readings], again)


def test_a_summary_holds_every_statistic_that_could_be_asked(contests):
    instance = contests[1]
    windows = [request_of(9), request_of(14)]
    found = summarise(instance, windows, 7)
    assert found.mean.shape == found.sd.shape == (2, 7, len(instance.sensor_ports))
    for port in range(len(instance.sensor_ports)):
        for sd, column in ((False, found.mean), (True, found.sd)):
            asked = [request_of(9, port, sd=sd), request_of(14, port, sd=sd)]
            values, branch = measure(instance, asked, 7)
            same((values, branch), (column[..., port], found.branch))


def test_contracts_are_asked_as_they_are(contests):
    instance = contests[2].canonical()
    request = request_of(12, 2)

    class Question:
        def request(self, role):
            assert role == "truth"
            return request

    same(measure(instance, [Question()], 3), measure(instance, [request], 3))


@pytest.mark.parametrize("first", [-1, 2**32 - 3, True])
def test_clones_beyond_the_numbers_are_refused(contests, first):
    with pytest.raises(InvalidRequest, match="`first` must be a whole number from 0 to 2\\^32 less `clones`"):
        measure(contests[0], [request_of(9)], 4, first=first)


def test_instances_of_two_families_are_refused(contests):
    other = load("C2").instance(0, redraws=0)
    with pytest.raises(InvalidRequest, match="must be of one family"):
        measure_each([contests[0], other], [[request_of(9)]] * 2, 3)
    with pytest.raises(InvalidRequest, match="hold requests for each"):
        measure_each(contests, [[request_of(9)]], 3)
    with pytest.raises(InvalidRequest, match="need a readout"):
        summarise(contests[0], [Request(Protocol((Segment(9, {}),)), ("none",))], 3)


@pytest.mark.parametrize("dtype", [None, "abc", np.int32, np.float16, np.complex64, 3])
def test_a_simulation_runs_in_single_or_double_precision(contests, dtype):
    for function in (measure, summarise, simulate):
        with pytest.raises(InvalidRequest, match="`dtype` must be float32 or float64, but is"):
            function(contests[0], [request_of(9)], 2, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.dtype(np.float64), "float64"])
def test_double_precision_is_never_single_in_disguise(contests, dtype):
    with pytest.raises(InvalidRequest, match="call within `with jax.enable_x64"):
        measure(contests[0], [request_of(9)], 2, dtype=dtype)


def test_single_precision_may_be_named_in_three_ways(contests):
    whole = measure(contests[0], [request_of(9)], 2)
    for dtype in (np.dtype(np.float32), "float32"):
        same(measure(contests[0], [request_of(9)], 2, dtype=dtype), whole)


@pytest.mark.parametrize("readout", [(0.5, 0, 9), (0, 1.5, 9), (0, 0, 8.0), (True, 0, 9)])
def test_a_readout_is_of_whole_numbers(contests, readout):
    request = Request(Protocol((Segment(9, {}),)), ("whole",), Readout(*readout, sd=False))
    with pytest.raises(InvalidRequest, match="a readout's port and window are whole numbers, but are"):
        measure(contests[0], [request], 2)


def test_nothing_asked_is_answered_with_nothing(contests):
    assert measure(contests[0], [], 3).values.shape == (0, 3)
    assert summarise(contests[0], [], 3).mean.shape == (0, 3, 5)
    assert measure_each([], [], 3) == []


def test_instances_share_one_program(contests):
    measure(contests[0], [request_of(9)], 1)
    programs = lanes.run_round._cache_size()
    measure_each(contests, [[request_of(9 + k)] for k in range(5)], 2)
    summarise(contests[4], [request_of(30)], 200, first=17, noise=False)
    assert lanes.run_round._cache_size() == programs


def test_an_accelerator_takes_wider_chunks(monkeypatch):
    world = load("B2")
    assert lanes.width_of(world) == world.lanes
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert lanes.width_of(world) > world.lanes
