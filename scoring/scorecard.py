"""Scores of all the contracts of a run, by one jitted program, and the card that reports them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scoring.checks import Answer, Truth, check_truth
from scoring.interval import interval_score
from scoring.quantile import (
    LEVELS,
    accuracy,
    branch_count,
    contract_scale,
    excess,
    fair_floor,
    legacy_accuracy,
    quantile_score,
    within_branch_spread,
)

if TYPE_CHECKING:
    from rich.table import Table

_LARGEST = 1e300
_FEWEST_ROWS = 8
_MEANS = ("accuracy", "excess", "interval", "legacy")


class AnswerArrays(NamedTuple):
    """Answers to some contracts, as arrays.

    Attributes:
        mean: point answers, [contract].
        low: lower ends of the intervals, [contract].
        high: upper ends of the intervals, [contract].
        quantiles: quantiles at `LEVELS`, [contract, level]; a point answer repeats its mean.
        answered: False where the answer is missing, [contract]; its numbers are then never read.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    quantiles: np.ndarray
    answered: np.ndarray


class ContractScores(NamedTuple):
    """Scores of some contracts, one array [contract] for each figure; `ContractScore` says what each is."""

    accuracy: Any
    excess: Any
    interval: Any
    legacy: Any
    quantile_score: Any
    floor: Any
    scale: Any
    tau: Any
    branches: Any


@partial(jax.jit, static_argnames="labels")
def score_contracts(truth: Truth, answers: AnswerArrays, *, labels: int = 16) -> ContractScores:
    """Scores every contract; a missing answer counts as one whose quantile score is the dynamic range.

    With QS, floor and scale from `scoring.quantile`, accuracy is `exp(-max(QS - floor, 0) / scale)` and
    excess `(QS - floor) / scale`. A missing answer has accuracy, interval score and legacy score 0.

    Args:
        truth: draws and branches [contract, clone]; fraction, dynamic range and, where given, tau [contract].
        answers: answers [contract], quantiles [contract, level].
        labels: number of branch labels that can occur.

    Returns:
        The scores, [contract] each. Higher is better for accuracy, interval and legacy, lower for excess.

    Source: Gneiting and Raftery (2007), doi:10.1198/016214506000001437; the exponential is the scoring
    page's.
    """
    draws, branch = jnp.asarray(truth.draws), jnp.asarray(truth.branch)
    given, dynamic_range = jnp.asarray(answers.answered), jnp.asarray(truth.dynamic_range)
    tau = within_branch_spread(draws, branch, labels=labels) if truth.tau is None else jnp.asarray(truth.tau)
    scale = contract_scale(tau, truth.fraction, dynamic_range)
    floor = fair_floor(draws)
    score = jnp.where(given, quantile_score(answers.quantiles, draws), dynamic_range)
    return ContractScores(
        accuracy=jnp.where(given, accuracy(score, floor, scale), 0),
        excess=excess(score, floor, scale),
        interval=jnp.where(given, interval_score(answers.low, answers.high, draws, scale), 0),
        legacy=jnp.where(given, legacy_accuracy(answers.mean, draws, scale), 0),
        quantile_score=score,
        floor=floor,
        scale=scale,
        tau=tau,
        branches=branch_count(branch, labels=labels),
    )


@dataclass(frozen=True)
class ContractScore:
    """Scores of one contract.

    Attributes:
        id: the contract's id.
        answered: False where the answer is missing.
        accuracy: `exp(-max(quantile_score - floor, 0) / scale)`; higher is better, 1 is perfect.
        excess: `(quantile_score - floor) / scale`; lower is better, 1e300 at most.
        interval: score of the 80 % interval; higher is better.
        legacy: the earlier score, from the mean alone; higher is better.
        quantile_score: in units of the channel, 1e300 at most; the dynamic range where the answer is missing.
        floor: fair leave-one-out CRPS of the truth draws, in units of the channel.
        scale: the contract's scale, in units of the channel.
        tau: within-branch spread that the scale rests on, in units of the channel.
        branches: number of different branches among the draws.
    """

    id: int
    answered: bool
    accuracy: float
    excess: float
    interval: float
    legacy: float
    quantile_score: float
    floor: float
    scale: float
    tau: float
    branches: int


