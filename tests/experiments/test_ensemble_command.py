"""Bulk generation: what a user reads back, what survives a kill, what is refused."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pyarrow.dataset
import pyarrow.parquet
import pytest
import zarr
from rich.console import Console

import experiments
from experiments import bulk, bulk_folder
from experiments.bulk_files import need, statistics_file
from experiments.ensemble_command import _Meter
from experiments.inputs import UsageError, parse_bulk_clones, parse_window
from experiments.progress import progress_bar
from simworlds import load, store
from simworlds.contracts import contracts_of
from simworlds.ensemble import Request, measure, simulate
from simworlds.errors import Diverged
from simworlds.protocol import Segment

ROOT = Path(experiments.__file__).parents[1]
SEGMENTS = [{"ticks": 6, "set": {"u0": 0.75}}, {"ticks": 10}]
DRAWN = ("--as-drawn",)  # no examination, which takes long and has tests of its own


@pytest.fixture
def generate(cli, tmp_path):
    """Run `simworlds ensemble D4` with a protocol; returns (status, summary, standard error)."""
    (tmp_path / "p.json").write_text(json.dumps(SEGMENTS))

    def call(*arguments, worlds="D4", protocol="p.json"):
        asked = ["--protocol", protocol] if protocol else []
        status, out, err = cli("ensemble", worlds, *asked, *DRAWN, *arguments, "--json")
        return status, json.loads(out) if out else None, err

    return call


@pytest.fixture
def refused(generate):
    """Run it; it must fail with status 2 and one line, which is returned."""

    def call(*arguments, **more):
        status, summary, err = generate(*arguments, **more)
        assert (status, summary) == (2, None), err
        lines = [line for line in err.splitlines() if not line.startswith("done: ")]
        assert len(lines) == 1, err
        assert lines[0].startswith("simworlds")
        assert "error: " in lines[0]
        return lines[0]

    return call


def files(folder):
    """The bytes of every file by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def rows(folder):
    """The statistics as a user reads them, sorted."""
    data = pyarrow.dataset.dataset(str(Path(folder) / "statistics"), partitioning="hive")
    table = data.to_table()
    return table.sort_by([(name, "ascending") for name in ("world", "seed", "protocol", "clone", "port")])


def column(table, name):
    return np.array(table[name].to_pylist())


def request(segments=SEGMENTS, world="D4"):
    instance = load(world).instance(0, redraws=0)
    protocol = instance.protocol(segments)
    return instance, Request(protocol, ("ensemble", bulk.protocol_digest(protocol)))


# What is written


