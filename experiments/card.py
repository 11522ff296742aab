"""Cards: what a world is, on one page, with the figures that were measured of it."""

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import plot
from experiments.machine import processor
from experiments.validation import report, steps
from experiments.validation.check import Row
from scoring.quantile import fair_floor
from simworlds.admission import MOST_REDRAWS, TRIVIAL, trail
from simworlds.catalogue import load
from simworlds.ensemble import Request, simulate
from simworlds.errors import Inadmissible
from simworlds.instance import draw_instance
from simworlds.store import Store, address_of, code_digest, environment, write_atomically
from simworlds.world import World

_FLOOR_CLONES = 256
_SPLIT_CLONES, _SPLIT_PROTOCOLS, _SPLIT = 64, 8, 0.15
_BIAS_CLONES = 64
_TAIL = 16  # ticks of the windows whose statistics floors and biases are about
_BY = ("experiments.card", "experiments.validation.steps", "simworlds.relaxation")  # code behind its figures
Tell = Callable[[str], None]


class Admission(NamedTuple):
    """What the examination of some seeds found.

    Attributes:
        seeds: how many (0 and on).
        admitted: how many of them have an instance.
        draws: how many draws it took in all.
        reasons: why draws were not fit, in order.
        constant: mean accuracy of a constant over the admitted instances.
        last: mean accuracy of the last value.
        split: share of the instances whose outcome is open under at least one protocol; NaN without branches.
    """

    seeds: int
    admitted: int
    draws: int
    reasons: tuple[str, ...]
    constant: float
    last: float
    split: float


class Floor(NamedTuple):
    """A channel's spread over clones, in shares of its nominal range, means over protocols.

    Attributes:
        sensor: its name.
        mean: sd over clones of the mean over a window of 16 ticks.
        sd: sd over clones of the sd over it.
        crps: the floor of the quantile score of the mean.
    """

    sensor: str
    mean: float
    sd: float
    crps: float


@dataclasses.dataclass(frozen=True)
class Card:
    """All that a card says; see `card_of`."""

    world: World
    rows: Sequence[Row]
    admission: Admission
    floors: Sequence[Floor]
    cost: float  # seconds of one core that a clone of the whole horizon takes
    bias: float | None  # of the relaxation, in shares of the nominal range; None for a smooth law
    figure: Any

    def to_json(self) -> dict[str, Any]:
        """The card as plain data."""
        world = self.world
        figures = {
            "admission": self.admission._asdict(),
            "floors": [floor._asdict() for floor in self.floors],
            "milliseconds_a_clone": 1e3 * self.cost,
            "relaxation_bias": self.bias,
        }
        return {
            "id": world.id,
            "title": world.title,
            "track": world.track,
            "phenomenon": world.phenomenon,
            "law": law_text(world),
            "law_version": world.law_version,
            "drives": [dataclasses.asdict(d) for d in world.drives],
            "sensors": [dataclasses.asdict(s) for s in world.sensors],
            "references": report.to_json(self.rows),
            **report.finite_only(figures),
            **environment(),
        }

    def markdown(self) -> str:
        """The card as a Markdown page."""
        world = self.world
        scheme, where = world.scheme, environment()
        sections = [
            f"# {world.id} {world.title}",
            f"Track {world.track}, law version {world.law_version}. Hidden: {world.phenomenon}.",
            "## Law",
            f"```\n{law_text(world)}\n```",
            "Limit, in which the references are measured: " + _first(world.limit),
            "An instance draws: " + _first(world.draw),
            "A clone starts from: " + _first(world.initial),
            "## Ports",
            _drives(world),
            _sensors(world),
            f"![Typical runs of {world.id}]({world.id}.png)",
            "## Scheme",
            f"{type(scheme).__name__}, step {scheme.dt:g}, {scheme.substeps} steps a tick of "
            f"{scheme.tick_time:g} time units, horizon {world.horizon} ticks. A clone of the whole horizon "
            f"costs {1e3 * self.cost:.2g} ms of one core ({machine()}).",
            *([] if self.bias is None else [_relaxation(world, self.bias)]),
            "## References",
            report.markdown_table(self.rows).rstrip(),
            "## Admission",
            _admission(self.admission),
            "## Noise floors",
            _floors(self.floors),
            f"Version {where['version']}, JAX {where['jax']}, {where['backend']}, {where['dtype']}.",
        ]
        return "\n\n".join(sections) + "\n"


def law_text(world: World) -> str:
    """The equations and their sources, as the family's module states them."""
    return (sys.modules[type(world).__module__].__doc__ or world.title).strip()


def machine() -> str:
    """The processor and the number of cores, for figures that depend on them."""
    return f"{processor()}, {os.cpu_count()} cores"


