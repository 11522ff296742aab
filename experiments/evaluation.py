"""Score anyone's answers to an instance's contracts: the one pipeline for agents, oracles and references."""

from collections.abc import Sequence
from typing import Any

from scoring.checks import Answer, Truth, check_answers
from scoring.scorecard import Scorecard, scorecard
from simworlds.contracts import Contract, contracts_of
from simworlds.errors import InvalidAnswers
from simworlds.instance import Instance
from simworlds.store import Store
from simworlds.truth import CLONES, checked_truth, truth_of


def _plain(answers: Any) -> Any:
    """Answers as they would be handed in, whether they come as plain data or as `Answer`."""
    if not isinstance(answers, list | tuple):
        return answers
    return [answer.to_json() if isinstance(answer, Answer) else answer for answer in answers]


def score_answers(
    contracts: Sequence[Contract], truth: Truth, answers: Any, *, lenient: bool = False
) -> Scorecard:
    """Check answers and score them against a truth that is at hand.

    Raises:
        InvalidAnswers: with all faults listed, unless `lenient`.
    """
    ids = [contract.id for contract in contracts]
    parsed, faults = check_answers(_plain(answers), ids)
    if faults and not lenient:
        raise InvalidAnswers(faults)
    return scorecard(truth, parsed, ids)


def evaluate(
    instance: Instance,
    answers: Any,
    *,
    clones: int = CLONES,
    lenient: bool = False,
    store: Store | None = None,
) -> Scorecard:
    """Score answers to an instance's contracts against god-mode ensembles that the agent never sees.

    Args:
        instance: the instance.
        answers: a list of ``{"id", "mean", "low", "high", "quantiles"}``, quantiles optional. Contracts
            without an answer count as missing: accuracy 0, and an excess of the whole dynamic range.
        clones: truth clones of each contract, at least 4.
        lenient: turn invalid answers into missing ones instead of refusing all.
        store: cache of ensembles; the default one if None.

    Returns:
        The scorecard: per contract and in all, accuracy, excess, interval score, and the number of missing
        answers.

    Raises:
        InvalidAnswers: with all faults listed; nothing was run.
        InvalidRequest: if `clones` is out of range.
        Diverged: if a trajectory leaves the finite numbers.
    """
    contracts = contracts_of(instance, store)
    answers = _plain(answers)
    _, faults = check_answers(answers, [contract.id for contract in contracts])
    if faults and not lenient:
        raise InvalidAnswers(faults)
    truth = checked_truth(truth_of(instance, contracts, clones, store))
    return score_answers(contracts, truth, answers, lenient=lenient)
