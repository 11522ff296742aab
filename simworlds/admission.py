"""Admission: whether a drawn instance is fit to be explored and asked about.

A draw is kept if

- every drive moves some sensor: against the same run with that drive elsewhere, by 5 sigma of the sensor's
  noise and 5 standard errors, in some protocol;
- 64 random protocols stay finite, and some channel answers to drives;
- tracks C and D: displacing the initial state by 1e-4 moves no contract's statistic by more than 1e-2 of the
  channel's range (no chaos);
- neither a constant (the channel's median) nor its last value copied answers the contracts with an accuracy
  above `TRIVIAL`.

Otherwise the next sub-seed is drawn. What is found is kept in the store.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scoring.checks import Answer
from scoring.scorecard import scorecard
from simworlds.contracts import Contract, contracts_of, grammar_protocol
from simworlds.ensemble import Request, measure, simulate
from simworlds.errors import Diverged, Inadmissible, Unanswerable
from simworlds.instance import Instance, check_seed, draw_instance
from simworlds.keys import Draws
from simworlds.protocol import Protocol, Segment
from simworlds.store import Store, address_of, code_digest
from simworlds.truth import calibrate, checked_truth, truth_of

if TYPE_CHECKING:
    from simworlds.world import World

SIGMAS = 5.0  # by which each drive must move some sensor
DISPLACEMENT = 1e-4  # of the initial state, relative
SENSITIVITY = 1e-2  # of a channel's range
TRIVIAL = 0.85  # mean accuracy of a constant or of the last value, which an instance must stay below
MOST_REDRAWS = 32

_SMOOTH_TRACKS = ("C", "D")
_PROTOCOLS = 8
_TICKS = 128
_BLOCK = 16  # ticks of a window whose mean and sd are compared
_CLONES = 8


class Examination(NamedTuple):
    """What the examination of a draw found; NaN where it did not come to it.

    Attributes:
        unmoved: number of drives that moved no sensor.
        finite: whether all readings stayed finite.
        lively: number of channels that answer to drives.
        sensitivity: the largest change of a contract's statistic by the displacement, in shares of its
            channel's range; 0 on tracks A and B.
        constant: mean accuracy of a constant.
        last: mean accuracy of the last value.
    """

    unmoved: float = np.nan
    finite: float = 1.0
    lively: float = np.nan
    sensitivity: float = np.nan
    constant: float = np.nan
    last: float = np.nan

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the draw is not fit; none if it is."""
        rules = (
            (self.finite == 0, "readings do not stay finite"),
            (self.lively == 0, "no channel that may be asked about answers to any drive"),
            (self.unmoved > 0, f"{self.unmoved:.0f} drives move no sensor"),
            (self.sensitivity > SENSITIVITY, f"it is chaotic: sensitivity {self.sensitivity:.2g}"),
            (self.constant > TRIVIAL, f"a constant has accuracy {self.constant:.2f}"),
            (self.last > TRIVIAL, f"the last value has accuracy {self.last:.2f}"),
        )
        return tuple(text for wrong, text in rules if wrong)


def examine(instance: Instance, store: Store | None = None) -> Examination:
    """Examine a draw; the cheapest tests come first, and the first fault ends it."""
    place = store or Store()
    address = address_of(instance, "admission", rules=code_digest("simworlds.admission"))
    found = place.fetch(address, lambda: {"found": np.array(_examine(instance, place))})
    return Examination(*(float(x) for x in found["found"]))


def _examine(instance: Instance, store: Store) -> Examination:
    found = Examination()
    try:
        ranges = calibrate(instance, store)
        found = found._replace(lively=float(ranges.lively.sum()))
        if found.faults:
            return found
        found = found._replace(unmoved=float(_unmoved(instance)))
        if found.faults:
            return found
        contracts = contracts_of(instance, store)
        sensitivity = 0.0
        if instance.world.track in _SMOOTH_TRACKS:
            sensitivity = _sensitivity(instance, contracts, ranges.dynamic_range)
        found = found._replace(sensitivity=sensitivity)
        if found.faults:
            return found
        constant, last = _trivial_scores(instance, contracts, store)
        return found._replace(constant=constant, last=last)
    except Diverged:
        return found._replace(finite=0.0)
    except Unanswerable:
        return found._replace(lively=0.0)


