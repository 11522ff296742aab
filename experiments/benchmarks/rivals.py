"""What C kernels and numba twins take: the job of `measure` on one request, as plain arrays."""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from simworlds.ensemble import Request
from simworlds.instance import Instance
from simworlds.keys import Words, role_words


class CWords(ctypes.Structure):
    """`words` of kernels/threefry.h."""

    _fields_ = [("high", ctypes.c_uint32), ("low", ctypes.c_uint32)]


_FLOATS = ctypes.POINTER(ctypes.c_float)


class CJob(ctypes.Structure):
    """`job` of kernels/job.h."""

    _fields_ = [
        ("initial", CWords),
        ("process", CWords),
        ("sensor", CWords),
        ("ticks", ctypes.c_int),
        ("substeps", ctypes.c_int),
        ("start", ctypes.c_int),
        ("stop", ctypes.c_int),
        ("port", ctypes.c_int),
        ("sd", ctypes.c_int),
        ("dt", ctypes.c_float),
        ("drive", _FLOATS),
        ("params", _FLOATS),
        ("offset", _FLOATS),
        ("gain", _FLOATS),
        ("sigma", _FLOATS),
        ("values", _FLOATS),
    ]


class Job(NamedTuple):
    """One request on one instance whose world has one drive and whose ports are in the world's order."""

    initial: Words
    process: Words
    sensor: Words
    ticks: int
    substeps: int
    start: int
    stop: int
    port: int
    sd: bool
    dt: float
    drive: np.ndarray  # [tick], physical
    params: np.ndarray
    offset: np.ndarray  # [sensor]
    gain: np.ndarray
    sigma: np.ndarray
    values: np.ndarray  # [clone], where a rival writes


def job_of(instance: Instance, request: Request, clones: int) -> Job:
    """The job of a request on `clones` clones."""
    readout, scheme = request.readout, instance.world.scheme
    assert readout is not None
    address = instance.world.id, instance.seed
    keys = [role_words(*address, role, *request.purpose) for role in ("initial", "process", "sensor")]
    level = instance.levels(request.protocol)[:, 0]
    return Job(
        *keys,
        ticks=request.protocol.ticks,
        substeps=scheme.substeps,
        start=readout.start,
        stop=readout.stop,
        port=readout.port,
        sd=readout.sd,
        dt=scheme.dt,
        drive=np.asarray(instance.world.drives[0].physical(level), np.float32),
        params=np.array([float(value) for value in instance.params], np.float32),
        offset=np.asarray(instance.gauge.offset, np.float32),
        gain=np.asarray(instance.gauge.gain, np.float32),
        sigma=np.asarray(instance.gauge.sigma, np.float32),
        values=np.zeros(clones, np.float32),
    )


def c_job(job: Job) -> CJob:
    """The job as C takes it; `job` must outlive it."""

    def plain(value: Any) -> Any:
        if isinstance(value, Words):
            return CWords(int(value.high), int(value.low))
        return value.ctypes.data_as(_FLOATS) if isinstance(value, np.ndarray) else value

    return CJob(*(plain(value) for value in job))
