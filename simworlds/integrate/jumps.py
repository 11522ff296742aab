"""Schemes for jumps of whole numbers: reactions between counts, beside continuous fields."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from simworlds.errors import UnsupportedLaw
from simworlds.integrate.scheme import Params, Scheme, State, shift
from simworlds.keys import Noise, binomial_from, poisson_from

_FEW = 1e-6  # individuals, of a count of none, for which a hazard is asked


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
        counts = _react(law, carried, means, randoms)
        flow = law.drift(middle, drive, params)
        return law.landed(carried, _moved(carried, self.dt, flow, counts), drive, params)


class TrapezoidLeap(Scheme):
    """Tau-leaping in two halves, for laws whose fast counts would make `TauLeap` take shorter steps.

    State, law and reactions are those of `TauLeap`. A step is half a step at the propensities a(x) that it
    starts with, to y, and half a step at 2 a(y) - a(x), or 0 where that is negative: means and variances are
    second order in the step (Hu, Li, Min 2011, doi:10.1063/1.3609119).
    """

    smooth: ClassVar[bool] = False

    def randoms(self, law: Any, params: Params, carried: State, drive: Any, noise: Noise) -> Any:
        """A uniform number for each reaction and half step."""
        del params, drive
        return [noise.uniform(r, carried.n[0].dtype) for r in range(2 * len(law.changes))]

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One leap."""
        time = self.dt / 2

        def react(state: State, rates: list[Any], uniforms: list[Any]) -> list[Any]:
            return _react(law, state, [time * a for a in rates], uniforms)

        return _halves(law, params, carried, drive, time, _propensities, react, randoms)


class SpinLeap(Scheme):
    """Leaps of individuals that turn to and fro, such as spins between up and down.

    The state is that of `TauLeap`. Reactions 2j and 2j + 1 of the law are each other's reverse: they turn one
    individual of one count into one of another count and back, and no count is in two pairs. With hazards w
    and w' per individual, each individual has turned after a time t with probability

        w / (w + w') [1 - exp(-(w + w') t)]

    and its partners have turned back likewise: the transition probabilities of a chain of two states, exact
    for constant hazards however long the step. A step is half a step at the hazards w(x) that it starts with,
    to y, and half a step at 2 w(y) - w(x), which makes means and variances second order in the step (Hu, Li,
    Min 2011, doi:10.1063/1.3609119).
    """

    smooth: ClassVar[bool] = False

    def randoms(self, law: Any, params: Params, carried: State, drive: Any, noise: Noise) -> Any:
        """A uniform number for each reaction and half step."""
        del params, drive
        return [noise.uniform(r, carried.n[0].dtype) for r in range(2 * len(law.changes))]

    def step(self, law: Any, params: Params, carried: State, drive: Any, randoms: Any) -> State:
        """One leap."""
        ends, time = _ends(law), self.dt / 2

        def turn(state: State, hazards: list[Any], uniforms: list[Any]) -> list[Any]:
            counts = list(state.n)
            shares = _turned(hazards, time)
            for uniform, share, (source, target) in zip(uniforms, shares, ends, strict=True):
                times = binomial_from(uniform, state.n[source], share)
                counts[source] = counts[source] - times
                counts[target] = counts[target] + times
            return counts

        return _halves(law, params, carried, drive, time, _hazards, turn, randoms)


def _halves(
    law: Any,
    params: Params,
    carried: State,
    drive: Any,
    time: float,
    rates: Callable[..., list[Any]],
    jump: Callable[[State, list[Any], list[Any]], list[Any]],
    randoms: list[Any],
) -> State:
    """Half a step at the rates r(x) of its start, to y, and half a step at 2 r(y) - r(x)."""
    first, flow = rates(law, params, carried, drive), law.drift(carried, drive, params)
    counts = jump(carried, first, randoms[: len(first)])
    middle = law.landed(carried, _moved(carried, time, flow, counts), drive, params)
    second, later = rates(law, params, middle, drive), law.drift(middle, drive, params)
    ahead = [jnp.maximum(2 * b - a, 0) for a, b in zip(first, second, strict=True)]
    counts = jump(middle, ahead, randoms[len(first) :])
    flow = jax.tree.map(lambda a, b: 2 * b - a, flow, later)
    return law.landed(middle, _moved(middle, time, flow, counts), drive, params)


def expected_flow(law: Any, params: Params, state: State, drive: Any) -> State:
    """The mean-field rate of change: each reaction at its propensity, continuous fields by the drift."""
    rates = law.propensities(state, drive, params)
    n = [jnp.zeros_like(x) for x in state.n]
    for change, rate in zip(law.changes, rates, strict=True):
        for i, c in enumerate(change):
            if c:
                n[i] = n[i] + c * rate
    return law.drift(state, drive, params)._replace(n=tuple(n))


def _propensities(law: Any, params: Params, state: State, drive: Any) -> list[Any]:
    return list(law.propensities(state, drive, params))


def _react(law: Any, state: State, means: list[Any], uniforms: list[Any]) -> list[Any]:
    """The counts after a leap in which each reaction is expected so many times."""
    counts = list(state.n)
    left = list(state.n)  # of each count, those that no reaction of this leap has consumed
    gone = [0.0] * len(counts)  # the expected share of each count that is consumed
    for change, mean, uniform in zip(law.changes, means, uniforms, strict=True):
        consumed = [(i, -c) for i, c in enumerate(change) if c < 0]
        if consumed:
            times = _consume(consumed, state.n, left, gone, mean, uniform)
        else:
            times = poisson_from(uniform, mean)
        for i, c in enumerate(change):
            if c:
                counts[i] = counts[i] + c * times
    return counts


def _moved(state: State, time: float, flow: State, n: Sequence[Any]) -> State:
    """The state with its continuous fields moved by a flow for a time, and other counts."""
    still = flow._replace(n=tuple(jnp.zeros_like(x) for x in state.n))
    return shift(state, time, still)._replace(n=tuple(n))


def _ends(law: Any) -> list[tuple[int, int]]:
    """The count that each reaction takes an individual from, and the one it puts it into."""
    ends = []
    for change in law.changes:
        if sorted(change) != [-1, *[0] * (len(change) - 2), 1]:
            raise UnsupportedLaw(f"world {law.id} has a reaction that does not turn one individual: {change}")
        ends.append((change.index(-1), change.index(1)))
    there, back = ends[::2], ends[1::2]
    counts = [i for pair in there for i in pair]
    if [(j, i) for i, j in there] != back or len(set(counts)) != len(counts):
        raise UnsupportedLaw(f"world {law.id} has reactions that are no separate reversible pairs")
    return ends


def _hazards(law: Any, params: Params, state: State, drive: Any) -> list[Any]:
    """The rate of each reaction per individual; propensities near 0 give it for a count of none."""
    some = state._replace(n=tuple(jnp.maximum(n, _FEW) for n in state.n))
    rates = law.propensities(some, drive, params)
    return [rate / some.n[source] for rate, (source, _) in zip(rates, _ends(law), strict=True)]


def _turned(hazards: list[Any], time: float) -> list[Any]:
    """The share of its individuals that each reaction has turned after a time."""
    shares = []
    for there, back in zip(hazards[::2], hazards[1::2], strict=True):
        total = there + back
        mixed = -jnp.expm1(-time * total) / jnp.where(total > 0, total, 1)
        shares += [there * mixed, back * mixed]
    return shares


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
