"""How every test runs: two CPU devices, a lasting compilation cache, checked types, a store of its own.

The environment is set here, before anything imports JAX, so that commands which a test starts inherit it.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from jaxtyping import install_import_hook

assert "jax" not in sys.modules, "JAX was imported before tests/conftest.py could configure it"

FLAGS = (
    "--xla_force_host_platform_device_count=2",
    "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=10000000",
    "--xla_cpu_prefer_vector_width=512",
)  # as `simworlds.start_jax(2)` sets them
flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = " ".join([*flags.split(), *(f for f in FLAGS if f.partition("=")[0] not in flags)])
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parents[1] / ".cache" / "xla-tests")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["MPLBACKEND"] = "agg"

# The packages' shapes and types are checked at run time, in tests only. An int passes for a float.
install_import_hook(
    ["scoring", "simworlds", "oracles", "experiments"],
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)

# Compiling makes a first example slow, and a test that fails must fail again on the next run.
hypothesis.settings.register_profile(
    "simworlds",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("simworlds")


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a store of its own; workers inherit the one that their controller made."""
    if not hasattr(config, "workerinput"):
        os.environ["SIMWORLDS_HOME"] = tempfile.mkdtemp(prefix="simworlds-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the run's store."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop("SIMWORLDS_HOME"), ignore_errors=True)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test with 64-bit types, which `evaluate` and reference solves use."""
    import jax

    with jax.enable_x64(True):
        yield
