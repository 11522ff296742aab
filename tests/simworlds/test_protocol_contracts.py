"""Protocols and contracts: what is refused and how it is said, what levels mean, what the grammar asks."""

import dataclasses
import inspect
import json
import math
import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simworlds.catalogue import load, worlds
from simworlds.contracts import (
    CONTRACTS,
    CONTRACTS_SCHEMA,
    Contract,
    contracts_of,
    grammar_protocol,
    parse_contract,
)
from simworlds.ensemble import Readout, Request
from simworlds.errors import InvalidContract, InvalidProtocol, SimworldsError
from simworlds.instance import check_seed
from simworlds.keys import Draws
from simworlds.protocol import Protocol, Segment, parse_protocol
from simworlds.store import Store
from simworlds.truth import calibrate

PORTS = ("u0", "u1", "u2")
HORIZON = 100


def parse(data):
    return parse_protocol(data, PORTS, HORIZON)


def faults_of(data):
    with pytest.raises(InvalidProtocol, match=".") as caught:
        parse(data)
    assert caught.value.code == "invalid_protocol"
    assert str(caught.value) == "; ".join(caught.value.faults)
    assert "\n" not in str(caught.value)
    return list(caught.value.faults)


# Protocols


def test_a_protocol_takes_its_form():
    data = [{"ticks": 40, "set": {"u0": 0.8, "u2": 1}}, {"ticks": 60}]
    protocol = parse(data)
    assert protocol == Protocol((Segment(40, {"u0": 0.8, "u2": 1.0}), Segment(60, {})))
    assert protocol.ticks == 100
    assert protocol.to_json() == [{"ticks": 40, "set": {"u0": 0.8, "u2": 1.0}}, {"ticks": 60, "set": {}}]
    assert parse(protocol) == parse(protocol.to_json()) == parse(tuple(data)) == protocol


def test_numpy_numbers_become_plain_ones():
    protocol = parse([{"ticks": np.int64(3), "set": {"u1": np.float32(0.5)}}])
    assert json.loads(json.dumps(protocol.to_json())) == [{"ticks": 3, "set": {"u1": 0.5}}]


def test_what_was_handed_in_can_change_later():
    data = [{"ticks": 4, "set": {"u0": 0.5}}]
    protocol = parse(data)
    data[0]["set"]["u0"] = 2.0
    assert protocol.segments[0].set == {"u0": 0.5}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "a protocol must be a list of segments, but is None"),
        ("rest", "a protocol must be a list of segments, but is 'rest'"),
        (b"rest", "a protocol must be a list of segments, but is b'rest'"),
        (3, "a protocol must be a list of segments, but is 3"),
        ({"ticks": 4}, "a protocol must be a list of segments, but is {'ticks': 4}"),
        ([], "a protocol must have at least one segment, but is empty"),
        ([{"ticks": 1}] * 101, "a protocol may have at most 100 segments, but has 101"),
        ([{"ticks": 60}, {"ticks": 41}], "a protocol may last at most 100 ticks, but lasts 101"),
        ([4], "segment 0 must be an object with `ticks` and `set`, but is 4"),
        (
            [{"ticks": 4}, ["ticks", 4]],
            "segment 1 must be an object with `ticks` and `set`, but is ['ticks', 4]",
        ),
        ([{}], "segment 0: `ticks` must be a whole number from 1 to 100, but is None"),
        ([{"ticks": 0}], "segment 0: `ticks` must be a whole number from 1 to 100, but is 0"),
        ([{"ticks": -3}], "segment 0: `ticks` must be a whole number from 1 to 100, but is -3"),
        ([{"ticks": 101}], "segment 0: `ticks` must be a whole number from 1 to 100, but is 101"),
        ([{"ticks": 4.0}], "segment 0: `ticks` must be a whole number from 1 to 100, but is 4.0"),
        ([{"ticks": "4"}], "segment 0: `ticks` must be a whole number from 1 to 100, but is '4'"),
        ([{"ticks": True}], "segment 0: `ticks` must be a whole number from 1 to 100, but is True"),
        ([{"ticks": 4, "sets": {}}], "segment 0 has an unknown field 'sets'; allowed are `ticks` and `set`"),
        ([{"ticks": 4, "set": 1}], "segment 0: `set` must be an object of port and level, but is 1"),
        ([{"ticks": 4, "set": None}], "segment 0: `set` must be an object of port and level, but is None"),
        (
            [{"ticks": 4, "set": {"u3": 0}}],
            "segment 0: there is no drive port 'u3'; the ports are u0, u1, u2",
        ),
        (
            [{"ticks": 4, "set": {"y0": 0}}],
            "segment 0: there is no drive port 'y0'; the ports are u0, u1, u2",
        ),
        ([{"ticks": 4, "set": {0: 0}}], "segment 0: there is no drive port 0; the ports are u0, u1, u2"),
    ],
)
def test_a_fault_is_said_in_a_sentence(data, message):
    assert faults_of(data) == [message]


