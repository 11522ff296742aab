"""The command line: help with examples, JSON for machines, one line on bad input, records that repeat."""

import argparse
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import experiments
from experiments import commands
from experiments.cli import build_parser
from experiments.inputs import UsageError, parse_clones, parse_seeds, parse_steps, read_json
from simworlds.errors import Diverged
from simworlds.store import Store

ROOT = Path(experiments.__file__).parents[1]


def commands_of(parser, path=()):
    """The words of every command that runs something."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        return [path]
    return [words for name, sub in groups[0].choices.items() for words in commands_of(sub, (*path, name))]


COMMANDS = commands_of(build_parser())


def run(*arguments, **environment):
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def refusal(cli, tmp_path):
    """Run a command that must be refused; returns its one line."""

    def call(*arguments):
        before = sorted(tmp_path.rglob("*"))
        status, out, err = cli(*arguments)
        assert status == 2, err
        assert out == ""
        assert err.endswith("\n")
        assert len(err.splitlines()) == 1, err
        assert "Traceback" not in err
        assert sorted(tmp_path.rglob("*")) == before, "something was written"
        return err

    return call


@pytest.fixture
def machine(cli):
    """Run a command with --json; returns what it says."""

    def call(*arguments):
        status, out, err = cli(*arguments, "--json")
        assert status == 0, err
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    return call


def write(folder, data, name="input.json"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


# Help


def test_every_promised_command_is_there():
    promised = {("worlds",), ("ladder",), ("contracts",), ("explore",), ("score",), ("truth",)}
    assert promised <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_an_example(cli, words):
    status, out, err = cli(*words, "--help")
    assert (status, err) == (0, "")
    assert "example:" in out
    assert f"simworlds {' '.join(words)}" in out.split("example:")[1]
    assert "--json" in out


@pytest.mark.parametrize("words", [(), ("study",)], ids=["simworlds", "study"])
def test_help_lists_the_commands(cli, words):
    status, out, _ = cli(*words, "--help")
    assert status == 0
    for command in COMMANDS:
        if command[: len(words)] == words:
            assert command[len(words)] in out


def test_help_and_bad_usage_start_without_jax():
    code = f"""
import sys
from experiments.cli import main
for words in {[[], *map(list, COMMANDS)]!r}:
    for more in (["--help"], ["--nonsense"]):
        try:
            main([*words, *more])
        except SystemExit:
            pass
slow = {{"jax", "jaxlib", "equinox", "optax", "diffrax", "matplotlib"}} & set(sys.modules)
sys.exit(f"imported {{slow}}" if slow else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_the_search_for_slow_imports_can_fail():
    code = "import sys; import simworlds.store, simworlds.ensemble; sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == 1


# Bad input


USAGE = {
    "no command": [],
    "unknown command": ["dance"],
    "no study": ["study"],
    "no world": ["contracts", "--seed", "0"],
    "no seed": ["truth", "--world", "C2"],
    "no file": ["score", "--world", "C2", "--seed", "0"],
    "no value": ["ladder", "--world"],
    "unknown option": ["worlds", "--colour"],
    "extra argument": ["worlds", "B2"],
    "extra argument of two lines": ["worlds", "one\ntwo"],
    "unknown schema": ["schema", "answer"],
}


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_bad_usage_is_one_line_that_points_to_help(refusal, arguments):
    line = refusal(*arguments)
    assert line.startswith("simworlds")
    assert "error: " in line
    assert "--help)" in line


@pytest.mark.parametrize("world", ["Z9", "", "b2x", "B2\nC2", "B2,C2"])
@pytest.mark.parametrize("command", ["contracts", "truth", "explore", "score"])
def test_an_unknown_world_is_named_beside_those_that_exist(refusal, tmp_path, command, world):
    file = {"explore": "--protocol", "score": "--answers"}.get(command)
    more = [file, write(tmp_path, [])] if file else []
    line = refusal(command, "--world", world, "--seed", "0", *more)
    assert repr(world) in line
    assert "A1 (Compensation magnet), A2 (Ratchet conveyor), A3" in line


@pytest.mark.parametrize("worlds", ["Z9", "B2,", "C2,nothing", "all,B2", " "])
def test_a_ladder_refuses_an_unknown_world_before_it_writes(refusal, worlds):
    assert "there is no world" in refusal("ladder", "--world", worlds, "--out", "made")


@pytest.mark.parametrize(
    "seed",
    [
        "-1",
        "x",
        "1.5",
        "",
        "0..",
        "..3",
        "3..1",
        "0..99999",
        str(2**63),
        "9" * 5000,
        "NaN",
        "1e3",
        "0x1",
        "1\n2",
    ],
)
@pytest.mark.parametrize("command", ["contracts", "ladder"])
def test_a_seed_is_a_whole_number(refusal, command, seed):
    line = refusal(command, "--world", "C2", f"--seed={seed}")
    assert "--seed" in line
    assert "whole numbers" in line or "range of seeds" in line


def test_most_commands_take_one_seed(refusal):
    assert "takes one seed, but '0,1' names 2" in refusal("contracts", "--world", "C2", "--seed", "0,1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", [0]),
        ("0,3,7", [0, 3, 7]),
        ("0..3", [0, 1, 2, 3]),
        ("5..5,5, 2", [5, 2]),
        (str(2**63 - 1), [2**63 - 1]),
    ],
)
def test_seeds_are_numbers_and_ranges(text, expected):
    assert parse_seeds(text) == expected


