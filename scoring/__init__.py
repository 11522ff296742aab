"""Proper scores of answers against ensembles of the truth: pure, jitted array functions.

`quantile` and `interval` hold the kernels, `checks` the validation on the host, `scorecard` a run's scores.
"""

from scoring.checks import ANSWERS_SCHEMA, Answer, Truth, check_answers, check_truth
from scoring.interval import interval_score, interval_width
from scoring.quantile import (
    LEVELS,
    accuracy,
    branch_count,
    contract_scale,
    excess,
    fair_floor,
    inverted_cdf,
    leave_one_out_accuracy,
    legacy_accuracy,
    missing_excess,
    pinball_loss,
    quantile_score,
    replication_expectation,
    total_spread,
    within_branch_spread,
)
from scoring.scorecard import (
    AnswerArrays,
    ContractScore,
    ContractScores,
    Scorecard,
    score_contracts,
    scorecard,
)

__all__ = [
    "ANSWERS_SCHEMA",
    "LEVELS",
    "Answer",
    "AnswerArrays",
    "ContractScore",
    "ContractScores",
    "Scorecard",
    "Truth",
    "accuracy",
    "branch_count",
    "check_answers",
    "check_truth",
    "contract_scale",
    "excess",
    "fair_floor",
    "interval_score",
    "interval_width",
    "inverted_cdf",
    "leave_one_out_accuracy",
    "legacy_accuracy",
    "missing_excess",
    "pinball_loss",
    "quantile_score",
    "replication_expectation",
    "score_contracts",
    "scorecard",
    "total_spread",
    "within_branch_spread",
]
