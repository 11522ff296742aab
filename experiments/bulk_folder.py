"""The folder of a bulk ensemble: one writer at a time, whole files only, and a ledger of finished chunks.

    manifest.json                                  what was asked, by which code, on what
    statistics/world=B2/seed=0/part-00000.parquet  or readings.zarr/world=B2/seed=0/protocol=0/...
    finished/world=B2/seed=0/part-00000.json       size and SHA-256 of the files of a finished chunk

A file is written under ``.incoming/``, flushed to the disk and renamed to its place; the ledger's entry comes
last. A chunk counts as finished only while all its files agree with that entry.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.inputs import UsageError
from simworlds.store import canonical_json, write_atomically

try:
    import fcntl
except ImportError:  # a system without advisory locks: there the user must see to it
    fcntl = None

_INCOMING = ".incoming"
_KEPT = "; what was finished is kept, and the same command goes on from there"


class Folder:
    """A folder that this process has to itself, within `locked`."""

    def __init__(self, path: Path):
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, which ends with the process however that ends.

        Raises:
            UsageError: if the folder cannot be written, or another process holds it.
        """
        with self._explained():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / ".lock", "a+", encoding="ascii")  # noqa: SIM115
        with lock:
            if fcntl:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    lock.seek(0)
                    raise UsageError(
                        f"another process ({lock.read() or 'unknown'}) is writing into {self.path}: "
                        "wait for it, or choose another --out"
                    ) from None
            with self._explained():
                lock.truncate(0)
                lock.write(str(os.getpid()))
                lock.flush()
                # What a killed run was writing.
                shutil.rmtree(self.path / _INCOMING, ignore_errors=True)
            try:
                yield
            finally:
                shutil.rmtree(self.path / _INCOMING, ignore_errors=True)
                lock.truncate(0)

    @contextmanager
    def _explained(self, more: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"cannot write into {self.path}: {reason}{more}") from error

    def write(self, name: str, data: bytes) -> None:
        """Put a whole file in its place, or nothing.

        Raises:
            UsageError: if the disk is full or the folder cannot be written.
        """
        with self._explained(_KEPT):
            incoming, place = self.path / _INCOMING / Path(name).name, self.path / name
            write_atomically(incoming, data)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(incoming, place)

    def read_manifest(self) -> dict[str, Any] | None:
        """What the folder holds, or None if it holds no bulk ensemble.

        Raises:
            UsageError: if there is a manifest that is not one of this command, or data without one.
        """
        path = self.path / "manifest.json"
        try:
            found = json.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            for name in ("finished", "statistics", "readings.zarr"):
                if (self.path / name).exists():
                    raise UsageError(
                        f"{self.path} holds {name}, but no manifest.json that says what it is: "
                        "choose another --out"
                    ) from None
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read ({error}): choose another --out") from error
        try:
            ours = found["schema"].startswith("simworlds/ensemble/")
            ours = ours and all(isinstance(made["seeds"], list) for made in found["worlds"].values())
        except (AttributeError, KeyError, TypeError):
            ours = False
        if not ours:
            raise UsageError(f"{path} is not of `simworlds ensemble`: choose another --out")
        return found

    def finish(self, part: str, clones: tuple[int, int], files: Mapping[str, bytes]) -> None:
        """Write the files of a chunk, then its entry in the ledger."""
        entry = {}
        for name, data in files.items():
            self.write(name, data)
            entry[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        text = canonical_json({"clones": list(clones), "files": entry}) + "\n"
        self.write(_ledger(part), text.encode())

    def examine(self, part: str, clones: tuple[int, int]) -> bool | None:
        """Whether a chunk is finished; None if it was, and its files are damaged or gone."""
        try:
            entry = json.loads((self.path / _ledger(part)).read_bytes())
            if entry["clones"] != list(clones):
                return None
            fine = all(_agrees(self.path / name, stated) for name, stated in entry["files"].items())
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return True if fine else None


def _ledger(part: str) -> str:
    return f"finished/{part}.json"


def _agrees(path: Path, stated: Mapping[str, Any]) -> bool:
    try:
        if path.stat().st_size != stated["bytes"]:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == stated["sha256"]
    except OSError:
        return False