@pytest.mark.parametrize(
    ("option", "parse", "message", "texts"),
    [
        ("--clones", parse_clones, "whole number of clones from 4 to 1048576", ["3", "1048577"]),
        ("--fit-steps", parse_steps, "whole number of steps from 1 to 100000", ["0", "100001"]),
    ],
)
def test_a_number_is_checked(refusal, option, parse, message, texts):
    # The last hides a large number behind zeros.
    for text in [*texts, "-8", "x", "8.5", "", "NaN", "9" * 5000, "000000000004" + "0" * 9]:
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            parse(text)
    assert message in refusal("ladder", "--world", "C2", f"{option}={texts[0]}")


def test_numbers_are_taken_at_their_limits():
    assert [parse_clones(text) for text in ("4", "8", "1048576")] == [4, 8, 2**20]
    assert [parse_steps(text) for text in ("1", "100000")] == [1, 100_000]


FILES = {
    "not JSON": (b"[{'ticks': 4}]", "is not JSON"),
    "empty": (b"", "is not JSON"),
    "cut": (b'[{"ticks": 4}', "is not JSON"),
    "two values": (b"[] []", "is not JSON"),
    "no text": (b"\xff\xfe\x00\x01\x80", "is not JSON"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(64), "is not JSON"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "is not JSON"),
    "a long integer": (b"[" + b"1" * 5000 + b"]", "is not JSON"),
    "11 MB": (b" " * (11 * 2**20), "is larger than 10 MiB"),
}


@pytest.mark.parametrize(("data", "message"), FILES.values(), ids=FILES)
@pytest.mark.parametrize(("command", "option"), [("explore", "--protocol"), ("score", "--answers")])
def test_a_file_that_cannot_be_read_is_one_line(refusal, tmp_path, command, option, data, message):
    path = write(tmp_path, data)
    line = refusal(command, "--world", "C2", "--seed", "0", option, path)
    assert line.startswith(f"simworlds: error: {path} {message}")


@pytest.mark.parametrize(
    ("name", "message"), [("missing", "No such file"), ("folder", "Is a directory"), ("x" * 300, "too long")]
)
@pytest.mark.parametrize(("command", "option"), [("explore", "--protocol"), ("score", "--answers")])
def test_a_path_that_is_no_file_is_one_line(refusal, tmp_path, command, option, name, message):
    (tmp_path / "folder").mkdir()
    line = refusal(command, "--world", "C2", "--seed", "0", option, name)
    assert line.startswith(f"simworlds: error: cannot read {name}: ")
    assert message in line


@pytest.mark.parametrize(("command", "option"), [("explore", "--protocol"), ("score", "--answers")])
def test_nesting_at_the_edge_of_what_json_takes_is_refused_too(refusal, tmp_path, command, option):
    # What the parser just takes, a repr in the error message may not.
    def parses(depth):
        try:
            return bool(json.loads("[" * depth + "]" * depth)) or True
        except RecursionError:
            return False

    edge = max((depth for depth in range(100, 1100) if parses(depth)), default=100)
    for depth in range(edge - 40, edge + 1, 2):
        path = write(tmp_path, b"[" * depth + b"]" * depth)
        assert refusal(command, "--world", "C2", "--seed", "0", option, path)


