"""Validation of answers, fault by fault, and of truth ensembles."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scoring
from scoring import ANSWERS_SCHEMA, Answer, check_answers, check_truth

QUANTILES = {"0.1": -0.45, "0.25": -0.38, "0.5": -0.3, "0.75": -0.2, "0.9": -0.05}
RANGE = "a finite number between -1e+300 and 1e+300"
LEVELS = "'0.1', '0.25', '0.5', '0.75', '0.9'"
FIELDS = "'id', 'mean', 'low', 'high', 'quantiles'"


def entry(**changes):
    return {"id": 3, "mean": -0.28, "low": -0.55, "high": 0.08} | changes


def without(key):
    return {name: value for name, value in entry().items() if name != key}


def quantiles(**changes):
    return entry(quantiles=QUANTILES | {key.replace("_", "."): value for key, value in changes.items()})


class TestValidAnswers:
    def test_a_point_answer(self):
        parsed, faults = check_answers([entry()], [3])
        assert faults == []
        assert parsed == {3: Answer(3, -0.28, -0.55, 0.08)}
        assert parsed[3].levels() == (-0.28,) * 5

    def test_quantiles_in_any_order_of_keys(self):
        given_quantiles = dict(reversed(QUANTILES.items()))
        parsed, faults = check_answers([entry(quantiles=given_quantiles)], range(5))
        assert faults == []
        assert parsed[3].levels() == parsed[3].quantiles == tuple(QUANTILES.values())

    def test_absent_answers_are_legal(self):
        assert check_answers([], [1, 2, 3]) == ({}, [])

    @pytest.mark.parametrize(
        "kind", [np.float64, np.float32, np.float16, np.int8, np.uint64, np.longdouble, int]
    )
    def test_numpy_scalars_are_numbers(self, kind):
        parsed, faults = check_answers([entry(mean=kind(1), low=kind(0), high=kind(2))], [3])
        assert faults == []
        assert parsed[3] == Answer(3, 1.0, 0.0, 2.0)
        assert all(type(value) is float for value in (parsed[3].mean, parsed[3].low, parsed[3].high))

    @pytest.mark.parametrize("identity", [3, 3.0, np.int64(3)])
    def test_an_id_is_any_whole_number(self, identity):
        parsed, faults = check_answers([entry(id=identity)], [3])
        assert faults == []
        assert [type(key) for key in parsed] == [int]

    def test_equal_quantiles_and_an_empty_interval_are_legal(self):
        flat = dict.fromkeys(QUANTILES, 0.0)
        assert check_answers([entry(low=0.08, quantiles=flat)], [3])[1] == []

    @pytest.mark.parametrize("answer", [entry(), entry(quantiles=QUANTILES)])
    def test_json_and_back(self, answer):
        parsed, _ = check_answers([answer], [3])
        assert json.loads(json.dumps(parsed[3].to_json())) == answer


FAULTS = [
    (entry(id=9), "answers[0] (id 9): `id` must be one of 1, 2, 3, but is 9"),
    (
        entry(id=10**5000),
        "answers[0] (id an integer of 16610 bits): "
        "`id` must be one of 1, 2, 3, but is an integer of 16610 bits",
    ),
    *(
        (
            entry(id=value),
            f"answers[0] (no valid id): `id` must be the integer id of a contract, but is {shown}",
        )
        for value, shown in (
            ("3", "'3'"),
            (True, "True"),
            (2.5, "2.5"),
            (None, "None"),
            ([3], "[3]"),
            (math.nan, "nan"),
            (math.inf, "inf"),
            (np.bool_(True), "True"),
        )
    ),
    (
        without("id"),
        "answers[0] (no valid id): `id` is required and must be the integer id of a contract, but is absent",
    ),
    *(
        (without(key), f"answers[0] (id 3): `{key}` is required and must be {RANGE}, but is absent")
        for key in ("mean", "low", "high")
    ),
    *(
        (entry(mean=value), f"answers[0] (id 3): `mean` must be {RANGE}, but is {shown}")
        for value, shown in (
            ("0.5", "'0.5'"),
            (False, "False"),
            (None, "None"),
            (math.nan, "nan"),
            (-math.inf, "-inf"),
            (np.float32("nan"), "nan"),
            (1.0000001e300, "1.0000001e+300"),
            (-(10**400), "an integer of 1329 bits"),
            (1 + 2j, "(1+2j)"),
            ({"value": 1}, "{'value': 1}"),
            (np.array(0.5), "array(0.5)"),
            (np.bool_(True), "True"),
        )
    ),
    (
        entry(low=0.5, high=0.25),
        "answers[0] (id 3): `low` must be at most `high`, but is 0.5 while `high` is 0.25",
    ),
    (
        entry(confidence=1, note="x"),
        f"answers[0] (id 3): an answer may have the keys {FIELDS} alone, but also has 'confidence', 'note'",
    ),
    *(
        (
            entry(quantiles=value),
            f"answers[0] (id 3): `quantiles` must be an object with the keys {LEVELS}, but is {shown}",
        )
        for value, shown in ((None, "None"), ([1, 2, 3, 4, 5], "[1, 2, 3, 4, 5]"), ("0.1", "'0.1'"))
    ),
    (
        entry(quantiles={"0.1": 0, "0.5": 1, "0.9": 2}),
        f"answers[0] (id 3): `quantiles` must have all of {LEVELS}, but lacks '0.25', '0.75'",
    ),
    (
        entry(quantiles=QUANTILES | {"0.99": 1, 0.5: 2}),
        f"answers[0] (id 3): `quantiles` may have the keys {LEVELS} alone, but also has '0.99', 0.5",
    ),
    (quantiles(**{"0_75": "x"}), f"answers[0] (id 3): `quantiles` at '0.75' must be {RANGE}, but is 'x'"),
    (quantiles(**{"0_9": math.inf}), f"answers[0] (id 3): `quantiles` at '0.9' must be {RANGE}, but is inf"),
    (
        quantiles(**{"0_25": -0.25}),
        "answers[0] (id 3): `quantiles` must not decrease from '0.25' to '0.5', but go from -0.25 to -0.3",
    ),
    *(
        (value, f"answers[0] (no id): an answer must be an object with the keys {FIELDS}, but is {shown}")
        for value, shown in ((None, "None"), (7, "7"), ([], "[]"), ("{}", "'{}'"))
    ),
]


class TestFaults:
    @pytest.mark.parametrize(("answer", "fault"), FAULTS, ids=range(len(FAULTS)))
    def test_each_by_its_sentence(self, answer, fault):
        assert check_answers([answer], [1, 2, 3]) == ({}, [fault])

    @pytest.mark.parametrize("answers", [None, {"id": 3}, "[]", 5, {3}, np.zeros(2)])
    def test_the_whole_must_be_a_list(self, answers):
        parsed, faults = check_answers(answers, [3])
        assert parsed == {}
        assert len(faults) == 1
        assert faults[0].startswith("answers must be a list of objects, one for each contract, but are ")

    def test_without_contracts_every_id_is_unknown(self):
        assert check_answers([entry()], [])[1] == [
            "answers[0] (id 3): `id` must be one of no contracts, but is 3"
        ]

    def test_two_answers_that_share_an_id_both_go(self):
        parsed, faults = check_answers([entry(), entry(id=2), entry(mean=0.0), entry(mean=1.0)], [2, 3])
        assert list(parsed) == [2]
        assert faults == [
            "answers[2] (id 3): `id` must be given once, but answers[0] has it too",
            "answers[3] (id 3): `id` must be given once, but answers[0] has it too",
        ]

    def test_a_faulty_answer_takes_its_valid_twin_along(self):
        parsed, faults = check_answers([entry(mean="x"), entry()], [3])
        assert parsed == {}
        assert len(faults) == 2

    def test_all_faults_of_one_answer_are_listed(self):
        answer = {"id": 7, "mean": None, "low": 2, "high": 1, "extra": 0, "quantiles": {"0.1": 3, "0.5": 2}}
        _, faults = check_answers([answer], [3])
        for part in (
            "`id`",
            "`mean`",
            "`low`",
            "extra",
            "lacks '0.25', '0.75', '0.9'",
            "from '0.1' to '0.5'",
        ):
            assert sum(part in fault for fault in faults) == 1, part
        assert len(faults) == 6

    def test_both_crossing_pairs_are_named(self):
        _, faults = check_answers([quantiles(**{"0_1": 5, "0_75": 9})], [3])
        assert ["'0.1' to '0.25'" in faults[0], "'0.75' to '0.9'" in faults[1], len(faults)] == [
            True,
            True,
            2,
        ]


class Hostile:
    def __repr__(self):
        raise RuntimeError("no")


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


class TestAdversarial:
    def test_a_hundred_answers(self):
        """Every fault is listed under its own position, and the valid answers among them come through."""
        faulty = [answer for answer, _ in FAULTS]
        answers = [(entry(id=100 + i) if i % 4 == 0 else faulty[i % len(faulty)]) for i in range(100)]
        parsed, faults = check_answers(answers, [1, 2, 3, *range(100, 200)])
        assert list(parsed) == [100 + i for i in range(0, 100, 4)]
        named = {int(re.match(r"answers\[(\d+)\] \(", fault).group(1)) for fault in faults}
        assert named == {i for i in range(100) if i % 4}

    @pytest.mark.parametrize(
        "value",
        [
            "x" * 10**6,
            [[0] * 10**5],
            nested(5000),
            Hostile(),
            [Hostile()],
            [10**6000],
            {i: i for i in range(10**5)},
            "line\nbreak",
            np.zeros(10**5),
            float,
        ],
        ids=range(10),
    )
    def test_whatever_came_is_shown_short_and_on_one_line(self, value):
        for answers in (value, [value], [entry(mean=value)], [entry(quantiles=value)], [entry(id=value)]):
            parsed, faults = check_answers(answers, [3])
            assert parsed == {}
            assert faults
            assert all(len(fault) < 250 and "\n" not in fault for fault in faults[:10])

    def test_many_unknown_keys_make_one_short_fault(self):
        parsed, faults = check_answers([entry(**{f"key{i}": i for i in range(10**4)})], [3])
        assert parsed == {}
        assert len(faults) == 1
        assert len(faults[0]) < 250

    def test_a_list_that_holds_itself(self):
        loop = []
        loop.append(loop)
        assert len(check_answers(loop, [3])[1]) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
numbers = st.integers(-5, 5) | st.floats(-1e301, 1e301) | json_values
level_maps = st.fixed_dictionaries(dict.fromkeys(QUANTILES, st.floats(-9, 9)), optional={"x": json_values})
entries = st.fixed_dictionaries(
    {"mean": st.floats(-9, 9) | numbers, "low": st.floats(-9, 0) | numbers, "high": st.floats(0, 9)},
    optional={"id": st.integers(0, 3) | numbers, "quantiles": level_maps | json_values},
)


def fits(value, schema):
    """A validator for the few keywords that the schema uses, in the meaning that JSON Schema gives them."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if schema["type"] == "array":
        return isinstance(value, list) and all(fits(each, schema["items"]) for each in value)
    if schema["type"] == "integer":
        return number and math.isfinite(value) and value == int(value)
    if schema["type"] == "number":
        return number and schema["minimum"] <= value <= schema["maximum"]
    known = schema["properties"]
    return (
        isinstance(value, dict)
        and set(schema["required"]) <= set(value) <= set(known)
        and all(fits(each, known[key]) for key, each in value.items())
    )


