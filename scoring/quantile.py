"""Scores of prediction contracts: quantile score, fair floor, scale, excess and accuracy.

Every function is a pure, jitted function of arrays: members (draws) on the last axis, any leading batch axes,
differentiable, in the dtype that it is given. Nothing is validated here (see `scoring.checks`); a non-finite
input never gives an accuracy above 0.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from scoring._reduce import mean, root_mean_square, total

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)

_FEW = 16  # draws up to which comparing all pairs beats sorting, ten times over for 8 draws


@jax.jit
def pinball_loss(
    quantile: Float[Array, "*#batch"], outcome: Float[Array, "*#batch"], level: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Pinball (check) loss `(y - q) * (p - 1[y < q])`.

    Args:
        quantile: forecast quantile q.
        outcome: observed value y, in the same units.
        level: level p of the quantile, in (0, 1).

    Returns:
        The loss in units of the outcome; lower is better, 0 is perfect.

    Source: Koenker and Bassett (1978), doi:10.2307/1913643.
    """
    return (outcome - quantile) * jnp.where(outcome < quantile, level - 1, level)


def _mean_loss(
    quantile: Float[Array, "*#batch"], draws: Float[Array, "*#batch clone"], level: float
) -> Float[Array, "*batch"]:
    return mean(pinball_loss(quantile[..., None], draws, level))


# The same, draw by draw around the first: elementwise over the batch, it is compiled into vector instructions
# and stores nothing, thirty times as fast for a million contracts of 8 draws.
def _mean_loss_of_few(
    quantile: Float[Array, "*#batch"], draws: Float[Array, "*#batch clone"], level: float
) -> Float[Array, "*batch"]:
    def loss(member: int) -> Array:
        error = draws[..., member] - quantile
        return error * jnp.where(error < 0, level - 1, level)

    anchor = lax.stop_gradient(loss(0))
    return anchor + sum(loss(member) - anchor for member in range(draws.shape[-1])) / draws.shape[-1]


@jax.jit
def quantile_score(
    quantiles: Float[Array, "*#batch level"], draws: Float[Array, "*#batch clone"]
) -> Float[Array, "*batch"]:
    """Quantile score `2 * mean_p mean_i pinball_p(q_p, y_i)`: the CRPS on the grid of `LEVELS`.

    Args:
        quantiles: forecast quantiles at `LEVELS`; a point answer repeats its mean five times.
        draws: truth draws.

    Returns:
        The score in units of the draws; lower is better. For one value and a point answer it is `abs(error)`.

    Source: Laio and Tamea (2007), doi:10.5194/hess-11-1267-2007; Gneiting and Raftery (2007),
    doi:10.1198/016214506000001437.
    """
    few = 0 < draws.shape[-1] <= _FEW
    loss = [
        (_mean_loss_of_few if few else _mean_loss)(quantiles[..., place], draws, level)
        for place, level in enumerate(LEVELS)
    ]
    # Each level is added to its mirror image first: a point answer then costs abs(error) within 2 ulp.
    return 2 * ((loss[0] + loss[4]) + (loss[1] + loss[3]) + loss[2]) / len(LEVELS)


@jax.jit
def fair_floor(draws: Float[Array, "*batch clone"]) -> Float[Array, "*batch"]:
    """Leave-one-out fair CRPS of an ensemble that predicts itself: half the Gini mean difference.

    `sum_{i<j} abs(y_i - y_j) / (n (n-1)) = sum_k k (n-k) (y_(k+1) - y_(k)) / (n (n-1))`: all pairs of
    a few draws, the sorted spacings of many, hence n log n work. Exactly 0 for identical draws; its
    expectation does not depend on n.

    Args:
        draws: truth draws, at least two.

    Returns:
        The floor in units of the draws: what a perfect forecaster still pays for the world's own spread.

    Source: Ferro (2014), doi:10.1002/qj.2270; Zamo and Naveau (2018), doi:10.1007/s11004-017-9709-7.
    """
    members = draws.shape[-1]
    if members <= _FEW:
        distance = jnp.abs(draws[..., :, None] - draws[..., None, :])
        return jnp.sum(distance, axis=(-2, -1)) / max(2 * members * (members - 1), 1)
    spacing = jnp.diff(jnp.sort(draws, axis=-1), axis=-1)
    below = jnp.arange(1, members, dtype=draws.dtype)
    # Two ratios, because the integer k (n-k) passes 2^31 from about n = 10^5 on.
    weight = (below / members) * ((members - below) / max(members - 1, 1))
    return total(spacing * weight.reshape((1,) * (draws.ndim - 1) + (-1,)))