@pytest.mark.parametrize(
    "level",
    [
        -0.1,
        1.0000001,
        math.nan,
        math.inf,
        -math.inf,
        "0.5",
        None,
        True,
        [0.5],
        1j,
        pytest.param(10**400, id="10^400"),
    ],
)
def test_a_level_lies_in_the_unit_interval(level):
    [fault] = faults_of([{"ticks": 4, "set": {"u1": level}}])
    assert fault.startswith("segment 0: the level of u1 must be a number in [0, 1], but is ")


@pytest.mark.parametrize("level", [0, 1, 0.0, 1.0, 5e-324, Fraction(1, 3), np.float32(1)])
def test_the_ends_of_the_interval_are_allowed(level):
    assert parse([{"ticks": 4, "set": {"u1": level}}]).segments[0].set["u1"] == float(level)


def test_all_faults_are_listed_at_once():
    faults = faults_of(
        [{"ticks": 0, "set": {"u9": 0.5, "u0": 2, "u1": "x"}, "name": 1}, 7, {"ticks": 3}, {"set": [1]}]
    )
    assert [fault.split(":")[0].split(" has")[0].split(" must")[0] for fault in faults] == [
        *["segment 0"] * 5,
        "segment 1",
        *["segment 3"] * 2,
    ]
    for word in ("unknown field 'name'", "`ticks`", "'u9'", "level of u0", "level of u1", "7", "`set`"):
        assert any(word in fault for fault in faults), word


def test_a_long_value_is_cut_short():
    [fault] = faults_of([{"ticks": "x" * 10**6}])
    assert len(fault) < 200
    assert len(faults_of("x" * 10**6)[0]) < 200


def nested(depth):
    data = []
    for _ in range(depth):
        data = [data]
    return data


@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), nested(100_000), {"u0": nested(5000)}], ids=["+", "-", "list", "dict"]
)
def test_a_value_that_python_cannot_show_is_refused_like_another(value):
    for data in (
        value,
        [value],
        [{"ticks": value}],
        [{"ticks": 3, "set": {"u0": value}}],
        [{"ticks": 3, "set": value}],
    ):
        assert faults_of(data)
    with pytest.raises(SimworldsError, match="."):
        check_seed(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["ticks", "set", "u0", "u1", "u7", "x", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)
NEARLY = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "ticks": st.integers(1, 30) | JSON,
            "set": st.dictionaries(st.sampled_from(["u0", "u1", "u7"]), st.floats(0, 1) | JSON, max_size=3)
            | JSON,
            "more": JSON,
        },
    )
    | JSON,
    max_size=4,
)


@settings(max_examples=400)
@given(JSON | NEARLY)
def test_garbage_is_an_invalid_protocol_and_nothing_else(data):
    try:
        protocol = parse(data)
    except InvalidProtocol:
        assert faults_of(data)
        return
    assert 1 <= protocol.ticks <= HORIZON
    levels = protocol.levels(PORTS, np.zeros(3))
    assert levels.shape == (protocol.ticks, 3)
    assert ((levels >= 0) & (levels <= 1)).all()
    assert parse(json.loads(json.dumps(protocol.to_json()))) == protocol


# Levels


def test_levels_start_from_rest_and_hold():
    protocol = parse(
        [{"ticks": 2}, {"ticks": 1, "set": {"u1": 1}}, {"ticks": 2, "set": {"u0": 0.5, "u2": 0}}]
    )
    levels = protocol.levels(PORTS, np.array([0.1, 0.2, 0.3]))
    expected = [[0.1, 0.2, 0.3]] * 2 + [[0.1, 1.0, 0.3]] + [[0.5, 1.0, 0.0]] * 2
    np.testing.assert_array_equal(levels, expected)


