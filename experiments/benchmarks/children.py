"""Figures that need a process of their own: peak memory, first results, other numbers of devices."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]


class Finished(NamedTuple):
    """A command that ran to its end: its output, wall and CPU seconds, its own children's included."""

    out: str
    wall: float
    cpu: float


def run_command(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Finished:
    """Run a Python command of this installation.

    Args:
        arguments: of the interpreter.
        environment: variables to set.

    Raises:
        RuntimeError: if it fails; says the end of what it wrote to standard error.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = os.environ | {"PYTHONPATH": path} | dict(environment or {})
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=variables, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(arguments)[:80]}` failed: {done.stderr.strip()[-400:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Finished(done.stdout, wall, cpu)


def run_script(
    script: str,
    *arguments: str,
    devices: int = 0,
    plain: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Run a script that prints JSON last; returns what it printed.

    Args:
        script: the source.
        *arguments: its arguments.
        devices: host devices that it sees; 0 leaves them as they are here.
        plain: with `devices`, leave out all other XLA flags.
        environment: further variables to set.
    """
    variables = dict(environment or {})
    if devices:
        flags = [] if plain else os.environ.get("XLA_FLAGS", "").split()
        kept = [flag for flag in flags if "device_count" not in flag]
        variables["XLA_FLAGS"] = " ".join([*kept, f"--xla_force_host_platform_device_count={devices}"])
    return json.loads(run_command(["-c", script, *arguments], variables).out.splitlines()[-1])
