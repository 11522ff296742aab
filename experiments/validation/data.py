"""Checks against data that others made: the stochastic test suite DSMTS and the initial value test set.

Read from a folder that the user names; the files are not part of this project. The suite's processes are
networks as data (`simworlds.network`), so any further process of that form is checked likewise.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.inputs import UsageError
from experiments.validation.check import Check, Measured
from simworlds.errors import InvalidNetwork
from simworlds.network import Network, exact_runs, leap_runs
from simworlds.reference import adaptive_solve

EXACT_RUNS, LEAP_RUNS = 10_000, 40_000
MEAN_GATE, SD_GATE = 4.5, 7.0  # of Z and Y, the suite's normalised errors of mean and variance
LEAP_ERROR = 0.02
DIGITS = 1e-8  # relative: eight digits

# Its counts are so skewed in the end that the variance of 10,000 runs has no normal law.
_SKEWED = ("dsmts-001-03",)
_DSMTS, _IVP = "dsmts_cases.json", "ivp_testset_refs.json"


def data_checks(folder: Path) -> list[Check]:
    """The checks of a folder that holds ``dsmts_cases.json``, ``ivp_testset_refs.json``, or both.

    Raises:
        UsageError: if it holds neither, or a file is not what it should be.
    """
    found: list[Check] = []
    for name, read in ((_DSMTS, _dsmts), (_IVP, _ivp)):
        path = folder / name
        if path.is_file():
            try:
                found += read(json.loads(path.read_bytes()))
            except (ValueError, KeyError, TypeError, AttributeError, InvalidNetwork) as fault:
                raise UsageError(
                    f"{path} is not what it should be: {type(fault).__name__}: {fault}"
                ) from fault
    if not found:
        raise UsageError(f"{folder} holds neither {_DSMTS} nor {_IVP}")
    return found


class _Process:
    """One process of the suite: its network, and the published mean and sd of its outputs."""

    def __init__(self, case: Mapping[str, Any]):
        self.case, self.name = case, str(case["dsmts"])
        self.network = Network(case)
        table, columns = np.array(case["results"], np.float64), list(case["results_columns"])
        self.times = table[:, columns.index("time")]
        self.outputs = [o for o in self.network.outputs if f"{o}-mean" in columns and f"{o}-sd" in columns]
        if not self.outputs:
            raise ValueError(f"{self.name} publishes no mean and sd of its species or rules")
        self.mean, self.sd = (
            np.stack([table[:, columns.index(f"{o}-{kind}")] for o in self.outputs], axis=-1)
            for kind in ("mean", "sd")
        )

    @cache  # noqa: B019  a process lives as long as its checks
    def runs(self, exact: bool) -> np.ndarray:
        """Outputs ``[run, time, output]``."""
        simulate, count = (exact_runs, EXACT_RUNS) if exact else (leap_runs, LEAP_RUNS)
        values = simulate(self.network, self.times, count, name=self.name)
        return values[:, :, [self.network.outputs.index(o) for o in self.outputs]]

    def normalised(self, variance: bool) -> Measured:
        """The largest normalised error of a row; infinite if a row without spread does not match exactly."""
        runs, n = self.runs(True), EXACT_RUNS
        random = self.sd > 0
        if np.any(np.abs(runs - self.mean)[:, ~random] > 1e-9):
            return Measured(np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            if variance:
                error = np.sqrt(n / 2) * (np.mean((runs - self.mean) ** 2, 0) / self.sd**2 - 1)
            else:
                error = np.sqrt(n) * (runs.mean(0) - self.mean) / self.sd
        return Measured(float(np.max(np.abs(error[random]))))

    def leap_error(self, variance: bool) -> Measured:
        """The largest relative error of a row by tau-leaping, with that row's standard error."""
        runs, n = self.runs(False), LEAP_RUNS
        square = np.mean((runs - self.mean) ** 2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            if variance:
                error = np.sqrt(square) / self.sd - 1
                fourth = np.mean((runs - self.mean) ** 4, 0) / square**2
                noise = np.sqrt(np.maximum(fourth - 1, 0) / n) / 2
            else:
                error = runs.mean(0) / self.mean - 1
                noise = np.sqrt(square / n) / self.mean
        usable = (self.sd > 0) & (self.mean > 0)
        beyond = np.where(usable, np.abs(error) - 4 * noise, -np.inf)
        worst = np.unravel_index(np.argmax(beyond), beyond.shape)
        return Measured(float(abs(error[worst])), float(noise[worst]))


def _dsmts(cases: Any) -> Iterator[Check]:
    source = "doi:10.1093/bioinformatics/btm566"
    for case in cases:
        process = _Process(case)

        def check(
            quantity: str, measure: Callable[[], Measured], gate: float, process: _Process = process
        ) -> Check:
            return Check(process.name, quantity, 0.0, source, measure, gate, slow=True, data=process.case)

        yield check("exact: largest Z of the mean", partial(process.normalised, False), MEAN_GATE)
        if process.name not in _SKEWED:
            yield check("exact: largest Y of the variance", partial(process.normalised, True), SD_GATE)
        yield check("tau-leap: largest error of the mean", partial(process.leap_error, False), LEAP_ERROR)
        yield check("tau-leap: largest error of the sd", partial(process.leap_error, True), LEAP_ERROR)


def _hires(t: Any, y: Any, args: Any) -> Any:
    del t, args
    y1, y2, y3, y4, y5, y6, y7, y8 = y
    bound = 280 * y6 * y8 - 1.81 * y7
    return jnp.stack(
        [
            -1.71 * y1 + 0.43 * y2 + 8.32 * y3 + 0.0007,
            1.71 * y1 - 8.75 * y2,
            -10.03 * y3 + 0.43 * y4 + 0.035 * y5,
            8.32 * y2 + 1.71 * y3 - 1.12 * y4,
            -1.745 * y5 + 0.43 * y6 + 0.43 * y7,
            -280 * y6 * y8 + 0.69 * y4 + 1.71 * y5 - 0.43 * y6 + 0.69 * y7,
            bound,
            -bound,
        ]
    )


def _orego(t: Any, y: Any, args: Any) -> Any:
    del t, args
    s, w, q = 77.27, 0.161, 8.375e-6
    y1, y2, y3 = y
    return jnp.stack([s * (y2 - y1 * y2 + y1 - q * y1 * y1), (y3 - y2 - y1 * y2) / s, w * (y1 - y3)])


def _rober(t: Any, y: Any, args: Any) -> Any:
    del t, args
    y1, y2, y3 = y
    forward, back, fast = 0.04 * y1, 1e4 * y2 * y3, 3e7 * y2 * y2
    return jnp.stack([back - forward, forward - back - fast, fast])


def _pleiades(t: Any, y: Any, args: Any) -> Any:
    del t, args
    place, velocity = y[:14].reshape(2, 7), y[14:]
    apart = place[:, None, :] - place[:, :, None]
    distance = jnp.sum(apart**2, axis=0) + jnp.eye(7)
    pull = jnp.sum(jnp.arange(1.0, 8.0)[None, None, :] * apart / distance[None] ** 1.5, axis=2)
    return jnp.concatenate([velocity, pull.ravel()])


_SEVEN = (
    (3, 3, -1, -3, 2, -2, 2, 3, -3, 2, 0, 0, -4, 4),  # places: x, y
    (0, 0, 0, 0, 0, 1.75, -1.5, 0, 0, 0, -1.25, 1, 0, 0),  # velocities likewise
)
# Law, start, whether stiff, tolerances.
PROBLEMS: dict[str, tuple[Any, tuple[float, ...], bool, float, float]] = {
    "hires": (_hires, (1, 0, 0, 0, 0, 0, 0, 0.0057), True, 1e-11, 1e-15),
    "orego": (_orego, (1, 2, 3), True, 1e-10, 1e-10),
    "rober": (_rober, (1, 0, 0), True, 1e-9, 1e-18),
    "pleiades": (_pleiades, (*_SEVEN[0], *_SEVEN[1]), False, 1e-13, 1e-13),
}


def _ivp(data: Any) -> Iterator[Check]:
    for name, (_, start, *_) in PROBLEMS.items():
        if name in data["refs"]:
            entry = data["refs"][name]
            end, published = float(entry["t1"]), [float(y) for y in entry["y"]]
            if len(published) != len(start):
                raise ValueError(f"{name} has {len(start)} components, but the file has {len(published)}")
            measure = partial(_largest_error, name, end, tuple(published))
            quantity = f"largest relative error at t = {end:g}"
            source = "doi:10.1016/j.cam.2012.03.014"
            yield Check(name, quantity, 0.0, source, measure, DIGITS, slow=True, data=entry)


def _largest_error(name: str, end: float, published: tuple[float, ...]) -> Measured:
    law, start, stiff, rtol, atol = PROBLEMS[name]
    with jax.enable_x64(True):
        solve = jax.jit(partial(adaptive_solve, law, rtol=rtol, atol=atol, stiff=stiff))
        state, failed = jax.device_get(solve(jnp.array(start, jnp.float64), jnp.float64(end)))
    if failed:
        raise ArithmeticError(f"the adaptive solve of {name} failed")
    return Measured(float(np.max(np.abs(state / np.array(published) - 1))))
