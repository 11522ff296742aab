"""Proper scores of answers against ensembles of the truth: pure, jitted array functions.

Kernels: `quantile`, `interval`, `calibration`, `crps` for answers; `preparation`, `reward`, `audit` for the
other parts of the scoring page; `bootstrap` for intervals. `checks` validates on the host; `scorecard` and
`run` hold the scores of a run, `schemas` their JSON Schemas.
"""

from scoring.audit import Audit, audit_templates, crps_advantage, pair_distances, phenomenon_ratio, spearman
from scoring.bootstrap import (
    Interval,
    bca_ends,
    bootstrap_interval,
    clustered_standard_error,
    percentile_ends,
    resample_indices,
)
from scoring.calibration import BINS, NOMINAL_COVERAGE, coverage, pit_shares
from scoring.checks import ANSWERS_SCHEMA, Answer, Truth, check_answers, check_truth
from scoring.crps import crps_grid, crps_normal, crps_quantiles, crps_samples
from scoring.interval import interval_score, interval_width
from scoring.preparation import (
    certified,
    clopper_pearson_lower,
    clopper_pearson_upper,
    ended_in_band,
    held_in_band,
)
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
from scoring.reward import RewardReport, check_prediction, mse_reward, normalised_mse, rmse, score_prediction
from scoring.run import PreparationScore, RunScore, ScorecardSet, Weights, pooled
from scoring.schemas import POOLED_SCHEMA, RUN_SCHEMA, SCORECARD_SCHEMA
from scoring.scorecard import (
    SCORING_VERSION,
    AnswerArrays,
    ContractScore,
    ContractScores,
    Scorecard,
    score_contracts,
    scorecard,
)

__all__ = [
    "ANSWERS_SCHEMA",
    "Answer",
    "AnswerArrays",
    "Audit",
    "BINS",
    "ContractScore",
    "ContractScores",
    "Interval",
    "LEVELS",
    "NOMINAL_COVERAGE",
    "POOLED_SCHEMA",
    "PreparationScore",
    "RUN_SCHEMA",
    "RewardReport",
    "RunScore",
    "SCORECARD_SCHEMA",
    "SCORING_VERSION",
    "Scorecard",
    "ScorecardSet",
    "Truth",
    "Weights",
    "accuracy",
    "audit_templates",
    "bca_ends",
    "bootstrap_interval",
    "branch_count",
    "certified",
    "check_answers",
    "check_prediction",
    "check_truth",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "clustered_standard_error",
    "contract_scale",
    "coverage",
    "crps_advantage",
    "crps_grid",
    "crps_normal",
    "crps_quantiles",
    "crps_samples",
    "ended_in_band",
    "excess",
    "fair_floor",
    "held_in_band",
    "interval_score",
    "interval_width",
    "inverted_cdf",
    "leave_one_out_accuracy",
    "legacy_accuracy",
    "missing_excess",
    "mse_reward",
    "normalised_mse",
    "pair_distances",
    "percentile_ends",
    "phenomenon_ratio",
    "pinball_loss",
    "pit_shares",
    "pooled",
    "quantile_score",
    "replication_expectation",
    "resample_indices",
    "rmse",
    "score_contracts",
    "score_prediction",
    "scorecard",
    "spearman",
    "total_spread",
    "within_branch_spread",
]
