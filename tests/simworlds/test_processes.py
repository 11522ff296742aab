"""Several processes: shares cover all clones, and what they measure joins to the bits of one process."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from simworlds import processes
from simworlds.catalogue import load
from simworlds.ensemble import Readout, Request, Statistics, measure, simulate, summarise
from simworlds.errors import InvalidRequest
from simworlds.processes import gather, share
from simworlds.protocol import Protocol, Segment

ROOT = Path(__file__).parents[2]

WORKER = """
import sys
root, port, count, index, name, clones, functions, out = sys.argv[1:]
sys.path.insert(0, root)
import jax
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=int(count), process_id=int(index))
import numpy as np
from simworlds.processes import gather, share
from tests.simworlds.test_processes import place, results
clones = int(clones)
first, number = share(clones)
whole = [gather(part, clones) for part in results(name, number, functions, first)]
np.savez(out, place=place(), **{f"{k}-{n}": a for k, part in enumerate(whole) for n, a in enumerate(part)})
"""


def place():
    """How many processes and devices there are, and how many devices are this process's own."""
    return jax.process_count(), jax.device_count(), jax.local_device_count()


FUNCTIONS = {"measure": measure, "summarise": summarise, "simulate": simulate}


def results(name, clones, functions, first=0):
    """What some functions give of two requests on some clones of a world."""
    instance = load(name).instance(0, redraws=0)
    requests = [
        Request(Protocol((Segment(n, {"u1": 0.6}),)), ("processes", n), Readout(k, 1, n, sd=k == 1))
        for k, n in enumerate((5, 8))
    ]
    return [FUNCTIONS[one](instance, requests, clones, first=first) for one in functions.split(",")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def gathered_by(count, devices, name, clones, functions, folder):
    """What each of some processes on this host has after gathering: arrays by name."""
    kept = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    flags = " ".join([*kept, f"--xla_force_host_platform_device_count={devices}"])
    port = free_port()
    started = []
    for index in range(count):
        arguments = (ROOT, port, count, index, name, clones, functions, folder / f"{index}.npz")
        command = [sys.executable, "-c", WORKER, *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen(command, env=os.environ | {"XLA_FLAGS": flags}, **pipes))
    try:
        said = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * count, "\n".join(said)
    return [dict(np.load(folder / f"{index}.npz")) for index in range(count)]


def check_processes(count, devices, name, clones, functions, folder):
    found = gathered_by(count, devices, name, clones, functions, folder)
    alone = results(name, clones, functions)
    expected = {f"{k}-{n}": array for k, part in enumerate(alone) for n, array in enumerate(part)}
    for arrays in found:
        assert tuple(arrays.pop("place")) == (count, count * devices, devices)
        assert arrays.keys() == expected.keys()
        for key, array in expected.items():
            assert arrays[key].dtype == array.dtype
            np.testing.assert_array_equal(arrays[key], array)
    assert len(np.unique(alone[0].values)) > 1.9 * clones, "clones must differ for the comparison to hold"


def test_two_processes_give_the_bits_of_one(tmp_path):
    check_processes(2, 1, "C2", 7, "measure", tmp_path)


@pytest.mark.validation
@pytest.mark.parametrize("name", ["B2", "A4"])
@pytest.mark.parametrize(("count", "devices"), [(2, 2), (3, 1)])
def test_any_processes_and_devices_give_the_bits_of_one(count, devices, name, tmp_path):
    check_processes(count, devices, name, 700, ",".join(FUNCTIONS), tmp_path)


# Shares, without other processes


@pytest.fixture
def as_one_of(monkeypatch):
    """Lets this process believe that it is one of several."""

    def pretend(index, count):
        monkeypatch.setattr(jax, "process_index", lambda: index)
        monkeypatch.setattr(jax, "process_count", lambda: count)

    return pretend


@pytest.mark.parametrize(("clones", "count"), [(1, 1), (2, 2), (7, 2), (7, 3), (1000, 7), (10**6, 16)])
def test_shares_follow_each_other_and_are_alike(as_one_of, clones, count):
    end, sizes = 0, []
    for index in range(count):
        as_one_of(index, count)
        first, number = share(clones)
        assert first == end
        end = first + number
        sizes.append(number)
    assert end == clones
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@pytest.mark.parametrize("clones", [0, 2, -1, True, 3.0])
def test_a_process_without_a_clone_is_refused(as_one_of, clones):
    as_one_of(0, 3)
    with pytest.raises(InvalidRequest, match="whole number of at least 3, one a process, but is"):
        share.__wrapped__(clones)


class Part(NamedTuple):
    """Arrays of several types, as results have them."""

    values: np.ndarray
    branch: np.ndarray
    wide: np.ndarray


def part(clones, first):
    at = np.arange(first, first + clones)
    values = (np.sqrt(at)[None, :, None] * np.ones((3, 1, 2))).astype(np.float32)
    values[0, 0] = np.nan
    return Part(values, np.stack([at, at + 1]).astype(np.int32), np.stack([at / 7]))


def test_gathering_joins_shares_of_unlike_sizes(as_one_of, monkeypatch):
    """Three processes in turn: the first two leave their bytes, the last one joins all of them."""
    clones, sent = 7, []
    for index in range(3):
        as_one_of(index, 3)
        first, count = share(clones)
        posted = []
        earlier = [iter(bytes_of) for bytes_of in sent]

        def allgather(mine, posted=posted, earlier=earlier):
            posted.append(mine)
            rows = [next(bytes_of) for bytes_of in earlier] + [mine]
            return np.stack(rows + [np.zeros_like(mine)] * (3 - len(rows)))

        monkeypatch.setattr(processes.multihost_utils, "process_allgather", allgather)
        whole = gather(part(count, first), clones)
        sent.append(posted)
    expected = part(clones, 0)
    assert type(whole) is Part
    for name in ("branch", "wide"):
        assert getattr(whole, name).dtype == getattr(expected, name).dtype
        np.testing.assert_array_equal(getattr(whole, name), getattr(expected, name))
    starts = [0, 2, 4]
    assert np.isnan(whole.values[0, starts]).all()
    np.testing.assert_array_equal(whole.values[1:, 1:], expected.values[1:, 1:])


def test_one_process_gathers_what_it_has():
    statistics = Statistics(np.zeros((2, 5), np.float32), np.zeros((2, 5), np.int32))
    assert gather(statistics, 5) is statistics
    assert share(5) == (0, 5)


def test_a_part_of_another_size_is_refused_before_anything_is_sent():
    statistics = Statistics(np.zeros((2, 4), np.float32), np.zeros((2, 4), np.int32))
    with pytest.raises(InvalidRequest, match=r"this process's 5 of 5 clones along its second axis.*\(2, 4\)"):
        gather(statistics, 5)
