"""God-mode ensembles: the calibration of each channel's range, and the truth of each contract."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scoring.checks import Truth, check_truth
from scoring.quantile import branch_count, within_branch_spread
from simworlds.contracts import Contract, grammar_protocol
from simworlds.ensemble import Progress, Request, Statistics, measure, simulate
from simworlds.errors import InvalidRequest
from simworlds.keys import Draws
from simworlds.protocol import is_whole
from simworlds.store import Store, address_of

if TYPE_CHECKING:
    from simworlds.instance import Instance

CLONES = 8
_FEWEST_CLONES = 4
_TOP_UP = 64
_CALIBRATION = (64, 4)  # protocols, clones
_TAIL = 16


class Ranges(NamedTuple):
    """Of each channel, in port order and gauged.

    Attributes:
        dynamic_range: from 1 % to 99 % of its readings, at least 10 sensor-noise standard deviations.
        lively: whether it answers to drives: whether its range is above that bound.
        middle: the median reading.
        wobble: the median sd over the last 16 ticks of a run.
        last: the last reading of the first run.
    """

    dynamic_range: np.ndarray
    lively: np.ndarray
    middle: np.ndarray
    wobble: np.ndarray
    last: np.ndarray


class TruthEnsemble(NamedTuple):
    """The truth of several contracts, god mode: arrays whose first axis is the contract.

    Attributes:
        draws: the statistic on each clone ``[contract, clone]``.
        branch: the branch that each clone reported at the window's end ``[contract, clone]``.
        tau: the within-branch spread.
        freedom: clones less branches, of the ensemble that gave tau.
        dynamic_range: of the contract's channel.
        fraction: of the dynamic range that floors the scale.
    """

    draws: np.ndarray
    branch: np.ndarray
    tau: np.ndarray
    freedom: np.ndarray
    dynamic_range: np.ndarray
    fraction: np.ndarray


def calibrate(instance: "Instance", store: Store | None = None, progress: Progress | None = None) -> Ranges:
    """The ranges of each channel, from noise-free readings over 64 grammar protocols x 4 clones."""
    count, clones = _CALIBRATION

    def compute() -> dict[str, np.ndarray]:
        requests = []
        for k in range(count):
            draws = Draws.for_role(instance.world.id, instance.seed, "calibration", "protocol", k)
            requests.append(Request(grammar_protocol(instance, draws), ("calibration", k)))
        values = simulate(instance, requests, clones, noise=False, progress=progress).values
        flat = values.reshape(-1, values.shape[-1]).astype(np.float64)
        flat = flat[~np.isnan(flat[:, 0])]
        low, high = np.quantile(flat, [0.01, 0.99], axis=0, method="inverted_cdf")
        ends = [request.protocol.ticks for request in requests]
        tails = np.stack([values[k, :, max(0, end - _TAIL) : end].std(1) for k, end in enumerate(ends)])
        return {
            "range": high - low,
            "middle": np.median(flat, axis=0),
            "wobble": np.median(tails, axis=(0, 1)),
            "last": values[0, 0, ends[0] - 1],
        }

    address = address_of(instance, "calibration", protocols=count, clones=clones)
    found = (store or Store()).fetch(address, compute)
    measured, least = found["range"], 10 * np.asarray(instance.gauge.sigma, np.float64)
    return Ranges(
        np.maximum(measured, least), measured > least, found["middle"], found["wobble"], found["last"]
    )


def ensemble_of(
    instance: "Instance",
    contracts: Sequence[Contract],
    clones: int,
    role: str,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Each contract's statistic and branch on fresh clones, cached: arrays ``[contract, clone]``.

    Raises:
        InvalidRequest: if `clones` is not a whole number of at least 1.
        Diverged: if a trajectory leaves the finite numbers.
    """
    address = address_of(
        instance, "ensemble", role=role, clones=clones, contracts=[c.to_json() for c in contracts]
    )

    def compute() -> dict[str, np.ndarray]:
        requests = [contract.request(role) for contract in contracts]
        return measure(instance, requests, clones, progress=progress)._asdict()

    return Statistics(**(store or Store()).fetch(address, compute))


def truth_of(
    instance: "Instance",
    contracts: Sequence[Contract],
    clones: int = CLONES,
    store: Store | None = None,
    progress: Progress | None = None,
) -> TruthEnsemble:
    """The truth of contracts on fresh clones of the true world.

    Where fewer than 3 degrees of freedom (clones less branches) are left, tau comes from 64 clones of the
    same role.

    Raises:
        InvalidRequest: if `clones` is not a whole number of at least 4.
        Diverged: if a trajectory leaves the finite numbers.
    """
    if not is_whole(clones) or clones < _FEWEST_CLONES:
        raise InvalidRequest(
            f"truth needs a whole number of at least {_FEWEST_CLONES} clones, but `clones` is {clones!r}"
        )
    clones = int(clones)
    values, branch = ensemble_of(instance, contracts, clones, "truth", store, progress)
    draws = values.astype(np.float64)
    tau, freedom = _spread(draws, branch)
    thin = np.flatnonzero(freedom < 3)
    if len(thin) and clones < _TOP_UP:
        more = ensemble_of(instance, [contracts[int(k)] for k in thin], _TOP_UP, "truth", store, progress)
        tau[thin], freedom[thin] = _spread(more.values.astype(np.float64), more.branch)
    ranges = calibrate(instance, store).dynamic_range
    world = instance.world
    port = np.array([contract.readout().port for contract in contracts], int)
    fraction = np.array(
        [world.sd_fraction if c.statistic == "sd" else world.mean_fraction for c in contracts]
    )
    return TruthEnsemble(draws, branch, tau, freedom, ranges[port], fraction)


def checked_truth(ensemble: TruthEnsemble) -> Truth:
    """A truth ensemble in the form that scoring takes.

    Raises:
        ValueError: if it is not finite or has the wrong shape.
    """
    return check_truth(
        ensemble.draws,
        ensemble.branch,
        fraction=ensemble.fraction,
        dynamic_range=ensemble.dynamic_range,
        tau=ensemble.tau,
    )


def _spread(draws: np.ndarray, branch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The within-branch spread and its degrees of freedom, in float64."""
    import jax

    with jax.enable_x64(True):
        tau = np.array(within_branch_spread(draws, branch))
        freedom = draws.shape[-1] - np.array(branch_count(branch), int)
    return tau, freedom
