"""Recompute a ladder record's scores from what it stores, and say whether they agree to the last bits.

No world is run: draws, branches, spread, fraction and range give scale and floor, and with each rung's
answers all of its scores.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.inputs import UsageError
from experiments.records import SCHEMA, leave_one_out
from scoring.checks import Truth, check_answers, check_truth
from scoring.scorecard import FIGURES, Scorecard, scorecard

ROUNDING = 1e-12  # relative; another processor or compiler may differ by this much, an edited record by more
_SCORES = (*FIGURES, "null_accuracy", "null_excess")
_ROW = ("id", *_SCORES, "quantile_score", "answered")
_MEANS = (*_SCORES, "missing")
_TRUTH = ("draws", "branch", "fraction", "dynamic_range", "tau", "scale", "floor")
_SHOWN = 40


@dataclass(frozen=True)
class Difference:
    """A field that is stored with another value than the recomputed one.

    Attributes:
        rung: name of the rung, or "truth".
        field: path of the field, such as "scores[3].excess".
        stored: what the record says; None where it says nothing.
        recomputed: what follows from its draws and answers.
        relative: absolute difference over the larger of the two, None where they are no numbers.
    """

    rung: str
    field: str
    stored: Any
    recomputed: Any
    relative: float | None

    @property
    def rounding(self) -> bool:
        """Whether it is no more than another machine's rounding."""
        return self.relative is not None and self.relative <= ROUNDING