PROTOCOLS = {
    "negative ticks": ([{"ticks": -4}], "`ticks` must be a whole number from 1 to 256, but is -4"),
    "fraction of a tick": ([{"ticks": 2.5}], "`ticks` must be a whole number"),
    "NaN level": (
        [{"ticks": 4, "set": {"u0": math.nan}}],
        "the level of u0 must be a number in [0, 1], but is nan",
    ),
    "infinite level": ([{"ticks": 4, "set": {"u0": math.inf}}], "the level of u0 must be a number in [0, 1]"),
    "string level": (
        [{"ticks": 4, "set": {"u0": "0.5"}}],
        "the level of u0 must be a number in [0, 1], but is '0.5'",
    ),
    "level above 1": (
        [{"ticks": 4, "set": {"u0": 1.01}}],
        "the level of u0 must be a number in [0, 1], but is 1.01",
    ),
    "unknown port": (
        [{"ticks": 4, "set": {"u7": 0.5}}],
        "there is no drive port 'u7'; the ports are u0, u1, u2, u3",
    ),
    "a port of two lines": ([{"ticks": 4, "set": {"u\n0": 0.5}}], "there is no drive port 'u\\n0'"),
    "too long": ([{"ticks": 200}, {"ticks": 57}], "may last at most 256 ticks, but lasts 257"),
    "too many": ([{"ticks": 1}] * 257, "may have at most 256 segments"),
    "empty": ([], "must have at least one segment"),
    "an object": ({"ticks": 4}, "must be a list of segments"),
    "null": (None, "must be a list of segments, but is None"),
}


@pytest.mark.parametrize(("data", "message"), PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_bad_protocol_is_one_line(refusal, tmp_path, data, message):
    line = refusal(
        "explore", "--world", "C2", "--seed", "0", "--protocol", write(tmp_path, data), "--picture", "p.png"
    )
    assert message in line


def test_all_faults_stand_in_the_one_line(refusal, tmp_path):
    path = write(tmp_path, [{"ticks": 0, "set": {"u9": 1, "u1": -1}}, {"tick": 4}])
    line = refusal("explore", "--world", "C2", "--seed", "0", "--protocol", path)
    for word in ("segment 0: `ticks`", "'u9'", "level of u1", "'tick'", "segment 1: `ticks`"):
        assert word in line


def answers_with(**fields):
    fine = [{"id": k, "mean": 0.0, "low": -1.0, "high": 1.0} for k in range(8)]
    fine[2] |= fields
    return fine


def quantiles(*values):
    return dict(zip(("0.1", "0.25", "0.5", "0.75", "0.9"), values, strict=False))


ANSWERS = {
    "crossing quantiles": (
        answers_with(quantiles=quantiles(0, 1, 0.5, 2, 3)),
        "`quantiles` must not decrease",
    ),
    "incomplete quantiles": (answers_with(quantiles=quantiles(0, 1, 2)), "`quantiles` must have all of"),
    "duplicate id": (answers_with(id=3), "`id` must be given once"),
    "unknown id": (answers_with(id=17), "`id` must be one of 0, 1, 2, 3, 4, 5, 6, 7, but is 17"),
    "NaN": (answers_with(mean=math.nan), "`mean` must be a finite number"),
    "string": (answers_with(low="a\nb"), "`low` must be a finite number"),
    "unknown field": (answers_with(answer=3), "also has 'answer'"),
    "an object": ({"id": 0}, "answers must be a list of objects"),
    "null": (None, "answers must be a list of objects"),
}


@pytest.mark.parametrize(("data", "message"), ANSWERS.values(), ids=ANSWERS)
def test_a_bad_answer_is_one_line(refusal, tmp_path, data, message):
    line = refusal("score", "--world", "C2", "--seed", "0", "--answers", write(tmp_path, data), "--json")
    assert message in line


def test_a_budget_that_is_spent_is_one_line(refusal, tmp_path):
    path = write(tmp_path, [{"ticks": 1}])
    line = refusal("explore", "--world", "C2", "--seed", "0", *["--protocol", path] * 33)
    assert "no preparation is left" in line


@pytest.mark.parametrize(
    "command", [["ladder", "--world", "C2", "--out"], ["ladder", "--world", "C2", "--no-picture", "--out"]]
)
def test_a_folder_that_cannot_be_made_is_one_line_before_anything_runs(
    refusal, tmp_path, monkeypatch, command
):
    monkeypatch.setattr("experiments.run_ladder.climb_cell", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/deep"):
        assert "file" in refusal(*command, out)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["p.xyz", "p", "deep/er/p.png"])
def test_a_picture_lies_where_the_command_says(cli, tmp_path, name):
    path = write(tmp_path, [{"ticks": 3}])
    status, _, err = cli("explore", "--world", "C2", "--seed", "0", "--protocol", path, "--picture", name)
    assert (status, err) == (0, f"picture: {name}\n")
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_one_line(cli, tmp_path):
    (tmp_path / "folder").mkdir()
    path = write(tmp_path, [{"ticks": 3}])
    options = ("explore", "--world", "C2", "--seed", "0", "--protocol", path, "--picture")
    for name in ("folder", "input.json/p.png"):
        status, _, err = cli(*options, name)
        assert status == 2
        assert err.startswith("simworlds: error: ")
        assert name.split("/")[0] in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (Diverged("world B2, seed 0: gone"), 1, "simworlds: world B2, seed 0: gone"),
        (KeyboardInterrupt(), 1, "simworlds: interrupted"),
        (UsageError("no"), 2, "simworlds: error: no"),
        (
            OSError(28, "No space left on device", "x"),
            2,
            "simworlds: error: [Errno 28] No space left on device: 'x'",
        ),
    ],
)
def test_an_expected_failure_is_one_line_with_its_status(cli, monkeypatch, error, status, message):
    def fail(options):
        raise error

    monkeypatch.setattr(commands, "run_worlds", fail)
    found, out, err = cli("worlds")
    assert (found, out) == (status, "")
    assert err.startswith(message)
    assert len(err.splitlines()) == 1


