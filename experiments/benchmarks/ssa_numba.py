"""The numba twins of kernels/ssa.c: the direct method in single precision with xoshiro256+."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, uint64

_ONE, _TWO, _HALF = np.float32(1), np.float32(2), np.float32(0.5)
_CELL, _ZERO = np.float32(2.0**-23), np.float32(0)


@njit(nogil=True, inline="always")
def _seeded(seed: Any) -> Any:
    """A word of splitmix64, and its next state."""
    seed = uint64(seed + uint64(0x9E3779B97F4A7C15))
    z = uint64((seed ^ (seed >> uint64(30))) * uint64(0xBF58476D1CE4E5B9))
    z = uint64((z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB))
    return z ^ (z >> uint64(31)), seed


@njit(nogil=True, inline="always")
def _unit(word: Any) -> Any:
    return (np.float32(word >> uint64(9)) + _HALF) * _CELL


def _twin(
    start: Callable[..., Any], reach: Callable[..., Any], react: Callable[..., Any]
) -> Callable[..., Any]:
    """The loop over runs of a law of at most two species and four reactions."""

    @njit(nogil=True)
    def runs(seed: Any, rate: Any, until: Any, first: Any, count: Any, end: Any) -> Any:
        s0, seed = _seeded(uint64(seed + uint64(first)))
        s1, seed = _seeded(seed)
        s2, seed = _seeded(seed)
        s3, seed = _seeded(seed)
        for run in range(first, first + count):
            x, y = start(rate)
            time = _ZERO
            while True:
                a, b, c, total = reach(x, y, rate)
                if total <= _ZERO:
                    break
                drawn, shifted = uint64(s0 + s3), uint64(s1 << uint64(17))
                s2 ^= s0
                s3 ^= s1
                s1 ^= s2
                s0 ^= s3
                s2 ^= shifted
                s3 = uint64((s3 << uint64(45)) | (s3 >> uint64(19)))
                time -= np.log(_unit(drawn >> uint64(32))) / total
                if time > until:
                    break
                x, y = react(x, y, a, b, c, _unit(drawn & uint64(0xFFFFFFFF)) * total)
            end[run, 0] = x
            if end.shape[1] > 1:
                end[run, 1] = y

    return runs


@njit(nogil=True, inline="always")
def _dimer_start(rate: Any) -> Any:
    return rate[2], _ZERO


@njit(nogil=True, inline="always")
def _dimer_reach(p: Any, d: Any, rate: Any) -> Any:
    a = rate[0] * p * (p - _ONE)
    return a, a, a, a + rate[1] * d


@njit(nogil=True, inline="always")
def _dimer_react(p: Any, d: Any, a: Any, b: Any, c: Any, mark: Any) -> Any:  # noqa: ARG001
    way = _ONE if a > mark else -_ONE
    return p - _TWO * way, d + way


@njit(nogil=True, inline="always")
def _schloegl_start(rate: Any) -> Any:
    return rate[4], _ZERO


@njit(nogil=True, inline="always")
def _schloegl_reach(x: Any, y: Any, rate: Any) -> Any:  # noqa: ARG001
    a = rate[0] * x * (x - _ONE)
    b = a + rate[1] * x * (x - _ONE) * (x - _TWO)
    c = b + rate[2]
    return a, b, c, c + rate[3] * x


@njit(nogil=True, inline="always")
def _schloegl_react(x: Any, y: Any, a: Any, b: Any, c: Any, mark: Any) -> Any:
    return x + (_ONE if (a > mark) | ((c > mark) & (b <= mark)) else -_ONE), y


TWINS = {
    "dimer": _twin(_dimer_start, _dimer_reach, _dimer_react),
    "schloegl": _twin(_schloegl_start, _schloegl_reach, _schloegl_react),
}
