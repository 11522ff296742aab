"""Sessions: what they charge, what they repeat, and that they show ports and nothing else."""

import copy
import inspect
import pickle
import re
import traceback

import numpy as np
import pytest

from simworlds import session as session_module
from simworlds import truth as truth_module
from simworlds.catalogue import load, worlds
from simworlds.ensemble import Request, simulate
from simworlds.errors import BudgetExceeded, Diverged, InvalidProtocol, SimworldsError
from simworlds.instance import Budget
from simworlds.keys import Noise, role_words
from simworlds.session import Experiment, Session

SEED = 83251907  # has no digits in common with any number that a session shows
SHORT = [{"ticks": 4, "set": {"u0": 0.5}}, {"ticks": 3}]


@pytest.fixture
def session():
    return load("B2").instance(SEED, redraws=0).session()


def state_of(session):
    return session.ticks_left, session.preparations_left, len(session.history)


# Budget


def test_the_standard_budget():
    session = load("C2").instance(0, redraws=0).session()
    assert state_of(session) == (4096, 32, 0)
    assert session.horizon == 256


def test_a_run_costs_its_ticks_and_one_preparation(session):
    readings = session.run(SHORT)
    assert readings.shape == (7, 5)
    assert readings.dtype == np.float32
    assert state_of(session) == (4089, 31, 1)
    session.run([{"ticks": 20}])
    assert state_of(session) == (4069, 30, 2)
    assert [(e.ticks_left, e.preparations_left) for e in session.history] == [(4089, 31), (4069, 30)]


def test_the_budget_can_be_spent_to_the_last_tick():
    session = load("B2").instance(SEED, redraws=0).session(Budget(ticks=12, preparations=5))
    session.run(SHORT)
    with pytest.raises(BudgetExceeded, match="the protocol lasts 6 ticks, but 5 are left"):
        session.run([{"ticks": 6}])
    assert state_of(session) == (5, 4, 1)
    session.run([{"ticks": 5}])
    assert state_of(session) == (0, 3, 2)
    with pytest.raises(BudgetExceeded, match="the protocol lasts 1 ticks, but 0 are left"):
        session.run([{"ticks": 1}])
    assert state_of(session) == (0, 3, 2)


def test_the_budget_can_be_spent_to_the_last_preparation():
    session = load("B2").instance(SEED, redraws=0).session(Budget(ticks=100, preparations=1))
    session.run(SHORT)
    with pytest.raises(BudgetExceeded, match="no preparation is left") as caught:
        session.run(SHORT)
    assert caught.value.code == "budget_exceeded"
    assert state_of(session) == (93, 0, 1)


@pytest.mark.parametrize(
    "protocol",
    [
        None,
        [],
        "rest",
        [{"ticks": 0}],
        [{"ticks": -5}],
        [{"ticks": 300}],
        [{"ticks": 200}, {"ticks": 57}],
        [{"ticks": 4, "set": {"u0": float("nan")}}],
        [{"ticks": 4, "set": {"u0": "0.5"}}],
        [{"ticks": 4, "set": {"u0": 1.5}}],
        [{"ticks": 4, "set": {"u17": 0.5}}],
        [{"ticks": 4}, {"set": {}}],
    ],
)
def test_an_invalid_protocol_costs_nothing(session, protocol):
    session.run(SHORT)
    before = state_of(session), session.history[0].readings.tobytes()
    with pytest.raises(InvalidProtocol, match=".") as caught:
        session.run(protocol)
    assert caught.value.code == "invalid_protocol"
    assert (state_of(session), session.history[0].readings.tobytes()) == before


def test_faults_come_before_the_budget():
    session = load("B2").instance(SEED, redraws=0).session(Budget(ticks=3, preparations=0))
    with pytest.raises(InvalidProtocol, match="there is no drive port 'u9'"):
        session.run([{"ticks": 200, "set": {"u9": 1}}])


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt("stop"), Diverged("no longer finite"), OSError("disk")]
)
def test_a_run_that_fails_costs_nothing_and_leaves_no_entry(session, monkeypatch, failure):
    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(session_module, "simulate", fail)
    with pytest.raises(type(failure), match="stop|finite|disk"):
        session.run(SHORT)
    assert state_of(session) == (4096, 32, 0)