def test_a_refusal_in_a_process_of_its_own(tmp_path):
    path = write(tmp_path, [{"ticks": 4, "set": {"u0": "high"}}])
    home = tmp_path / "home"
    for arguments, message in (
        (["contracts", "--world", "Z9", "--seed", 0], "there is no world 'Z9'"),
        (["explore", "--world", "B2", "--seed", 0, "--protocol", path], "the level of u0 must be a number"),
    ):
        done = run(*arguments, SIMWORLDS_HOME=str(home))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("simworlds: error: ")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (home / "store").exists()


def test_reading_json_gives_what_was_written(tmp_path, monkeypatch):
    data = [{"ticks": 4, "set": {"ü": 0.5}}, None, 1e5]
    assert read_json(str(write(tmp_path, data))) == data
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(data).encode())))
    assert read_json("-") == data
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b" " * (10 * 2**20 + 1))))
    with pytest.raises(UsageError, match="- is larger than 10 MiB"):
        read_json("-")


# JSON for machines, tables for people


def test_worlds(cli, machine):
    rows = machine("worlds")
    assert [row["id"] for row in rows] == [f"{track}{number}" for track in "ABCD" for number in range(1, 5)]
    assert {row["track"] for row in rows} == set("ABCD")
    _, out, _ = cli("worlds")
    assert all(row["title"] in out for row in rows)


def test_contracts(cli, machine):
    contracts = machine("contracts", "--world", "c2", "--seed", "0")
    assert contracts == machine("contracts", "--world", "chemical clock", "--seed", "0")
    assert [contract["id"] for contract in contracts] == list(range(8))
    status, out, _ = cli("contracts", "--world", "C2", "--seed", "0")
    assert status == 0
    assert f"[{contracts[0]['window'][0]}, {contracts[0]['window'][1]})" in out


def test_explore(cli, machine, tmp_path):
    path = write(tmp_path, [{"ticks": 4, "set": {"u0": 0.8}}, {"ticks": 3}])
    options = ("explore", "--world", "C2", "--seed", "0", "--protocol", path)
    data = machine(*options, "--protocol", path)
    assert data["drives"] == ["u0", "u1", "u2", "u3"]
    first, second = data["experiments"]
    assert len(first["readings"]) == 7
    assert first["readings"] != second["readings"]
    assert (second["ticks_left"], second["preparations_left"]) == (4082, 30)
    status, out, err = cli(*options, "--picture", "p.png")
    assert status == 0
    assert "4089 ticks and 31 preparations left" in out
    assert err == "picture: p.png\n"
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_explore_reads_standard_input(machine, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'[{"ticks": 5}]')))
    data = machine("explore", "--world", "C2", "--seed", "0", "--protocol", "-")
    assert len(data["experiments"][0]["readings"]) == 5


def test_truth_and_score(cli, machine, tmp_path):
    truth = machine("truth", "--world", "C2", "--seed", "0", "--clones", "4")
    assert [len(row) for row in truth["draws"]] == [4] * 8
    answers = [
        {"id": k, "mean": row[0], "low": min(row), "high": max(row)} for k, row in enumerate(truth["draws"])
    ]
    path = write(tmp_path, answers[:7])
    options = ("score", "--world", "C2", "--seed", "0", "--clones", "4", "--answers", path)
    data = machine(*options)
    assert (data["world"], data["seed"], data["scores"]["missing"]) == ("C2", 0, 1)
    assert 0.8 < data["scores"]["accuracy"] <= 7 / 8
    status, out, _ = cli(*options)
    assert status == 0
    assert f"{data['scores']['accuracy']:.3f}" in out
    status, out, _ = cli("truth", "--world", "C2", "--seed", "0", "--clones", "4")
    assert f"{truth['draws'][0][0]:.3f}" in out