class TestSchema:
    @settings(max_examples=150)
    @given(answers=st.lists(entries | json_values, max_size=4) | json_values)
    def test_agrees_with_the_check_on_anything(self, answers):
        """The check goes beyond the schema in four ways: known ids, ids given once, ends, crossing levels."""
        parsed, faults = check_answers(answers, range(4))
        beyond = ("must be one of", "must be given once", "must be at most `high`", "must not decrease")
        structural = [fault for fault in faults if not any(text in fault for text in beyond)]
        assert fits(answers, ANSWERS_SCHEMA) == (not structural)
        for identity, answer in parsed.items():
            assert check_answers([answer.to_json()], [identity]) == ({identity: answer}, [])

    def test_names_the_levels_that_are_scored(self):
        levels = ANSWERS_SCHEMA["items"]["properties"]["quantiles"]["required"]
        assert tuple(float(level) for level in levels) == scoring.LEVELS
        assert ANSWERS_SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        json.dumps(ANSWERS_SCHEMA, allow_nan=False)


DRAWS, BRANCH = np.arange(8.0).reshape(2, 4), np.zeros((2, 4), int)
GOOD = {"draws": DRAWS, "branch": BRANCH, "fraction": 0.1, "dynamic_range": 2.0}


def spoilt(array, place, value):
    copy = array.astype(float if isinstance(value, float) else array.dtype)
    copy[place] = value
    return copy


