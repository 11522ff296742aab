"""Scores beyond one card: a whole run (prediction, preparation, theory), and several runs pooled."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from scoring.bootstrap import clustered_standard_error
from scoring.scorecard import FIGURES, SCORING_VERSION, ContractScore, Scorecard, mean_pit

if TYPE_CHECKING:
    from rich.table import Table


class Weights(NamedTuple):
    """Weight of each figure of a contract in the run score; they belong to the scoring version."""

    prediction: float = 1.0
    preparation: float = 1.0
    interval: float = 0.0
    theory: float = 0.0


@dataclass(frozen=True)
class PreparationScore:
    """Score of one preparation contract.

    Attributes:
        id: the contract's id.
        clones: clones that the policy ran on: the denominator.
        in_band: clones that ended the release window in band; 0 where no policy was handed in.
        held: clones that stayed in band through the whole window.
        answered: False where no policy was handed in.

    Raises:
        ValueError: for counts that cannot be.
    """

    id: int
    clones: int
    in_band: int
    held: int
    answered: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.held <= self.in_band <= self.clones or self.clones < 1:
            got = f"{self.held}, {self.in_band} and {self.clones}"
            raise ValueError(
                f"`held` <= `in_band` <= `clones`, at least one clone, must hold, but they are {got}"
            )
        if self.in_band and not self.answered:
            raise ValueError(f"`in_band` must be 0 where no policy was handed in, but is {self.in_band}")

    @property
    def fraction(self) -> float:
        """Fraction of clones that ended in band; higher is better."""
        return self.in_band / self.clones


@dataclass(frozen=True)
class RunScore:
    """Score of a run over all its contracts.

    Attributes:
        prediction: card of the prediction contracts.
        preparation: scores of the preparation contracts, none where the world has none.
        theory: card of the theory that was handed in, on the same prediction contracts; None without one.
        weights: weight of each figure.
    """

    prediction: Scorecard
    preparation: tuple[PreparationScore, ...] = ()
    theory: Scorecard | None = None
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        if min(self.weights) < 0 or not 0 < sum(self.weights) < math.inf:
            raise ValueError(f"`weights` must be at least 0, not all 0, but are {tuple(self.weights)}")
        if self.theory is not None and self.theory.contracts != self.prediction.contracts:
            counts = f"{self.theory.contracts} and {self.prediction.contracts}"
            raise ValueError(f"`theory` and `prediction` must have the same contracts, but have {counts}")

    @property
    def contracts(self) -> int:
        """Number of contracts of either kind: the denominator of `score` at the default weights."""
        return self.prediction.contracts + len(self.preparation)

    @property
    def missing(self) -> int:
        """Number of contracts without an answer or a policy."""
        return self.prediction.missing + sum(not each.answered for each in self.preparation)

    @property
    def score(self) -> float:
        """Weighted mean over all contracts of accuracy (prediction) and clone fraction (preparation)."""
        rows, weights = self.prediction.rows, self.weights
        theory = [row.accuracy for row in self.theory.rows] if self.theory else [0.0] * len(rows)
        parts = (
            (weights.prediction, [row.accuracy for row in rows]),
            (weights.interval, [row.interval for row in rows]),
            (weights.theory, theory),
            (weights.preparation, [each.fraction for each in self.preparation]),
        )
        whole = math.fsum(weight * len(values) for weight, values in parts)
        return math.fsum(weight * math.fsum(values) for weight, values in parts) / whole if whole else 0.0

    @property
    def excess(self) -> float:
        """Mean excess over the prediction contracts alone; lower is better."""
        return self.prediction.excess

    def to_json(self) -> dict[str, Any]:
        """Everything as plain, finite numbers; `scoring.schemas.RUN_SCHEMA` describes it."""
        rows = [asdict(each) | {"fraction": each.fraction} for each in self.preparation]
        return {
            "scoring_version": SCORING_VERSION,
            "weights": self.weights._asdict(),
            "score": self.score,
            "excess": self.excess,
            "missing": self.missing,
            "denominators": {"score": self.contracts, "excess": self.prediction.contracts},
            "prediction": self.prediction.to_json(),
            "preparation": rows,
            "theory": None if self.theory is None else self.theory.to_json(),
        }

    def table(self) -> Table:
        """Score, excess and every part with its denominator, for a terminal."""
        from rich.table import Table

        weights = ", ".join(f"{name} {weight:g}" for name, weight in self.weights._asdict().items())
        table = Table(title=f"Run score: {self.contracts} contracts, {self.missing} missing")
        table.caption = f"weights: {weights}; scoring version {SCORING_VERSION}"
        for name in ("figure", "value", "over"):
            table.add_column(name, justify="left" if name == "figure" else "right")
        card, many = self.prediction, f"{self.prediction.contracts} prediction contracts"
        table.add_row("score", f"{self.score:.3f}", f"{self.contracts} contracts")
        table.add_row("excess", f"{card.excess:.3g}", many)
        for name in ("accuracy", "interval", "legacy", "coverage"):
            table.add_row(name, f"{getattr(card, name):.3f}", many)
        table.add_row("accuracy of null", f"{card.null_accuracy:.3f}", many)
        if self.theory is not None:
            table.add_row("accuracy of theory", f"{self.theory.accuracy:.3f}", many)
        for name in ("in_band", "held") if self.preparation else ():
            shares = [getattr(each, name) / each.clones for each in self.preparation]
            over = f"{len(shares)} preparation contracts"
            table.add_row(name.replace("_", " "), f"{math.fsum(shares) / len(shares):.3f}", over)
        return table


@dataclass(frozen=True)
class ScorecardSet:
    """Several cards together: means over all their contracts, standard errors clustered by seed.

    Attributes:
        cards: the cards.
        seeds: seed of each card; contracts of cards that share one move together.
    """

    cards: tuple[Scorecard, ...]
    seeds: tuple[Hashable, ...]

    @property
    def rows(self) -> tuple[ContractScore, ...]:
        """The contracts of all cards."""
        return tuple(row for card in self.cards for row in card.rows)

    @property
    def contracts(self) -> int:
        """Number of contracts: the denominator of every mean."""
        return sum(card.contracts for card in self.cards)

    @property
    def missing(self) -> int:
        """Number of contracts without an answer."""
        return sum(card.missing for card in self.cards)

    @property
    def clusters(self) -> int:
        """Number of different seeds."""
        return len(set(self.seeds))

    @property
    def denominators(self) -> dict[str, int]:
        """What each figure is a mean over."""
        return {name: sum(card.denominators[name] for card in self.cards) for name in (*FIGURES, "pit")}

    @property
    def pit(self) -> tuple[float, ...] | None:
        """Mean PIT shares over the contracts that have them; None where none has."""
        return mean_pit(self.rows)

    def mean(self, figure: str) -> float:
        """Mean of a figure of `ContractScore` over all contracts, missing ones included."""
        return math.fsum(getattr(row, figure) for row in self.rows) / self.contracts

    def standard_error(self, figure: str) -> float | None:
        """Standard error of `mean`, clustered by seed; None for a single seed."""
        order = {seed: number for number, seed in enumerate(dict.fromkeys(self.seeds))}
        pairs = zip(self.cards, self.seeds, strict=True)
        cluster = np.array([order[seed] for card, seed in pairs for _ in card.rows], np.int32)
        with jax.enable_x64(True):
            values = np.array([getattr(row, figure) for row in self.rows], np.float64)
            error = float(clustered_standard_error(values, cluster, clusters=len(order)))
        return None if math.isnan(error) else error

    def to_json(self) -> dict[str, Any]:
        """Everything as plain, finite numbers; `scoring.schemas.POOLED_SCHEMA` describes it."""
        return {
            "scoring_version": SCORING_VERSION,
            **{name: self.mean(name) for name in FIGURES},
            "missing": self.missing,
            "contracts": self.contracts,
            "pit": None if self.pit is None else list(self.pit),
            "standard_errors": {name: self.standard_error(name) for name in FIGURES},
            "clusters": self.clusters,
            "denominators": self.denominators,
            "null": {"accuracy": self.mean("null_accuracy"), "excess": self.mean("null_excess")},
            "cards": [
                {"seed": str(seed), **card.to_json()}
                for card, seed in zip(self.cards, self.seeds, strict=True)
            ],
        }

    def table(self) -> Table:
        """One row a card, then means, standard errors and the null answer, for a terminal."""
        from rich.table import Table

        title = f"{len(self.cards)} runs, {self.contracts} contracts, {self.missing} missing"
        table = Table(title=title)
        table.caption = (
            f"standard errors clustered by {self.clusters} seeds; scoring version {SCORING_VERSION}"
        )
        for name in ("seed", *FIGURES, "contracts", "missing"):
            table.add_column(name, justify="right")
        for card, seed in zip(self.cards, self.seeds, strict=True):
            figures = (f"{getattr(card, name):.3g}" for name in FIGURES)
            table.add_row(str(seed), *figures, str(card.contracts), str(card.missing))
        table.add_section()
        means = (f"{self.mean(name):.3g}" for name in FIGURES)
        table.add_row("mean", *means, str(self.contracts), str(self.missing))
        errors = (self.standard_error(name) for name in FIGURES)
        table.add_row("s.e.", *("" if error is None else f"{error:.2g}" for error in errors))
        table.add_row("null", f"{self.mean('null_accuracy'):.3g}", f"{self.mean('null_excess'):.3g}")
        return table


def pooled(cards: Sequence[Scorecard], seeds: Sequence[Hashable]) -> ScorecardSet:
    """Pools the cards of several runs.

    Args:
        cards: at least one.
        seeds: seed of each; give (world, seed) where worlds are pooled.

    Returns:
        The cards together.

    Raises:
        ValueError: without cards, or where their number is not that of the seeds.
    """
    if not cards or len(cards) != len(seeds):
        raise ValueError(
            f"`cards` and `seeds` must be as many, at least one, but are {len(cards)} and {len(seeds)}"
        )
    return ScorecardSet(tuple(cards), tuple(seeds))
