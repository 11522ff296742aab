"""Validation on the host, before any score: answers as they were handed in, and truth ensembles."""

import reprlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

_LARGEST = 1e300
_FIELDS = ("id", "mean", "low", "high", "quantiles")
_NUMBERS = ("mean", "low", "high")
_LEVEL_KEYS = ("0.1", "0.25", "0.5", "0.75", "0.9")
_LEVELS = ", ".join(repr(key) for key in _LEVEL_KEYS)
_FEWEST_DRAWS = 4
_SHOWN = 60

_NUMBER_SCHEMA = {"type": "number", "minimum": -_LARGEST, "maximum": _LARGEST}

ANSWERS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Answers to contracts",
    "description": "Also: each id names a contract and occurs once, low <= high, quantiles do not cross.",
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "mean": _NUMBER_SCHEMA,
            "low": _NUMBER_SCHEMA,
            "high": _NUMBER_SCHEMA,
            "quantiles": {
                "type": "object",
                "properties": dict.fromkeys(_LEVEL_KEYS, _NUMBER_SCHEMA),
                "required": list(_LEVEL_KEYS),
                "additionalProperties": False,
            },
        },
        "required": ["id", *_NUMBERS],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True)
class Answer:
    """A valid answer to one contract.

    Attributes:
        id: the contract's id.
        mean: the point answer.
        low: lower end of the 80 % interval.
        high: upper end of the 80 % interval.
        quantiles: the quantiles at 0.1, 0.25, 0.5, 0.75 and 0.9, or None for a point answer.
    """

    id: int
    mean: float
    low: float
    high: float
    quantiles: tuple[float, ...] | None = None

    def levels(self) -> tuple[float, ...]:
        """The five quantiles that are scored: five times the mean where none were given."""
        return (self.mean,) * len(_LEVEL_KEYS) if self.quantiles is None else self.quantiles

    def to_json(self) -> dict[str, Any]:
        """The answer as it would be handed in; `quantiles` is left out where there are none."""
        plain: dict[str, Any] = {"id": self.id, "mean": self.mean, "low": self.low, "high": self.high}
        if self.quantiles is not None:
            plain["quantiles"] = dict(zip(_LEVEL_KEYS, self.quantiles, strict=True))
        return plain


def _shortened() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother, short.maxlong = 3, _SHOWN, _SHOWN, _SHOWN
    return short


def _show(value: object) -> str:
    """A short `repr` that never raises, whatever was handed in."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = _shortened().repr(value)
    except Exception:  # a foreign __repr__, nesting or a long integer inside may raise anything
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _list(values: Collection[object]) -> str:
    text = ", ".join(_show(value) for value in islice(values, _SHOWN))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _as_number(value: object) -> float | None:
    """The value as a float, or None where it is no finite number of a size that is allowed."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)):
        return None
    # Comparing first: float() would overflow on a long integer. NaN fails the comparison.
    return float(value) if abs(value) <= _LARGEST else None


