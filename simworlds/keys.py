"""The one place where randomness is derived: it is addressed, never consumed.

Every random number in this project has an address: ``(world, seed, role, index)`` names a role key, a
clone number names a clone key under it, and ``(step, component)`` names one 32-bit word under that. Nothing
depends on what was drawn before, on how many clones were asked for, or on where they ran.

The generator is threefry2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw 2011, doi:10.1145/2063384.2063405).
The functions here work on NumPy and on JAX arrays alike, so that the host (contracts, gauges) and the device
(noise) share one stream.
"""

import hashlib
import json
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfinv

T = TypeVar("T")

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class Words(NamedTuple):
    """A threefry key, or a block of its output: two unsigned 32-bit words (scalars or arrays)."""

    high: Any
    low: Any


def threefry2x32(key: Words, counter: Words) -> Words:
    """Encrypt a counter under a key: 20 rounds of threefry2x32.

    Works element by element on uint32 arrays of NumPy or JAX that broadcast together.
    """
    schedule = (key.high, key.low, key.high ^ key.low ^ np.uint32(_PARITY))
    with np.errstate(over="ignore"):  # sums are meant modulo 2^32
        x, y = counter.high + schedule[0], counter.low + schedule[1]
        for block in range(5):
            for rotation in _ROTATIONS[block % 2]:
                x = x + y
                y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
                y = x ^ y
            x = x + schedule[(block + 1) % 3]
            y = y + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return Words(x, y)


def role_words(world_id: str, seed: int | str, role: str, *index: int | str) -> Words:
    """The key of a role as two Python-side words: the first 64 bits of SHA-256 over a canonical address.

    Args:
        world_id: the family's identifier, such as ``"B2"``.
        seed: the public seed (an integer of at least 0) or a sealed one (a string).
        role: what the numbers are for: ``"instance"``, ``"initial"``, ``"process"``, ``"sensor"``,
            ``"contracts"`` ...
        *index: further integers or strings of the address: the purpose, a contract's number, a run's number.

    Raises:
        TypeError: if a part of the address is neither an integer nor a string.
    """
    address = (world_id, seed, role, *index)
    for part in address:
        if isinstance(part, bool) or not isinstance(part, int | str):
            raise TypeError(f"an address holds integers and strings only, but has {part!r}")
    text = json.dumps(address, separators=(",", ":"), ensure_ascii=True)
    digest = hashlib.sha256(text.encode("ascii")).digest()
    return Words(np.uint32(int.from_bytes(digest[:4], "big")), np.uint32(int.from_bytes(digest[4:8], "big")))


def key_for(world_id: str, seed: int | str, role: str, *index: int | str) -> jax.Array:
    """The typed threefry key of a role; see `role_words` for the address."""
    return typed_key(role_words(world_id, seed, role, *index))


def typed_key(words: Words) -> jax.Array:
    """Two words as a typed JAX key, for ``jax.random`` samplers; arrays of words as an array of keys."""
    data = jnp.stack([jnp.asarray(word, jnp.uint32) for word in words], axis=-1)
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def clone_words(role: Words, clone: Any) -> Words:
    """The key of a clone under a role: equal to ``jax.random.fold_in(role_key, clone)``.

    A clone key serves noise alone: it is never folded or split again.
    """
    if isinstance(clone, int | np.integer | np.ndarray):
        return threefry2x32(role, Words(np.uint32(0), np.asarray(clone).astype(np.uint32)[()]))
    return threefry2x32(role, Words(jnp.uint32(0), clone.astype(jnp.uint32)))


def bits(key: Words, step: Any, component: Any) -> Any:
    """The 32-bit word at ``(step, component)``.

    At step 0 it equals ``jax.random.bits(key, (n,))[component]`` (partitionable threefry).
    """
    word = threefry2x32(key, Words(step, component))
    return word.high ^ word.low


def unit_interval(word: Any, dtype: Any = jnp.float32) -> Any:
    """A 32-bit word as a number inside (0, 1), never 0 or 1, symmetric about 1/2.

    float32 takes the centre of one of 2^23 cells, float64 of one of 2^32 cells, so the two agree to 2^-24.
    """
    if jnp.dtype(dtype) == jnp.float64:
        return (word.astype(jnp.float64) + 0.5) * 2.0**-32
    return ((word >> np.uint32(9)).astype(dtype) + 0.5) * jnp.asarray(2.0**-23, dtype)


# Of the normal quantile over 2u - 1 as a ratio of polynomials in w = -log 4u(1 - u), from w^5 down to 1:
# fitted to scipy's over 0 <= w <= 16.2 by reweighted least squares; off by 1.5e-8 of its value at most.
_ABOVE = (3.4168737613821275e-05, 9.11632598485345e-04, 1.0997735019382277e-02, 8.438645547607644e-02,
          4.339555363538561e-01, 1.2533141556757215)  # fmt: skip
_BELOW = (1.2794151091287971e-06, 1.7895597439865807e-04, 1.8852985668750945e-03, 3.218852318594578e-02,
          8.444744380924485e-02, 1.0)  # fmt: skip