def _membership(branch: Int[Array, "*batch clone"], labels: int) -> Bool[Array, "*batch branch clone"]:
    label = jnp.arange(labels, dtype=branch.dtype).reshape((1,) * (branch.ndim - 1) + (-1, 1))
    return branch[..., None, :] == label


@partial(jax.jit, static_argnames="labels")
def branch_count(branch: Int[Array, "*batch clone"], *, labels: int = 16) -> Int[Array, "*batch"]:
    """Number of different branches that occur among the draws.

    Args:
        branch: branch labels, integers 0 to `labels - 1`.
        labels: number of labels that can occur.

    Returns:
        The counts; draws minus count are the degrees of freedom of `within_branch_spread`.
    """
    return jnp.sum(jnp.any(_membership(branch, labels), axis=-1), axis=-1, dtype=jnp.int32)


# Deviations of each draw from its branch's mean, in two ways, for few draws and for many. Both rest on
# differences inside the branch, so that a branch of identical draws has deviations of exactly 0.
def _residuals_by_pairs(
    draws: Float[Array, "*batch clone"], branch: Int[Array, "*batch clone"], labels: int
) -> Float[Array, "*batch clone"]:
    del labels
    same = branch[..., :, None] == branch[..., None, :]
    difference = jnp.where(same, draws[..., :, None] - draws[..., None, :], 0)
    return jnp.sum(difference, axis=-1) / jnp.sum(same, axis=-1, dtype=draws.dtype)


def _residuals_by_label(
    draws: Float[Array, "*batch clone"], branch: Int[Array, "*batch clone"], labels: int
) -> Float[Array, "*batch clone"]:
    member = _membership(branch, labels)
    count = jnp.sum(member, axis=-1, dtype=draws.dtype)
    least = jnp.min(jnp.where(member, draws[..., None, :], jnp.inf), axis=-1)
    anchor = lax.stop_gradient(jnp.where(count > 0, least, 0))
    deviation = jnp.where(member, draws[..., None, :] - anchor[..., None], 0)
    centre = total(deviation) / jnp.maximum(count, 1)
    return jnp.sum(jnp.where(member, deviation - centre[..., None], 0), axis=-2)


@partial(jax.jit, static_argnames="labels")
def within_branch_spread(
    draws: Float[Array, "*batch clone"], branch: Int[Array, "*batch clone"], *, labels: int = 16
) -> Float[Array, "*batch"]:
    """Pooled standard deviation inside the branches.

    `tau = sqrt(sum_b sum_{i in b} (y_i - mean_b)^2 / (n - #branches))`. It leaves the distance between
    branches out, so that a world that goes two ways does not earn a lenient scale.

    Args:
        draws: truth draws.
        branch: branch label of each draw, integers 0 to `labels - 1`; another label gives NaN.
        labels: number of labels that can occur; memory grows as draws times labels.

    Returns:
        The spread tau in units of the draws; 0 where every branch has one draw.

    Source: the pooled within-group variance of one-way analysis of variance.
    """
    residuals = _residuals_by_pairs if draws.shape[-1] <= _FEW else _residuals_by_label
    known = (branch >= 0) & (branch < labels)
    residual = jnp.where(known, residuals(draws, branch, labels), jnp.nan)
    freedom = jnp.maximum(draws.shape[-1] - branch_count(branch, labels=labels), 1)
    return root_mean_square(residual, freedom.astype(draws.dtype))


