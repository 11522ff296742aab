"""Schemes for jumps of whole numbers: reactions between counts, beside continuous fields."""

from functools import reduce
from typing import Any, ClassVar

import jax.numpy as jnp

from simworlds.integrate.scheme import Params, Scheme, State, shift
from simworlds.keys import Noise, binomial_from, poisson_from


class TauLeap(Scheme):
    """Midpoint tau-leaping for reactions between counts, beside continuous fields.

    The state has a field ``n``, a tuple of counts (whole numbers as floats), and ``law.changes`` says what
    each reaction adds to them; the other fields follow ``law.drift``, whose ``n`` is ignored. A reaction that
    consumes nothing occurs a Poisson number of times, one that consumes individuals a binomial number of
    times among those that are left, so no count turns negative (Chatterjee, Vlachos, Katsoulakis 2005,
    doi:10.1063/1.1833357). Propensities are taken at the expected midpoint (Gillespie 2001,
    doi:10.1063/1.1378322), which makes means second order in the step.
    """

    smooth: ClassVar[bool] = False

    def randoms(self, law: Any, params: Params, carried: State, drive: Any, noise: Noise) -> Any:
        """A uniform number for each reaction."""
        del params, drive
        return [noise.uniform(r, carried.n[0].dtype) for r in range(len(law.changes))]

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One leap."""
        middle = shift(carried, self.dt / 2, expected_flow(law, params, carried, drive))
        means = [self.dt * a for a in law.propensities(middle, drive, params)]
        counts = list(carried.n)
        left = list(carried.n)  # of each count, those that no reaction of this leap has consumed
        gone = [0.0] * len(counts)  # the expected share of each count that is consumed
        for change, mean, uniform in zip(law.changes, means, randoms, strict=True):
            consumed = [(i, -c) for i, c in enumerate(change) if c < 0]
            if consumed:
                times = _consume(consumed, carried.n, left, gone, mean, uniform)
            else:
                times = poisson_from(uniform, mean)
            for i, c in enumerate(change):
                if c:
                    counts[i] = counts[i] + c * times
        flow = law.drift(middle, drive, params)
        still = flow._replace(n=tuple(jnp.zeros_like(n) for n in carried.n))
        after = shift(carried, self.dt, still)._replace(n=tuple(counts))
        return law.landed(carried, after, drive, params)


def expected_flow(law: Any, params: Params, state: State, drive: Any) -> State:
    """The mean-field rate of change: each reaction at its propensity, continuous fields by the drift."""
    rates = law.propensities(state, drive, params)
    n = [jnp.zeros_like(x) for x in state.n]
    for change, rate in zip(law.changes, rates, strict=True):
        for i, c in enumerate(change):
            if c:
                n[i] = n[i] + c * rate
    return law.drift(state, drive, params)._replace(n=tuple(n))


def _sets(n: Any, size: int) -> Any:
    return n if size == 1 else jnp.floor(n / size)


def _consume(
    consumed: list[tuple[int, int]], n: Any, left: list[Any], gone: list[Any], mean: Any, uniform: Any
) -> Any:
    """How often a reaction occurs among the individuals that are left; books them out."""
    trials = reduce(jnp.minimum, [_sets(left[i], c) for i, c in consumed])
    sets = reduce(jnp.minimum, [_sets(n[i], c) for i, c in consumed])
    share = mean / jnp.maximum(sets, 1)
    taken = 0.0
    for i, _ in consumed:
        taken = jnp.maximum(taken, gone[i])
    # Of those that an earlier reaction spared, the same number is expected to go.
    times = binomial_from(uniform, trials, jnp.clip(share / jnp.maximum(1 - taken, 1e-6), 0, 1))
    for i, c in consumed:
        left[i] = left[i] - c * times
        gone[i] = gone[i] + share * c * sets / jnp.maximum(n[i], 1)
    return times
