"""Bulk generation: ensembles of many (world, seed) pairs in one folder, chunk after chunk, resumable.

A chunk is a range of clones of one (world, seed) under all protocols of the request. Its numbers depend on
its clones alone, and its bytes on its numbers alone, so a run that was killed and resumed leaves the files
that an uninterrupted run leaves.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, runtime_checkable
from typing import Protocol as Interface

from experiments.bulk_files import READINGS, Extent, need, readings_files, readings_root, statistics_file
from experiments.bulk_folder import Folder
from experiments.inputs import UsageError
from experiments.records import to_bytes
from simworlds.catalogue import load
from simworlds.contracts import CONTRACTS, Contract, contracts_of
from simworlds.ensemble import Readout, Request, simulate, summarise
from simworlds.instance import Instance
from simworlds.protocol import Protocol, shown
from simworlds.store import canonical_json, code_digest, engine_modules, environment

SCHEMA = "simworlds/ensemble/1"
Window = tuple[int, int]
_RUNS = 16_384  # of a chunk of statistics (clones times protocols): some seconds of work
_ROWS = 1024  # clones of a chunk of readings: some MiB a protocol


@dataclasses.dataclass(frozen=True)
class Order:
    """What is asked for.

    Attributes:
        worlds: identifiers of the worlds.
        seeds: of each world.
        protocols: protocols and windows ``[start, stop)`` in ticks, which readings do not need; the contracts
            of each instance if None.
        clones: clones of each (world, seed, protocol).
        first: number of the first clone.
        chunk: clones a chunk; some seconds of work if None.
        readings: whether all readings are kept, and not statistics.
        noise: whether readings carry sensor noise.
        as_drawn: whether the first draw of each seed is taken without examining it.
    """

    worlds: tuple[str, ...]
    seeds: tuple[int, ...]
    protocols: tuple[tuple[Protocol, Window | None], ...] | None = None
    clones: int = 1024
    first: int = 0
    chunk: int | None = None
    readings: bool = False
    noise: bool = True
    as_drawn: bool = False

    @property
    def kind(self) -> str:
        """The name of what is kept."""
        return "readings" if self.readings else "statistics"

    @property
    def step(self) -> int:
        """Clones a chunk."""
        return self.chunk or (_ROWS if self.readings else max(_RUNS // self.runs, 1))

    @property
    def runs(self) -> int:
        """Protocols of each clone."""
        return CONTRACTS if self.protocols is None else len(self.protocols)

    def manifest(self) -> dict[str, Any]:
        """The order as plain data, with the code and the machine that its numbers depend on."""
        worlds = {
            name: {
                "law": load(name).law_version,
                "code": code_digest(type(load(name)), *engine_modules(), "simworlds.admission"),
                "seeds": sorted(self.seeds),
            }
            for name in self.worlds
        }
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "environment": environment(),
            "protocols": "contracts"
            if self.protocols is None
            else [_stated(*each) for each in self.protocols],
            "clones": self.clones,
            "first": self.first,
            "chunk": self.step,
            "noise": self.noise,
            "as_drawn": self.as_drawn,
            "worlds": worlds,
        }

    def chunks(self) -> Iterator["Chunk"]:
        """All chunks, in the order in which they are worked on."""
        for world in self.worlds:
            for seed in self.seeds:
                for number, start in enumerate(range(0, self.clones, self.step)):
                    stop = min(start + self.step, self.clones)
                    yield Chunk(world, seed, number, self.first + start, self.first + stop)


class Chunk(NamedTuple):
    """Clones ``[start, stop)`` of one (world, seed)."""

    world: str
    seed: int
    number: int
    start: int
    stop: int

    @property
    def cell(self) -> str:
        """The (world, seed) as a path."""
        return f"world={self.world}/seed={self.seed}"

    @property
    def name(self) -> str:
        """The chunk as a path."""
        return f"{self.cell}/part-{self.number:05d}"


@runtime_checkable
class Report(Interface):
    """Who is told how the work goes."""

    def planned(self, clones: int, cells: int) -> None:
        """So many clones of so many (world, seed) pairs are still to be run."""

    def preparing(self, world: str, seed: int) -> None:
        """An instance is drawn and examined."""

    def running(self, world: str, seed: int) -> None:
        """Its clones are run."""

    def ran(self, clones: int) -> None:
        """So many clones more have been run."""

    def finished(self, world: str, seed: int, clones: int) -> None:
        """All of an instance's clones are written, so many of them in this run."""


