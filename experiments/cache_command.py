"""What `simworlds cache` does: it says how large the two caches are, and empties them."""

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from experiments.commands import console, print_json
from experiments.inputs import UsageError
from simworlds.protocol import shown
from simworlds.startup import compilation_cache
from simworlds.store import default_home


class Cache(NamedTuple):
    """A folder that can be made anew.

    Attributes:
        name: what it holds.
        folder: where it lies.
        own: what the paths of its files below it look like.
        entry: which of them count as entries.
    """

    name: str
    folder: Path
    own: re.Pattern[str]
    entry: re.Pattern[str]

    def files(self) -> tuple[list[Path], list[str]]:
        """The cache's files, and the names of whatever else lies in the folder; none if it is not there."""
        mine, others = [], []
        for path in _files(self.folder):
            name = path.relative_to(self.folder).as_posix()
            if self.own.fullmatch(name):
                mine.append(path)
            else:
                others.append(name)
        return mine, sorted(others)

    def describe(self, files: Sequence[Path]) -> dict[str, Any]:
        """Name, folder, entries and bytes as plain data."""
        return {
            "holds": self.name,
            "folder": str(self.folder),
            "entries": sum(bool(self.entry.fullmatch(path.name)) for path in files),
            "bytes": sum(map(_size, files)),
        }


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # removed by its owner in the meantime
        return 0


def _files(folder: Path) -> Iterator[Path]:
    """Whatever is no folder, links to folders included: those are never followed."""
    for top, folders, files in os.walk(folder, onerror=_refuse):
        links = [name for name in folders if (Path(top) / name).is_symlink()]
        yield from (Path(top) / name for name in [*files, *links])


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


# XLA's own files lie in the compilation cache where a user lets it keep them there.
_COMPILED = re.compile(
    r"\.lockfile|[^/]+-[0-9a-f]{64}-(cache|atime)|xla_gpu_kernel_cache_file|xla_gpu_per_fusion_autotune_cache_dir/.+"
)
_FIGURES = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.(npz|json)(\.\w+\.part)?")


def caches() -> list[Cache]:
    """The compilation cache and the store of figures.

    Raises:
        UsageError: if the compilation cache is no folder of this machine.
    """
    named = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    if "://" in named:
        raise UsageError(f"the compilation cache {named} is no folder of this machine")
    return [
        Cache("compiled programs", compilation_cache(), _COMPILED, re.compile(r".*-cache")),
        Cache("figures", default_home() / "store", _FIGURES, re.compile(r".*\.npz")),
    ]


def run_info(options: argparse.Namespace) -> None:
    """Show folder, entries and size of both caches."""
    rows = []
    for cache in caches():
        mine, others = cache.files()
        rows.append(cache.describe(mine) | {"foreign": len(others)})
    if options.json:
        print_json(rows)
        return
    from rich.table import Table

    table = Table("holds", "entries", "MB", "foreign files", "folder")
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f}"
        table.add_row(row["holds"], str(row["entries"]), size, str(row["foreign"]), row["folder"])
    console().print(table)


def run_clear(options: argparse.Namespace) -> None:
    """Remove the entries of both caches, or of the one that is named.

    Raises:
        UsageError: if a folder also holds something else, so that it may not be the cache's; nothing is
            removed then.
    """
    both = options.compiled == options.figures
    named = (options.compiled or both, options.figures or both)
    found = [(cache, *cache.files()) for cache, chosen in zip(caches(), named, strict=True) if chosen]
    for cache, _, others in found:
        if others:
            raise UsageError(
                f"{cache.folder} does not look like a cache of {cache.name}: "
                f"it also holds {shown(others[0])}; nothing was removed"
            )
    rows = []
    for cache, mine, _ in found:
        rows.append(cache.describe(mine))
        for path in mine:
            path.unlink(missing_ok=True)
        inner = {path.parent for path in mine} - {cache.folder}
        for folder in sorted(inner, reverse=True):
            with suppress(OSError):  # a command that runs has put something there
                folder.rmdir()
    if options.json:
        print_json(rows)
        return
    for row in rows:
        print(f"removed {row['entries']} {row['holds']} ({row['bytes'] / 1e6:.1f} MB) from {row['folder']}")