def test_a_lenient_score_counts_what_is_invalid(machine, tmp_path):
    path = write(tmp_path, [*answers_with(mean=math.nan), {"id": 99}, "x"])
    data = machine("score", "--world", "C2", "--seed", "0", "--answers", path, "--lenient")
    assert data["scores"]["missing"] == 1
    assert not data["scores"]["rows"][2]["answered"]


def test_schemas(machine):
    for name in ("answers", "contracts"):
        assert machine("schema", name)["type"] == "array"


def test_studies(cli, machine):
    assert set(machine("study", "bimodal")) == {"even", "random"}
    [row] = machine("study", "outcomes", "--world", "C2", "--seed", "0", "--clones", "4")
    assert row["outcomes"] == [1] * 8
    for study in (["bimodal"], ["outcomes", "--world", "C2", "--seed", "0", "--clones", "4"]):
        status, out, err = cli("study", *study)
        assert (status, err) == (0, "")
        assert len(out.splitlines()) > 4


# A ladder, from end to end

LADDER = ("ladder", "--world", "C2", "--seed", "0", "--fit-steps", "2", "--json")


@pytest.fixture(scope="module")
def climbed(tmp_path_factory):
    """A real ladder in a process of its own, with an empty store."""
    folder = tmp_path_factory.mktemp("ladder")
    done = run(*LADDER, "--out", folder / "out", SIMWORLDS_HOME=str(folder / "home"))
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, done


def test_a_ladder_writes_records_and_a_picture_and_says_where(climbed):
    folder, done = climbed
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["C2-0.json", "ladder.png"]
    assert (folder / "out" / "ladder.png").read_bytes().startswith(b"\x89PNG")
    assert f"records: {folder / 'out'}/ (1 files); picture: {folder / 'out' / 'ladder.png'}" in done.stderr
    assert "fits made for the first time" in done.stderr
    record = json.loads((folder / "out" / "C2-0.json").read_bytes())
    assert json.loads(done.stdout) == [record]
    assert [rung["rung"] for rung in record["rungs"]] == [
        "null",
        "tail",
        "persistence",
        "compact oracle",
        "fitted oracle",
        "replication",
        "ensemble replication",
    ]
    assert len(record["rungs"][4]["fit"]["losses"]) == 2
    accuracy = {rung["rung"]: rung["accuracy"] for rung in record["rungs"]}
    assert accuracy["null"] < accuracy["compact oracle"] <= 1
    assert accuracy["ensemble replication"] > 0.9


def test_a_cell_in_another_process_beside_another_cell_gives_the_same_bytes(climbed):
    folder, _ = climbed
    options = ("ladder", "--world", "C2", "--seed", "1,0", "--fit-steps", "2", "--no-picture")
    again = run(*options, "--out", folder / "again", SIMWORLDS_HOME=str(folder / "another home"))
    assert again.returncode == 0, again.stderr[-2000:]
    assert sorted(path.name for path in (folder / "again").iterdir()) == ["C2-0.json", "C2-1.json"]
    assert (folder / "again" / "C2-0.json").read_bytes() == (folder / "out" / "C2-0.json").read_bytes()
    caption = " ".join(again.stdout.split())
    assert "seeds: C2 2; 16 contracts, 8 truth clones each; 0 missing answers" in caption


def test_a_warm_ladder_gives_the_same_bytes_and_fits_nothing(climbed, cli, monkeypatch):
    folder, done = climbed
    monkeypatch.setenv("SIMWORLDS_HOME", str(folder / "home"))
    monkeypatch.setattr("oracles.fit._optimise", lambda *_: pytest.fail("a fit was made again"))
    kept = sorted(Store().folder.rglob("*.npz"))
    status, out, err = cli(*LADDER, "--out", "warm")
    assert status == 0, err
    assert out == done.stdout
    for name in ("C2-0.json", "ladder.png"):
        assert (Path("warm") / name).read_bytes() == (folder / "out" / name).read_bytes()
    assert "0.0 s of it in fits" in err
    status, out, _ = cli(*LADDER[:-1], "--out", "warm")
    assert "Reference ladder: mean over seeds" in out
    assert "Accuracy by number of outcomes" in out
    assert sorted(Store().folder.rglob("*.npz")) == kept