@pytest.mark.parametrize("field", ["ticks", "preparations"])
def test_a_budget_is_of_whole_numbers_from_0(field):
    with pytest.raises(SimworldsError, match=rf"`{field}` must be a whole number of at least 0, but is -1"):
        load("B2").instance(SEED, redraws=0).session(Budget(**{field: -1}))


# Readings


def test_readings_are_those_of_the_exploration_s_own_clones(session):
    instance = load("B2").instance(SEED, redraws=0)
    for k in range(2):
        parsed = instance.protocol(SHORT)
        expected = simulate(instance, [Request(parsed, ("exploration", k))], 1).values[0, 0]
        np.testing.assert_array_equal(session.run(SHORT), expected)


def test_readings_repeat_themselves_run_for_run(session):
    first, second = session.run(SHORT), session.run(SHORT)
    assert not np.array_equal(first, second), "each run takes a fresh clone"
    again = load("B2").instance(SEED, redraws=0).session()
    np.testing.assert_array_equal(again.run(SHORT), first)
    with pytest.raises(InvalidProtocol, match="segment 0"):
        again.run([{"ticks": 0}])
    np.testing.assert_array_equal(again.run(SHORT), second)


def test_a_longer_protocol_begins_with_the_same_readings():
    runs = [load("B2").instance(SEED, redraws=0).session().run([{"ticks": n}]) for n in (6, 9)]
    np.testing.assert_array_equal(runs[1][:6], runs[0])


# History


def test_history_keeps_what_was_asked_and_seen(session):
    given = [{"ticks": 4, "set": {"u0": 0.5}}, {"ticks": 3}]
    readings = session.run(given)
    given[0]["set"]["u0"] = 0.9
    given.append({"ticks": 9})
    [experiment] = session.history
    assert isinstance(experiment, Experiment)
    assert experiment.protocol == [{"ticks": 4, "set": {"u0": 0.5}}, {"ticks": 3, "set": {}}]
    np.testing.assert_array_equal(experiment.readings, readings)


def test_history_cannot_be_rewritten(session):
    readings = session.run(SHORT)
    with pytest.raises(ValueError, match="read-only"):
        readings[0, 0] = 0
    with pytest.raises(ValueError, match="read-only"):
        session.history[0].readings[0, 0] = 0
    with pytest.raises(TypeError, match="does not support item assignment"):
        session.history[0] = None
    for name in ("history", "ticks_left", "preparations_left", "drives", "sensors", "rest", "horizon"):
        with pytest.raises(AttributeError, match="(has no setter|can't set)"):
            setattr(session, name, None)
    with pytest.raises(AttributeError, match="budget"):
        session.budget = 3
    session.rest["u0"] = 9
    assert session.rest["u0"] != 9


def test_a_protocol_in_the_history_is_a_copy(session):
    session.run(SHORT)
    session.history[0].protocol[0]["ticks"] = 999
    session.history[0].protocol.clear()
    assert session.history[0].protocol == [{"ticks": 4, "set": {"u0": 0.5}}, {"ticks": 3, "set": {}}]


# What a session shows


def test_ports_are_numbered_and_at_rest_within_the_unit_interval(session):
    assert session.drives == ("u0", "u1", "u2", "u3")
    assert session.sensors == ("y0", "y1", "y2", "y3", "y4")
    assert list(session.rest) == list(session.drives)
    assert all(0 <= level <= 1 for level in session.rest.values())
    assert session.contracts() == [
        contract.to_json() for contract in load("B2").instance(SEED, redraws=0).contracts()
    ]


PUBLIC = {
    "contracts", "drives", "history", "horizon", "preparations_left", "rest", "run", "sensors", "ticks_left",
}  # fmt: skip
GARBAGE = [
    None,
    [{"ticks": 0, "set": {"u99": 1, "u0": 7, "y0": 1}, "x": 1}],
    [{"ticks": 257}],
    [{"ticks": 200}] * 2,
    [{"ticks": 250}],
]


def surface_of(session):
    """Every text that a session's public side gives, run by run: attributes, reprs, docs, errors."""
    session.run(SHORT)
    texts = [repr(session), str(session), f"{session}", *dir(session)]
    for name in dir(session):
        if not name.startswith("_"):
            value = getattr(session, name)
            texts += [name, repr(value), str(value), inspect.getdoc(value) or "" if callable(value) else ""]
    texts += [repr(session.contracts()), inspect.getdoc(type(session)) or "", repr(type(session))]
    for protocol in GARBAGE:
        with pytest.raises(SimworldsError, match=".") as caught:
            session.run(protocol)
        texts += [str(caught.value), repr(caught.value), caught.value.code, *caught.value.faults]
    for function in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied") as caught:
            function(session)
        texts.append(str(caught.value))
    return texts