class Outcome(NamedTuple):
    """What a run did.

    Attributes:
        written: chunks that were run and written.
        kept: chunks that were there and whole.
        damaged: names of the chunks that were there, but not as they had been written; they were run again.
        clones: clones that were run: each protocol has its own.
        size: bytes that were written.
    """

    written: int
    kept: int
    damaged: tuple[str, ...]
    clones: int
    size: int


def protocol_digest(protocol: Protocol) -> str:
    """The part of a protocol's random-number address that names it: a digest of its canonical JSON."""
    return hashlib.sha256(canonical_json(protocol.to_json()).encode()).hexdigest()[:16]


def _stated(protocol: Protocol, window: Window | None) -> dict[str, Any]:
    stated = {"digest": protocol_digest(protocol), "protocol": protocol.to_json()}
    return stated | ({"window": list(window)} if window else {})


class _Source(NamedTuple):
    """An instance, what is run on each of its clones, and what each file says about itself."""

    order: Order
    instance: Instance
    asked: Sequence[Contract | Request]
    about: dict[str, Any]


def _source(order: Order, world: str, seed: int) -> _Source:
    instance = load(world).instance(seed, redraws=0 if order.as_drawn else None)
    if order.protocols is None:  # run as the truth runs them
        asked = contracts_of(instance)
        stated = [contract.to_json() for contract in asked]
    else:
        asked = [
            Request(
                protocol,
                ("ensemble", protocol_digest(protocol)),
                Readout(0, *window, sd=False) if window else None,
            )
            for protocol, window in order.protocols
        ]
        stated = [_stated(*each) for each in order.protocols]
    about = {
        "schema": SCHEMA,
        **environment(),
        "world": instance.world.id,
        "law_version": instance.world.law_version,
        "seed": instance.seed,
        "redraws": instance.redraws,
        "noise": order.noise,
        "first": order.first,
        "clones": order.clones,
        "sensors": list(instance.sensor_ports),
        "branches": list(instance.world.branches),
        "protocols": stated,
    }
    return _Source(order, instance, asked, about)


def _statistics(source: _Source, chunk: Chunk, report: Report) -> dict[str, bytes]:
    order, instance, asked, about = source
    clones = chunk.stop - chunk.start
    summary = summarise(instance, asked, clones, first=chunk.start, noise=order.noise, progress=report.ran)
    data = statistics_file(
        summary,
        chunk.start,
        ports=instance.sensor_ports,
        branches=instance.world.branches,
        asked=[(one.port, one.statistic) for one in asked if isinstance(one, Contract)] or None,
        about=about,
    )
    return {f"statistics/{chunk.name}.parquet": data}


def _readings(source: _Source, chunk: Chunk, report: Report) -> dict[str, bytes]:
    order, instance, asked, about = source
    clones = chunk.stop - chunk.start
    found = simulate(instance, asked, clones, first=chunk.start, noise=order.noise, progress=report.ran)
    extent = Extent(chunk.start, chunk.stop, order.first, order.clones, order.step)
    files: dict[str, bytes] = {}
    for number, one in enumerate(asked):
        values = found.values[number, :, : one.protocol.ticks]
        mine = about | {"protocols": [about["protocols"][number]]}
        place = f"{chunk.cell}/protocol={number}"
        files |= readings_files(values, found.branch[number], extent, place, mine)
    return files


