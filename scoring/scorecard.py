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
from jax import lax
from jaxtyping import Array

from scoring.calibration import BINS, coverage, pit_shares
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

SCORING_VERSION = 1  # raised with any change of a definition or a weight; printed with every score

_LARGEST = 1e300
_FEWEST_ROWS = 8
_DRAWS_AT_A_TIME = 65536  # what a block of contracts holds: its intermediates then stay in the cache
FIGURES = ("accuracy", "excess", "interval", "legacy", "coverage")


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
    coverage: Any
    null_accuracy: Any
    null_excess: Any
    quantile_score: Any
    floor: Any
    scale: Any
    tau: Any
    branches: Any
    pit: Any


def _score(truth: Truth, answers: AnswerArrays, labels: int) -> ContractScores:
    """Scores of contracts [*batch], all at once."""
    draws, branch = jnp.asarray(truth.draws), jnp.asarray(truth.branch)
    given, dynamic_range = jnp.asarray(answers.answered), jnp.asarray(truth.dynamic_range)
    tau = within_branch_spread(draws, branch, labels=labels) if truth.tau is None else jnp.asarray(truth.tau)
    scale = contract_scale(tau, truth.fraction, dynamic_range)
    floor = fair_floor(draws)
    score = jnp.where(given, quantile_score(answers.quantiles, draws), dynamic_range)
    nothing = quantile_score(jnp.zeros_like(answers.quantiles), draws)
    return ContractScores(
        accuracy=jnp.where(given, accuracy(score, floor, scale), 0),
        excess=excess(score, floor, scale),
        interval=jnp.where(given, interval_score(answers.low, answers.high, draws, scale), 0),
        legacy=jnp.where(given, legacy_accuracy(answers.mean, draws, scale), 0),
        coverage=jnp.where(given, coverage(answers.low, answers.high, draws), 0),
        null_accuracy=accuracy(nothing, floor, scale),
        null_excess=excess(nothing, floor, scale),
        quantile_score=score,
        floor=floor,
        scale=scale,
        tau=tau,
        branches=branch_count(branch, labels=labels),
        pit=jnp.where(given[..., None], pit_shares(answers.quantiles, draws), jnp.nan),
    )