def words_of(texts):
    return {word for text in texts for word in re.findall(r"\w+", text)}


def secrets_of(instance):
    """What must not be shown: words that count as a whole, and phrases that count anywhere."""
    world = instance.world
    noise = Noise(role_words("test", 0, "initial"), np.uint32(0))
    state = world.initial(instance.params, noise)
    words = {world.id, *(drive.name for drive in world.drives), *instance.params._fields, *state._fields}
    phrases = {world.title, type(world).__name__, str(instance.seed), *world.branches} - {"only"}
    return words, phrases | {sensor.name for sensor in world.sensors}


def leaks_in(texts, instance, vocabulary):
    """Secrets that texts tell; a word that every world's session uses tells nothing."""
    words, phrases = secrets_of(instance)
    told = {phrase for phrase in phrases for text in texts if phrase.casefold() in text.casefold()}
    return told | (words_of(texts) & words - vocabulary)


@pytest.fixture(scope="module")
def surfaces():
    """The session's texts by world."""
    made = {}
    for world in worlds():
        session = world.instance(SEED, redraws=0).session(Budget(ticks=240, preparations=3))
        made[world.id] = surface_of(session)
        assert {name for name in dir(session) if not name.startswith("_")} == PUBLIC
    return made


@pytest.fixture(scope="module")
def vocabulary(surfaces):
    """The words that the sessions of all worlds use: ports, and the English of docs and errors."""
    return set.intersection(*(words_of(texts) for texts in surfaces.values()))


@pytest.mark.parametrize("world", list(worlds()), ids=lambda world: world.id)
def test_nothing_that_a_session_shows_tells_the_world(world, surfaces, vocabulary):
    assert leaks_in(surfaces[world.id], world.instance(SEED, redraws=0), vocabulary) == set()


LEAKS = [
    "<Session of B2>",
    "a contest of species",
    f"seed {SEED}",
    "k_P = 0.3",
    "Turbidity",
    "species 1 won",
    "rho",
]


@pytest.mark.parametrize("text", LEAKS)
def test_the_search_for_leaks_finds_planted_ones(text, vocabulary):
    assert leaks_in(
        ["a protocol must be a list of segments", text], load("B2").instance(SEED, redraws=0), vocabulary
    )


@pytest.mark.parametrize(
    "action", [lambda s: s.run(SHORT), lambda s: s.contracts()], ids=["run", "contracts"]
)
def test_a_divergence_does_not_tell_the_world(session, monkeypatch, tmp_path, vocabulary, action):
    def diverge(instance, requests, clones, **options):
        raise Diverged(
            f"world {instance.world.id}, seed {instance.seed}: clone 0 was no longer finite at tick 3"
        )

    monkeypatch.setattr(session_module, "simulate", diverge)
    monkeypatch.setattr(truth_module, "simulate", diverge)
    monkeypatch.setenv("SIMWORLDS_HOME", str(tmp_path))
    with pytest.raises(Diverged, match="finite") as caught:
        action(session)
    told = [repr(caught.value), str(caught.value), *caught.value.faults]
    assert leaks_in(told, load("B2").instance(SEED, redraws=0), vocabulary) == set()
    printed = "".join(traceback.format_exception(caught.value))
    assert f"seed {SEED}" not in printed, "the original error must not be chained"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_live_session_cannot_be_pickled(session, protocol):
    with pytest.raises(TypeError, match="a live session cannot be pickled or copied"):
        pickle.dumps(session, protocol)
    with pytest.raises(TypeError, match="a live session cannot be pickled or copied"):
        pickle.dumps({"mine": [session]}, protocol)


@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy])
def test_a_live_session_cannot_be_copied(session, function):
    session.run(SHORT)
    with pytest.raises(TypeError, match="a live session cannot be pickled or copied"):
        function(session)
    experiment = function(session.history[0])
    np.testing.assert_array_equal(experiment.readings, session.history[0].readings)


def test_sessions_do_not_share_their_budget():
    instance = load("B2").instance(SEED, redraws=0)
    one, other = instance.session(), instance.session()
    one.run(SHORT)
    assert state_of(other) == (4096, 32, 0)
    assert isinstance(other, Session)
