"""The scoring tests run with 64-bit types, as `evaluate` does; kernels keep the dtype that they are given."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _double_precision():
    with jax.enable_x64(True):
        yield