def _merged(folder: Path, held: Mapping[str, Any] | None, asked: dict[str, Any]) -> dict[str, Any]:
    """The manifest of what is there and what is asked for; only worlds and seeds may be added.

    Raises:
        UsageError: if anything else differs; says what.
    """
    asked = json.loads(canonical_json(asked))
    if held is None:
        return asked
    faults = _differences("", {k: v for k, v in held.items() if k != "worlds"}, asked)
    both = {name: made for name, made in held["worlds"].items() if name in asked["worlds"]}
    for name, made in both.items():
        mine = asked["worlds"][name]
        faults += _differences(f"{name}: ", {k: v for k, v in made.items() if k != "seeds"}, mine)
    if faults:
        raise UsageError(f"{folder} holds another ensemble: {'; '.join(faults)}; choose another --out")
    worlds = held["worlds"] | asked["worlds"]
    for name, made in both.items():
        worlds[name]["seeds"] = sorted({*made["seeds"], *worlds[name]["seeds"]})
    return asked | {"worlds": worlds}


def _differences(at: str, held: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    faults = []
    for name, value in held.items():
        mine = asked.get(name)
        if isinstance(value, Mapping) and isinstance(mine, Mapping):
            faults += _differences(f"{at}{name} ", value, mine)
        elif value != mine:
            faults.append(f"{at}`{name}` is {shown(value)} there, but {shown(mine)} here")
    return faults


def _write_root(folder: Folder) -> None:
    """Write the groups above the arrays anew, from the metadata that is there."""
    root = folder.path / READINGS
    nodes = {
        path.parent.relative_to(root).as_posix(): path.read_bytes()
        for pattern in ("protocol=*/zarr.json", "protocol=*/*/zarr.json")
        for path in root.glob(f"world=*/seed=*/{pattern}")
    }
    for name, data in readings_root(nodes).items():
        folder.write(name, data)


def generate(order: Order, out: Path, report: Report) -> Outcome:
    """Write what is ordered and not there yet.

    Args:
        order: what is asked for.
        out: the folder; it may hold chunks of the same order, for these and for other worlds and seeds.
        report: who is told how the work goes.

    Raises:
        UsageError: if the folder holds something else, is being written by another process or cannot be
            written, if the disk is full, or if a library is missing. Finished chunks are kept.
        Diverged: if a trajectory leaves the finite numbers; names world, seed, clone and tick.
    """
    for module in ("zarr",) if order.readings else ("pyarrow", "pyarrow.parquet"):
        need(module)
    folder, make = Folder(out), _readings if order.readings else _statistics
    _merged(out, folder.read_manifest(), order.manifest())  # refused before a lock or a folder is made
    with folder.locked():
        held = folder.read_manifest()
        manifest = _merged(out, held, order.manifest())
        if manifest != held:
            folder.write("manifest.json", to_bytes(manifest))
        states = {chunk: folder.examine(chunk.name, (chunk.start, chunk.stop)) for chunk in order.chunks()}
        left = [chunk for chunk, state in states.items() if not state]
        cells = [(cell, list(chunks)) for cell, chunks in groupby(left, lambda chunk: chunk[:2])]
        clones = sum(chunk.stop - chunk.start for chunk in left) * order.runs
        report.planned(clones, len(cells))
        size = 0
        for (world, seed), chunks in cells:
            report.preparing(world, seed)
            source = _source(order, world, seed)
            report.running(world, seed)
            for chunk in chunks:
                files = make(source, chunk, report)
                folder.finish(chunk.name, (chunk.start, chunk.stop), files)
                size += sum(map(len, files.values()))
            report.finished(world, seed, sum(c.stop - c.start for c in chunks) * order.runs)
        if order.readings:
            _write_root(folder)
        damaged = tuple(chunk.name for chunk, state in states.items() if state is None)
        return Outcome(len(left), len(states) - len(left), damaged, clones, size)
