"""Ensembles over several processes, on one host or on many: each measures its share, then all are joined.

A clone's result depends on its number alone, so processes need not talk while they run. Start them with
``jax.distributed.initialize``, measure the share of each on its own devices, and gather::

    jax.distributed.initialize("host:port", num_processes=2, process_id=k)
    first, count = share(clones)
    whole = gather(measure(instance, contracts, count, first=first), clones)

The joined statistics equal those of one process to the last bit. Every process must have as many devices.
"""

from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from simworlds.errors import InvalidRequest
from simworlds.protocol import is_whole

T = TypeVar("T", bound=tuple[np.ndarray, ...])


def share(clones: int) -> tuple[int, int]:
    """The clones of this process: the number of its first one, and how many.

    The shares of all processes follow each other in the order of their indices and differ by one at most.

    Args:
        clones: of all processes together.

    Raises:
        InvalidRequest: if there are fewer clones than processes.
    """
    processes = jax.process_count()
    if not is_whole(clones) or int(clones) < processes:
        raise InvalidRequest(
            f"`clones` must be a whole number of at least {processes}, one a process, but is {clones!r}"
        )
    first, end = (_start_of(jax.process_index() + k, int(clones), processes) for k in range(2))
    return first, end - first


def gather(part: T, clones: int) -> T:
    """The results of all clones, on every process, from the share of each. All processes must call it.

    Args:
        part: what `measure`, `summarise` or `simulate` gave for this process's `share`: a NamedTuple of
            arrays ``[request, clone, ...]``.
        clones: of all processes together.

    Returns:
        The same NamedTuple with all clones, to the last bit.

    Raises:
        InvalidRequest: if an array does not hold this process's share, before anything is sent.
    """
    _, count = share(clones)
    for array in part:
        if array.ndim < 2 or array.shape[1] != count:
            raise InvalidRequest(
                f"`part` must hold this process's {count} of {clones} clones along its second axis, "
                f"but has the shape {array.shape}"
            )
    if jax.process_count() == 1:
        return part
    return type(part)(*(_joined(np.asarray(array), int(clones)) for array in part))


def _joined(array: np.ndarray, clones: int) -> np.ndarray:
    processes = jax.process_count()
    starts = [_start_of(k, clones, processes) for k in range(processes + 1)]
    width = -(-clones // processes)
    rows = np.moveaxis(array, 1, 0)
    padded = np.zeros((width, *rows.shape[1:]), array.dtype)
    padded[: len(rows)] = rows
    # Bytes travel as they are, 64-bit types too, whatever the ambient types.
    sent = np.ascontiguousarray(padded).view(np.uint8).ravel()
    received = np.asarray(multihost_utils.process_allgather(sent)).reshape(processes, -1)
    parts = [
        np.ascontiguousarray(line).view(array.dtype).reshape(padded.shape)[: starts[k + 1] - starts[k]]
        for k, line in enumerate(received)
    ]
    return np.moveaxis(np.concatenate(parts), 0, 1)


def _start_of(process: int, clones: int, processes: int) -> int:
    return clones * process // processes
