"""Admission: what is rejected and why, redraws, and that a draw by number is never examined."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from simworlds import admission
from simworlds.admission import Examination, admitted, examine, trail
from simworlds.catalogue import load
from simworlds.errors import Inadmissible
from simworlds.instance import draw_instance
from simworlds.integrate import RK4
from simworlds.world import Drive, Grammar, OdeWorld, Sensor


class State(NamedTuple):
    x: Any
    y: Any


class Params(NamedTuple):
    a: Any  # growth of the difference between two starts
    b: Any  # response to the second drive


class Tracker(OdeWorld):
    """x' = u - x and y' = b v + a y: a positive a makes y unstable, b = 0 makes the drive v mute."""

    id, title, track, phenomenon = "T1", "Tracker", "C", "none"
    drives = (Drive("u", 0.0, 1.0, rest=0.5), Drive("v", 0.0, 1.0, rest=0.5))
    sensors = (Sensor("x", 0.0, 1.0), Sensor("y", 0.0, 1.0))
    scheme = RK4(dt=0.25, substeps=4)
    grammar = Grammar((1, 2), (32, 64), (8, 16), (1, 2), {"x": 1.0, "y": 1.0})
    lanes = 16
    mean_fraction, sd_fraction = 0.1, 0.05
    values = (-1.0, 1.0)

    def draw(self, draws):
        return Params(*(np.float32(value) for value in self.values))

    def limit(self, **changes):
        return Params(-1.0, 1.0)._replace(**changes)

    def initial(self, params, noise):
        return State(0.5 * jnp.ones_like(params.a), 0.5 * jnp.ones_like(params.a))

    def drift(self, state, drive, params):
        return State(drive.u - state.x, params.b * drive.v + params.a * state.y)

    def read(self, state, drive, params):
        return state.x, state.y


def tracker(name, *values):
    return type("Variant", (Tracker,), {"id": name, "values": values})()


def test_a_sound_draw_is_admitted_at_once():
    instance = admitted(Tracker(), 0)
    assert instance.redraws == 0
    found = examine(instance)
    assert found.faults == ()
    assert found.unmoved == 0
    assert found.sensitivity < 1e-3
    assert 0 < found.constant < 0.85


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("T2", (-1.0, 0.0), "1 drives move no sensor"),
        ("T4", (2.0, 1.0), "do not stay finite"),
    ],
)
def test_an_unfit_draw_is_refused_with_its_reason(name, values, reason):
    world = tracker(name, *values)
    assert any(reason in fault for fault in examine(draw_instance(world, 0)).faults)


class Wild(Tracker):
    """A sensor that turns a displacement by 5e-5 into one by a quarter turn."""

    id, sensors, values = "T3", (Sensor("x", 0.0, 1.0), Sensor("y", -1.0, 1.0)), (0.0, 1e-5)

    def read(self, state, drive, params):
        return state.x, jnp.sin(30_000 * state.y)


def test_a_draw_that_depends_on_the_fourth_digit_of_its_start_is_refused():
    assert any("it is chaotic" in fault for fault in examine(draw_instance(Wild(), 0)).faults)


def test_a_draw_that_a_constant_answers_is_refused():
    assert Examination(constant=0.9).faults == ("a constant has accuracy 0.90",)
    assert Examination(last=0.9).faults == ("the last value has accuracy 0.90",)
    assert Examination(constant=0.8, last=0.8).faults == ()


def test_the_next_draw_is_taken_until_one_is_fit(monkeypatch):
    """The draw's number is part of the address of its parameters and ports."""
    monkeypatch.setattr(
        admission, "examine", lambda instance: Examination(unmoved=float(instance.redraws < 2))
    )
    admission._redraws.cache_clear()
    world = load("C2")
    instance = admitted(world, 77)
    assert instance.redraws == 2
    assert [e.unmoved for e in trail(world, 77)] == [1.0, 1.0, 0.0]
    first, third = draw_instance(world, 77), draw_instance(world, 77, 2)
    assert instance.params == third.params
    assert first.params != third.params
    admission._redraws.cache_clear()


def test_where_no_draw_is_fit_the_error_says_what_each_lacks(monkeypatch):
    monkeypatch.setattr(admission, "MOST_REDRAWS", 2)
    world = tracker("T5", 2.0, 1.0)
    with pytest.raises(Inadmissible, match="no draw is fit.*draw 0: readings do not stay finite; draw 1: "):
        world.instance(0)
    assert world.instance(0, redraws=0).redraws == 0  # by number, none is examined


def test_what_was_found_is_kept(monkeypatch):
    world = tracker("T6", -1.0, 1.0)
    found = examine(draw_instance(world, 0))
    monkeypatch.setattr(admission, "_examine", None)  # nothing is computed again
    assert examine(draw_instance(world, 0)) == found


def test_a_nudge_moves_the_initial_state_alone():
    from simworlds.ensemble import Request, simulate

    instance = draw_instance(Tracker(), 0).canonical()
    protocol = instance.protocol([{"ticks": 3, "set": {"u0": 0.5}}])
    still, moved = (
        simulate(instance, [Request(protocol, ("test",), nudge=nudge)], 1, noise=False).values[0, 0, :, 0]
        for nudge in (0.0, 0.1)
    )
    assert still == pytest.approx(0.5, abs=1e-6)
    assert moved[0] - 0.5 == pytest.approx(0.05 * (1 - np.exp(-1)), rel=0.02)