@dataclass(frozen=True)
class RungCheck:
    """How one part of a record compares: a rung, or the truth.

    Attributes:
        rung: name of the rung, or "truth".
        compared: number of fields that were compared.
        differences: those that differ in any bit.
    """

    rung: str
    compared: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class RescoreReport:
    """The comparison of a whole record.

    Attributes:
        world: the record's world.
        seed: the record's seed.
        clones: number of truth draws of each contract.
        parts: the truth and each rung.
        unchecked: fields of the record's scores and truth that do not follow from what it stores.
    """

    world: str
    seed: Any
    clones: int
    parts: tuple[RungCheck, ...]
    unchecked: tuple[str, ...]

    @property
    def compared(self) -> int:
        """Number of fields that were compared."""
        return sum(part.compared for part in self.parts)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All the fields that differ in any bit."""
        return tuple(each for part in self.parts for each in part.differences)

    @property
    def identical(self) -> bool:
        """Whether every field agrees to the last bit."""
        return not self.differences

    @property
    def agrees(self) -> bool:
        """Whether every field agrees but for rounding."""
        return all(each.rounding for each in self.differences)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.identical:
            return f"all {self.compared} fields agree to the last bit"
        worst = f"{len(self.differences)} of {self.compared} fields differ"
        return f"{worst} by rounding alone" if self.agrees else worst

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "world": self.world,
            "seed": self.seed,
            "clones": self.clones,
            "identical": self.identical,
            "agrees": self.agrees,
            "verdict": self.verdict,
            "compared": self.compared,
            "unchecked": list(self.unchecked),
            "differences": [asdict(each) | {"rounding": each.rounding} for each in self.differences],
        }

    def table(self) -> Any:
        """One row a part, then the fields that differ, as a rich table."""
        from rich.table import Table

        table = Table(title=f"{self.world}, seed {self.seed}: {self.verdict}")
        table.caption = f"does not follow from the record: {', '.join(self.unchecked) or 'nothing'}"
        for name in ("part", "fields", "differ", "field", "stored", "recomputed"):
            table.add_column(name, justify="right" if name in ("fields", "differ") else "left")
        for part in self.parts:
            counts = (part.rung, str(part.compared), str(len(part.differences)))
            shown = [(each.field, f"{each.stored!r}", f"{each.recomputed!r}") for each in part.differences]
            table.add_row(*counts, *(shown[0] if shown else ("", "", "")))
            for fields in shown[1:_SHOWN]:
                table.add_row("", "", "", *fields)
            if len(shown) > _SHOWN:
                table.add_row("", "", "", f"and {len(shown) - _SHOWN} more", "", "")
        return table


def _need(holder: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """A field of the record.

    Raises:
        UsageError: if it is absent or of another kind.
    """
    if not isinstance(holder, Mapping):
        raise UsageError(f"{where} must be an object, but is {type(holder).__name__}")
    if key not in holder:
        raise UsageError(f"{where} must have the field {key!r}, but lacks it: is this a ladder record?")
    if not isinstance(holder[key], kind) or isinstance(holder[key], bool):
        raise UsageError(f"{where}[{key!r}] is of the wrong kind: {type(holder[key]).__name__}")
    return holder[key]


def _checked(record: Any) -> tuple[Truth, list[int]]:
    """The truth and the contracts' ids.

    Raises:
        UsageError: if this is no ladder record, with what is wrong.
    """
    if not isinstance(record, Mapping):
        raise UsageError(f"a record must be a JSON object, but is {type(record).__name__}")
    schema = record.get("schema")
    if schema != SCHEMA:
        raise UsageError(f"a record must have the schema {SCHEMA!r}, but has {schema!r}")
    contracts = _need(record, "contracts", list, "the record")
    ids = [_need(each, "id", int, f"contracts[{k}]") for k, each in enumerate(contracts)]
    kept = _need(record, "truth", Mapping, "the record")
    columns = {name: _need(kept, name, list, "truth") for name in _TRUTH}
    try:
        truth = check_truth(
            columns["draws"],
            columns["branch"],
            fraction=columns["fraction"],
            dynamic_range=columns["dynamic_range"],
            tau=columns["tau"],
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"the record's truth is no truth: {error}") from error
    if len(ids) != len(truth.draws) or len(set(ids)) != len(ids):
        raise UsageError(
            f"the record's truth has {len(truth.draws)} contracts, but `contracts` has ids {ids}"
        )
    return truth, ids


_ABSENT = object()


def _compare(rung: str, pairs: Iterator[tuple[str, Any, Any]]) -> RungCheck:
    """Compares (field, stored, recomputed), bit by bit."""
    compared, differences = 0, []
    for field, stored, value in pairs:
        compared += 1
        number = isinstance(stored, float) or (type(stored) is int and abs(stored) < 2**1000)
        if stored is not _ABSENT and type(stored) is bool and type(value) is bool and stored == value:
            continue
        if number and not isinstance(value, bool) and stored == value:
            continue
        relative = None
        if number and not isinstance(value, bool):
            largest = max(abs(stored), abs(value))
            relative = abs(stored - value) / largest if math.isfinite(largest) else None
        shown = None if stored is _ABSENT else stored
        differences.append(Difference(rung, field, shown, value, relative))
    return RungCheck(rung, compared, tuple(differences))


def _at(column: Any, index: int) -> Any:
    return column[index] if isinstance(column, list) and index < len(column) else _ABSENT


def _truth_pairs(record: Mapping[str, Any], card: Scorecard) -> Iterator[tuple[str, Any, Any]]:
    kept = record["truth"]
    yield "clones", record.get("clones", _ABSENT), card.clones
    for name in ("scale", "floor"):
        for index, row in enumerate(card.rows):
            yield f"{name}[{index}]", _at(kept[name], index), getattr(row, name)
        if len(kept[name]) != len(card.rows):
            yield f"len({name})", len(kept[name]), len(card.rows)


def _rung_pairs(
    rung: Mapping[str, Any], card: Scorecard, expectation: Sequence[float]
) -> Iterator[tuple[str, Any, Any]]:
    kept = rung["scores"]
    if len(kept) != len(card.rows):
        yield "len(scores)", len(kept), len(card.rows)
    for index, (row, expected) in enumerate(zip(card.rows, expectation, strict=True)):
        stored = _at(kept, index)
        stored = stored if isinstance(stored, Mapping) else {}
        for name in _ROW:
            yield f"scores[{index}].{name}", stored.get(name, _ABSENT), getattr(row, name)
        yield f"scores[{index}].leave_one_out", stored.get("leave_one_out", _ABSENT), expected
    for name in _MEANS:
        yield name, rung.get(name, _ABSENT), getattr(card, name)
    yield "leave_one_out", rung.get("leave_one_out", _ABSENT), float(np.mean(expectation))


def _rung(rung: Any, number: int, truth: Truth, ids: list[int]) -> tuple[RungCheck, Scorecard]:
    where = f"rungs[{number}]"
    name = _need(rung, "rung", str, where)
    _need(rung, "scores", list, where)
    answers, faults = check_answers(_need(rung, "answers", list, where), ids)
    if faults:
        raise UsageError(f"{where} ({name}) holds answers that cannot be scored: {faults[0]}")
    card = scorecard(truth, answers, ids)
    scale = np.array([row.scale for row in card.rows])
    expectation = leave_one_out(name, answers, ids, truth.draws, scale)
    return _compare(name, _rung_pairs(rung, card, expectation)), card


def _unchecked(record: Mapping[str, Any]) -> tuple[str, ...]:
    known = {"rung", "answers", "scores", "leave_one_out", *_MEANS}
    rungs = {key for rung in record["rungs"] for key in rung if key not in known}
    truth = {f"truth.{key}" for key in record["truth"] if key not in _TRUTH}
    return tuple(sorted(truth) + sorted(f"rungs.{key}" for key in rungs))


def rescore(record: Any) -> RescoreReport:
    """Recomputes every score of a ladder record from its stored draws, spread, fraction, range and answers.

    Args:
        record: a record as decoded from JSON, see `experiments.records`.

    Returns:
        Which fields agree to the last bit, and which do not.

    Raises:
        UsageError: if this is no ladder record, or holds what cannot be scored; the message says what.
    """
    truth, ids = _checked(record)
    rungs = _need(record, "rungs", list, "the record")
    if not rungs:
        raise UsageError("the record has no rungs: there is nothing to rescore")
    world = _need(record, "world", str, "the record")
    checks = [_rung(rung, number, truth, ids) for number, rung in enumerate(rungs)]
    first = _compare("truth", _truth_pairs(record, checks[0][1]))
    parts = (first, *(check for check, _ in checks))
    return RescoreReport(world, record.get("seed"), truth.draws.shape[1], parts, _unchecked(record))
