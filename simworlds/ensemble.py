"""Ensembles: many clones of an instance, their statistics or their readings.

Clones are run in chunks of a fixed, padded width (see `simworlds.lanes`), so that one compiled program serves
a family whatever the seed, the protocol, the window, the channel or the number of clones, and clone i's
numbers never depend on who ran beside it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, runtime_checkable
from typing import Protocol as Interface

import jax
import numpy as np

from simworlds.errors import Diverged, InvalidRequest
from simworlds.keys import Words, role_words
from simworlds.lanes import NEVER, Chunk, Lanes, Outcome, Rounds, in_turn, width_of
from simworlds.protocol import Protocol, held, is_whole, shown

Progress = Callable[[int], None]
_MOST_CLONES = 2**24  # of a request, whose statistics are held in memory


class Readout(NamedTuple):
    """A sensor port, a window ``[start, stop)`` in ticks, and whether its sd is asked, not its mean."""

    port: int
    start: int
    stop: int
    sd: bool


@dataclasses.dataclass(frozen=True)
class Request:
    """A protocol to run on fresh clones, under a key purpose such as ``("truth", 3)``.

    `readout` is needed by `measure`, its window by `summarise`; `simulate` ignores it. `nudge` is a relative
    displacement of the initial state, for studies of sensitivity.
    """

    protocol: Protocol
    purpose: tuple[int | str, ...]
    readout: Readout | None = None
    nudge: float = 0.0

    def request(self, role: str) -> "Request":
        """Itself: it names its own role."""
        del role
        return self


@runtime_checkable
class Askable(Interface):
    """A contract, or a `Request`: what can say which clones it needs."""

    def request(self, role: str) -> Request:
        """The request on fresh clones under a role."""
        ...


class Statistics(NamedTuple):
    """What `measure` returns: arrays ``[request, clone]``."""

    values: np.ndarray
    branch: np.ndarray


class Summary(NamedTuple):
    """What `summarise` returns: arrays ``[request, clone, sensor]``, sensors in port order, and the branch.

    Mean and sd (ddof 0) are over the request's window, the branch ``[request, clone]`` is that of its end.
    """

    mean: np.ndarray
    sd: np.ndarray
    branch: np.ndarray


class Readings(NamedTuple):
    """What `simulate` returns: values ``[request, clone, tick, sensor]``, and the branch at the end.

    Behind a protocol's end the values are NaN.
    """

    values: np.ndarray
    branch: np.ndarray


class Plan(NamedTuple):
    """Requests of an instance, in the dtype of the simulation."""

    instance: Any
    params: Any
    gauge: Any
    lanes: Lanes  # with requests in place of lanes, first in `levels`
    order: np.ndarray  # requests, the longest protocol first: a chunk lasts as long as its longest

    def chunk(self, requests: tuple[int, ...]) -> Chunk:
        """The chunk whose lanes serve these requests; clones are numbered later."""
        lanes = jax.tree.map(lambda column: column[list(requests)], self.lanes)
        lanes = lanes._replace(levels=np.moveaxis(lanes.levels, 0, 1))
        return Chunk(self.params, self.gauge, lanes, np.max(lanes.ticks))


def plan_of(instance: Any, requests: Sequence[Request], noise: bool, dtype: Any) -> Plan:
    """What requests ask of an instance, as the compiled programs take it."""
    world = instance.world
    made = [instance.levels(request.protocol) for request in requests]
    filled = [held(rows, world.horizon) for rows in made]
    readouts = [r.readout or Readout(0, 0, r.protocol.ticks, sd=False) for r in requests]

    def words(role: str) -> Words:
        keys = [role_words(world.id, instance.seed, role, *request.purpose) for request in requests]
        return Words(np.array([key.high for key in keys]), np.array([key.low for key in keys]))

    ticks = np.array([len(rows) for rows in made], np.int32)
    lanes = Lanes(
        levels=np.stack(filled).astype(dtype),
        ticks=ticks,
        clone=np.zeros(len(requests), np.uint32),
        initial=words("initial"),
        process=words("process"),
        sensor=words("sensor"),
        start=np.array([readout.start for readout in readouts], np.int32),
        stop=np.array([readout.stop for readout in readouts], np.int32),
        nudge=np.array([request.nudge for request in requests], dtype),
    )
    gauge = instance.gauge if noise else instance.gauge.noise_free()
    numbers = {k: np.asarray(getattr(gauge, k), dtype) for k in ("offset", "gain", "sigma")}
    params = jax.tree.map(lambda x: np.asarray(x, dtype), instance.params)
    order = np.argsort(-ticks, kind="stable")
    return Plan(instance, params, gauge._replace(**numbers), lanes, order)


class _Part(NamedTuple):
    """The lanes of a chunk that are no padding."""

    plan: int
    request: np.ndarray  # [lane]
    clone: np.ndarray  # [lane], from 0


def _parts(plans: Sequence[Plan], clones: int, width: int) -> Iterator[_Part]:
    for number, plan in enumerate(plans):
        lanes = len(plan.order) * clones
        for at in range(0, lanes, width):
            place, clone = np.divmod(np.arange(at, min(at + width, lanes)), clones)
            yield _Part(number, plan.order[place], clone)


def _rounds(plans: Sequence[Plan], clones: int, first: int, store: bool) -> Iterator[tuple[list, Outcome]]:
    """Start round after round; yields what each serves, and its outcome."""
    world = plans[0].instance.world
    width, devices = width_of(world), len(jax.local_devices())
    rounds = Rounds(world, store)

    def padded(column: np.ndarray) -> np.ndarray:
        return np.concatenate([column, np.repeat(column[-1:], width - len(column))])

    def make(key: Any) -> Chunk:
        plan, requests, idle = key
        chunk = plans[plan].chunk(requests)
        return chunk._replace(last=np.int32(0)) if idle else chunk

    parts = list[_Part]()

    def start() -> tuple[list, Outcome]:
        shares = [*parts, *[parts[-1]] * (devices - len(parts))]
        keys = [(s.plan, tuple(padded(s.request).tolist()), k >= len(parts)) for k, s in enumerate(shares)]
        numbers = np.stack([padded(s.clone) for s in shares]) + first
        return list(parts), rounds.run(keys, make, numbers.astype(np.uint32))

    for part in _parts(plans, clones, width):
        parts.append(part)
        if len(parts) == devices:
            yield start()
            parts.clear()
    if parts:
        yield start()


class _Done(NamedTuple):
    """A finished part: of which instance, its requests and clones ``[lane]``, and its outcome on the host."""

    instance: int
    request: np.ndarray
    clone: np.ndarray
    outcome: Outcome


def _run(
    instances: Sequence[Any],
    asked: Sequence[Sequence[Request]],
    clones: int,
    *,
    first: int,
    noise: bool,
    dtype: Any,
    progress: Progress | None,
    store: bool = False,
) -> Iterator[_Done]:
    served = [k for k, requests in enumerate(asked) if requests]
    plans = [plan_of(instances[k], asked[k], noise, dtype) for k in served]
    if not plans:
        return
    for parts, outcome in in_turn(_rounds(plans, clones, first, store)):
        host = jax.tree.map(np.asarray, outcome)
        for device, (plan, request, clone) in enumerate(parts):
            lanes = len(request)
            mine = Outcome(*(column[device] for column in host))
            kept = mine.kept[:, :lanes] if store else mine.kept
            mine = Outcome(*(column[:lanes] for column in mine))._replace(kept=kept)
            _refuse_divergence(plans[plan].instance, request, clone + first, mine.bad)
            yield _Done(served[plan], request, clone, mine)
        if progress:
            progress(sum(len(part.request) for part in parts))


def _refuse_divergence(instance: Any, request: np.ndarray, clone: np.ndarray, bad: np.ndarray) -> None:
    if np.any(bad != NEVER):
        k = int(np.argmin(bad))
        who = f"world {instance.world.id}, seed {instance.seed}: clone {clone[k]} of request {request[k]}"
        raise Diverged(f"{who} was no longer finite at tick {bad[k]}")


def _check_requests(instance: Any, requests: Sequence[Request], *, readout: bool) -> None:
    ports, horizon = len(instance.sensor_ports), instance.world.horizon
    for request in requests:
        asked, ticks = request.readout, request.protocol.ticks
        if ticks > horizon:
            raise InvalidRequest(f"a protocol may last {horizon} ticks, but lasts {ticks}")
        if asked is None and readout:
            raise InvalidRequest("statistics need a readout in every request")
        if asked and not all(map(is_whole, asked[:3])):
            raise InvalidRequest(f"a readout's port and window are whole numbers, but are {asked[:3]}")
        if asked and not 0 <= asked.port < ports:
            raise InvalidRequest(f"a readout's port must be from 0 to {ports - 1}, but is {asked.port}")
        if asked and not (0 <= asked.start <= asked.stop - 2 and asked.stop <= ticks):
            raise InvalidRequest(
                f"a window must hold at least 2 ticks within 0..{ticks}, but is [{asked.start}, {asked.stop})"
            )


def check_run(clones: Any, first: Any, dtype: Any) -> None:
    """Check a range of clones, and the dtype of a simulation.

    Raises:
        InvalidRequest: if the range is empty, too long, or leaves the numbers from 0 to 2^32 - 1; if the
            dtype is neither float32 nor, within an x64 context, float64.
    """
    try:
        name = np.dtype(dtype).name if dtype is not None else "None"
    except TypeError:
        name = shown(dtype)
    if name not in ("float32", "float64"):
        raise InvalidRequest(f"`dtype` must be float32 or float64, but is {name}")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise InvalidRequest("float64 needs 64-bit types: call within `with jax.enable_x64(True):`")
    if not is_whole(clones) or not 1 <= int(clones) <= _MOST_CLONES:
        raise InvalidRequest(f"`clones` must be a whole number from 1 to {_MOST_CLONES}, but is {clones!r}")
    if not is_whole(first) or not 0 <= int(first) <= 2**32 - int(clones):
        raise InvalidRequest(f"`first` must be a whole number from 0 to 2^32 less `clones`, but is {first!r}")


def checked(instance: Any, asked: Sequence[Askable], *, readout: bool = True) -> list[Request]:
    """Contracts, on the clones of the truth, and requests as requests, checked before anything runs.

    Args:
        instance: the instance.
        asked: contracts or requests.
        readout: whether each must have one.

    Raises:
        InvalidRequest: if it is no sequence of these, or a protocol or a readout is not the instance's.
    """
    if not isinstance(asked, Sequence) or not all(isinstance(one, Askable) for one in asked):
        raise InvalidRequest(f"contracts or requests are asked for in a sequence, but got {shown(asked)}")
    requests = [one.request("truth") for one in asked]
    _check_requests(instance, requests, readout=readout)
    return requests


def measure_each(
    instances: Sequence[Any],
    asked: Sequence[Sequence[Askable]],
    clones: int,
    *,
    first: int = 0,
    noise: bool = True,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> list[Statistics]:
    """`measure` for several instances of one family at once: devices take chunks of all of them in turn.

    Args:
        instances: instances of one family.
        asked: what is asked of each.
        clones: see `measure`, as for the other arguments.
        first: number of the first clone.
        noise: whether readings carry sensor noise.
        dtype: of the simulation.
        progress: called with the number of lanes that each round finished.

    Returns:
        The statistics of each instance, equal to those of `measure` to the last bit.

    Raises:
        InvalidRequest: before anything runs.
        Diverged: if a trajectory leaves the finite numbers.
    """
    check_run(clones, first, dtype)
    if len(instances) != len(asked) or len({instance.world for instance in instances}) > 1:
        raise InvalidRequest("`instances` must be of one family, and `asked` must hold requests for each")
    wanted = [checked(instance, mine) for instance, mine in zip(instances, asked, strict=True)]
    found = [
        Statistics(np.empty((len(requests), clones), dtype), np.empty((len(requests), clones), np.int32))
        for requests in wanted
    ]
    readouts = [np.array([one.readout for one in requests], int).reshape(-1, 4) for requests in wanted]
    runs = _run(instances, wanted, clones, first=first, noise=noise, dtype=dtype, progress=progress)
    for which, request, clone, outcome in runs:
        lane, (port, _, _, sd) = np.arange(len(request)), readouts[which][request].T
        found[which].values[request, clone] = np.where(sd, outcome.sd[lane, port], outcome.mean[lane, port])
        found[which].branch[request, clone] = outcome.branch
    return found


def measure(
    instance: Any,
    asked: Sequence[Askable],
    clones: int,
    *,
    first: int = 0,
    noise: bool = True,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Statistics:
    """One statistic of each contract on fresh clones, accumulated inside the loop: no trajectory is stored.

    Args:
        instance: the instance, god-mode side.
        asked: contracts, whose clones are then those of the truth, or requests with a readout.
        clones: clones of each, numbered from `first`.
        first: number of the first clone. A clone's result depends on its number alone.
        noise: whether readings carry sensor noise.
        dtype: of the simulation; float64 needs an x64 context around the call.
        progress: called with the number of clones that each round finished.

    Raises:
        InvalidRequest: before anything runs.
        Diverged: if a trajectory leaves the finite numbers; names world, seed, clone and tick.
    """
    check_run(clones, first, dtype)
    found = measure_each(
        [instance], [asked], clones, first=first, noise=noise, dtype=dtype, progress=progress
    )
    return found[0]


def summarise(
    instance: Any,
    asked: Sequence[Askable],
    clones: int,
    *,
    first: int = 0,
    noise: bool = True,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Summary:
    """Mean and sd of every sensor over each request's window, in one run of each clone.

    Arguments and errors are those of `measure`; of a readout only the window counts.
    """
    check_run(clones, first, dtype)
    requests = checked(instance, asked)
    shape = (len(requests), clones)
    mean, sd = (np.empty((*shape, len(instance.sensor_ports)), dtype) for _ in range(2))
    found = Summary(mean, sd, np.empty(shape, np.int32))
    runs = _run([instance], [requests], clones, first=first, noise=noise, dtype=dtype, progress=progress)
    for _, request, clone, outcome in runs:
        found.mean[request, clone] = outcome.mean
        found.sd[request, clone] = outcome.sd
        found.branch[request, clone] = outcome.branch
    return found


def simulate(
    instance: Any,
    asked: Sequence[Askable],
    clones: int,
    *,
    first: int = 0,
    noise: bool = True,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Readings:
    """All readings of each request on fresh clones: for exploration, fits and plots.

    Arguments and errors are those of `measure`; readouts are ignored, and `Readings.branch` is that of the
    last tick.
    """
    check_run(clones, first, dtype)
    requests = checked(instance, asked, readout=False)
    whole = [dataclasses.replace(request, readout=None) for request in requests]
    length = np.array([request.protocol.ticks for request in requests])
    longest = int(length.max(initial=0))
    values = np.full((len(requests), clones, longest, len(instance.sensor_ports)), np.nan, dtype)
    branch = np.empty((len(requests), clones), np.int32)
    runs = _run(
        [instance], [whole], clones, first=first, noise=noise, dtype=dtype, progress=progress, store=True
    )
    for _, request, clone, outcome in runs:
        rows = np.moveaxis(outcome.kept[:longest], 0, 1)
        beyond = np.arange(longest) >= length[request, None]
        values[request, clone] = np.where(beyond[..., None], np.nan, rows)
        branch[request, clone] = outcome.branch
    return Readings(values, branch)
