"""JAX's settings: a device a core, a cache that lasts, and what the user has set stays."""

import json
import os
import subprocess
import sys

import pytest

import simworlds
from simworlds.errors import InvalidRequest
from simworlds.startup import usable_cores

SCRIPT = """
import json, os, sys
import simworlds
simworlds.start_jax(*json.loads(sys.argv[1]))
assert "jax" not in sys.modules
import jax
found = {"devices": len(jax.local_devices()), "cache": jax.config.jax_compilation_cache_dir}
jax.jit(lambda x: x + 1)(1.0).block_until_ready()
print(json.dumps(found))
"""


def started(home, *arguments, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(arguments)],
        env=kept | {"JAX_PLATFORMS": "cpu", "SIMWORLDS_HOME": str(home)} | environment,
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(simworlds.__file__))),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_device_a_core_and_a_cache_in_the_home(tmp_path):
    found = started(tmp_path)
    assert found == {"devices": max(2, usable_cores()), "cache": str(tmp_path / "xla")}
    assert list((tmp_path / "xla").iterdir()), "the program was not kept"


def test_what_the_user_has_set_stays(tmp_path):
    flags = "--xla_force_host_platform_device_count=5"
    chosen = str(tmp_path / "chosen")
    found = started(tmp_path, 2, XLA_FLAGS=flags, JAX_COMPILATION_CACHE_DIR=chosen)
    assert found == {"devices": 5, "cache": chosen}


def test_it_comes_too_late_once_jax_is_imported():
    with pytest.raises(InvalidRequest, match="before anything imports JAX"):
        simworlds.start_jax()


@pytest.mark.parametrize("devices", [0, 1, -1, True])
def test_devices_are_a_whole_number(devices):
    with pytest.raises(InvalidRequest, match="`devices` must be a whole number of at least 2"):
        simworlds.start_jax(devices)


def test_tests_compile_as_the_command_line_does(tmp_path):
    probe = "import os, simworlds; simworlds.start_jax(2); print(os.environ['XLA_FLAGS'])"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=kept | {"SIMWORLDS_HOME": str(tmp_path)},
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(simworlds.__file__))),
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == set(os.environ["XLA_FLAGS"].split())