def _first(method: Any) -> str:
    return (method.__doc__ or "not stated.").strip().split("\n\n")[0].replace("\n", " ").strip()


def _drives(world: World) -> str:
    lines = ["| drive | from | to | at rest | unit | scale |", "|---|---|---|---|---|---|"]
    for d in world.drives:
        scale = "logarithmic" if d.log else "linear"
        rest = f"{float(d.physical(d.rest)):.4g}"
        lines.append(f"| {d.name} | {d.low:g} | {d.high:g} | {rest} | {d.unit or '–'} | {scale} |")
    return "\n".join(lines)


def _sensors(world: World) -> str:
    lines = ["| sensor | nominal range | unit | weight in contracts |", "|---|---|---|---|"]
    for s in world.sensors:
        weight = world.grammar.ask.get(s.name, 0.0)
        lines.append(f"| {s.name} | {s.low:g} to {s.high:g} | {s.unit or '–'} | {weight:g} |")
    outcomes = f"\n\nOutcomes: {', '.join(world.branches)}." if len(world.branches) > 1 else ""
    return "\n".join(lines) + outcomes


def _relaxation(world: World, bias: float) -> str:
    relaxed = type(world.relaxed())
    text = _first(relaxed if relaxed.__doc__ else relaxed.__mro__[1])
    return (
        f"Trajectories jump, so derivatives are taken through `world.relaxed()`: {text} Its mean window "
        f"statistics are off by {bias:.2g} of the nominal range on average over sensors, the sampling error "
        f"of {_BIAS_CLONES} clones each included."
    )


def _admission(found: Admission) -> str:
    lines = [
        f"{found.seeds} seeds took {found.draws} draws: {found.admitted / found.draws:.0%} of the draws "
        "were admitted.",
        f"A constant answers with accuracy {found.constant:.2f}, the last value with {found.last:.2f} on "
        f"average; an instance is admitted below {TRIVIAL}.",
    ]
    if found.reasons:
        lines.append("Not admitted: " + "; ".join(found.reasons) + ".")
    if not math.isnan(found.split):
        lines.append(
            f"In {found.split:.0%} of the instances the outcome of at least one of {_SPLIT_PROTOCOLS} random "
            f"protocols is split between 15/85 and 85/15 over {_SPLIT_CLONES} clones."
        )
    return " ".join(lines)


def _floors(floors: Sequence[Floor]) -> str:
    lines = [
        f"Spread over {_FLOOR_CLONES} clones with sensor noise, in shares of the nominal range, for windows "
        f"of {_TAIL} ticks at the end of four random protocols of seed 0: what no answer can know. The "
        "standard error of a mean over 8 truth clones is the spread over √8.",
        "",
        "| sensor | spread of the mean | spread of the sd | CRPS floor of the mean |",
        "|---|---|---|---|",
    ]
    lines += [f"| {f.sensor} | {f.mean:.4f} | {f.sd:.4f} | {f.crps:.4f} |" for f in floors]
    return "\n".join(lines)


def card_of(name: str, *, seeds: int = 16, store: Store | None = None, tell: Tell | None = None) -> Card:
    """Measure all that a family's card says; what the store holds is not measured again.

    Args:
        name: identifier of the family.
        seeds: whose admission is reported.
        store: the default store if None.
        tell: called with the name of each stage.
    """
    world, place, tell = load(name), store or Store(), tell or _silent
    tell("references")
    rows = report.run_checks(report.all_checks([world.id]), store=place)
    tell("admission")
    admission = admission_of(world, seeds, place)
    tell("noise floors")
    floors = noise_floors(world, place)
    tell("bias of the relaxation")
    bias = None if world.scheme.smooth else relaxation_bias(world, place)
    tell("cost")
    cost = cost_of(world)
    tell("picture")
    return Card(world, rows, admission, floors, cost, bias, typical_runs(world))


def _silent(stage: str) -> None:
    del stage


def admission_of(world: World, seeds: int, store: Store) -> Admission:
    """Examine seeds 0 and on."""
    draws, reasons, constant, last, split = 0, [], [], [], []
    for seed in range(seeds):
        try:
            found = trail(world, seed)
        except Inadmissible as fault:
            reasons.append(str(fault))
            draws += MOST_REDRAWS
            continue
        draws += len(found)
        reasons += [f"seed {seed} draw {k}: {', '.join(e.faults)}" for k, e in enumerate(found[:-1])]
        constant.append(found[-1].constant)
        last.append(found[-1].last)
        if world.track == "B":
            split.append(_is_open(world, seed, len(found) - 1, store))
    mean = lambda values: float(np.mean(values)) if values else math.nan  # noqa: E731
    return Admission(seeds, len(last), draws, tuple(reasons), mean(constant), mean(last), mean(split))


