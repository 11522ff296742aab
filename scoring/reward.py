"""Rewards of the budgeted design tasks: normalised squared error, the raw error of each output, checks."""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scoring._reduce import mean, root_mean_square


@jax.jit
def normalised_mse(
    prediction: Float[Array, "*#batch row column"],
    target: Float[Array, "*#batch row column"],
    sigma: Float[Array, "*#batch column"],
) -> Float[Array, "*batch"]:
    """Normalised mean squared error, `mean over rows and columns of ((prediction - target) / sigma)^2`.

    Args:
        prediction: predicted outputs.
        target: noiseless outputs, in the same units.
        sigma: published measurement-noise scale of each output, above 0.

    Returns:
        The error, without unit: 1 is as far off as one measurement; lower is better, +inf where an input is
        not finite, a scale is not positive, or the square overflows.

    Source: the task data specification (see the scoring documentation).
    """
    deviation = prediction - target
    usable = jnp.isfinite(deviation) & jnp.isfinite(sigma)[..., None, :] & (sigma > 0)[..., None, :]
    unit = jnp.where(usable, sigma[..., None, :], 1)
    square = (jnp.where(usable, deviation, 0) / unit) ** 2
    error = mean(square.reshape(*square.shape[:-2], -1))
    good = jnp.all(usable, axis=(-2, -1)) & jnp.isfinite(error) & (square.shape[-1] * square.shape[-2] > 0)
    return jnp.where(good, error, jnp.inf)


@jax.jit
def mse_reward(error: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Reward `1 / (1 + nMSE)`.

    Args:
        error: from `normalised_mse`.

    Returns:
        The reward in [0, 1]; higher is better, 1 is perfect, 0 for an error that is not finite or negative.

    Source: the task data specification (see the scoring documentation).
    """
    usable = jnp.isfinite(error) & (error >= 0)
    return jnp.where(usable, 1 / (1 + jnp.where(usable, error, 0)), 0)


@jax.jit
def rmse(
    prediction: Float[Array, "*#batch row column"], target: Float[Array, "*#batch row column"]
) -> Float[Array, "*batch column"]:
    """Root mean squared error of each output, over the rows.

    Args:
        prediction: predicted outputs.
        target: noiseless outputs, in the same units.

    Returns:
        The errors in units of each output; lower is better, +inf where an input is not finite.

    Source: the task data specification (see the scoring documentation).
    """
    residual = jnp.swapaxes(prediction - target, -1, -2)
    usable = jnp.all(jnp.isfinite(residual), axis=-1)
    root = root_mean_square(jnp.where(usable[..., None], residual, 0), max(residual.shape[-1], 1))
    return jnp.where(usable, root, jnp.inf)


def check_prediction(prediction: object, rows: int, columns: int) -> np.ndarray:
    """Checks a prediction matrix on the host, before any evaluation: a refusal costs nothing.

    Args:
        prediction: any object, as decoded from JSON or a NumPy array.
        rows: number of rows that it must have.
        columns: number of columns that it must have.

    Returns:
        The same numbers in float64, [row, column].

    Raises:
        ValueError: for anything but real, finite numbers of that shape; the first wrong entry is named.
    """
    wanted = f"`prediction` must be finite numbers of shape ({rows}, {columns})"
    try:
        matrix = np.asarray(prediction)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{wanted}, but its rows are not alike") from error
    if matrix.dtype.kind not in "iuf":
        raise ValueError(f"{wanted}, but is of dtype {matrix.dtype}")
    if matrix.shape != (rows, columns):
        raise ValueError(f"{wanted}, but has shape {matrix.shape}")
    matrix = matrix.astype(np.float64)
    illegal = np.argwhere(~np.isfinite(matrix))
    if len(illegal):
        row, column = (int(index) for index in illegal[0])
        raise ValueError(f"{wanted}, but is {matrix[row, column]} at [{row}, {column}]")
    return matrix


@dataclass(frozen=True)
class RewardReport:
    """Reward of one prediction matrix.

    Attributes:
        reward: `1 / (1 + nmse)`, higher is better.
        nmse: normalised mean squared error; None where it overflows, and the reward is then 0.
        rmse: raw error of each output, in its own units; None where it overflows.
        rows: number of rows: the denominator of each error.
    """

    reward: float
    nmse: float | None
    rmse: tuple[float | None, ...]
    rows: int

    def to_json(self) -> dict[str, Any]:
        """The report as plain, finite numbers."""
        return asdict(self) | {"rmse": list(self.rmse)}


def score_prediction(prediction: object, target: object, sigma: object) -> RewardReport:
    """Checks a prediction and scores it, in float64.

    Args:
        prediction: any object; see `check_prediction`.
        target: noiseless outputs, [row, column].
        sigma: measurement-noise scale of each output, above 0, [column].

    Returns:
        The report.

    Raises:
        ValueError: where the prediction is refused, or target and scales are not what they must be.
    """
    wanted, unit = np.asarray(target, np.float64), np.asarray(sigma, np.float64)
    if wanted.ndim != 2 or wanted.size == 0 or not np.isfinite(wanted).all():
        raise ValueError(f"`target` must be finite, of shape [row, column], but has shape {wanted.shape}")
    if unit.shape != wanted.shape[1:] or not (np.isfinite(unit) & (unit > 0)).all():
        raise ValueError(f"`sigma` must be {wanted.shape[1]} finite numbers above 0, but is {unit.tolist()}")
    given = check_prediction(prediction, *wanted.shape)
    with jax.enable_x64(True):
        error = normalised_mse(given, wanted, unit)
        worth, each = jax.device_get((mse_reward(error), rmse(given, wanted)))
    return RewardReport(
        reward=float(worth),
        nmse=float(error) if np.isfinite(error) else None,
        rmse=tuple(float(value) if np.isfinite(value) else None for value in each),
        rows=len(wanted),
    )