def test_levels_leave_the_rest_vector_alone():
    rest = np.array([0.1, 0.2, 0.3])
    parse([{"ticks": 2, "set": {"u0": 1}}]).levels(PORTS, rest)
    np.testing.assert_array_equal(rest, [0.1, 0.2, 0.3])


@pytest.mark.parametrize("seed", range(4))
def test_a_port_s_level_reaches_its_own_drive(seed):
    instance = load("B2").instance(seed, redraws=0)
    for port, drive in enumerate(instance.wiring.drives):
        levels = instance.levels(instance.protocol([{"ticks": 3}, {"ticks": 2, "set": {f"u{port}": 0.77}}]))
        expected = np.tile(instance.world.rest, (5, 1))
        expected[3:, drive] = 0.77
        np.testing.assert_array_equal(levels, expected)
        assert instance.rest[port] == instance.world.rest[drive]


# Contracts


@pytest.fixture(scope="module")
def instance():
    return load("C2").instance(0, redraws=0)


def contract_data(**changes):
    protocol = [{"ticks": 40, "set": {"u1": 0.25}}, {"ticks": 20}]
    fine = {"id": 3, "protocol": protocol, "port": "y2", "window": [30, 54], "statistic": "mean"}
    return {key: value for key, value in (fine | changes).items() if value is not ...}


def contract_faults(data, instance):
    with pytest.raises(InvalidContract, match=".") as caught:
        inspect.unwrap(parse_contract)(data, instance)
    assert caught.value.code == "invalid_contract"
    return list(caught.value.faults)


def test_a_contract_takes_its_form(instance):
    contract = parse_contract(contract_data(), instance)
    assert contract == Contract(3, instance.protocol(contract_data()["protocol"]), "y2", (30, 54), "mean")
    assert contract.readout() == Readout(2, 30, 54, sd=False)
    assert contract.request("truth") == Request(contract.protocol, ("truth", 3), contract.readout())
    assert parse_contract(contract.to_json(), instance) == contract
    assert parse_contract(contract_data(statistic="sd"), instance).readout().sd


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": ...}, "`id` is missing"),
        ({"window": ...}, "`window` is missing"),
        ({"why": 1}, "unknown field 'why'; allowed are id, protocol, port, window, statistic"),
        ({"id": -1}, "`id` must be a whole number of at least 0, but is -1"),
        ({"id": "3"}, "`id` must be a whole number of at least 0, but is '3'"),
        ({"id": True}, "`id` must be a whole number of at least 0, but is True"),
        ({"port": "y4"}, "there is no sensor port 'y4'; the ports are y0, y1, y2, y3"),
        ({"port": "u0"}, "there is no sensor port 'u0'; the ports are y0, y1, y2, y3"),
        ({"port": 2}, "there is no sensor port 2; the ports are y0, y1, y2, y3"),
        ({"port": ["y2"]}, "there is no sensor port ['y2']; the ports are y0, y1, y2, y3"),
        ({"statistic": "median"}, "`statistic` must be one of mean, sd, but is 'median'"),
        ({"statistic": {}}, "`statistic` must be one of mean, sd, but is {}"),
        ({"window": [30]}, "`window` must be two whole numbers [start, stop], but is [30]"),
        ({"window": "ab"}, "`window` must be two whole numbers [start, stop], but is 'ab'"),
        ({"window": [1.0, 9]}, "`window` must be two whole numbers [start, stop], but is [1.0, 9]"),
        ({"window": [30, math.nan]}, "`window` must be two whole numbers [start, stop], but is [30, nan]"),
        ({"window": {"start": 1}}, "`window` must be two whole numbers [start, stop], but is {'start': 1}"),
        (
            {"window": [-1, 9]},
            "`window` must start at tick 0 or later and hold at least 2 ticks, but is [-1, 9)",
        ),
        (
            {"window": [9, 10]},
            "`window` must start at tick 0 or later and hold at least 2 ticks, but is [9, 10)",
        ),
        (
            {"window": [9, 5]},
            "`window` must start at tick 0 or later and hold at least 2 ticks, but is [9, 5)",
        ),
        ({"window": [50, 61]}, "`window` must end by tick 60, the end of the protocol, but ends at 61"),
        ({"protocol": []}, "a protocol must have at least one segment, but is empty"),
        (
            {"protocol": [{"ticks": 300}]},
            "segment 0: `ticks` must be a whole number from 1 to 256, but is 300",
        ),
    ],
)
def test_a_contract_s_fault_is_said_in_a_sentence(instance, changes, message):
    assert contract_faults(contract_data(**changes), instance) == [message]


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_a_contract_is_an_object(instance, data):
    [fault] = contract_faults(data, instance)
    assert fault.startswith(
        "a contract must be an object with id, protocol, port, window, statistic, but is "
    )