class TestStatistics:
    def test_are_those_of_the_readings_in_the_window(self, generate, tmp_path):
        assert generate("--clones", 5, "--window", "3:13", "--out", "a")[0] == 0
        table = rows("a")
        assert table.column_names == ["protocol", "clone", "port", "mean", "sd", "branch", "world", "seed"]
        instance, asked = request()
        window = simulate(instance, [asked], 5).values[0, :, 3:13]
        shape = (5, len(instance.sensor_ports))
        np.testing.assert_allclose(column(table, "mean").reshape(shape), window.mean(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(column(table, "sd").reshape(shape), window.std(1), rtol=1e-3, atol=1e-5)
        assert column(table, "clone").reshape(shape)[:, 0].tolist() == [0, 1, 2, 3, 4]
        assert column(table, "port").reshape(shape)[0].tolist() == list(instance.sensor_ports)
        assert set(table["branch"].to_pylist()) == {"only"}
        assert set(table["world"].to_pylist()) == {"D4"}
        assert set(table["seed"].to_pylist()) == {0}

    def test_are_of_the_last_half_of_a_protocol_unless_told(self, generate):
        generate("--clones", 3, "--out", "a")
        generate("--clones", 3, "--window", "8:16", "--out", "b")
        assert rows("a") == rows("b")
        assert json.loads(Path("a/manifest.json").read_text())["protocols"][0]["window"] == [8, 16]

    def test_a_file_says_what_it_is(self, generate):
        generate("--clones", 3, "--no-noise", "--out", "a")
        schema = pyarrow.parquet.read_schema("a/statistics/world=D4/seed=0/part-00000.parquet")
        about = json.loads(schema.metadata[b"simworlds"])
        instance, asked = request()
        assert (about["world"], about["seed"], about["noise"]) == ("D4", 0, False)
        assert about["sensors"] == list(instance.sensor_ports)
        assert about["protocols"][0]["protocol"] == asked.protocol.to_json()
        assert about["version"] == store.package_version()

    def test_without_noise_differ(self, generate):
        generate("--clones", 3, "--out", "a")
        generate("--clones", 3, "--no-noise", "--out", "b")
        assert (column(rows("a"), "mean") != column(rows("b"), "mean")).all()

    def test_of_contracts_are_what_they_ask_and_on_the_clones_of_the_truth(self, generate):
        assert generate("--clones", 3, "--out", "a", protocol=None)[0] == 0
        instance, table = load("D4").instance(0, redraws=0), rows("a")
        contracts = contracts_of(instance)
        expected = measure(instance, contracts, 3).values
        for contract, values in zip(contracts, expected, strict=True):
            mine = table.filter(
                (pyarrow.compute.field("protocol") == contract.id)
                & (pyarrow.compute.field("asked") == contract.statistic)
            )
            assert mine["port"].to_pylist() == [contract.port] * 3
            np.testing.assert_array_equal(mine[contract.statistic].to_numpy(), values)
        assert table["asked"].null_count == len(table) - 8 * 3

    def test_name_the_branches(self):
        summary = SimpleNamespace(
            mean=np.zeros((1, 2, 2), np.float32),
            sd=np.ones((1, 2, 2), np.float32),
            branch=np.array([[1, 0]], np.int32),
        )
        data = statistics_file(
            summary, 7, ports=("y0", "y1"), branches=("open", "closed"), asked=[("y1", "sd")], about={}
        )
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(data))
        assert table["branch"].to_pylist() == ["closed", "closed", "open", "open"]
        assert table["clone"].to_pylist() == [7, 7, 8, 8]
        assert table["asked"].to_pylist() == [None, "sd", None, "sd"]


class TestAddresses:
    def test_a_clone_is_the_same_in_a_run_of_10_and_of_1000(self, generate):
        generate("--clones", 10, "--out", "few")
        generate("--clones", 1000, "--chunk", 300, "--out", "many")
        few, many = rows("few"), rows("many")
        assert many.slice(0, len(few)) == few

    def test_a_run_that_begins_later_has_the_later_clones(self, generate):
        generate("--clones", 10, "--out", "all")
        generate("--clones", 4, "--first", 6, "--chunk", 3, "--out", "last")
        whole, last = rows("all"), rows("last")
        assert whole.slice(len(whole) - len(last)) == last

    def test_the_last_clone_that_has_a_number_can_be_run(self, generate):
        assert generate("--clones", 2, "--first", 2**32 - 2, "--out", "a")[0] == 0
        assert set(rows("a")["clone"].to_pylist()) == {2**32 - 2, 2**32 - 1}

    def test_a_further_protocol_changes_nothing_for_the_first(self, generate, tmp_path):
        (tmp_path / "q.json").write_text(json.dumps([{"ticks": 12}]))
        generate("--clones", 4, "--out", "one")
        generate("--protocol", "q.json", "--clones", 4, "--out", "two")
        generate("--protocol", "p.json", "--clones", 4, "--out", "turned", protocol="q.json")
        one, two, turned = rows("one"), rows("two"), rows("turned")
        assert two.slice(0, len(one)) == one
        assert column(turned, "mean")[-len(one) :].tolist() == column(one, "mean").tolist()
        assert set(column(two, "mean")) & set(column(one, "mean")) == set(column(one, "mean"))


class TestReadings:
    def test_are_those_of_simulate(self, generate):
        status, _, err = generate("--readings", "--clones", 5, "--chunk", 2, "--first", 3, "--out", "a")
        assert status == 0, err
        instance, asked = request()
        expected = simulate(instance, [asked], 5, first=3)
        group = zarr.open_group("a/readings.zarr", mode="r")["world=D4/seed=0/protocol=0"]
        readings = group["readings"]
        assert readings.metadata.dimension_names == ("clone", "tick", "sensor")
        assert readings.chunks == (2, 16, len(instance.sensor_ports))
        np.testing.assert_array_equal(readings[:], expected.values[0])
        np.testing.assert_array_equal(group["branch"][:], expected.branch[0])
        assert group.attrs["first"] == 3
        assert group.attrs["protocols"][0]["digest"] == asked.purpose[1]

    def test_are_found_from_the_root(self, generate):
        generate("--readings", "--clones", 2, "--seed", "0,1", "--out", "a")
        root = json.loads(Path("a/readings.zarr/zarr.json").read_text())
        names = [name for name, _ in zarr.open_group("a/readings.zarr", mode="r").members(max_depth=None)]
        assert set(root["consolidated_metadata"]["metadata"]) == set(names)
        assert "world=D4/seed=1/protocol=0/readings" in names
        plain = zarr.open_group("a/readings.zarr", mode="r", use_consolidated=False)
        assert {name for name, _ in plain.members(max_depth=None)} == set(names)

    def test_of_protocols_of_unlike_length_have_no_padding(self, generate, tmp_path):
        (tmp_path / "q.json").write_text(json.dumps([{"ticks": 1}]))
        generate("--protocol", "q.json", "--readings", "--clones", 2, "--out", "a")
        group = zarr.open_group("a/readings.zarr", mode="r")["world=D4/seed=0"]
        assert [group[f"protocol={k}/readings"].shape[1] for k in (0, 1)] == [16, 1]
        assert np.isfinite(group["protocol=1/readings"][:]).all()
        assert "window" not in json.loads(Path("a/manifest.json").read_text())["protocols"][0]


# What goes on


SIX = ("--clones", 6, "--chunk", 1)

# It stops for good with the third chunk's file half on the disk, and says so by a file.
HALTING = """
import os, sys, threading
from pathlib import Path
from experiments.cli import main
sync, calls = os.fsync, []
def halt(handle):
    calls.append(handle)
    if len(calls) == 6:
        os.ftruncate(handle, 100)
        Path("halted").touch()
        threading.Event().wait()
    sync(handle)
os.fsync = halt
main(sys.argv[1:])
"""


class TestResuming:
    def test_after_a_kill_leaves_the_bytes_of_an_uninterrupted_run(self, generate, tmp_path):
        generate(*SIX, "--out", "whole")
        arguments = ["ensemble", "D4", "--protocol", "p.json", *map(str, (*DRAWN, *SIX)), "--out", "killed"]
        process = subprocess.Popen(
            [sys.executable, "-c", HALTING, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while not (tmp_path / "halted").exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err.decode()
        assert [len(data) for name, data in files("killed").items() if name.startswith(".incoming")] == [100]
        before = {path: path.stat().st_mtime_ns for path in Path("killed").glob("[!.]*/*/*/part-*")}
        assert len(before) == 4
        assert rows("killed") == rows("whole").slice(0, 2 * len(rows("whole")) // 6)

        status, summary, err = generate(*SIX, "--out", "killed")
        assert status == 0, err
        assert (summary["kept"], summary["written"], summary["damaged"]) == (2, 4, [])
        assert {path: path.stat().st_mtime_ns for path in before} == before
        assert files("killed") == files("whole")

    def test_a_chunk_whose_entry_is_missing_is_not_counted_as_done(self, generate):
        generate(*SIX, "--out", "a")
        before = files("a")
        Path("a/finished/world=D4/seed=0/part-00004.json").unlink()
        summary = generate(*SIX, "--out", "a")[1]
        assert (summary["kept"], summary["written"], summary["damaged"]) == (5, 1, [])
        assert files("a") == before

    @pytest.mark.parametrize("kind", [(), ("--readings",)], ids=["statistics", "readings"])
    def test_after_an_interruption_runs_only_what_is_left(self, generate, monkeypatch, kind):
        options = (*kind, "--clones", 4, "--chunk", 1, "--seed", "0,1")
        generate(*options, "--out", "whole")
        finish, calls = bulk_folder.Folder.finish, []

        def interrupted(self, part, *rest):
            calls.append(part)
            if len(calls) == 6:
                raise KeyboardInterrupt
            finish(self, part, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(bulk_folder.Folder, "finish", interrupted)
            status, _, err = generate(*options, "--out", "a")
        assert status == 1
        assert "the same command goes on from there" in err
        assert generate(*options, "--out", "a")[1] | {"seconds": 0, "clones_per_second": 0, "size": 0} == {
            "out": "a",
            "kind": "readings" if kind else "statistics",
            "written": 3,
            "kept": 5,
            "damaged": [],
            "clones": 3,
            "size": 0,
            "seconds": 0,
            "clones_per_second": 0,
        }
        assert files("a") == files("whole")

    def test_runs_nothing_when_all_is_there(self, generate, monkeypatch):
        generate("--clones", 3, "--out", "a")
        monkeypatch.setattr(bulk, "summarise", lambda *_, **__: pytest.fail("it ran"))
        assert generate("--clones", 3, "--out", "a")[1]["kept"] == 1

    def test_adds_worlds_and_seeds_to_a_folder(self, generate):
        generate("--clones", 3, "--out", "a")
        before = files("a")
        assert generate("--clones", 3, "--seed", "0..2", "--out", "a")[1]["kept"] == 1
        assert generate("--clones", 3, "--seed", "1", "--out", "a")[1]["written"] == 0
        generate("--clones", 3, "--seed", "0..2", "--out", "b")
        after = files("a")
        assert after == files("b")
        assert all(after[name] == data for name, data in before.items() if name != "manifest.json")
        assert set(rows("a")["seed"].to_pylist()) == {0, 1, 2}
        assert json.loads(after["manifest.json"])["worlds"]["D4"]["seeds"] == [0, 1, 2]

    @pytest.mark.parametrize("kind", [(), ("--readings",)], ids=["statistics", "readings"])
    @pytest.mark.parametrize("harm", ["truncated", "changed", "emptied", "gone", "ledger"])
    def test_runs_damaged_chunks_again(self, generate, kind, harm):
        options = (*kind, "--clones", 3, "--chunk", 1, "--out", "a")
        generate(*options)
        before = files("a")
        place = "readings.zarr/world=D4/seed=0/protocol=0/readings/c/1/0/0" if kind else ""
        path = Path("a") / (place or "statistics/world=D4/seed=0/part-00001.parquet")
        data = path.read_bytes()
        if harm == "gone":
            path.unlink()
        elif harm == "ledger":
            Path("a/finished/world=D4/seed=0/part-00001.json").write_text('{"clones": [1, 2], "fil')
        else:
            changed = data[:20] + bytes([data[20] ^ 1]) + data[21:]
            path.write_bytes({"truncated": data[:-7], "changed": changed, "emptied": b""}[harm])
        status, summary, err = generate(*options)
        assert status == 0
        assert summary["damaged"] == ["world=D4/seed=0/part-00001"]
        assert (summary["written"], summary["kept"]) == (1, 2)
        assert "damaged, so run again: world=D4/seed=0/part-00001" in err
        assert files("a") == before


# What is refused


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--clones", 4), "`clones` is 3 there, but 4 here"),
            (("--clones", 3, "--first", 1), "`first` is 0 there, but 1 here"),
            (("--clones", 3, "--chunk", 2), "`chunk` is 16384 there, but 2 here"),
            (("--clones", 3, "--no-noise"), "`noise` is True there, but False here"),
            (("--clones", 3, "--window", "2:5"), "`protocols` is"),
            (("--clones", 3, "--readings"), "`kind` is 'statistics' there, but 'readings' here"),
        ],
    )
    def test_another_request_into_the_same_folder(self, generate, refused, options, message):
        generate("--clones", 3, "--out", "a")
        before = files("a")
        line = refused(*options, "--out", "a")
        assert "a holds another ensemble: " in line
        assert message in line
        assert files("a") == before

    def test_a_folder_made_by_other_code_or_on_another_machine(self, generate, refused):
        generate("--clones", 3, "--out", "a")
        path = Path("a/manifest.json")
        made = json.loads(path.read_text())
        made["worlds"]["D4"]["code"] = "0" * 16
        made["environment"]["device"] = "abacus"
        path.write_text(json.dumps(made))
        line = refused("--clones", 3, "--out", "a")
        assert f"environment `device` is 'abacus' there, but '{jax.devices()[0].device_kind}' here" in line
        assert "D4: `code` is '0000000000000000' there" in line

    @pytest.mark.parametrize("text", ['{"schema": "mine"}', "[]", "{", '{"schema": "simworlds/ensemble/1"}'])
    def test_a_manifest_of_something_else(self, refused, text, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a/manifest.json").write_text(text)
        assert "choose another --out" in refused("--out", "a")
        assert files("a") == {"manifest.json": text.encode()}

    def test_data_without_a_manifest(self, generate, refused):
        generate("--clones", 3, "--out", "a")
        Path("a/manifest.json").unlink()
        assert "no manifest.json that says what it is" in refused("--clones", 3, "--out", "a")

    def test_a_folder_that_another_process_writes(self, refused, tmp_path):
        folder = bulk_folder.Folder(tmp_path / "a")
        with folder.locked():
            line = refused("--clones", 3, "--out", "a")
        assert f"another process ({os.getpid()}) is writing into a" in line
        assert list(files("a")) == [".lock"]

    @pytest.mark.parametrize("out", ["file", "file/deep"])
    def test_a_folder_that_cannot_be_made(self, refused, monkeypatch, tmp_path, out):
        monkeypatch.setattr(bulk, "summarise", lambda *_, **__: pytest.fail("it ran"))
        (tmp_path / "file").write_text("mine")
        assert f"cannot write into {out}: " in refused("--out", out)
        assert (tmp_path / "file").read_text() == "mine"

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    def test_a_full_disk_and_goes_on_when_there_is_room(self, generate, refused, monkeypatch, code):
        options = ("--clones", 4, "--chunk", 1)
        generate(*options, "--out", "whole")
        sync, calls = os.fsync, []

        def full(handle):
            calls.append(handle)
            if len(calls) > 5:  # the manifest, two chunks with their entries: the third chunk's file
                raise OSError(code, os.strerror(code))
            sync(handle)

        with monkeypatch.context() as patch:
            patch.setattr(store.os, "fsync", full)
            line = refused(*options, "--out", "a")
        assert f"cannot write into a: {os.strerror(code)}; what was finished is kept" in line
        left = files("a")
        assert sorted(name for name in left if "part" in name) == [
            f"{place}/world=D4/seed=0/part-0000{k}.{ext}"
            for place, ext in (("finished", "json"), ("statistics", "parquet"))
            for k in (0, 1)
        ]
        assert generate(*options, "--out", "a")[1]["kept"] == 2
        assert files("a") == files("whole")

    def test_a_clone_that_diverges_is_named_and_what_was_done_is_kept(self, generate, monkeypatch):
        real, calls = bulk.summarise, []

        def diverging(*arguments, **options):
            calls.append(options["first"])
            if options["first"] == 2:
                raise Diverged("world D4, seed 0: clone 2 of request 0 was no longer finite at tick 3")
            return real(*arguments, **options)

        monkeypatch.setattr(bulk, "summarise", diverging)
        status, _, err = generate("--clones", 4, "--chunk", 1, "--out", "a")
        assert (status, calls) == (1, [0, 1, 2])
        assert "clone 2 of request 0" in err
        assert len(list(Path("a/statistics").rglob("*.parquet"))) == 2

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--window", "3:17"), "`--window` must end by tick 16, but ends at 17"),
            (("--window", "3:4"), "a window must hold at least 2 ticks"),
            (("--window", "3..9"), "a window is START:STOP in ticks"),
            (("--window", "3:9", "--readings"), "goes with statistics of a `--protocol`"),
            (("--protocol", "p.json"), "protocol 1 is given twice"),
            (("--contracts",), "not allowed with argument --protocol"),
            (("--clones", 0), "a whole number of clones from 1 to 16777216"),
            (("--chunk", 0), "a chunk takes a whole number"),
            (("--first", 2**32), "the first clone has a whole number from 0 to 4294967295"),
            (("--first", 2**32 - 1, "--clones", 2), "clones are numbered up to 4294967295"),
            (("--protocol", "none.json"), "cannot read none.json"),
        ],
    )
    def test_a_bad_option_before_anything_is_written(self, refused, options, message):
        assert message in refused(*options, "--out", "a")
        assert not Path("a").exists()

    def test_a_window_of_a_contract(self, refused):
        assert "a contract has a window of its own" in refused("--window", "2:5", "--out", "a", protocol=None)

    def test_statistics_of_one_tick(self, refused, tmp_path):
        (tmp_path / "q.json").write_text(json.dumps([{"ticks": 1}]))
        assert "at least 2 ticks, but one has 1" in refused("--out", "a", protocol="q.json")
        assert not Path("a").exists()

    def test_a_port_that_one_of_the_worlds_lacks(self, refused, tmp_path):
        (tmp_path / "q.json").write_text(json.dumps([{"ticks": 4, "set": {"u3": 0.5}}]))
        assert "there is no drive port 'u3'" in refused("--out", "a", worlds="D4,D1", protocol="q.json")
        assert not Path("a").exists()

    def test_a_library_that_is_missing_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "zarr", None)
        with pytest.raises(UsageError, match=r"needs zarr, .* pip install 'simworlds\[output\]'"):
            need("zarr")


def test_numbers_and_windows_are_taken_at_their_limits():
    assert [parse_bulk_clones(text) for text in ("1", "16777216")] == [1, 2**24]
    assert parse_window("0:2") == (0, 2)


# What a user sees meanwhile


def test_a_pipe_gets_a_line_an_instance_with_rate_and_time_left(generate):
    _, _, err = generate("--clones", 3, "--seed", "0,1", "--out", "a")
    first, last = err.splitlines()
    assert first.startswith("done: D4 seed 0, 3 clones; ")
    assert "clones/s, 1 instances and about " in first
    assert last.endswith("0 instances and about 0 s left")


def test_a_terminal_gets_a_bar_with_the_rate():
    console = Console(force_terminal=True, width=120, record=True, file=open(os.devnull, "w"))
    with console.file, progress_bar(console, unit="clones") as bar:
        meter = _Meter(bar)
        meter.planned(4000, 1)
        meter.preparing("D4", 7)
        meter.running("D4", 7)
        for _ in range(3):
            meter.ran(1000)
            time.sleep(0.002)
        bar.refresh()
        text = console.export_text()
    assert "D4 seed 7" in text
    assert "3000/4000" in text
    assert "clones/s" in text


def test_the_command_says_how_to_read_what_it_wrote(cli, tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(SEGMENTS))
    status, out, _ = cli("ensemble", "D4", "--protocol", "p.json", *DRAWN, "--clones", 3, "--out", "a")
    assert status == 0
    assert "1 chunks written, 0 kept: 3 clones" in out
    assert 'pandas.read_parquet("a/statistics")' in out


def test_the_digest_of_a_protocol_depends_on_its_levels():
    _, asked = request()
    other = asked.protocol._replace(segments=(Segment(6, {"u0": 0.5}), Segment(10, {})))
    assert bulk.protocol_digest(other) != bulk.protocol_digest(asked.protocol)