@jax.jit
def total_spread(draws: Float[Array, "*batch clone"]) -> Float[Array, "*batch"]:
    """Sample standard deviation of all draws, with `n - 1` degrees of freedom, branches ignored.

    Args:
        draws: truth draws, at least two.

    Returns:
        The spread in units of the draws; used by the audit, not by the scale.

    Source: Bessel's corrected sample standard deviation.
    """
    return root_mean_square(draws - mean(draws)[..., None], max(draws.shape[-1] - 1, 1))


@jax.jit
def contract_scale(
    tau: Float[Array, "*#batch"], fraction: Float[Array, "*#batch"], dynamic_range: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Scale of a contract, `max(3 tau, fraction * dynamic_range)`.

    Args:
        tau: within-branch spread.
        fraction: share of the dynamic range that counts as understanding; a family states its own.
        dynamic_range: range of the channel, above 0, in units of the draws.

    Returns:
        The scale in units of the draws; a larger one is more lenient. NaN where an input is not finite.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    spread, share = 3 * tau, fraction * dynamic_range
    return jnp.where(jnp.isfinite(spread) & jnp.isfinite(share), jnp.maximum(spread, share), jnp.nan)


def _usable(
    score: Float[Array, "*#batch"], floor: Float[Array, "*#batch"], scale: Float[Array, "*#batch"]
) -> Bool[Array, "*batch"]:
    # A subnormal scale is flushed to 0 by the division, but not by the comparison.
    normal = scale >= float(jnp.finfo(scale.dtype).tiny)
    return jnp.isfinite(score) & jnp.isfinite(floor) & jnp.isfinite(scale) & normal


@jax.jit
def excess(
    score: Float[Array, "*#batch"], floor: Float[Array, "*#batch"], scale: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Regret in scales, `(score - floor) / scale`, unclipped and so proper for a scale that is given.

    A scale of 3 tau from the very draws that are scored weighs wide ensembles down, and so favours a report
    that is a little too narrow (for 8 Gaussian draws by 5 %, a gain of 0.0003); one from further clones does
    not.

    Args:
        score: quantile score.
        floor: fair floor of the draws.
        scale: scale of the contract.

    Returns:
        The excess; lower is better, a perfect forecaster is between -0.1 and 0 on average (-0.3 for two
        branches that are far apart in scales: five levels are lenient). It is +inf where an
        input is not finite, the scale is not positive and normal, or the quotient overflows.

    Source: Gneiting and Raftery (2007), doi:10.1198/016214506000001437.
    """
    usable = _usable(score, floor, scale)
    regret = jnp.where(usable, score - floor, 0) / jnp.where(usable, scale, 1)
    return jnp.where(usable & jnp.isfinite(regret), regret, jnp.inf)


@jax.jit
def accuracy(
    score: Float[Array, "*#batch"], floor: Float[Array, "*#batch"], scale: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Accuracy `exp(-max(score - floor, 0) / scale)`.

    Args:
        score: quantile score.
        floor: fair floor of the draws.
        scale: scale of the contract.

    Returns:
        The accuracy in [0, 1]; higher is better. It is 0 where an input is not finite or the scale is not
        positive. Unlike `excess` it is not proper against a forecaster's own ignorance.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    usable = _usable(score, floor, scale)
    regret = jnp.maximum(jnp.where(usable, score - floor, 0), 0)
    return jnp.where(usable, jnp.exp(-regret / jnp.where(usable, scale, 1)), 0)


@jax.jit
def missing_excess(
    dynamic_range: Float[Array, "*#batch"], floor: Float[Array, "*#batch"], scale: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Excess of an answer that was not given, `(dynamic_range - floor) / scale`.

    Args:
        dynamic_range: range of the channel: the error that a missing answer is charged with.
        floor: fair floor of the draws.
        scale: scale of the contract.

    Returns:
        The excess; lower is better, +inf for a non-finite input.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    return excess(dynamic_range, floor, scale)


@jax.jit
def legacy_accuracy(
    mean_answer: Float[Array, "*#batch"], draws: Float[Array, "*#batch clone"], scale: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """The earlier score `exp(-abs(mean_answer - mean(draws)) / scale)`, for comparison with earlier numbers.

    Args:
        mean_answer: the point answer.
        draws: truth draws.
        scale: scale of the contract.

    Returns:
        The score in [0, 1]; higher is better, 0 for a non-finite input.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    error = jnp.abs(mean_answer - mean(draws))
    return accuracy(error, jnp.zeros_like(error), scale)


def _positions(members: int, levels: tuple[float, ...]) -> np.ndarray:
    # numpy's own float64 arithmetic, on the host: any other may pick the next draw where n p is an integer.
    return np.maximum(np.ceil(members * np.asarray(levels, np.float64) - 1), 0).astype(int)


@partial(jax.jit, static_argnames="levels")
def inverted_cdf(
    draws: Float[Array, "*batch clone"], levels: tuple[float, ...] = LEVELS
) -> Float[Array, "*batch level"]:
    """Quantiles of an ensemble by the inverted CDF, `y_(ceil(n p))`: always one of the draws.

    Args:
        draws: the ensemble.
        levels: levels in [0, 1], a tuple of plain numbers: they choose positions before anything runs.

    Returns:
        The quantiles, equal to `numpy.quantile(..., method="inverted_cdf")`; NaN where a draw is NaN.

    Source: Hyndman and Fan (1996), definition 1, doi:10.2307/2684934.
    """
    ordered = jnp.sort(draws, axis=-1)
    picked = ordered[..., _positions(draws.shape[-1], levels)]
    return jnp.where(jnp.isnan(ordered[..., -1:]), jnp.nan, picked)


def _without_each(draws: Float[Array, "*batch clone"]) -> Float[Array, "*batch clone rest"]:
    members = draws.shape[-1]
    rest = np.arange(members - 1)[None, :]
    return jnp.take(draws, rest + (rest >= np.arange(members)[:, None]), axis=-1)


def _leave_one_out(
    quantiles: Float[Array, "*#batch answer level"], draws: Float[Array, "*#batch clone"], scale: Array
) -> Float[Array, "*batch"]:
    """Mean over j of the accuracy of answer j, or of the only answer, against the draws without draw j."""
    rest = _without_each(draws)
    score = quantile_score(quantiles, rest)
    each = accuracy(score, fair_floor(rest), jnp.broadcast_to(scale, score.shape[:-1])[..., None])
    # Without this, leaving out the one draw that is not finite would still earn something.
    return jnp.where(jnp.all(jnp.isfinite(draws), axis=-1), mean(each), 0)


@jax.jit
def leave_one_out_accuracy(
    quantiles: Float[Array, "*#batch level"],
    draws: Float[Array, "*#batch clone"],
    scale: Float[Array, "*#batch"],
) -> Float[Array, "*batch"]:
    """Mean over j of the accuracy of one fixed answer against the draws without draw j.

    The floor is taken anew without draw j, the scale is kept. Memory grows as the square of the draws.

    Args:
        quantiles: forecast quantiles at `LEVELS`.
        draws: truth draws, at least three and a few hundred at most.
        scale: scale of the contract.

    Returns:
        The expected accuracy in [0, 1], on as many draws as `replication_expectation`, so the two compare.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    return _leave_one_out(quantiles[..., None, :], draws, scale)


@jax.jit
def replication_expectation(
    draws: Float[Array, "*batch clone"], scale: Float[Array, "*#batch"]
) -> Float[Array, "*batch"]:
    """Mean over j of the accuracy of the point answer `y_j` against the draws without draw j.

    This is what one run of the true world is worth as an answer. Memory grows as the square of the draws.

    Args:
        draws: truth draws, at least three and a few hundred at most.
        scale: scale of the contract.

    Returns:
        The expected accuracy in [0, 1]: the measurement-noise ceiling of a point answer.

    Source: the scoring page of the laboratory (see the scoring documentation).
    """
    return _leave_one_out(jnp.broadcast_to(draws[..., None], (*draws.shape, len(LEVELS))), draws, scale)
