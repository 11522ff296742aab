"""Is honesty the best report? Expected accuracy and excess under a grid of misreports.

A forecaster believes a law of the outcome. Under *aleatory* uncertainty the belief is right and the world
itself is random: each truth draw comes from the law. Under *epistemic* uncertainty the world is quasi-
deterministic and the forecaster ignorant: all draws of an ensemble are the same number, which comes from
the law. Excess is proper under both. The exponential of accuracy is not: where the outcome is unknown but
one, it pays to be sure.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import scoring
from simworlds.keys import key_for

CLONES = 8
SPREAD = 0.14  # of each of two modes
MAJORITY = 0.6
SKEW = 0.8
FRACTION = 0.03  # of the dynamic range, on the quasi-deterministic tracks
LAWS = ("gaussian", "skewed", "two modes", "0 or 1, evenly")
UNCERTAINTIES = ("aleatory", "aleatory, scale of the scored draws", "epistemic")
SHIFTS = (-1.0, -0.5, -0.25, -0.1, 0.1, 0.25, 0.5, 1.0)
WIDTHS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0)
_NORMAL = np.array([NormalDist().inv_cdf(level) for level in scoring.LEVELS])


class Law(NamedTuple):
    """What a forecaster believes.

    Attributes:
        honest: its quantiles at `scoring.LEVELS`.
        tau: its spread inside a branch.
        span: its 1 % to 99 % range, which stands for the dynamic range.
        modes: centres of its modes; a law with one has none here.
        width: spread of a report that names one mode.
    """

    honest: np.ndarray
    tau: float
    span: float
    modes: tuple[float, ...] = ()
    width: float = 0.0


class ProprietyStudy(NamedTuple):
    """The study.

    Attributes:
        data: plain numbers by uncertainty, law and report.
        table: for each uncertainty and law, what honesty earns and which report earns the most.
    """

    data: dict[str, dict[str, dict[str, dict[str, float]]]]
    table: Table


def _law(name: str) -> Law:
    normal = NormalDist()
    if name == "gaussian":
        return Law(_NORMAL, 1.0, 2 * normal.inv_cdf(0.99))
    if name == "skewed":
        ends = np.exp(SKEW * np.array([normal.inv_cdf(0.01), normal.inv_cdf(0.99)]))
        spread = float(np.sqrt((np.exp(SKEW**2) - 1) * np.exp(SKEW**2)))
        return Law(np.exp(SKEW * _NORMAL), spread, float(ends[1] - ends[0]))
    if name == "two modes":
        return Law(
            _two_modes(scoring.LEVELS), SPREAD, float(np.diff(_two_modes((0.01, 0.99)))[0]), (-1, 1), SPREAD
        )
    return Law(np.array([0.0, 0.0, 0.5, 1.0, 1.0]), 0.0, 1.0, (0, 1))


def _two_modes(levels: tuple[float, ...]) -> np.ndarray:
    law = NormalDist(0, SPREAD)
    low = [-1 + law.inv_cdf(level / MAJORITY) for level in levels if level < MAJORITY]
    high = [1 + law.inv_cdf((level - MAJORITY) / (1 - MAJORITY)) for level in levels if level > MAJORITY]
    return np.array(low + high)


def _reports(law: Law) -> dict[str, np.ndarray]:
    """The honest report and its misreports, [level] each."""
    centre, reach = law.honest[2], law.honest[-1] - law.honest[0]
    reports = {"honest": law.honest}
    reports |= {f"shift {shift:+g}": law.honest + shift * reach for shift in SHIFTS}
    reports |= {f"width {width:g}": centre + width * (law.honest - centre) for width in WIDTHS}
    reports |= {f"only {mode:g}": mode + law.width * _NORMAL for mode in law.modes}
    return reports


def _draws(name: str, uncertainty: str, number: int, seed: int) -> tuple[jax.Array, jax.Array]:
    """Truth draws and branches, [ensemble, clone] each."""
    clones = 1 if uncertainty == "epistemic" else CLONES
    shape = (number, clones)
    noise = jax.random.normal(key_for("propriety", seed, "process", name, clones), shape, jnp.float64)
    chance = jax.random.uniform(key_for("propriety", seed, "branch", name, clones), shape, jnp.float64)
    branch = jnp.zeros(shape, jnp.int32)
    if name == "gaussian":
        outcome = noise
    elif name == "skewed":
        outcome = jnp.exp(SKEW * noise)
    elif name == "two modes":
        branch = (chance >= MAJORITY).astype(jnp.int32)
        outcome = 2.0 * branch - 1 + SPREAD * noise
    else:
        branch = (chance >= 0.5).astype(jnp.int32)
        outcome = branch.astype(jnp.float64)
    wide = (number, CLONES)
    return jnp.broadcast_to(outcome, wide), jnp.broadcast_to(branch, wide)


@jax.jit
def _score(
    draws: jax.Array, branch: jax.Array, reports: jax.Array, tau: jax.Array, span: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Accuracy and excess of each report [report, level] on each ensemble; a tau that is NaN is measured."""
    spread = jnp.where(jnp.isnan(tau), scoring.within_branch_spread(draws, branch), tau)
    scale = scoring.contract_scale(spread, FRACTION, span)
    floor = scoring.fair_floor(draws)
    score = jax.vmap(lambda report: scoring.quantile_score(report[None, :], draws))(reports)
    wide = (jnp.broadcast_to(each[None, :], score.shape) for each in (floor, scale))
    floor, scale = wide
    return scoring.accuracy(score, floor, scale), scoring.excess(score, floor, scale)