def _unmoved(instance: Instance) -> int:
    """How many drives move no sensor, over up to eight protocols, the first of them at rest."""
    ports = set(instance.drive_ports)
    for k in range(_PROTOCOLS):
        if k:
            draws = Draws.for_role(instance.world.id, instance.seed, "admission", "protocol", k)
            base = _stretched(grammar_protocol(instance, draws))
        else:
            base = Protocol((Segment(_TICKS, {}),))
        ports -= _moved(instance, base, sorted(ports), k)
        if not ports:
            break
    return len(ports)


def _stretched(protocol: Protocol) -> Protocol:
    """The same protocol, its last segment held until `_TICKS` are over, or cut there."""
    first = protocol.first(_TICKS)
    *most, last = first.segments
    return Protocol((*most, Segment(last.ticks + _TICKS - first.ticks, last.set)))


def _moved(instance: Instance, base: Protocol, ports: Sequence[str], number: int) -> set[str]:
    """The ports that move some sensor when they are held at 0 and at 1 under a protocol."""
    requests = [
        Request(_with_port(base, port, level), ("admission", number))
        for port in ports
        for level in (0.0, 1.0)
    ]
    readings = simulate(instance, requests, _CLONES, noise=False).values
    blocks = readings.reshape(*readings.shape[:2], -1, _BLOCK, readings.shape[-1])
    statistics = np.stack([blocks.mean(3), blocks.std(3)], axis=2)
    mean, error = statistics.mean(1), statistics.std(1, ddof=1) / np.sqrt(_CLONES)
    apart = np.abs(mean[1::2] - mean[::2])
    least = np.maximum(np.asarray(instance.gauge.sigma), np.hypot(error[1::2], error[::2]))
    moved = np.any(apart > SIGMAS * least, axis=(1, 2, 3))
    return {port for port, yes in zip(ports, moved, strict=True) if yes}


def _with_port(protocol: Protocol, port: str, level: float) -> Protocol:
    return Protocol(tuple(Segment(s.ticks, {**s.set, port: level}) for s in protocol.segments))


def _sensitivity(instance: Instance, contracts: Sequence[Contract], dynamic_range: np.ndarray) -> float:
    requests = [
        Request(c.protocol, ("truth", c.id), c.readout(), nudge=nudge)
        for nudge in (0.0, DISPLACEMENT, -DISPLACEMENT)
        for c in contracts
    ]
    values = measure(instance, requests, 1, noise=False).values.reshape(3, len(contracts))
    spans = dynamic_range[[c.readout().port for c in contracts]]
    return float(np.max(np.abs(values[1:] - values[0]) / spans))


def _trivial_scores(instance: Instance, contracts: Sequence[Contract], store: Store) -> tuple[float, float]:
    """Mean accuracy of the channel's median (and median sd), and of its last value (and no change)."""
    ranges = calibrate(instance, store)
    truth = checked_truth(truth_of(instance, contracts, store=store))
    port = [c.readout().port for c in contracts]
    spread = np.array([c.statistic == "sd" for c in contracts])

    def score(values: np.ndarray) -> float:
        answers = {c.id: Answer(c.id, x, x, x) for c, x in zip(contracts, values.tolist(), strict=True)}
        return scorecard(truth, answers, list(answers)).accuracy

    constant = np.where(spread, ranges.wobble[port], ranges.middle[port])
    return score(constant), score(np.where(spread, 0.0, ranges.last[port]))


@cache
def _redraws(world: "World", seed: int | str) -> int:
    reasons = []
    for redraws in range(MOST_REDRAWS):
        faults = examine(draw_instance(world, seed, redraws)).faults
        if not faults:
            return redraws
        reasons.append(f"draw {redraws}: {', '.join(faults)}")
    raise Inadmissible([f"world {world.id}, seed {seed}: no draw is fit to be explored", *reasons])


def admitted(world: "World", seed: int | str) -> Instance:
    """The first draw of a (world, seed) that is fit to be explored.

    Raises:
        InvalidSeed: if the seed is neither an integer from 0 to 2^63 - 1 nor a non-empty string.
        Inadmissible: if none of the first `MOST_REDRAWS` is; says what each lacks.
    """
    seed = check_seed(seed)
    return draw_instance(world, seed, _redraws(world, seed))


def trail(world: "World", seed: int | str) -> list[Examination]:
    """What the examination of each draw of a (world, seed) found, the last of them the admitted one."""
    return [examine(draw_instance(world, seed, k)) for k in range(admitted(world, seed).redraws + 1)]
