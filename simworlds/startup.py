"""How JAX runs, settled before it is imported: a device a core, code for speed, a cache that lasts."""

import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from simworlds.errors import InvalidRequest
from simworlds.store import default_home

_DEVICES = "--xla_force_host_platform_device_count"
# A program for one device goes through other passes of the compiler than one for several, so that its last
# bits may differ.
_FEWEST = 2
# By itself XLA dispatches the operations of a loop one by one, which takes longer than to compute them where
# arrays are small. This makes one function of every loop that can be one, not only of those below 1 KiB.
_ONE_FUNCTION = ("--xla_backend_extra_options", "xla_cpu_small_while_loop_byte_threshold=10000000")
# By itself it takes half the width of registers of 512 bits. A flag that XLA does not know ends the process,
# so this one is for the versions that it was tried with.
_WIDE, _TRIED = ("--xla_cpu_prefer_vector_width", "512"), ("0.10.",)


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compilation_cache() -> Path:
    """The folder of compiled programs: ``$JAX_COMPILATION_CACHE_DIR``, or one in the user's cache folder."""
    named = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return Path(named) if named else default_home() / "xla"


def _tried() -> bool:
    try:
        return version("jaxlib").startswith(_TRIED)
    except PackageNotFoundError:
        return False


def start_jax(devices: int | None = None) -> None:
    """Let ensembles use every core, compile for speed, and keep compiled programs for the next process.

    The command line does this by itself; a script or a notebook calls it first. It sets environment variables
    (``XLA_FLAGS``, ``JAX_COMPILATION_CACHE_DIR`` and two more of the cache); what the user has set stays.

    Args:
        devices: CPU devices that JAX is to show, at least 2, so that all machines give the same last bits; as
            many as there are usable cores if None.

    Raises:
        InvalidRequest: if JAX is imported already, which is when it reads its settings, or if `devices` is
            not a whole number of at least 2.
        OSError: if the cache's folder cannot be made.
    """
    if devices is not None and (
        isinstance(devices, bool) or not isinstance(devices, int) or devices < _FEWEST
    ):
        raise InvalidRequest(f"`devices` must be a whole number of at least {_FEWEST}, but is {devices!r}")
    if "jax" in sys.modules:
        raise InvalidRequest("`start_jax` must be called before anything imports JAX, but JAX is imported")
    folder = compilation_cache()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # one that is named may lie in a bucket
        folder.mkdir(parents=True, exist_ok=True)
    flags = os.environ.get("XLA_FLAGS", "").split()
    given = {flag.partition("=")[0] for flag in flags}
    wanted = [
        (_DEVICES, str(devices or max(_FEWEST, usable_cores()))),
        _ONE_FUNCTION,
        *([_WIDE] if _tried() else []),
    ]
    flags += [f"{name}={value}" for name, value in wanted if name not in given]
    os.environ["XLA_FLAGS"] = " ".join(flags)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    # Otherwise the cache's own path is part of every key, and a cache that is moved is of no use.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")
    # A damaged entry costs a compilation, and no more.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
