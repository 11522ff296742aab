"""Pictures of records, as matplotlib figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.summary import Record, by_world, worlds_of
from oracles.ladder import RUNGS

_COLOURS = dict(
    zip(RUNGS, ("#9a9a9a", "#6f7d8c", "#4d6a8a", "#d1495b", "#edae49", "#66a182", "#2e7d5b"), strict=True)
)


def _figure(width: float, height: float, rows: int, columns: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def ladder(records: Sequence[Record]) -> Any:
    """Accuracy and below it excess of each rung, a column a world, four worlds abreast, 95 % intervals."""
    worlds = worlds_of(records)
    columns = min(len(worlds), 4)
    blocks = -(-len(worlds) // columns)
    figure, axes = _figure(2.4 + 2.4 * columns, 5.2 * blocks + 0.4, 2 * blocks, columns)
    for row, (field, label) in enumerate(
        (("accuracy", "accuracy (higher is better)"), ("excess", "excess (lower is better)"))
    ):
        table = by_world(records, field)
        for number, world in enumerate(worlds):
            block, column = divmod(number, columns)
            axis = axes[2 * block + row, column]
            _rungs(axis, [table[name, world] for name in RUNGS], first=column == 0)
            axis.set_xlabel(label)
            if field == "excess":
                axis.set_xscale("symlog", linthresh=0.1)
                axis.axvline(0, color="0.6", linewidth=0.8)
            else:
                axis.set_xlim(0, 1.02)
                axis.set_xticks((0, 0.25, 0.5, 0.75, 1), ("0", "", "0.5", "", "1"))
                axis.set_title(world)
    for axis in axes.reshape(blocks, 2, columns)[-1, :, (len(worlds) - 1) % columns + 1 :].ravel():
        axis.set_axis_off()
    first = records[0]
    seeds = len({record["seed"] for record in records})
    figure.suptitle(
        f"Reference ladder: {seeds} seeds, {first['clones']} truth clones\n"
        f"simworlds {first['version']}, {first['backend']} {first['dtype']}",
        fontsize=9,
    )
    return figure


def _rungs(axis: Any, figures: Sequence[Any], *, first: bool) -> None:
    place = np.arange(len(RUNGS))[::-1]
    for y, name, value in zip(place, RUNGS, figures, strict=True):
        if value.n:
            axis.errorbar(
                value.mean,
                y,
                xerr=value.half_width if value.n > 1 else None,
                fmt="o",
                color=_COLOURS[name],
                capsize=3,
            )
    axis.set_yticks(place, RUNGS if first else [""] * len(RUNGS))
    axis.set_ylim(-0.5, len(RUNGS) - 0.5)
    axis.grid(axis="x", alpha=0.3)


def contract(record: Record, number: int) -> Any:
    """One contract: the truth's draws, coloured by branch, and each rung's quantiles above them."""
    truth, question = record["truth"], record["contracts"][number]
    figure, axes = _figure(7.0, 3.6, 1, 1)
    axis = axes[0, 0]
    draws, labels = np.array(truth["draws"][number]), np.array(truth["branch"][number])
    for label in np.unique(labels):
        chosen = draws[labels == label]
        axis.plot(
            chosen,
            np.zeros(len(chosen)),
            "|",
            markersize=22,
            markeredgewidth=2,
            label=f"truth: {record['branches'][label]}",
        )
    for k, rung in enumerate(record["rungs"], start=1):
        answer = next((a for a in rung["answers"] if a["id"] == question["id"]), None)
        if answer is None:
            continue
        levels = list(answer.get("quantiles", {"": answer["mean"]}).values())
        axis.plot(levels, [k] * len(levels), "-o", color=_COLOURS[rung["rung"]], markersize=4)
    axis.set_yticks(range(len(record["rungs"]) + 1), ["truth", *(rung["rung"] for rung in record["rungs"])])
    axis.set_xlabel(f"{question['statistic']} of {question['port']} over ticks {question['window']}")
    axis.set_title(f"{record['world']}, seed {record['seed']}, contract {question['id']}")
    axis.legend(fontsize=8)
    axis.grid(axis="x", alpha=0.3)
    return figure


def readings(values: np.ndarray, sensors: Sequence[str]) -> Any:
    """Readings ``[tick, sensor]`` of one run, one panel a sensor."""
    figure, axes = _figure(8.0, 1.3 * len(sensors) + 0.6, len(sensors), 1)
    for k, name in enumerate(sensors):
        axes[k, 0].plot(values[:, k], linewidth=0.9)
        axes[k, 0].set_ylabel(name)
        axes[k, 0].grid(alpha=0.3)
    axes[-1, 0].set_xlabel("tick")
    return figure


def world_runs(world: Any, levels: Sequence[np.ndarray], runs: Sequence[np.ndarray]) -> Any:
    """Typical runs of a family: one column a protocol, drives above, one panel a sensor below.

    Args:
        world: the family, whose names and units label the panels.
        levels: of each protocol, levels ``[tick, drive]``.
        runs: of each protocol, raw readings ``[clone, tick, sensor]``.
    """
    rows = 1 + len(world.sensors)
    figure, axes = _figure(5.0 * len(runs), 1.2 * rows + 0.8, rows, len(runs))
    for column, (level, readings) in enumerate(zip(levels, runs, strict=True)):
        for k, drive in enumerate(world.drives):
            axes[0, column].step(np.arange(len(level)), level[:, k], where="post", label=drive.name)
        axes[0, column].set_ylim(-0.05, 1.05)
        for k, sensor in enumerate(world.sensors):
            axis = axes[1 + k, column]
            axis.plot(readings[:, :, k].T, linewidth=0.8)
            axis.grid(alpha=0.3)
            if column == 0:
                unit = f" ({sensor.unit})" if sensor.unit else ""
                axis.set_ylabel(f"{sensor.name}{unit}".replace(" ", "\n", 1), fontsize=7)
        axes[-1, column].set_xlabel("tick")
    axes[0, 0].set_ylabel("levels", fontsize=7)
    axes[0, -1].legend(fontsize=6, ncols=len(world.drives), loc="upper right")
    figure.suptitle(f"{world.id} {world.title}: seed 0, {runs[0].shape[0]} clones, two protocols", fontsize=9)
    return figure


def save(figure: Any, path: Path, dpi: int = 130) -> None:
    """Write a figure as a PNG that has no time stamp in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi, format="png", metadata={"Software": None})
