"""How time grows with clones, and what compiles again.

Time is that of `measure` on few and on many clones of a law, in turns. Programs are counted by JAX's own
events while clones, protocol, window, channel and seed change after one call of each kind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from experiments.benchmarks.harness import Party, Row, Tell, race, ratio
from experiments.benchmarks.laws import Lorenz63, bench_instance, bench_request
from simworlds.catalogue import load
from simworlds.ensemble import Readout, Request, measure, simulate
from simworlds.instance import Instance
from simworlds.protocol import Protocol, Segment

NAME = "growth"
TITLE = "Growth with clones, and compilations"

LINEAR = 1.2
_EVENT = "/jax/core/compile/backend_compile_duration"


class Count:
    """A running count."""

    def __init__(self) -> None:
        self.value = 0


@contextmanager
def compilations() -> Iterator[Count]:
    """Counts the programs that are compiled, or fetched from the compilation cache, in a block."""
    count = Count()

    def seen(event: str, duration_secs: float, **rest: Any) -> None:
        del duration_secs, rest
        count.value += event == _EVENT

    jax.monitoring.register_event_duration_secs_listener(seen)
    try:
        yield count
    finally:
        jax.monitoring.unregister_event_duration_listener(seen)


def growth_row(name: str, instance: Instance, request: Request, clones: tuple[int, int], repeats: int) -> Row:
    """Seconds a clone at the larger number of clones over those at the smaller."""
    few, many = clones
    parties = [
        Party(str(n), lambda n=n: measure(instance, [request], n), unit_work=float(n)) for n in (few, many)
    ]
    times = race(parties, repeats)
    grown = ratio(times[str(many)], times[str(few)])
    return Row(
        f"growth from {few:,} to {many:,} clones, {name}",
        f"{grown} times linear",
        "linear within 20 %",
        grown.median,
        LINEAR,
        detail={f"{n} clones": {"cpu_seconds_each": times[str(n)].cpu} for n in (few, many)},
        note="CPU seconds a clone, many over few; below 1 the fixed cost of a call is shared by more",
    )


def recompiled(name: str, clones: int = 40) -> dict[str, int]:
    """Programs that compile when one thing changes, after a first call of `measure` and `simulate`."""
    world = load(name)
    instance = world.instance(0, redraws=0)

    def asked(level: float, ticks: int, readout: Readout) -> Request:
        segments = (Segment(ticks, {"u0": level}), Segment(4, {"u1": 1 - level}))
        return Request(Protocol(segments), ("benchmark", ticks), readout)

    plain = asked(0.5, 12, Readout(0, 2, 12, sd=False))
    changes = {
        "nothing": (instance, plain, clones),
        "clones": (instance, plain, 3 * clones + 1),
        "protocol": (instance, asked(0.9, 20, Readout(0, 2, 12, sd=False)), clones),
        "window": (instance, asked(0.5, 12, Readout(0, 5, 9, sd=False)), clones),
        "channel and statistic": (instance, asked(0.5, 12, Readout(1, 2, 12, sd=True)), clones),
        "seed": (world.instance(1, redraws=0), plain, clones),
        "sealed seed": (world.instance("sealed", redraws=0), plain, clones),
    }
    measure(instance, [plain], clones)
    simulate(instance, [plain], clones)
    found = {}
    for what, (other, request, many) in changes.items():
        with compilations() as count:
            measure(other, [request], many)
            simulate(other, [request], many)
        found[what] = count.value
    return found


def rows(quick: bool, tell: Tell) -> list[Row]:
    """Growth on a cheap law (and on B2 unless quick), and the count of compilations."""
    repeats = 3 if quick else 5
    world = Lorenz63()
    few, many = (2_048, 32_768) if quick else (1_024, 1_048_576)
    request = bench_request(world, 0.7, ticks=64 if quick else 128)
    tell(f"growth: {many:,} clones")
    made = [growth_row("Lorenz 63", bench_instance(world), request, (few, many), repeats)]
    if not quick:
        tell("growth: B2")
        instance = load("B2").instance(0, redraws=0)
        short = Request(Protocol((Segment(16, {"u0": 0.6}),)), ("benchmark",), Readout(0, 8, 16, sd=False))
        made.append(growth_row("B2", instance, short, (1_024, 131_072), 3))
    tell("growth: compilations")
    names = ("C2",) if quick else ("C2", "B2", "A4")
    found = {name: recompiled(name) for name in names}
    total = sum(sum(counts.values()) for counts in found.values())
    made.append(
        Row(
            "programs compiled again",
            f"{total}",
            "none when clones, protocol, window, channel or seed change",
            float(total),
            0.0,
            detail=found,
            note=f"JAX's own compile events, `measure` and `simulate` of {', '.join(names)}",
        )
    )
    return made
