"""All devices of this process at once: each runs the same local program on a share of its own."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_AXIS = "device"


@lru_cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), (_AXIS,))


def on_devices(tree: Any) -> Any:
    """A tree of arrays with a first axis of devices, each device's part placed there."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec(_AXIS)))


def on_each(local: Callable[[Any, Any], Any], whole: Any, shares: Any) -> Any:
    """Run ``local(whole, share)`` on each device; to be called under `jax.jit`.

    Args:
        local: the program of one device.
        whole: a tree of arrays that every device receives.
        shares: a tree of arrays with a first axis of devices, which `local` does not see.

    Returns:
        The results, with a first axis of devices.
    """

    def one(whole: Any, shares: Any) -> Any:
        found = local(whole, jax.tree.map(lambda x: x[0], shares))
        return jax.tree.map(lambda x: x[None], found)

    everywhere, apart = PartitionSpec(), PartitionSpec(_AXIS)
    program = jax.shard_map(one, mesh=_mesh(), in_specs=(everywhere, apart), out_specs=apart, check_vma=False)
    return program(whole, shares)