@dataclass(frozen=True)
class Scorecard:
    """Scores of a run: one row for each contract, missing answers included, and the means over all of them.

    Attributes:
        rows: the contracts' scores.
        clones: number of truth draws of each contract.
    """

    rows: tuple[ContractScore, ...]
    clones: int

    @property
    def contracts(self) -> int:
        """Number of contracts: the denominator of every mean."""
        return len(self.rows)

    @property
    def missing(self) -> int:
        """Number of contracts without an answer."""
        return sum(not row.answered for row in self.rows)

    @property
    def accuracy(self) -> float:
        """Mean accuracy over all contracts; higher is better."""
        return self._mean("accuracy")

    @property
    def excess(self) -> float:
        """Mean excess over all contracts; lower is better."""
        return self._mean("excess")

    @property
    def interval(self) -> float:
        """Mean interval score over all contracts; higher is better."""
        return self._mean("interval")

    @property
    def legacy(self) -> float:
        """Mean of the earlier score over all contracts; higher is better."""
        return self._mean("legacy")

    def _mean(self, figure: str) -> float:
        return math.fsum(getattr(row, figure) for row in self.rows) / len(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Everything on the card as plain, finite numbers."""
        figures = (*_MEANS, "missing", "contracts", "clones")
        return {name: getattr(self, name) for name in figures} | {"rows": [asdict(row) for row in self.rows]}

    def table(self) -> Table:
        """The card as a table for a terminal, means in the last row."""
        from rich.table import Table

        title = f"{self.contracts} contracts, {self.missing} missing, {self.clones} truth draws each"
        table = Table(title=title)
        for name in ("id", *_MEANS, "score", "floor", "scale"):
            table.add_column(name, justify="right")
        for row in self.rows:
            shares = (f"{row.accuracy:.3f}", f"{row.excess:.3g}", f"{row.interval:.3f}", f"{row.legacy:.3f}")
            units = (f"{row.quantile_score:.4g}", f"{row.floor:.4g}", f"{row.scale:.4g}")
            table.add_row(str(row.id) if row.answered else f"{row.id} missing", *shares, *units)
        table.add_section()
        means = (f"{self.accuracy:.3f}", f"{self.excess:.3g}", f"{self.interval:.3f}", f"{self.legacy:.3f}")
        table.add_row("mean", *means)
        return table


def _answer_arrays(answers: Mapping[int, Answer], contract_ids: Sequence[int]) -> AnswerArrays:
    blank = Answer(id=-1, mean=0.0, low=0.0, high=0.0)
    ordered = [answers.get(identity, blank) for identity in contract_ids]
    return AnswerArrays(
        mean=np.array([answer.mean for answer in ordered], np.float64),
        low=np.array([answer.low for answer in ordered], np.float64),
        high=np.array([answer.high for answer in ordered], np.float64),
        quantiles=np.array([answer.levels() for answer in ordered], np.float64).reshape(-1, len(LEVELS)),
        answered=np.array([identity in answers for identity in contract_ids], bool),
    )


def _padded(arrays: Any, rows: int) -> Any:
    """Repeats the last contract up to `rows`, so that few programs serve any number of contracts."""

    def pad(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1), mode="edge")

    return jax.tree.map(pad, arrays)


def _finite(losses: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(losses), np.minimum(losses, _LARGEST), _LARGEST)


def scorecard(
    truth: Truth, answers: Mapping[int, Answer], contract_ids: Sequence[int], *, labels: int = 16
) -> Scorecard:
    """Scores answers against the truth, in float64.

    Args:
        truth: contracts in the order of `contract_ids`; it is checked here once more.
        answers: from `check_answers`, by contract id; a contract without an entry counts as missing.
        contract_ids: id of each contract of `truth`.
        labels: number of branch labels that can occur.

    Returns:
        The card, every number on it finite.

    Raises:
        ValueError: where `check_truth` refuses the truth, or the ids do not fit the truth or the answers.
    """
    truth = check_truth(**truth._asdict(), labels=labels)
    contracts, clones = truth.draws.shape
    if len(contract_ids) != contracts or len(set(contract_ids)) != contracts:
        raise ValueError(f"`contract_ids` must be {contracts} different ids, but are {list(contract_ids)}")
    foreign = sorted(set(answers) - set(contract_ids))
    if foreign:
        raise ValueError(f"`answers` must be to contracts {list(contract_ids)}, but has {foreign} too")
    rows = max(_FEWEST_ROWS, 1 << (contracts - 1).bit_length())
    given = _answer_arrays(answers, contract_ids)
    with jax.enable_x64(True):
        scores = jax.device_get(score_contracts(_padded(truth, rows), _padded(given, rows), labels=labels))
    # An answer far off, over a tiny scale, may overflow; JSON has no infinity.
    worst = {name: _finite(getattr(scores, name)) for name in ("excess", "quantile_score")}
    columns = ContractScores(*(column[:contracts].tolist() for column in scores._replace(**worst)))
    figures = (ContractScores(*row)._asdict() for row in zip(*columns, strict=True))
    return Scorecard(
        rows=tuple(
            ContractScore(id=int(identity), answered=identity in answers, **row)
            for identity, row in zip(contract_ids, figures, strict=True)
        ),
        clones=clones,
    )