def _is_open(world: World, seed: int, redraws: int, store: Store) -> bool:
    """Whether some protocol leaves the outcome open: its commonest outcome has between 15 and 85 %."""
    instance = draw_instance(world, seed, redraws)
    protocols = steps.protocols_of(instance, _SPLIT_PROTOCOLS, "split")

    def compute() -> dict[str, np.ndarray]:
        requests = [Request(protocol, ("split", k)) for k, protocol in enumerate(protocols)]
        return {"branch": simulate(instance, requests, _SPLIT_CLONES).branch}

    address = address_of(instance, "split", by=code_digest(*_BY))
    branch = store.fetch(address, compute)["branch"]
    shares = [np.bincount(row).max() / _SPLIT_CLONES for row in branch]
    return any(_SPLIT <= share <= 1 - _SPLIT for share in shares)


def _windows(world: World, clones: int, seed: int, purpose: str, noise: bool, of: World) -> np.ndarray:
    """Window mean and sd on clones of a family's law `of`: ``[protocol, clone, (mean, sd), sensor]``."""
    instance = world.instance(seed).canonical()
    protocols = steps.protocols_of(instance, 4, purpose)  # drawn by the law's name, whichever law runs
    instance = dataclasses.replace(instance, world=of)
    if noise:
        own = world.instance(seed).gauge
        sigma = (np.asarray(own.sigma) / np.abs(own.gain))[np.argsort(own.order)]
        instance = dataclasses.replace(instance, gauge=instance.gauge._replace(sigma=sigma))
    requests = [Request(protocol, (purpose, k)) for k, protocol in enumerate(protocols)]
    values = simulate(instance, requests, clones, noise=noise).values
    tails = np.stack([row[:, p.ticks - _TAIL : p.ticks] for row, p in zip(values, protocols, strict=True)])
    return np.stack([tails.mean(2), tails.std(2)], axis=2).astype(np.float64) / steps.spans(world)


def noise_floors(world: World, store: Store) -> list[Floor]:
    """The spread of each channel's window statistics over 256 clones."""
    address = address_of(world.instance(0), "floors", by=code_digest(*_BY))
    compute = lambda: {"rows": _windows(world, _FLOOR_CLONES, 0, "floors", True, world)}  # noqa: E731
    found = store.fetch(address, compute)["rows"]
    spread = found.std(axis=1, ddof=1).mean(0)
    floor = np.asarray(fair_floor(np.moveaxis(found[:, :, 0], 1, -1))).mean(0)
    return [
        Floor(sensor.name, float(spread[0, k]), float(spread[1, k]), float(floor[k]))
        for k, sensor in enumerate(world.sensors)
    ]


def relaxation_bias(world: World, store: Store) -> float:
    """Mean absolute difference between law and relaxation of ensemble means of window statistics."""
    address = address_of(world.instance(0), "bias", by=code_digest(*_BY))

    def compute() -> dict[str, np.ndarray]:
        both = [_windows(world, _BIAS_CLONES, 0, "relaxation", False, of) for of in (world, world.relaxed())]
        return {"difference": both[1].mean(1) - both[0].mean(1)}

    return float(np.abs(store.fetch(address, compute)["difference"]).mean())


def cost_of(world: World) -> float:
    """Seconds of one core that a clone of the whole horizon takes: the best of three full chunks."""
    import jax

    instance = draw_instance(world, 0)
    request = Request(instance.protocol([{"ticks": world.horizon}]), ("cost",))
    clones = world.lanes * len(jax.devices())
    took = []
    for _ in range(4):  # the first one compiles
        started = time.perf_counter()
        simulate(instance, [request], clones)
        took.append(time.perf_counter() - started)
    return min(took[1:]) * min(len(jax.devices()), os.cpu_count() or 1) / clones


def typical_runs(world: World) -> Any:
    """Three clones under two random protocols of seed 0: drives above, sensors below."""
    instance = world.instance(0).canonical()
    protocols = steps.protocols_of(instance, 2, "picture")
    requests = [Request(protocol, ("picture", k)) for k, protocol in enumerate(protocols)]
    values = simulate(instance, requests, 3, noise=False).values
    levels = [instance.levels(protocol) for protocol in protocols]
    runs = [rows[:, : len(level)] for rows, level in zip(values, levels, strict=True)]
    return plot.world_runs(world, levels, runs)


def write_card(card: Card, folder: Path) -> Path:
    """Write ``ID.md`` and ``ID.png`` into a folder; returns the page's path.

    Raises:
        OSError: if the folder cannot be written.
    """
    page = folder / f"{card.world.id}.md"
    write_atomically(page, card.markdown().encode())
    plot.save(card.figure, folder / f"{card.world.id}.png", dpi=80)
    return page