def _measure(name: str, uncertainty: str, number: int, seed: int) -> dict[str, dict[str, float]]:
    law = _law(name)
    reports = _reports(law)
    tau = {"aleatory": law.tau, "epistemic": 0.0}.get(uncertainty, np.nan)
    with jax.enable_x64(True):
        draws, branch = _draws(name, uncertainty, number, seed)
        everything = (jnp.asarray(each) for each in (np.stack(list(reports.values())), tau, law.span))
        scores = jax.device_get(_score(draws, branch, *everything))
    rows: dict[str, dict[str, float]] = {}
    for index, report in enumerate(reports):
        row: dict[str, float] = {}
        for figure, values in zip(("accuracy", "excess"), scores, strict=True):
            gain = values[index] - values[0]
            row[figure] = float(values[index].mean())
            row[f"{figure}_minus_honest"] = float(gain.mean())
            row[f"{figure}_error"] = float(gain.std(ddof=1) / np.sqrt(number))
        rows[report] = row
    return rows


def best_report(rows: Mapping[str, Mapping[str, float]], figure: str) -> str:
    """The report that earns the most: highest expected accuracy, or lowest expected excess."""
    sign = -1 if figure == "accuracy" else 1
    return min(rows, key=lambda report: sign * rows[report][figure])


def _render(data: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]], number: int) -> Table:
    table = Table(
        title=f"What the best report gains over the honest one; mean over {number} ensembles of {CLONES}"
    )
    table.caption = (
        "gain ± standard error of the paired difference; accuracy: higher is better, excess: lower"
    )
    for heading in ("uncertainty", "believed law"):
        table.add_column(heading)
    for figure in ("accuracy", "excess"):
        table.add_column(f"{figure}, honest", justify="right")
        table.add_column(f"best by {figure}")
        table.add_column("gain", justify="right")
    for uncertainty, laws in data.items():
        for name, rows in laws.items():
            cells = []
            for figure in ("accuracy", "excess"):
                best = best_report(rows, figure)
                row, honest = rows[best], rows["honest"][figure]
                gain = f"{row[f'{figure}_minus_honest']:+.4f} ± {row[f'{figure}_error']:.4f}"
                cells += [f"{honest:.3f}", best, "" if best == "honest" else gain]
            table.add_row(uncertainty, name, *cells)
        table.add_section()
    return table


def propriety_study(*, ensembles: int = 4000, seed: int = 0) -> ProprietyStudy:
    """Scores a grid of misreports under each uncertainty and law.

    Args:
        ensembles: number of truth ensembles of each.
        seed: address of their random numbers; the same seed gives the same study.

    Returns:
        Expected accuracy and excess of each report, with the paired difference to the honest one and its
        standard error; and a table of what the best report gains.
    """
    data = {
        uncertainty: {name: _measure(name, uncertainty, ensembles, seed) for name in LAWS}
        for uncertainty in UNCERTAINTIES
    }
    return ProprietyStudy(data, _render(data, ensembles))


def propriety_figure(data: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> Any:
    """Accuracy (above) and excess (below) of each report, over its width or its shift, one column a law.

    Honesty stands at width 1 and shift 0; shifts are in units of the distance from the 10 % to the 90 %
    quantile. A curve that is better elsewhere is a rule that pays for a misreport.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 10.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(4, len(LAWS), squeeze=False, sharex="row")
    colours = {"aleatory": "#2e7d5b", "epistemic": "#d1495b"}
    for column, name in enumerate(LAWS):
        axes[0, column].set_title(f"believed: {name}", fontsize=10)
        for row, (change, score) in enumerate(
            (change, score) for change in ("width", "shift") for score in ("accuracy", "excess")
        ):
            axis = axes[row, column]
            for uncertainty, colour in colours.items():
                _curve(axis, data[uncertainty][name], change, score, colour, uncertainty)
            axis.axvline(1 if change == "width" else 0, color="0.6", linewidth=0.8)
            axis.grid(alpha=0.3)
            axis.set_xlabel(
                "width of the report" if change == "width" else "shift of the report, in its reach"
            )
            if score == "excess":
                axis.set_yscale("symlog", linthresh=0.1)
            if column == 0:
                axis.set_ylabel(f"{score} ({'higher' if score == 'accuracy' else 'lower'} is better)")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(
        "Misreports: curves over width and shift, dotted lines for naming one mode; honest at grey",
        fontsize=10,
    )
    return figure


def _curve(
    axis: Any, rows: Mapping[str, Mapping[str, float]], change: str, score: str, colour: str, label: str
) -> None:
    points = {1.0 if change == "width" else 0.0: rows["honest"][score]}
    points |= {float(name.split()[1]): row[score] for name, row in rows.items() if name.startswith(change)}
    places = sorted(points)
    axis.plot(places, [points[x] for x in places], "-o", color=colour, markersize=3, label=label)
    for name, row in rows.items():
        if name.startswith("only"):
            axis.axhline(row[score], color=colour, linestyle=":", linewidth=1.2)


def main() -> None:
    """Prints the table."""
    Console(width=160).print(propriety_study().table)


if __name__ == "__main__":
    main()
