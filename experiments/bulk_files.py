"""What a chunk of a bulk ensemble is on disk: a Parquet file of statistics, or Zarr arrays of readings.

The bytes are a fixed function of the numbers and of the versions of the libraries: no time, no path.
"""

import io
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from experiments.inputs import UsageError
from simworlds.store import canonical_json

READINGS = "readings.zarr"


class Extent(NamedTuple):
    """Clones ``[start, stop)`` of `total` that are numbered from `first`, in chunks of `chunk`."""

    start: int
    stop: int
    first: int
    total: int
    chunk: int


def need(module: str) -> Any:
    """Import a library of the output extra.

    Raises:
        UsageError: if it is not installed; names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise UsageError(
            f"`simworlds ensemble` needs {name}, which is not installed: pip install 'simworlds[output]'"
        ) from error


def _repeated(names: Sequence[str | None], index: np.ndarray) -> Any:
    """An Arrow column of strings from their numbers."""
    arrow = need("pyarrow")
    column = arrow.DictionaryArray.from_arrays(arrow.array(index.astype(np.int32)), arrow.array(names))
    return column.cast(arrow.string())


def statistics_file(
    summary: Any,
    start: int,
    *,
    ports: Sequence[str],
    branches: Sequence[str],
    asked: Sequence[tuple[str, str]] | None,
    about: Mapping[str, Any],
) -> bytes:
    """A Parquet file with one row a (protocol, clone, port), in that order.

    Args:
        summary: `mean` and `sd` ``[protocol, clone, sensor]`` and `branch` ``[protocol, clone]``.
        start: number of the first clone.
        ports: names of the sensor ports.
        branches: names of the branches.
        asked: of contracts, (port, statistic) of each; its column is left out if None.
        about: plain data that goes into the file's metadata.
    """
    arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    shape = summary.mean.shape
    protocol, clone, port = (axis.reshape(-1) for axis in np.indices(shape, dtype=np.int32))
    columns = {
        "protocol": arrow.array(protocol.astype(np.int16)),
        "clone": arrow.array((clone.astype(np.int64) + start).astype(np.uint32)),
        "port": _repeated(ports, port),
        "mean": arrow.array(summary.mean.reshape(-1)),
        "sd": arrow.array(summary.sd.reshape(-1)),
        "branch": _repeated(branches, np.repeat(summary.branch.reshape(-1), shape[2])),
    }
    if asked is not None:
        names = [None, "mean", "sd"]
        table = np.array(
            [[names.index(kind) if name == at else 0 for name in ports] for at, kind in asked], np.int32
        )
        columns["asked"] = _repeated(names, table[protocol, port])
    made = arrow.table(columns).replace_schema_metadata({"simworlds": canonical_json(about)})
    buffer = io.BytesIO()
    parquet.write_table(
        made, buffer, compression="zstd", use_dictionary=["protocol", "port", "branch", "asked"]
    )
    return buffer.getvalue()


def readings_files(
    values: np.ndarray, branch: np.ndarray, extent: Extent, place: str, about: Mapping[str, Any]
) -> dict[str, bytes]:
    """The files of one chunk of a Zarr group with the arrays ``readings`` and ``branch``.

    Args:
        values: ``[clone, tick, sensor]``.
        branch: index of each clone's branch at the end ``[clone]``.
        extent: which clones these are.
        place: the group's path below the root of the store.
        about: plain data that becomes the group's attributes.

    Returns:
        Bytes by path. The first chunk brings the metadata of group and arrays.
    """
    zarr, storage, codecs = need("zarr"), need("zarr.storage"), need("zarr.codecs")
    store = storage.MemoryStore()
    group = zarr.create_group(store, path=place, attributes=dict(about))
    low, high = extent.start - extent.first, extent.stop - extent.first
    for name, rows, empty in (("readings", values, np.nan), ("branch", branch.astype(np.int32), -1)):
        array = group.create_array(
            name,
            shape=(extent.total, *rows.shape[1:]),
            chunks=(min(extent.chunk, extent.total), *rows.shape[1:]),
            dtype=rows.dtype,
            fill_value=empty,
            compressors=codecs.ZstdCodec(level=3),
            filters=None,
            dimension_names=("clone", "tick", "sensor")[: rows.ndim],
            config={"write_empty_chunks": True},
        )
        array[low:high] = rows
    made = {f"{READINGS}/{path}": data.to_bytes() for path, data in sorted(store._store_dict.items())}
    mine = f"{READINGS}/{place}/"
    return {
        path: data
        for path, data in made.items()
        if path.startswith(mine) and (low == 0 or not path.endswith("zarr.json"))
    }


def readings_root(nodes: Mapping[str, bytes]) -> dict[str, bytes]:
    """The groups above the arrays, and at the root the metadata of all that is below it, consolidated.

    Args:
        nodes: the ``zarr.json`` of each node that is there, by the node's path.
    """
    group = {"attributes": {}, "node_type": "group", "zarr_format": 3}
    whole = {path: json.loads(data) for path, data in nodes.items()}
    for path in nodes:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            whole.setdefault("/".join(parts[:depth]), group)
    consolidated = {"kind": "inline", "must_understand": False, "metadata": dict(sorted(whole.items()))}
    texts = {path: data for path, data in whole.items() if path not in nodes}
    texts[""] = group | {"consolidated_metadata": consolidated}
    return {
        f"{READINGS}/{path}/zarr.json".replace("//", "/"): (json.dumps(data, indent=2) + "\n").encode()
        for path, data in sorted(texts.items())
    }
