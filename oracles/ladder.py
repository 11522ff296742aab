"""The ladder of references: who answers with more or less knowledge of the world.

Each rung answers the contracts in the form that any agent uses, and is scored through the same pipeline.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oracles.exploration import Exploration, reference_exploration
from oracles.fit import Fit, FitSettings, fit_theory
from oracles.prior import god_theory
from oracles.registry import compact_theory
from oracles.theory import History, Theory, replay, window_statistics
from scoring.checks import Answer
from scoring.quantile import LEVELS
from simworlds.contracts import Contract
from simworlds.instance import Instance
from simworlds.keys import key_for
from simworlds.protocol import held
from simworlds.store import Store
from simworlds.truth import ensemble_of

Progress = Callable[[str, int, int], None]
ENSEMBLE_REPLICATION = 256
RUNGS = (
    "null",
    "tail",
    "persistence",
    "compact oracle",
    "fitted oracle",
    "replication",
    "ensemble replication",
)


class Rung(NamedTuple):
    """A rung's answers to the contracts, and the fit that it needed, if any."""

    name: str
    answers: list[Answer]
    fit: Fit | None = None

    def by_id(self) -> dict[int, Answer]:
        """The answers by contract id."""
        return {answer.id: answer for answer in self.answers}


def point_answers(contracts: Sequence[Contract], values: Any) -> list[Answer]:
    """Answers that name one number a contract, with an interval of no width."""
    numbers = [float(value) for value in values]
    return [Answer(contract.id, x, x, x, None) for contract, x in zip(contracts, numbers, strict=True)]


def ensemble_answers(contracts: Sequence[Contract], values: Any) -> list[Answer]:
    """Mean and inverted-CDF quantiles of an ensemble of the statistic ``[contract, member]``."""
    values = np.asarray(values, np.float64)
    quantiles = np.quantile(values, LEVELS, axis=1, method="inverted_cdf").T
    return [
        Answer(contract.id, float(row.mean()), float(q[0]), float(q[-1]), tuple(float(x) for x in q))
        for contract, row, q in zip(contracts, values, quantiles, strict=True)
    ]


def null_answers(contracts: Sequence[Contract]) -> list[Answer]:
    """0 everywhere."""
    return point_answers(contracts, np.zeros(len(contracts)))