def test_all_faults_of_a_contract_are_listed_at_once(instance):
    broken = contract_data(
        id=-1, port="y9", statistic="max", window=[5, 5], protocol=[{"ticks": 0, "set": {"u9": 1}}]
    )
    faults = contract_faults(broken, instance)
    assert len(faults) == 6
    for word in ("`id`", "'y9'", "`statistic`", "`window`", "`ticks`", "'u9'"):
        assert sum(word in fault for fault in faults) == 1, word


@settings(max_examples=200)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.integers(0, 9) | JSON,
            "protocol": NEARLY,
            "port": st.sampled_from(["y0", "y9"]) | JSON,
            "window": st.lists(st.integers(-3, 70), min_size=1, max_size=3) | JSON,
            "statistic": st.sampled_from(["mean", "sd"]) | JSON,
        },
    )
    | JSON
)
def test_garbage_is_an_invalid_contract_and_nothing_else(data):
    instance = load("C2").instance(0, redraws=0)
    try:
        contract = inspect.unwrap(parse_contract)(data, instance)
    except InvalidContract:
        assert contract_faults(data, instance)
        return
    assert parse_contract(json.loads(json.dumps(contract.to_json())), instance) == contract


# The grammar


def schema_faults(value, schema, at="$"):
    """Faults of a value under the few rules of JSON Schema that `CONTRACTS_SCHEMA` uses."""
    known = {
        "$schema", "title", "description", "type", "items", "required", "additionalProperties", "properties",
        "minimum", "maximum", "minItems", "maxItems", "propertyNames", "pattern", "enum",
    }  # fmt: skip
    assert set(schema) <= known, "the checker does not know this rule"
    types = {"array": list, "object": dict, "string": str, "integer": int, "number": int | float}
    kind = schema.get("type")
    if kind and (not isinstance(value, types[kind]) or isinstance(value, bool)):
        return [f"{at}: type"]
    faults = []
    if "enum" in schema and value not in schema["enum"]:
        faults.append(f"{at}: enum")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        faults.append(f"{at}: pattern")
    if "minimum" in schema and not value >= schema["minimum"]:
        faults.append(f"{at}: minimum")
    if "maximum" in schema and not value <= schema["maximum"]:
        faults.append(f"{at}: maximum")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
            faults.append(f"{at}: items")
        for k, item in enumerate(value):
            faults += schema_faults(item, schema.get("items", {}), f"{at}[{k}]")
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        faults += [f"{at}: required {name}" for name in schema.get("required", ()) if name not in value]
        for name, item in value.items():
            if "propertyNames" in schema:
                faults += schema_faults(name, schema["propertyNames"], f"{at} name {name}")
            if name not in properties and others is False:
                faults.append(f"{at}: unknown {name}")
            else:
                faults += schema_faults(item, properties.get(name, others), f"{at}.{name}")
    return faults


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"id": ...}, "$[0]: required id"),
        ({"id": -1}, "$[0].id: minimum"),
        ({"id": True}, "$[0].id: type"),
        ({"why": 1}, "$[0]: unknown why"),
        ({"port": "u1"}, "$[0].port: pattern"),
        ({"statistic": "max"}, "$[0].statistic: enum"),
        ({"window": [1]}, "$[0].window: items"),
        ({"window": [1, 2, 3]}, "$[0].window: items"),
        ({"protocol": []}, "$[0].protocol: items"),
        ({"protocol": [{"ticks": 0}]}, "$[0].protocol[0].ticks: minimum"),
        ({"protocol": [{"set": {}}]}, "$[0].protocol[0]: required ticks"),
        ({"protocol": [{"ticks": 1, "set": {"u0": 1.5}}]}, "$[0].protocol[0].set.u0: maximum"),
        ({"protocol": [{"ticks": 1, "set": {"v0": 0.5}}]}, "$[0].protocol[0].set name v0: pattern"),
    ],
)
def test_the_schema_refuses_what_the_documented_form_excludes(changes, fault):
    assert schema_faults([contract_data()], CONTRACTS_SCHEMA) == []
    assert schema_faults([contract_data(**changes)], CONTRACTS_SCHEMA) == [fault]


