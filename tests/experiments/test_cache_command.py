"""The two caches: what they hold, what clearing removes, and what it never touches."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import experiments
from experiments.cache_command import caches
from simworlds.store import Store

HASH = "0a1b" * 16


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A home of its own with two compiled programs and one figure."""
    folder = tmp_path / "home"
    monkeypatch.setenv("SIMWORLDS_HOME", str(folder))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    (folder / "xla").mkdir(parents=True)
    for name in (f"jit_f-{HASH}-cache", f"jit_f-{HASH}-atime", f"jit_g-{HASH}-cache", ".lockfile"):
        (folder / "xla" / name).write_bytes(b"x" * 100)
    Store().put({"kind": "test"}, {"values": np.arange(4)})
    return folder


@pytest.fixture
def machine(cli):
    """Run `simworlds cache` with --json; returns what it says."""

    def call(*arguments):
        status, out, err = cli("cache", *arguments, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    return call


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


class TestInfo:
    def test_counts_entries_and_bytes(self, machine, home):
        compiled, figures = machine("info")
        assert compiled == {
            "holds": "compiled programs",
            "folder": str(home / "xla"),
            "entries": 2,
            "bytes": 400,
            "foreign": 0,
        }
        assert (figures["folder"], figures["entries"]) == (str(home / "store"), 1)
        assert figures["bytes"] == sum(p.stat().st_size for p in (home / "store").rglob("*.*"))

    def test_prints_a_table(self, cli, home):
        status, out, _ = cli("cache", "info")
        assert status == 0
        assert str(home / "xla") in out
        assert "compiled programs" in out

    def test_follows_the_variable_that_moves_the_compilation_cache(
        self, machine, home, monkeypatch, tmp_path
    ):
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "elsewhere"))
        assert machine("info")[0] | {"foreign": 0} == {
            "holds": "compiled programs",
            "folder": str(tmp_path / "elsewhere"),
            "entries": 0,
            "bytes": 0,
            "foreign": 0,
        }

    def test_refuses_a_cache_that_is_no_folder_here(self, cli, home, monkeypatch):
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "gs://bucket/cache")
        status, _, err = cli("cache", "info")
        assert status == 2
        assert "gs://bucket/cache is no folder of this machine" in err

    def test_knows_the_files_that_jax_writes(self, tmp_path):
        code = """
import jax
jax.jit(lambda x: x + 1)(1.0)
"""
        environment = {
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PLATFORMS": "cpu",
        }
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        mine, others = caches()[0]._replace(folder=tmp_path / "xla").files()
        assert any(path.name.endswith("-cache") for path in mine)
        assert others == []


class TestClear:
    @pytest.mark.parametrize(
        ("options", "left"),
        [
            ((), set()),
            (("--compiled", "--figures"), set()),
            (("--compiled",), {"store"}),
            (("--figures",), {"xla"}),
        ],
    )
    def test_removes_what_is_named_or_both(self, machine, home, options, left):
        before = {name for name in names(home) if name.split("/")[0] in left}
        rows = machine("clear", *options)
        assert names(home) == before
        assert [row["entries"] for row in rows] == {0: [2, 1], 2: [2, 1], 1: [1] if "xla" in left else [2]}[
            len(options)
        ]
        assert (home / "xla").is_dir()
        assert (home / "store").is_dir()

    def test_says_what_it_removed(self, cli, home):
        status, out, _ = cli("cache", "clear")
        assert status == 0
        assert f"removed 2 compiled programs (0.0 MB) from {home / 'xla'}" in out
        assert f"removed 1 figures (0.0 MB) from {home / 'store'}" in out

    def test_is_safe_where_there_is_nothing(self, machine, monkeypatch, tmp_path):
        monkeypatch.setenv("SIMWORLDS_HOME", str(tmp_path / "new"))
        monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
        assert [row["entries"] for row in machine("clear")] == [0, 0]

    @pytest.mark.parametrize(
        "place", ["xla/thesis.tex", "xla/pip-cache", "xla/deep/jit_f-cache", "store/notes", "store/ab/x.npz"]
    )
    def test_removes_nothing_where_a_folder_holds_something_else(self, cli, home, place):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text("mine")
        before = names(home)
        status, out, err = cli("cache", "clear")
        assert (status, out) == (2, "")
        assert "does not look like a cache of" in err
        assert place.partition("/")[2] in err
        assert names(home) == before

    def test_follows_no_link_out_of_the_folder(self, machine, cli, home, tmp_path):
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / f"jit_h-{HASH}-cache").write_text("mine")
        (home / "xla" / f"jit_link-{HASH}-cache").symlink_to(tmp_path / "outside", target_is_directory=True)
        machine("clear", "--compiled")
        assert not (home / "xla" / f"jit_link-{HASH}-cache").is_symlink()
        assert (tmp_path / "outside" / f"jit_h-{HASH}-cache").read_text() == "mine"

    def test_leaves_a_figure_to_be_computed_again(self, machine, home):
        store, address = Store(), {"kind": "test"}
        assert store.get(address) is not None
        machine("clear")
        assert store.get(address) is None
        assert store.fetch(address, lambda: {"values": np.arange(4)})["values"].tolist() == [0, 1, 2, 3]


def test_help_lists_the_actions(cli):
    status, out, _ = cli("cache", "--help")
    assert status == 0
    assert "info" in out
    assert "clear" in out


def test_the_commands_start_without_jax():
    code = """
import sys
from experiments.cli import main
main(["cache", "info"])
sys.exit("jax" in sys.modules)
"""
    root = Path(experiments.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