_LEAST = 9.3e-8  # of 4u(1 - u), where w is 16.2; the smallest float32 uniform has 2.4e-7


@jax.jit
def normal_quantile(uniform: Any) -> Any:
    """The standard normal's quantile of numbers inside (0, 1).

    In single precision a rational approximation without branches, several times as fast as `erfinv`: within
    3e-7 of the value for the uniforms of `unit_interval`. In double precision by `erfinv`.
    """
    # 2u - 1 is formed exactly, so that the two tails are mirror images.
    side = 2 * uniform - 1
    if jnp.result_type(uniform) != jnp.float32:
        return jnp.asarray(np.sqrt(2.0), jnp.result_type(uniform)) * erfinv(side)
    w = -jnp.log(jnp.maximum(4 * uniform * (1 - uniform), _LEAST))
    above, below = _ABOVE[0] * w, _BELOW[0] * w
    for a, b in zip(_ABOVE[1:-1], _BELOW[1:-1], strict=True):
        above, below = (above + a) * w, (below + b) * w
    return side * ((above + _ABOVE[-1]) / (below + _BELOW[-1]))


def normal_from(word: Any, dtype: Any = jnp.float32) -> Any:
    """A standard normal from a 32-bit word, by the inverse distribution function."""
    return normal_quantile(unit_interval(word, dtype))


# A jitted function is traced once, however often a step calls it; the compiler inlines it.
_device_bits = jax.jit(bits)


class Noise(NamedTuple):
    """The noise of one clone at one step: draws addressed by component."""

    key: Words
    step: Any

    def normal(self, component: Any, dtype: Any = jnp.float32) -> Any:
        """Standard normals at the given components (a scalar or an array of uint32)."""
        return normal_from(_device_bits(self.key, self.step, jnp.asarray(component, jnp.uint32)), dtype)

    def uniform(self, component: Any, dtype: Any = jnp.float32) -> Any:
        """Uniform numbers inside (0, 1) at the given components."""
        return unit_interval(_device_bits(self.key, self.step, jnp.asarray(component, jnp.uint32)), dtype)


# Discrete laws by inversion. No rejection loop: the cost is the same for every lane of a batch.
# Up to mean 6 the distribution function is summed term by term (24 terms leave out less than 1e-8);
# above it the Cornish-Fisher expansion of the quantile is rounded.
INVERSION_MEAN = 6.0
_INVERSION_TERMS = 24


def _sum_of_steps(uniform: Any, first: Any, ratio: Any) -> Any:
    """The inverse of a distribution function given by its first term and the ratios of successive terms."""
    # A rounded total may end below the largest uniforms: no uniform falls into a term as small as this.
    least = jnp.finfo(jnp.result_type(uniform)).eps / 4
    term, total, count = first, first, jnp.zeros_like(uniform)
    for k in range(_INVERSION_TERMS):
        term = term * ratio(k)
        count = count + ((uniform > total) & (term > least))
        total = total + term
    return count


class _Cumulants(NamedTuple):
    """The first five cumulants of a law."""

    mean: Any
    variance: Any
    third: Any
    fourth: Any
    fifth: Any


def _cornish_fisher(uniform: Any, law: _Cumulants) -> Any:
    """The rounded quantile of a lattice law from its cumulants, to the third order (Cornish & Fisher 1938).

    Rounding adds 1/12 to the variance, which Sheppard's correction takes off beforehand. For a Poisson law
    this is the expansion of Giles 2016 (doi:10.1145/2699466) up to his order 1 / mean.
    """
    z = normal_quantile(uniform)
    variance = law.variance - 1 / 12
    sd, per, z2 = jnp.sqrt(variance), 1 / variance, z * z
    g1, g2, g3 = law.third * per, law.fourth * per, law.fifth * per
    first = g1 * (z2 - 1) * (1 / 6)
    second = z * ((z2 - 3) * (1 / 24) * g2 - (2 * z2 - 5) * (1 / 36) * g1 * g1)
    third = (
        (z2 * (z2 - 6) + 3) * (1 / 120) * g3
        - (z2 * (z2 - 5) + 2) * (1 / 24) * g1 * g2
        + (z2 * (12 * z2 - 53) + 17) * (1 / 324) * g1 * g1 * g1
    )
    return jnp.round(law.mean + sd * z + first + second * (sd * per) + third * per)


@jax.custom_jvp
@jax.jit
def poisson_from(uniform: Any, mean: Any) -> Any:
    """A Poisson count (as a float) from one uniform number.

    Its derivative is that of the real number ``mean + sqrt(mean) z`` of the same normal quantile z, because
    that of a whole number is zero: expectations of linear functions have the right one.

    Args:
        uniform: numbers inside (0, 1).
        mean: the mean, at least 0. Exact by inversion up to `INVERSION_MEAN`, a rounded Cornish-Fisher
            quantile above.
    """
    low = jnp.minimum(mean, INVERSION_MEAN)
    small = _sum_of_steps(uniform, jnp.exp(-low), lambda k: low / (k + 1))
    high = jnp.maximum(mean, INVERSION_MEAN)
    large = _cornish_fisher(uniform, _Cumulants(high, high, high, high, high))
    return jnp.where(mean <= INVERSION_MEAN, small, jnp.maximum(large, 0))