@pytest.fixture(scope="module", params=list(worlds()), ids=lambda world: world.id)
def asked(request):
    """The contracts of two seeds of each world."""
    instances = [request.param.instance(seed, redraws=0) for seed in range(2)]
    return [(instance, contracts_of(instance)) for instance in instances]


def test_a_seed_has_eight_contracts_of_both_kinds(asked):
    for instance, contracts in asked:
        assert [contract.id for contract in contracts] == list(range(CONTRACTS))
        assert {contract.statistic for contract in contracts} == {"mean", "sd"}
        assert contracts == instance.contracts()


def test_a_contract_is_valid_json_of_the_documented_form(asked):
    for instance, contracts in asked:
        data = [contract.to_json() for contract in contracts]
        text = json.dumps(data, allow_nan=False)
        assert schema_faults(json.loads(text), CONTRACTS_SCHEMA) == []
        assert tuple(parse_contract(entry, instance) for entry in json.loads(text)) == contracts


def test_a_contract_keeps_to_its_family_s_grammar(asked):
    for instance, contracts in asked:
        world, grammar = instance.world, instance.world.grammar
        fewest, most = grammar.segments
        assert 2 <= fewest <= most <= 5
        behind = [world.drives[k].name for k in instance.wiring.drives]
        for contract in contracts:
            segments = contract.protocol.segments
            assert fewest <= len(segments) <= most
            assert contract.protocol.ticks <= world.horizon
            start, stop = contract.window
            assert 0 <= start
            assert start + 2 <= stop <= contract.protocol.ticks
            assert stop - start <= grammar.window[1]
            for segment in segments:
                assert grammar.ticks[0] <= segment.ticks <= grammar.ticks[1]
                assert grammar.changes[0] <= len(segment.set) <= grammar.changes[1]
                for port, level in segment.set.items():
                    low, high = grammar.levels.get(behind[int(port[1:])], (0.0, 1.0))
                    assert low - 0.005 <= level <= high + 0.005


def test_only_lively_channels_that_the_family_names_are_asked_about(asked):
    for instance, contracts in asked:
        lively = calibrate(instance).lively
        names = [instance.world.sensors[k].name for k in instance.gauge.order]
        for contract in contracts:
            port = contract.readout().port
            assert lively[port]
            assert instance.world.grammar.ask[names[port]] > 0


def test_a_dead_channel_is_never_asked_about(instance, tmp_path):
    store = Store(tmp_path)
    asked = Counter(contract.port for contract in contracts_of(instance, store))
    dead = max(asked, key=asked.get)
    sigma = np.array(instance.gauge.sigma)
    sigma[int(dead[1:])] = 1e3
    deaf = dataclasses.replace(instance, gauge=instance.gauge._replace(sigma=sigma))
    assert not calibrate(deaf, store).lively[int(dead[1:])]
    assert dead not in {contract.port for contract in contracts_of(deaf, store)}


def test_contracts_vary(asked):
    every = [contract for _, contracts in asked for contract in contracts]
    assert len({json.dumps(contract.to_json()["protocol"]) for contract in every}) == len(every)
    assert len({contract.port for contract in every}) >= 3
    shares = Counter(contract.statistic for contract in every)
    assert min(shares.values()) >= len(asked)
    assert len({len(contract.protocol.segments) for contract in every}) >= 3


def test_contracts_depend_on_world_and_seed_alone(instance, tmp_path):
    first = contracts_of(instance, Store(tmp_path / "one"))
    instance.session().run([{"ticks": 5}])
    again = contracts_of(load("C2").instance(0, redraws=0), Store(tmp_path / "two"))
    assert again == first
    assert contracts_of(load("C2").instance(1, redraws=0)) != first


def test_a_random_protocol_depends_on_its_draws_alone(instance):
    protocols = [grammar_protocol(instance, Draws.for_role("C2", 0, "test", k)) for k in (0, 0, 1)]
    assert protocols[0] == protocols[1] != protocols[2]
