"""A content-addressed store on disk: whatever is expensive and a fixed function of its address.

An entry is an ``.npz`` file of arrays and a ``.json`` manifest with the address and the SHA-256 of the
arrays' bytes. Both are written to a temporary name and renamed, the manifest last, so a half-written entry is
never seen. A read checks the digest: a corrupted entry counts as absent, is computed again and replaced.
"""

import hashlib
import importlib.util
import io
import json
import os
import pkgutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

Arrays = dict[str, np.ndarray]

# Read once: the only way to ask is to set it, for all threads.
_UMASK = os.umask(0o022)
os.umask(_UMASK)


@cache
def package_version() -> str:
    """The installed version of this package."""
    try:
        return version("simworlds")
    except PackageNotFoundError:
        return "0+unknown"


def environment(dtype: Any = np.float32) -> dict[str, str]:
    """What a figure depends on beside its address: versions, backend, device, compiler and dtype."""
    import jax  # here, so that a command that only needs a folder starts at once

    device = jax.local_devices()[0]
    flags = os.environ.get("XLA_FLAGS", "").split()
    return {
        "version": package_version(),
        "jax": jax.__version__,
        "backend": device.platform,
        "device": device.device_kind,
        # Last bits may hang on how code was compiled, never on the number of devices.
        "compiler": " ".join(sorted(flag for flag in flags if "device_count" not in flag)),
        "dtype": np.dtype(dtype).name,
    }


def default_home() -> Path:
    """The folder of store and compilation cache: ``$SIMWORLDS_HOME``, or the user's cache folder."""
    named = os.environ.get("SIMWORLDS_HOME")
    return Path(named) if named else platformdirs.user_cache_path("simworlds")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing.

    Raises:
        OSError: if the folder cannot be written; no partial file is left under the final name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_UMASK)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def canonical_json(data: Any) -> str:
    """Plain data as JSON with sorted keys and no spaces; refuses NaN and infinities."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def code_digest(*things: Any) -> str:
    """A digest of the source files behind modules (by name) or classes; without a file, of the name."""
    digest = hashlib.sha256()
    for thing in things:
        name = thing if isinstance(thing, str) else thing.__module__
        digest.update(_source(name) or repr(thing).encode())
    return digest.hexdigest()[:16]


@cache
def _source(module: str) -> bytes | None:
    """The bytes of a module's file, whether it has been imported or not; None if it has none."""
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # a module without a spec, such as __main__
        return None
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    return Path(spec.origin).read_bytes()


_ENGINE = (
    "keys", "elementary", "world", "ensemble", "lanes", "devices",
    "ports", "protocol", "instance", "contracts", "truth",
)  # fmt: skip


@cache
def engine_modules() -> tuple[str, ...]:
    """The modules that any figure of a world rests on."""
    import simworlds.integrate as schemes

    parts = sorted(part.name for part in pkgutil.iter_modules(schemes.__path__))
    return tuple(f"simworlds.{name}" for name in (*_ENGINE, *(f"integrate.{part}" for part in parts)))


def address_of(instance: Any, kind: str, **more: Any) -> dict[str, Any]:
    """The address of a figure of an instance: what it is, of whom, by which code, on what.

    Args:
        instance: the instance; its drawn numbers are part of the address.
        kind: what the figure is.
        **more: plain data that it depends on beside these.
    """
    import jax

    drawn = hashlib.sha256()
    for leaf in jax.tree.leaves((instance.params, instance.gauge, instance.wiring)):
        drawn.update(np.asarray(leaf).tobytes())
    return {
        "kind": kind,
        "world": instance.world.id,
        "law": instance.world.law_version,
        "seed": instance.seed,
        "drawn": drawn.hexdigest()[:16],
        "code": code_digest(type(instance.world), *engine_modules()),
        **environment(),
        **more,
    }


class Store:
    """A folder of entries by address.

    An address is plain data; two equal addresses are one entry.
    """

    def __init__(self, folder: Path | str | None = None):
        self.folder = Path(folder) if folder is not None else default_home() / "store"

    def path(self, address: Mapping[str, Any]) -> Path:
        """Where the arrays of an address lie, or would lie."""
        digest = hashlib.sha256(canonical_json(address).encode()).hexdigest()
        return self.folder / digest[:2] / f"{digest}.npz"

    def get(self, address: Mapping[str, Any]) -> Arrays | None:
        """The arrays of an address, or None if they are absent, half-written or corrupted."""
        path = self.path(address)
        try:
            data = path.read_bytes()
            manifest = json.loads(path.with_suffix(".json").read_bytes())
            if manifest["sha256"] != hashlib.sha256(data).hexdigest() or manifest["address"] != json.loads(
                canonical_json(address)
            ):
                return None
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile):
            return None

    def put(self, address: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Store arrays under an address.

        Raises:
            OSError: if the folder cannot be written.
        """
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **{name: np.asarray(value) for name, value in arrays.items()})
        data, path = buffer.getvalue(), self.path(address)
        manifest = {"address": address, "sha256": hashlib.sha256(data).hexdigest()}
        write_atomically(path, data)
        write_atomically(path.with_suffix(".json"), (canonical_json(manifest) + "\n").encode())

    def fetch(self, address: Mapping[str, Any], compute: Callable[[], Mapping[str, np.ndarray]]) -> Arrays:
        """The arrays of an address, computed and stored if they are not there."""
        found = self.get(address)
        if found is None:
            found = {name: np.asarray(value) for name, value in compute().items()}
            self.put(address, found)
        return found