TRUTH_FAULTS = [
    ({"draws": DRAWS[0]}, "`draws` must have shape [contract, clone], not empty, but has (4,)"),
    ({"draws": DRAWS[:0]}, "`draws` must have shape [contract, clone], not empty, but has (0, 4)"),
    ({"draws": DRAWS[:, :3]}, "`draws` must have at least 4 clones, but has 3"),
    ({"draws": DRAWS.astype(str)}, "`draws` must be numbers, but is of dtype <U32"),
    (
        {"draws": spoilt(DRAWS, (1, 2), np.nan)},
        "`draws` must be finite numbers between -1e+300 and 1e+300, but is nan at [1, 2]",
    ),
    ({"branch": BRANCH[:, :2]}, "`branch` must have the shape (2, 4) of `draws`, but has (2, 2)"),
    ({"branch": BRANCH.astype(float)}, "`branch` must be integers, but is of dtype float64"),
    ({"branch": spoilt(BRANCH, (0, 1), 16)}, "`branch` must be from 0 to 15, but goes from 0 to 16"),
    ({"branch": spoilt(BRANCH, (0, 1), -1)}, "`branch` must be from 0 to 15, but goes from -1 to 0"),
    ({"fraction": 0.0}, "`fraction` must be above 0, but is 0.0 for contract 0"),
    ({"fraction": [0.1] * 3}, "`fraction` must be one number or have shape (2,), but has (3,)"),
    ({"dynamic_range": [1.0, -2.0]}, "`dynamic_range` must be above 0, but is -2.0 for contract 1"),
    (
        {"dynamic_range": np.inf},
        "`dynamic_range` must be finite numbers between -1e+300 and 1e+300, but is inf",
    ),
    ({"tau": [0.0, -1.0]}, "`tau` must be at least 0, but is -1.0 for contract 1"),
]


class TestTruth:
    def test_numbers_serve_every_contract(self):
        truth = check_truth(**GOOD, tau=[0.5, 0.0])
        assert truth.draws.dtype == np.float64
        np.testing.assert_array_equal(truth.fraction, [0.1, 0.1])
        np.testing.assert_array_equal(truth.tau, [0.5, 0.0])
        assert check_truth(**GOOD).tau is None

    @pytest.mark.parametrize(("change", "message"), TRUTH_FAULTS, ids=range(len(TRUTH_FAULTS)))
    def test_each_fault_by_its_message(self, change, message):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            check_truth(**(GOOD | change))
