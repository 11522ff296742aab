"""Numba twins of the C kernels: the same blocks of clones, the same arithmetic, written in Python.

Numba is imported when a twin is asked for. Its whole numbers widen to 64 bits at every step, so each sum and
shift of 32-bit words is cast back.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.benchmarks.harness import installed, on_all_cores
from experiments.benchmarks.rivals import Job

LANES = 64
_ABOVE = (9.11632598485345e-04, 1.0997735019382277e-02, 8.438645547607644e-02, 4.339555363538561e-01)
_BELOW = (1.7895597439865807e-04, 1.8852985668750945e-03, 3.218852318594578e-02, 8.444744380924485e-02)


@lru_cache
def _randoms() -> tuple[Any, Any]:
    """Compiled functions of (high, low, step, component): `threefry` gives two words, `normal` a number."""
    import numba

    u32, f32 = np.uint32, np.float32
    inline = numba.njit(inline="always")

    @inline
    def four(x: Any, y: Any, a: int, b: int, c: int, d: int) -> Any:
        for r in (a, b, c, d):
            x = u32(x + y)
            y = u32(u32(y << u32(r)) | (y >> u32(32 - r))) ^ x
        return x, y

    @inline
    def threefry(high: Any, low: Any, step: Any, component: Any) -> Any:
        third = u32(high ^ low ^ u32(0x1BD11BDA))
        x, y = u32(step + high), u32(component + low)
        x, y = four(x, y, 13, 15, 26, 6)
        x, y = u32(x + low), u32(y + third + u32(1))
        x, y = four(x, y, 17, 29, 16, 24)
        x, y = u32(x + third), u32(y + high + u32(2))
        x, y = four(x, y, 13, 15, 26, 6)
        x, y = u32(x + high), u32(y + low + u32(3))
        x, y = four(x, y, 17, 29, 16, 24)
        x, y = u32(x + low), u32(y + third + u32(4))
        x, y = four(x, y, 13, 15, 26, 6)
        return u32(x + third), u32(y + high + u32(5))

    a0, a1, a2, a3, a4, a5 = (f32(v) for v in (3.4168737613821275e-05, *_ABOVE, 1.2533141556757215))
    b0, b1, b2, b3, b4 = (f32(v) for v in (1.2794151091287971e-06, *_BELOW))
    cell, half, one, two, four_, least = f32(2.0**-23), f32(0.5), f32(1), f32(2), f32(4), f32(9.3e-8)

    @inline
    def normal(high: Any, low: Any, step: Any, component: Any) -> Any:
        x, y = threefry(high, low, step, component)
        u = (f32(np.int32(u32(x ^ y) >> u32(9))) + half) * cell
        w = -f32(np.log(max(four_ * u * (one - u), least)))
        above = ((((a0 * w + a1) * w + a2) * w + a3) * w + a4) * w + a5
        below = ((((b0 * w + b1) * w + b2) * w + b3) * w + b4) * w + one
        return (two * u - one) * (above / below)

    return threefry, normal


def _lorenz63() -> tuple[Any, Any, int, int]:
    import numba

    _, normal = _randoms()
    f32, u32 = np.float32, np.uint32

    @numba.njit(inline="always")
    def drift(x: Any, y: Any, z: Any, sigma: Any, rho: Any, beta: Any) -> Any:
        return sigma * (y - x), x * (rho - z) - y, x * y - beta * z

    @numba.njit
    def initial(x: Any, high: Any, low: Any) -> None:
        for lane in range(x.shape[1]):
            for k in range(3):
                z = normal(high[lane], low[lane], u32(0), u32(k))
                x[k, lane] = z + (f32(20) if k == 2 else f32(1))

    @numba.njit
    def step(x: Any, total: Any, params: Any, rho: Any, h: Any, _high: Any, _low: Any, _number: Any) -> None:
        half, sixth, two, sigma, beta = h / f32(2), h / f32(6), f32(2), params[0], params[1]
        for lane in range(x.shape[1]):
            x0, y0, z0 = x[0, lane], x[1, lane], x[2, lane]
            ax, ay, az = drift(x0, y0, z0, sigma, rho, beta)
            bx, by, bz = drift(x0 + half * ax, y0 + half * ay, z0 + half * az, sigma, rho, beta)
            cx, cy, cz = drift(x0 + half * bx, y0 + half * by, z0 + half * bz, sigma, rho, beta)
            dx, dy, dz = drift(x0 + h * cx, y0 + h * cy, z0 + h * cz, sigma, rho, beta)
            x[0, lane] = x0 + sixth * (ax + two * (bx + cx) + dx)
            x[1, lane] = y0 + sixth * (ay + two * (by + cy) + dy)
            x[2, lane] = z0 + sixth * (az + two * (bz + cz) + dz)
            total[0, lane] += x[0, lane]
            total[1, lane] += x[1, lane]
            total[2, lane] += x[2, lane]

    return initial, step, 3, 3


def _lorenz96() -> tuple[Any, Any, int, int]:
    import numba

    _, normal = _randoms()
    f32, u32, sites = np.float32, np.uint32, 40

    @numba.njit
    def initial(x: Any, high: Any, low: Any) -> None:
        for k in range(sites):
            for lane in range(x.shape[1]):
                x[k, lane] = normal(high[lane], low[lane], u32(0), u32(k))

    @numba.njit
    def step(x: Any, total: Any, params: Any, F: Any, h: Any, _high: Any, _low: Any, _number: Any) -> None:
        d, lanes = params[0], x.shape[1]
        points = np.empty((2, sites, lanes), np.float32)
        total_slope = np.zeros((sites, lanes), np.float32)
        points[0] = x
        for stage in range(4):
            at, after = points[stage % 2], points[1 - stage % 2]
            weight = f32(2) if stage in (1, 2) else f32(1)
            ahead = h / f32(2) if stage < 2 else h
            for k in range(sites):
                up, down, before = at[(k + 1) % sites], at[(k - 2) % sites], at[(k - 1) % sites]
                for lane in range(lanes):
                    slope = (up[lane] - down[lane]) * before[lane] - d * at[k, lane] + F
                    total_slope[k, lane] += weight * slope
                    after[k, lane] = x[k, lane] + ahead * slope
        for k in range(sites):
            for lane in range(lanes):
                x[k, lane] += h / f32(6) * total_slope[k, lane]
        for k in range(3):
            for lane in range(lanes):
                total[k, lane] += x[k, lane]

    return initial, step, sites, 3


def _double_well() -> tuple[Any, Any, int, int]:
    import numba

    _, normal = _randoms()
    f32, u32 = np.float32, np.uint32

    @numba.njit
    def initial(x: Any, high: Any, low: Any) -> None:
        for k in range(2):
            for lane in range(x.shape[1]):
                x[k, lane] = normal(high[lane], low[lane], u32(0), u32(k))

    @numba.njit
    def step(x: Any, total: Any, params: Any, a: Any, h: Any, high: Any, low: Any, number: Any) -> None:
        half, root, bx, by, pace = h / f32(2), np.sqrt(h), params[0], params[1], params[2]
        for lane in range(x.shape[1]):
            kx = root * bx * normal(high[lane], low[lane], number, u32(0))
            ky = root * by * normal(high[lane], low[lane], number, u32(1))
            x0, y0 = x[0, lane], x[1, lane]
            dx, dy = x0 - x0 * x0 * x0 + a, pace * (x0 - y0)
            x1, y1 = x0 + h * dx + kx, y0 + h * dy + ky
            x[0, lane] = x0 + half * (dx + x1 - x1 * x1 * x1 + a) + kx
            x[1, lane] = y0 + half * (dy + pace * (x1 - y1)) + ky
            total[0, lane] += x[0, lane]
            total[1, lane] += x[1, lane]

    return initial, step, 2, 2


_LAWS = {"lorenz63": _lorenz63, "lorenz96": _lorenz96, "double_well": _double_well}


@lru_cache
def _kernel(name: str) -> Any:
    """``run(first, count, keys, counts, dt, arrays...)``: the work of `measure` around a law's steps."""
    import numba

    threefry, normal = _randoms()
    initial, step, dim, sensors = _LAWS[name]()
    f32, u32 = np.float32, np.uint32

    @numba.njit
    def clone_keys(high: Any, low: Any, first: int, out_high: Any, out_low: Any) -> None:
        for lane in range(LANES):
            out_high[lane], out_low[lane] = threefry(high, low, u32(0), u32(first + lane))

    @numba.njit(nogil=True)
    def run(first: int, count: int, keys: Any, counts: Any, dt: Any, drive: Any, params: Any, gauge: Any,
            values: Any) -> None:  # fmt: skip
        ticks, substeps, start, stop, port, sd = counts
        x, total = np.empty((dim, LANES), np.float32), np.empty((sensors, LANES), np.float32)
        begun, reading = np.empty((sensors, LANES), np.float32), np.empty((sensors, LANES), np.float32)
        high, low = np.empty((3, LANES), np.uint32), np.empty((3, LANES), np.uint32)
        mean, square = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
        for at in range(first, first + count, LANES):
            for role in range(3):
                clone_keys(keys[role, 0], keys[role, 1], at, high[role], low[role])
            initial(x, high[0], low[0])
            mean[:], square[:], number = f32(0), f32(0), f32(0)
            for tick in range(ticks):
                begun[:] = x[:sensors]
                total[:] = f32(0)
                for k in range(substeps):
                    step(x, total, params, drive[tick], dt, high[1], low[1], u32(tick * substeps + k))
                for s in range(sensors):
                    for lane in range(LANES):
                        raw = (total[s, lane] + (begun[s, lane] - x[s, lane]) / f32(2)) / f32(substeps)
                        z = normal(high[2, lane], low[2, lane], u32(tick), u32(s))
                        reading[s, lane] = gauge[0, s] + gauge[1, s] * raw + gauge[2, s] * z
                if start <= tick < stop:
                    number += f32(1)
                    for lane in range(LANES):
                        off = reading[port, lane] - mean[lane]
                        mean[lane] += off / number
                        square[lane] += off * (reading[port, lane] - mean[lane])
            for lane in range(min(LANES, first + count - at)):
                values[at + lane] = np.sqrt(square[lane] / number) if sd else mean[lane]

    return run


def numba_party(kernel: str, job: Job) -> Callable[[], np.ndarray] | None:
    """The numba twin of a C kernel at work on a job, on all cores; None if numba is absent."""
    if not installed("numba"):
        return None
    run = _kernel(kernel)
    roles = (job.initial, job.process, job.sensor)
    keys = np.array([[role.high, role.low] for role in roles], np.uint32)
    counts = (job.ticks, job.substeps, job.start, job.stop, job.port, int(job.sd))
    gauge = np.stack([job.offset, job.gain, job.sigma])
    rest = (keys, counts, np.float32(job.dt), job.drive, job.params, gauge, job.values)

    def go() -> np.ndarray:
        on_all_cores(lambda first, count: run(first, count, *rest), len(job.values), block=LANES)
        return job.values

    return go