@partial(jax.jit, static_argnames="labels")
def score_contracts(truth: Truth, answers: AnswerArrays, *, labels: int = 16) -> ContractScores:
    """Scores every contract; a missing answer counts as one whose quantile score is the dynamic range.

    With QS, floor and scale from `scoring.quantile`, accuracy is `exp(-max(QS - floor, 0) / scale)` and
    excess `(QS - floor) / scale`. A missing answer has accuracy, interval score, legacy score and coverage 0,
    and no PIT. The null answer, 0 everywhere, is scored beside every answer: the anchor of any adjusted
    score.

    Args:
        truth: draws and branches [contract, clone]; fraction, dynamic range and, where given, tau [contract].
        answers: answers [contract], quantiles [contract, level].
        labels: number of branch labels that can occur.

    Returns:
        The scores, [contract] each. Higher is better for accuracy, interval and legacy, lower for excess.

    Source: Gneiting and Raftery (2007), doi:10.1198/016214506000001437; the exponential is the scoring
    page's.
    """
    contracts, clones = jnp.shape(truth.draws)
    blocks = -(-contracts // max(1, _DRAWS_AT_A_TIME // clones))
    if blocks <= 1:
        return _score(truth, answers, labels)
    block = -(-contracts // blocks)  # as even as can be, so that hardly a contract is scored twice
    everything = (truth, answers)

    def score_block(number: Array, scores: ContractScores) -> ContractScores:
        # The last block reaches back into the one before it, so that all are of one size.
        start = jnp.minimum(number * block, contracts - block)
        part = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, block), everything)
        return jax.tree.map(
            lambda whole, new: lax.dynamic_update_slice_in_dim(whole, new, start, 0),
            scores,
            _score(part[0], part[1], labels),
        )

    first = jax.tree.map(lambda leaf: leaf[:block], everything)
    shapes = jax.eval_shape(lambda: _score(first[0], first[1], labels))
    blank = jax.tree.map(lambda leaf: jnp.zeros((contracts, *leaf.shape[1:]), leaf.dtype), shapes)
    return lax.fori_loop(0, blocks, score_block, blank)


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
        coverage: share of the truth draws inside the 80 % interval; 0 where the answer is missing.
        null_accuracy: accuracy of the null answer, 0 everywhere: the anchor.
        null_excess: excess of the null answer, 1e300 at most.
        quantile_score: in units of the channel, 1e300 at most; the dynamic range where the answer is missing.
        floor: fair leave-one-out CRPS of the truth draws, in units of the channel.
        scale: the contract's scale, in units of the channel.
        tau: within-branch spread that the scale rests on, in units of the channel.
        branches: number of different branches among the draws.
        pit: shares of the draws below, between and above the five quantiles, `scoring.calibration.BINS` on
            average for a calibrated answer; None where the answer is missing.
    """

    id: int
    answered: bool
    accuracy: float
    excess: float
    interval: float
    legacy: float
    coverage: float
    null_accuracy: float
    null_excess: float
    quantile_score: float
    floor: float
    scale: float
    tau: float
    branches: int
    pit: tuple[float, ...] | None


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

    @property
    def coverage(self) -> float:
        """Mean coverage of the 80 % intervals over all contracts, a missing one covering nothing."""
        return self._mean("coverage")

    @property
    def null_accuracy(self) -> float:
        """Mean accuracy of the null answer on the same contracts: the anchor."""
        return self._mean("null_accuracy")

    @property
    def null_excess(self) -> float:
        """Mean excess of the null answer on the same contracts."""
        return self._mean("null_excess")

    @property
    def pit(self) -> tuple[float, ...] | None:
        """Mean PIT shares over the contracts that have them, `denominators["pit"]`; None where none has."""
        return mean_pit(self.rows)

    @property
    def denominators(self) -> dict[str, int]:
        """What each figure is a mean over: every contract, missing ones too; for the PIT those answered."""
        return dict.fromkeys(FIGURES, self.contracts) | {"pit": sum(row.pit is not None for row in self.rows)}

    def standard_error(self, figure: str) -> float | None:
        """Standard error of a mean over the contracts, `s / sqrt(n)`; None for a single contract."""
        values = np.array([getattr(row, figure) for row in self.rows])
        around = values - self._mean(figure)
        unit = float(np.abs(around).max()) or 1.0
        if len(values) < 2:
            return None
        return unit * math.sqrt(float(np.sum((around / unit) ** 2)) / (len(values) - 1) / len(values))

    def _mean(self, figure: str) -> float:
        return math.fsum(getattr(row, figure) for row in self.rows) / len(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Everything on the card as plain, finite numbers; see `scoring.schemas.SCORECARD_SCHEMA`."""
        return {
            "scoring_version": SCORING_VERSION,
            **{name: getattr(self, name) for name in (*FIGURES, "missing", "contracts", "clones")},
            "pit": None if self.pit is None else list(self.pit),
            "standard_errors": {name: self.standard_error(name) for name in FIGURES},
            "denominators": self.denominators,
            "null": {"accuracy": self.null_accuracy, "excess": self.null_excess},
            "rows": [row_json(row) for row in self.rows],
        }

    def table(self) -> Table:
        """The card as a table for a terminal: means, standard errors and the null answer in the last rows."""
        from rich.table import Table

        title = f"{self.contracts} contracts, {self.missing} missing, {self.clones} truth draws each"
        table = Table(title=title, caption=self._caption())
        for name in ("id", *FIGURES, "score", "floor", "scale"):
            table.add_column(name, justify="right")
        for row in self.rows:
            shares = (f"{row.accuracy:.3f}", f"{row.excess:.3g}", f"{row.interval:.3f}", f"{row.legacy:.3f}")
            units = (f"{row.quantile_score:.4g}", f"{row.floor:.4g}", f"{row.scale:.4g}")
            name = str(row.id) if row.answered else f"{row.id} missing"
            table.add_row(name, *shares, f"{row.coverage:.2f}", *units)
        table.add_section()
        table.add_row("mean", *(f"{getattr(self, name):.3g}" for name in FIGURES))
        errors = (self.standard_error(name) for name in FIGURES)
        table.add_row("s.e.", *("" if error is None else f"{error:.2g}" for error in errors))
        table.add_row("null", f"{self.null_accuracy:.3g}", f"{self.null_excess:.3g}")
        return table

    def _caption(self) -> str:
        count = self.denominators
        pit = "" if self.pit is None else "; PIT " + " ".join(f"{share:.2f}" for share in self.pit)
        ideal = " ".join(f"{share:.2f}" for share in BINS)
        return (
            f"means over {self.contracts} contracts, missing ones counted{pit} over {count['pit']} answered, "
            f"calibrated: {ideal}; null answers 0 everywhere; scoring version {SCORING_VERSION}"
        )


def mean_pit(rows: Sequence[ContractScore]) -> tuple[float, ...] | None:
    """Mean PIT shares over the rows that have them; None where none has."""
    known = [row.pit for row in rows if row.pit is not None]
    return tuple(math.fsum(share) / len(known) for share in zip(*known, strict=True)) if known else None


def row_json(row: ContractScore) -> dict[str, Any]:
    """A row as plain, finite numbers."""
    return asdict(row) | {"pit": None if row.pit is None else list(row.pit)}


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
    worst = {name: _finite(getattr(scores, name)) for name in ("excess", "null_excess", "quantile_score")}
    columns = ContractScores(*(column[:contracts].tolist() for column in scores._replace(**worst)))
    pits = [None if math.isnan(shares[0]) else tuple(shares) for shares in columns.pit]
    columns = columns._replace(pit=pits)
    figures = (ContractScores(*row)._asdict() for row in zip(*columns, strict=True))
    return Scorecard(
        rows=tuple(
            ContractScore(id=int(identity), answered=identity in answers, **row)
            for identity, row in zip(contract_ids, figures, strict=True)
        ),
        clones=clones,
    )
