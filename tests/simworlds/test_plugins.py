"""Worlds by others: a package with an entry point, and a family that a notebook defines."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FAMILY = '''
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simworlds.integrate import RK4
from simworlds.world import Drive, Grammar, OdeWorld, Sensor


class Params(NamedTuple):
    w: Any  # frequency


class State(NamedTuple):
    x: Any
    v: Any


class Swing(OdeWorld):
    """X1: x'' = -w^2 x - c x' + F."""

    id, title, track, phenomenon = "X1", "Swing", "C", "a resonance"
    drives = (Drive("F", -1.0, 1.0, rest=0.5), Drive("c", 0.1, 1.0, rest=0.5))
    sensors = (Sensor("place", -2.0, 2.0), Sensor("speed", -2.0, 2.0))
    scheme = RK4(dt=0.1, substeps=10)
    grammar = Grammar((2, 4), (16, 48), (8, 24), (1, 2), {"place": 1.0, "speed": 1.0})
    mean_fraction, sd_fraction = 0.10, 0.05

    def draw(self, draws):
        return Params(np.float32(draws.uniform(0.5, 1.5)))

    def limit(self, **changes):
        return Params(1.0)._replace(**changes)

    def initial(self, params, noise):
        return State(jnp.zeros_like(params.w), jnp.zeros_like(params.w))

    def drift(self, state, drive, params):
        return State(state.v, drive.F - drive.c * state.v - params.w**2 * state.x)

    def read(self, state, drive, params):
        return state.x, state.v
'''


def build(folder: Path, points: dict[str, str]) -> Path:
    """An installed package as a folder for the path: a module, and the metadata that names entry points."""
    (folder / "swinging.py").write_text(FAMILY)
    info = folder / "swinging-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: swinging\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {target}" for name, target in points.items())
    (info / "entry_points.txt").write_text(f"[simworlds.worlds]\n{lines}\n")
    return folder


def run(code: str, *paths: Path) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[2]
    path = f"import sys; sys.path[:0] = {[str(p) for p in (root, *paths)]!r}\n"
    return subprocess.run(
        [sys.executable, "-c", path + textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )


def test_a_package_adds_a_world(tmp_path):
    folder = build(tmp_path, {"X1": "swinging:Swing"})
    done = run(
        """
        import simworlds
        from experiments.evaluation import evaluate
        world = simworlds.load("swing")
        print([w.id for w in simworlds.worlds()][-1], world)
        instance = world.instance(0)
        answers = [{"id": c.id, "mean": 0.0, "low": -1.0, "high": 1.0} for c in instance.contracts()]
        print(evaluate(instance, answers).missing)
        """,
        folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["X1 <World X1 Swing>", "0"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("swinging:Missing", "has no attribute 'Missing'"),
        ("nowhere:Swing", "No module named 'nowhere'"),
        ("swinging:Params", "missing 1 required positional argument"),
        ("builtins:dict", "it is no simworlds.World"),
    ],
)
def test_a_broken_plug_in_is_left_out_with_a_warning(tmp_path, target, reason):
    folder = build(tmp_path, {"X1": target})
    done = run("import simworlds; print(len(list(simworlds.worlds())), simworlds.load('B2'))", folder)
    assert done.returncode == 0, done.stderr
    assert "<World B2 Contest>" in done.stdout
    assert "is left out" in done.stderr
    assert reason in done.stderr


def test_a_taken_identifier_is_refused(tmp_path):
    family = FAMILY.replace('"X1", "Swing"', '"B2", "Swing"')
    folder = build(tmp_path, {"X1": "swinging:Swing"})
    (folder / "swinging.py").write_text(family)
    done = run("import simworlds; print(simworlds.load('B2'))", folder)
    assert "<World B2 Contest>" in done.stdout
    assert "the identifier B2 is taken by <World B2 Contest>" in done.stderr


def test_a_notebook_defines_a_world_and_runs_everything_on_it():
    """The family has no file: it comes from a cell, and has about 30 lines."""
    body = [line for line in FAMILY.split("class Params")[1].splitlines() if line.strip()]
    assert len(body) <= 35
    space: dict = {"__name__": "__main__"}
    exec(FAMILY, space)
    world = space["Swing"]()
    instance = world.instance(1)
    session = instance.session()
    assert session.run([{"ticks": 20, "set": {"u0": 1.0}}]).shape == (20, 2)

    from experiments.evaluation import evaluate
    from oracles.ladder import climb
    from simworlds.store import Store

    contracts = instance.contracts()
    ladder = climb(instance, contracts, Store())
    scores = {rung.name: evaluate(instance, list(rung.answers)).accuracy for rung in ladder.rungs}
    assert scores["ensemble replication"] > 0.95
    assert scores["null"] < scores["ensemble replication"]