def _as_id(value: object) -> int | None:
    """The value as an integer; 3.0 is one, as it is in JSON Schema."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    number = _as_number(value)
    return int(number) if number is not None and number.is_integer() else None


def _check_id(entry: Mapping[Any, Any], known: Collection[int]) -> tuple[int | None, list[str]]:
    if "id" not in entry:
        return None, ["`id` is required and must be the integer id of a contract, but is absent"]
    identity = _as_id(entry["id"])
    if identity is None:
        return None, [f"`id` must be the integer id of a contract, but is {_show(entry['id'])}"]
    if identity not in known:
        return identity, [f"`id` must be one of {_list(known) or 'no contracts'}, but is {_show(identity)}"]
    return identity, []


def _check_number(name: str, holder: Mapping[Any, Any], key: str) -> tuple[float | None, list[str]]:
    allowed = f"a finite number between -{_LARGEST:g} and {_LARGEST:g}"
    if key not in holder:
        return None, [f"{name} is required and must be {allowed}, but is absent"]
    number = _as_number(holder[key])
    return number, [] if number is not None else [f"{name} must be {allowed}, but is {_show(holder[key])}"]


def _check_quantiles(given: object) -> tuple[tuple[float, ...] | None, list[str]]:
    if not isinstance(given, dict):
        return None, [f"`quantiles` must be an object with the keys {_LEVELS}, but is {_show(given)}"]
    faults = []
    unknown = [key for key in given if key not in _LEVEL_KEYS]
    if unknown:
        faults.append(f"`quantiles` may have the keys {_LEVELS} alone, but also has {_list(unknown)}")
    missing = [key for key in _LEVEL_KEYS if key not in given]
    if missing:
        faults.append(f"`quantiles` must have all of {_LEVELS}, but lacks {_list(missing)}")
    numbers: dict[str, float] = {}
    for key in _LEVEL_KEYS:
        if key in given:
            number, found = _check_number(f"`quantiles` at '{key}'", given, key)
            faults += found
            if number is not None:
                numbers[key] = number
    present = list(numbers.items())
    for (lower, left), (upper, right) in zip(present, present[1:], strict=False):
        if left > right:
            rise = f"must not decrease from '{lower}' to '{upper}', but go from {left!r} to {right!r}"
            faults.append(f"`quantiles` {rise}")
    return (tuple(numbers.values()), []) if not faults else (None, faults)


def _check_fields(entry: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    fields: dict[str, Any] = {}
    faults = []
    for key in _NUMBERS:
        fields[key], found = _check_number(f"`{key}`", entry, key)
        faults += found
    low, high = fields["low"], fields["high"]
    if low is not None and high is not None and low > high:
        faults.append(f"`low` must be at most `high`, but is {low!r} while `high` is {high!r}")
    if "quantiles" in entry:
        fields["quantiles"], found = _check_quantiles(entry["quantiles"])
        faults += found
    unknown = [key for key in entry if key not in _FIELDS]
    if unknown:
        faults.append(f"an answer may have the keys {_list(_FIELDS)} alone, but also has {_list(unknown)}")
    return fields, faults


_Checked = tuple[int | None, Answer | None, list[str]]


def _check_entry(entry: object, where: str, known: Collection[int]) -> _Checked:
    if not isinstance(entry, dict):
        fault = f"an answer must be an object with the keys {_list(_FIELDS)}, but is {_show(entry)}"
        return None, None, [f"{where} (no id): {fault}"]
    identity, faults = _check_id(entry, known)
    fields, found = _check_fields(entry)
    faults = faults + found
    name = f"{where} (no valid id)" if identity is None else f"{where} (id {_show(identity)})"
    if faults or identity is None:
        return identity, None, [f"{name}: {fault}" for fault in faults]
    return identity, Answer(id=identity, **fields), []


def check_answers(answers: object, contract_ids: Iterable[int]) -> tuple[dict[int, Answer], list[str]]:
    """Checks answers as they were handed in and lists every fault.

    Args:
        answers: any object, as decoded from JSON. Valid is a list of objects `{"id", "mean", "low", "high"}`,
            each with an optional `"quantiles"` that has the five keys "0.1", "0.25", "0.5", "0.75" and
            "0.9"; numpy scalars count as numbers. A contract without an answer is no fault.
        contract_ids: the ids that may be answered.

    Returns:
        The valid answers by id, in the order given, and the faults, one sentence each without its full stop.
        An id with a fault, or one that two answers share, has no valid answer.
    """
    if not isinstance(answers, (list, tuple)):
        return {}, [f"answers must be a list of objects, one for each contract, but are {_show(answers)}"]
    known = dict.fromkeys(int(identity) for identity in contract_ids)
    parsed: dict[int, Answer] = {}
    faults: list[str] = []
    first: dict[int, int] = {}
    for position, entry in enumerate(answers):
        identity, answer, found = _check_entry(entry, f"answers[{position}]", known)
        faults += found
        if identity is None:
            continue
        if identity in first:
            parsed.pop(identity, None)
            name = f"answers[{position}] (id {_show(identity)})"
            faults.append(f"{name}: `id` must be given once, but answers[{first[identity]}] has it too")
        elif answer is not None:
            parsed[identity] = answer
        first.setdefault(identity, position)
    return parsed, faults


class Truth(NamedTuple):
    """Truth of some contracts, as arrays of one dtype.

    Attributes:
        draws: truth draws, [contract, clone].
        branch: branch labels, integers, [contract, clone].
        fraction: share of the dynamic range in the scale, [contract].
        dynamic_range: range of the channel, above 0, [contract].
        tau: within-branch spread, [contract]; None takes it from `draws`.
    """

    draws: np.ndarray
    branch: np.ndarray
    fraction: np.ndarray
    dynamic_range: np.ndarray
    tau: np.ndarray | None = None


def _per_contract(name: str, value: object, contracts: int, least: str) -> np.ndarray:
    """A finite float64 array, one number for each contract; one number alone serves all."""
    array = _as_floats(name, value)
    if array.shape not in ((), (contracts,)):
        raise ValueError(f"`{name}` must be one number or have shape ({contracts},), but has {array.shape}")
    array = np.broadcast_to(array, (contracts,))
    legal = array > 0 if least == "above 0" else array >= 0
    if not legal.all():
        worst = int(np.flatnonzero(~legal)[0])
        raise ValueError(f"`{name}` must be {least}, but is {array[worst]} for contract {worst}")
    return array


def _as_floats(name: str, value: object) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"`{name}` must be numbers, but is of dtype {array.dtype}")
    array = array.astype(np.float64)
    illegal = ~(np.abs(array) <= _LARGEST)
    if illegal.any():
        place = tuple(int(index) for index in np.argwhere(illegal)[0])
        where = f" at {list(place)}" if place else ""
        allowed = f"finite numbers between -{_LARGEST:g} and {_LARGEST:g}"
        raise ValueError(f"`{name}` must be {allowed}, but is {array[place]}{where}")
    return array


def check_truth(
    draws: object,
    branch: object,
    *,
    fraction: object,
    dynamic_range: object,
    tau: object = None,
    labels: int = 16,
) -> Truth:
    """Checks the truth of some contracts before it is scored against.

    Args:
        draws: truth draws, [contract, clone], at least four clones.
        branch: branch labels, integers 0 to `labels - 1`, [contract, clone].
        fraction: share of the dynamic range in the scale, above 0; one number or [contract].
        dynamic_range: range of the channel, above 0; one number or [contract].
        tau: within-branch spread, at least 0; one number or [contract]. None takes it from `draws`. Pass the
            spread of further clones where the draws leave fewer than three degrees of freedom.
        labels: number of branch labels that can occur.

    Returns:
        The same truth in finite float64 arrays.

    Raises:
        ValueError: for a wrong shape or dtype, a number out of range, too few clones, or no contract.
    """
    values = _as_floats("draws", draws)
    if values.ndim != 2 or values.shape[0] < 1:
        raise ValueError(f"`draws` must have shape [contract, clone], not empty, but has {values.shape}")
    if values.shape[1] < _FEWEST_DRAWS:
        raise ValueError(f"`draws` must have at least {_FEWEST_DRAWS} clones, but has {values.shape[1]}")
    label = np.asarray(branch)
    if label.dtype.kind not in "iu":
        raise ValueError(f"`branch` must be integers, but is of dtype {label.dtype}")
    if label.shape != values.shape:
        raise ValueError(f"`branch` must have the shape {values.shape} of `draws`, but has {label.shape}")
    if label.min() < 0 or label.max() >= labels:
        reach = f"from {label.min()} to {label.max()}"
        raise ValueError(f"`branch` must be from 0 to {labels - 1}, but goes {reach}")
    contracts = len(values)
    return Truth(
        draws=values,
        branch=label.astype(np.int32),
        fraction=_per_contract("fraction", fraction, contracts, "above 0"),
        dynamic_range=_per_contract("dynamic_range", dynamic_range, contracts, "above 0"),
        tau=None if tau is None else _per_contract("tau", tau, contracts, "at least 0"),
    )