@poisson_from.defjvp
def _poisson_slope(primals: Any, tangents: Any) -> Any:
    uniform, mean = primals
    slope = 1 + normal_quantile(uniform) / (2 * jnp.sqrt(jnp.maximum(mean, 1 / 4)))
    return poisson_from(uniform, mean), tangents[1] * jnp.where(mean > 0, slope, 1)


@jax.custom_jvp
@jax.jit
def binomial_from(uniform: Any, trials: Any, probability: Any) -> Any:
    """A binomial count (as a float) from one uniform number.

    Its derivative is that of ``n p + sqrt(n p (1 - p)) z`` of the same normal quantile z; see `poisson_from`.

    Args:
        uniform: numbers inside (0, 1).
        trials: the number of trials, a whole number of at least 0, as a float.
        probability: of success, in [0, 1]. Exact by inversion while ``trials * min(p, 1 - p)`` is at most
            `INVERSION_MEAN`, a rounded Cornish-Fisher quantile above.
    """
    flipped = probability > 0.5
    p = jnp.where(flipped, 1 - probability, probability)
    u = jnp.where(flipped, 1 - uniform, uniform)
    mean = trials * p
    exact = mean <= INVERSION_MEAN
    few = jnp.where(exact, trials, 0)
    odds = p / (1 - p)
    small = _sum_of_steps(u, jnp.exp(few * jnp.log1p(-p)), lambda k: odds * jnp.maximum(few - k, 0) / (k + 1))
    variance = jnp.where(exact, 1, mean * (1 - p))
    lean, spread = 1 - 2 * p, p * (1 - p)
    third, fourth = variance * lean, variance * (1 - 6 * spread)
    large = _cornish_fisher(u, _Cumulants(mean, variance, third, fourth, third * (1 - 12 * spread)))
    count = jnp.where(exact, jnp.minimum(small, few), jnp.clip(large, 0, trials))
    return jnp.where(flipped, trials - count, count)


@binomial_from.defjvp
def _binomial_slope(primals: Any, tangents: Any) -> Any:
    uniform, n, p = primals
    half = normal_quantile(uniform) / (2 * jnp.sqrt(jnp.maximum(n * p * (1 - p), 1 / 4)))
    slope = tangents[1] * (p + p * (1 - p) * half) + tangents[2] * n * (1 + (1 - 2 * p) * half)
    return binomial_from(uniform, n, p), slope


class Draws:
    """A sequence of host-side draws under one role: contracts, protocols, gauges.

    The n-th word is at counter (0, n), so a sequence is the same on every machine and NumPy version.
    """

    _BLOCK = 256

    def __init__(self, words: Words):
        self._key = words
        self._made = np.empty(0)
        self._used = 0

    @classmethod
    def for_role(cls, world_id: str, seed: int | str, role: str, *index: int | str) -> "Draws":
        """Draws under the address of a role; see `role_words`."""
        return cls(role_words(world_id, seed, role, *index))

    def unit(self, n: int) -> np.ndarray:
        """The next n numbers inside (0, 1), float64 ``[n]``."""
        while self._used + n > len(self._made):
            counter = np.arange(len(self._made), len(self._made) + self._BLOCK, dtype=np.uint32)
            word = bits(self._key, np.zeros_like(counter), counter)
            self._made = np.concatenate([self._made, (word.astype(np.float64) + 0.5) * 2.0**-32])
        self._used += n
        return self._made[self._used - n : self._used]

    def uniform(self, low: float, high: float) -> float:
        """The next number, uniform in (low, high)."""
        return float(low + (high - low) * self.unit(1)[0])

    def log_uniform(self, low: float, high: float) -> float:
        """The next number, its logarithm uniform between those of low and high."""
        return float(low * (high / low) ** self.unit(1)[0])

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> float:
        """The next normal number."""
        return mean + sd * NormalDist().inv_cdf(float(self.unit(1)[0]))

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return bool(self.unit(1)[0] < probability)

    def integer(self, low: int, high: int) -> int:
        """The next whole number, uniform in low..high, both included."""
        return low + int(self.unit(1)[0] * (high - low + 1))

    def choice(self, items: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """One of the items, evenly or by weight."""
        share = np.ones(len(items)) if weights is None else np.asarray(weights, dtype=np.float64)
        edges = np.cumsum(share) / np.sum(share)
        return items[min(int(np.searchsorted(edges, self.unit(1)[0], side="right")), len(items) - 1)]

    def permutation(self, n: int) -> list[int]:
        """A random order of 0..n-1."""
        return [int(i) for i in np.argsort(self.unit(n), kind="stable")]
