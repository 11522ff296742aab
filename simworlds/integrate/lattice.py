"""A scheme for particles that exclude each other on open lattices whose sites are single bits."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from simworlds.integrate.scheme import Params, Scheme, State
from simworlds.keys import Noise, Words, bits

WORD = 32  # sites a word
_BOND = 0xFFFF  # the bits of a change that hold its bond
_U = jnp.uint32


@dataclasses.dataclass(frozen=True)
class RandomSequential(Scheme):
    """Random-sequential updates of several open lattices side by side, the tubes.

    Site i lies between bonds i and i + 1: bond 0 leads in from a full reservoir, bond N out to an empty one.
    An attempt picks, in each tube, one of the N + 1 bonds and one uniform number, which settles what is
    tried: a hop over the bond, an exchange between a reservoir and the site behind the bond, or nothing. Each
    has the law's rate times ``dt (N + 1) / attempts`` as its probability; together they must not exceed 1.
    That is the uniformised chain of the jump process: its stationary law is exact whatever the step, and
    transients are exact as far as a sum of `attempts` waiting times is certain.

    The state has a field ``cells``, a tuple of uint32 arrays ``[tube]`` whose bits are the sites, the lowest
    first, and 0 from site N on; and fields ``entry`` and ``exit``, to which each step writes how many
    particles came in over bond 0 and left over bond N, per tube and unit of time.

    Attributes:
        attempts: of a step, in each tube; at most 65535, as is N.
    """

    attempts: int
    smooth: ClassVar[bool] = False

    def tick(
        self, law: Any, params: Params, carried: State, drive: Any, key: Words, tick: Any
    ) -> tuple[State, tuple[Any, ...]]:
        """Advance one clone by one tick.

        Returns:
            The state at the tick's end, and the tick's mean of each sensor: by the trapezoidal rule over the
            steps for what `cells` says, exactly for `entry` and `exit`, in which sensors must be affine.
        """

        def body(k: Any, carry: Any) -> Any:
            carried, total = carry
            noise = Noise(key, (tick * self.substeps + k).astype(_U))
            carried = self.step(law, params, carried, drive, noise)
            return carried, jax.tree.map(jnp.add, total, law.read(carried, drive, params))

        zeros = jax.tree.map(jnp.zeros_like, law.read(carried, drive, params))
        end, total = jax.lax.fori_loop(0, self.substeps, body, (carried, zeros))
        # What passed before the tick is not in its mean, what passed in its last step is in it whole.
        first = law.read(carried._replace(entry=end.entry, exit=end.exit), drive, params)
        last = law.read(end, drive, params)
        return end, jax.tree.map(lambda s, a, b: (s + (a - b) / 2) / self.substeps, total, first, last)

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One sweep of attempts; `randoms` is the step's noise, from which each makes its word."""
        sites = law.sites(params)
        last = sites.astype(_U)
        share = self.dt * (sites + 1) / self.attempts
        tubes = carried.cells[0].shape[0]

        def words(attempt: Any) -> Any:
            component = _U(tubes) * jnp.asarray(attempt).astype(_U) + jnp.arange(tubes, dtype=_U)
            return bits(randoms.key, randoms.step, component)

        def decide(cells: Any, word: Any) -> Any:
            bond, uniform = split(word, last + _U(1), share.dtype)
            hop, attach, detach = law.rates(bond, drive, params)
            source, target = (bond == 0) | _full(cells, bond - _U(1)), _full(cells, bond)
            hops = source & ~target & (uniform < share * hop)
            exchange = jnp.where(target, detach, attach)
            turns = (uniform >= share * hop) & (uniform < share * (hop + exchange))
            return bond | (hops.astype(_U) << 16) | (((hops | turns) & (bond != last)).astype(_U) << 17)

        def body(attempt: Any, loop: Any) -> Any:
            # A change is one word, made into flips an attempt later: the compiler computes a carried array
            # once, but would repeat the decision in each of the lattice's words.
            cells, entered, left, change, word = loop
            later = words(attempt + 1)
            cells, entered, left = _book(cells, entered, left, change, last)
            return cells, entered, left, decide(cells, word), later

        zero = jnp.zeros(tubes, _U)
        loop = (carried.cells, zero, zero, zero, words(0))
        cells, entered, left, change, _ = jax.lax.fori_loop(0, self.attempts, body, loop)
        cells, entered, left = _book(cells, entered, left, change, last)

        def rate(count: Any) -> Any:
            return jnp.mean(count.astype(share.dtype)) / self.dt

        return carried._replace(cells=cells, entry=rate(entered), exit=rate(left))


def split(word: Any, count: Any, dtype: Any) -> tuple[Any, Any]:
    """A 32-bit word as one of `count` (at most 65536) whole numbers, and a uniform number in [0, 1).

    They are the upper and the lower half of ``word * count``: every pair is equally likely but for the
    grid's `count` parts in 2^32.
    """
    high = (word >> 16) * count + (((word & _U(0xFFFF)) * count) >> 16)
    low = word * count
    if jnp.dtype(dtype) == jnp.float64:
        return high >> 16, low.astype(dtype) * 2.0**-32
    return high >> 16, (low >> 8).astype(dtype) * jnp.asarray(2.0**-24, dtype)


def half_full(noise: Noise, sites: Any, tubes: int, words: int) -> Any:
    """Cells in which each site is full with probability 1/2: a tuple of `words` arrays ``[tube]``."""
    tube = jnp.arange(tubes, dtype=_U)
    return tuple(bits(noise.key, noise.step, _U(k * tubes) + tube) & _below(sites, k) for k in range(words))


def occupied(cells: Any, start: Any, stop: Any) -> Any:
    """The mean over tubes of the number of particles on sites ``start <= i < stop`` (floats)."""
    count = _U(0)
    for k, word in enumerate(cells):
        inside = _below(stop, k) & ~_below(start, k)
        count = count + jax.lax.population_count(word & inside)
    return jnp.mean(count.astype(jnp.result_type(stop)))


def _below(site: Any, k: int) -> Any:
    """The bits of word k that stand for sites below a site."""
    count = jnp.clip(site - WORD * k, 0, WORD).astype(_U)
    return jnp.where(count < WORD, (_U(1) << jnp.minimum(count, _U(WORD - 1))) - _U(1), _U(0xFFFFFFFF))


def _full(cells: Any, site: Any) -> Any:
    """Whether a site of each tube is full; no where it lies outside the words."""
    word = _U(0)
    for k, cell in enumerate(cells):
        word = jnp.where(site >> 5 == k, cell, word)
    return (word >> (site & _U(31))) & _U(1) == 1


def _book(cells: Any, entered: Any, left: Any, change: Any, last: Any) -> tuple[Any, Any, Any]:
    """Make a change: flip the bits on either side of its bond, and count what passed the ends."""
    bond, hops, turns = change & _U(_BOND), (change >> 16) & _U(1), change >> 17
    before = bond - _U(1)
    source, target = hops << (before & _U(31)), turns << (bond & _U(31))
    cells = tuple(
        cell ^ jnp.where(before >> 5 == k, source, _U(0)) ^ jnp.where(bond >> 5 == k, target, _U(0))
        for k, cell in enumerate(cells)
    )
    return cells, entered + jnp.where(bond == 0, hops, _U(0)), left + jnp.where(bond == last, hops, _U(0))