def tail_answers(contracts: Sequence[Contract], exploration: Exploration) -> list[Answer]:
    """Resting statistics, from the later half of the runs at rest.

    The mean, or the mean sd over windows as long as the contract's.
    """
    runs = exploration.history.runs()[: exploration.rest_runs]
    tails = [readings[len(readings) // 2 :].astype(np.float64) for _, readings in runs]

    def resting(contract: Contract) -> float:
        port, length = contract.readout().port, contract.window[1] - contract.window[0]
        if contract.statistic == "mean":
            return float(np.mean([rows[:, port] for rows in tails]))
        starts = range(0, len(tails[0]) - length + 1, length)
        return float(np.mean([rows[s : s + length, port].std() for rows in tails for s in starts]))

    return point_answers(contracts, [resting(contract) for contract in contracts])


class Persistence(Theory):
    """The theory that nothing ever changes: it repeats the last reading of the exploration."""

    replays = 1

    def init(self, history: History, *, key: jax.Array) -> Any:
        """The last reading."""
        del key
        last = jnp.sum(history.ticks > 0) - 1
        return history.readings[last, history.ticks[last] - 1]

    def step(self, state: Any, levels: jax.Array, *, key: jax.Array) -> tuple[Any, jax.Array]:
        """The same reading again."""
        del levels, key
        return state, state


@jax.jit
def _replayed(theory: Theory, levels: Any, history: History, keys: Any, readouts: Any) -> Any:
    readings = replay(theory, levels, history, keys, theory.replays)
    return window_statistics(readings, *readouts)


def theory_statistics(
    instance: Instance, contracts: Sequence[Contract], theory: Theory, history: History, name: str
) -> np.ndarray:
    """A theory's statistic on each replay of each contract, ``[contract, replay]``.

    Args:
        instance: whose ports and seed the contracts have.
        contracts: the contracts.
        theory: the theory.
        history: what its owner has seen.
        name: makes the theory's random stream its own.
    """
    horizon = instance.world.horizon
    rows = [contract.protocol.levels(instance.drive_ports, instance.rest) for contract in contracts]
    levels = np.stack([held(r, horizon) for r in rows]).astype(np.float32)
    readouts = [contract.readout() for contract in contracts]
    columns = tuple(
        jnp.asarray([getattr(r, field) for r in readouts]) for field in ("port", "start", "stop", "sd")
    )
    keys = jnp.stack([key_for(instance.world.id, instance.seed, "theory", name, c.id) for c in contracts])
    seen = jax.tree.map(jnp.asarray, history)
    return np.asarray(_replayed(theory, jnp.asarray(levels), seen, keys, columns))


def theory_answers(
    instance: Instance, contracts: Sequence[Contract], theory: Theory, history: History, name: str
) -> list[Answer]:
    """A theory's answers: a point if it is replayed once, quantiles of its replays otherwise.

    A contract on which the theory does not stay finite gets no answer, and so counts as missing.
    """
    values = theory_statistics(instance, contracts, theory, history, name)
    fine = np.flatnonzero(np.isfinite(values).all(1))
    answered = [contracts[int(k)] for k in fine]
    if values.shape[1] == 1:
        return point_answers(answered, values[fine, 0])
    return ensemble_answers(answered, values[fine])


class Ladder(NamedTuple):
    """Answers of every rung to the contracts of one (world, seed).

    Attributes:
        instance: the instance.
        contracts: its contracts.
        rungs: in the order of `RUNGS`; the oracles are left out where the family has none.
        replicates: the statistic on the clones of ensemble replication ``[contract, clone]``.
        branches: their branch labels ``[contract, clone]``.
    """

    instance: Instance
    contracts: tuple[Contract, ...]
    rungs: tuple[Rung, ...]
    replicates: np.ndarray
    branches: np.ndarray


def _oracles(
    instance: Instance,
    contracts: Sequence[Contract],
    history: History,
    store: Store,
    settings: FitSettings,
    progress: Progress,
) -> Iterator[Rung]:
    kind = compact_theory(instance.world.id)
    if kind is None:
        return
    god = god_theory(kind, instance)
    for name, form in (("compact oracle", "god"), ("fitted oracle", "fitted")):
        tell = partial(progress, f"fit {name}", settings.steps_of(form))
        fit = fit_theory(instance, god, form, settings, store, tell)
        yield Rung(name, theory_answers(instance, contracts, fit.theory, history, form), fit)


def climb(
    instance: Instance,
    contracts: Sequence[Contract],
    store: Store,
    settings: FitSettings | None = None,
    progress: Progress | None = None,
) -> Ladder:
    """Let every rung answer the contracts.

    Args:
        instance: the instance, god-mode side.
        contracts: its contracts.
        store: cache of ensembles and fits.
        settings: of the fits; the default if None.
        progress: called with a stage, its total and how many more of its units are done.
    """
    tell = progress or (lambda *_: None)
    exploration = reference_exploration(instance, store)
    history = exploration.history
    once = ensemble_of(instance, contracts, 1, "replication", store)
    clones = partial(tell, "ensemble replication", ENSEMBLE_REPLICATION * len(contracts))
    many = ensemble_of(instance, contracts, ENSEMBLE_REPLICATION, "ensemble_replication", store, clones)
    persistence = theory_answers(instance, contracts, Persistence(), history, "persistence")
    rungs = (
        Rung("null", null_answers(contracts)),
        Rung("tail", tail_answers(contracts, exploration)),
        Rung("persistence", persistence),
        *_oracles(instance, contracts, history, store, settings or FitSettings(), tell),
        Rung("replication", point_answers(contracts, once.values[:, 0])),
        Rung("ensemble replication", ensemble_answers(contracts, many.values)),
    )
    return Ladder(instance, tuple(contracts), rungs, many.values, many.branch)


def outcomes_of(
    values: np.ndarray, branch: np.ndarray, scale: np.ndarray, least_share: float = 0.15
) -> np.ndarray:
    """Number of distinguishable outcomes of each contract.

    Branches that hold at least `least_share` of the clones are ordered by their mean of the statistic; two
    neighbours count as different outcomes if their means are more than one scale apart.

    Args:
        values: the statistic ``[contract, clone]``.
        branch: branch labels ``[contract, clone]``.
        scale: of each contract ``[contract]``.
        least_share: of the clones.

    Returns:
        Whole numbers of at least 1 ``[contract]``.
    """
    counts = []
    for row, labels, unit in zip(values, branch, scale, strict=True):
        found, number = np.unique(labels, return_counts=True)
        kept = found[number >= least_share * len(labels)]
        means = np.sort([row[labels == label].mean() for label in kept])
        counts.append(1 + int(np.sum(np.diff(means) > unit)))
    return np.array(counts)
