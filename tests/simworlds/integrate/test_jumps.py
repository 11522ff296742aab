"""Leaps in two halves: exact for lone spins, second order in means and variances, and what they refuse."""

from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.errors import UnsupportedLaw
from simworlds.integrate import SpinLeap, TauLeap, TrapezoidLeap
from simworlds.keys import Noise, clone_words, role_words

CLONES = 200_000
SIGMAS = 4


class State(NamedTuple):
    n: tuple
    heat: jax.Array


class Spins:
    """Spins that turn down at `a` and up at `b` each; a field that grows by 1 for each that turned down."""

    id = "spins"
    changes: ClassVar = ((-1, 1), (1, -1))

    def __init__(self, a=0.7, b=0.3, pull=0.0):
        self.a, self.b, self.pull = a, b, pull

    def propensities(self, state, drive, params):
        up, down = state.n
        m = (up - down) / (up + down)
        return up * self.a * jnp.exp(-self.pull * m), down * self.b * jnp.exp(self.pull * m)

    def drift(self, state, drive, params):
        return State(tuple(jnp.zeros_like(x) for x in state.n), -state.heat)

    def landed(self, before, after, drive, params):
        return after._replace(heat=after.heat + before.n[0] - after.n[0])


class Tank:
    """Molecules that arrive at rate 20 and leave at rate 5 each: Poisson with mean 4 at rest."""

    id = "tank"
    changes: ClassVar = ((1,), (-1,))

    def propensities(self, state, drive, params):
        return 20.0 + 0 * state.n[0], 5 * state.n[0]

    def drift(self, state, drive, params):
        return State((jnp.zeros_like(state.n[0]),), jnp.zeros_like(state.heat))

    def landed(self, before, after, drive, params):
        return after


@partial(jax.jit, static_argnums=(0, 1, 3))
def leaps(law, scheme, counts, steps):
    """The states of many clones after some steps."""
    role = role_words("leaps", 0, "test")

    def one(clone):
        key = clone_words(role, clone)

        def body(k, state):
            randoms = scheme.randoms(law, None, state, None, Noise(key, k.astype(jnp.uint32)))
            return scheme.step(law, None, state, None, randoms)

        start = State(tuple(jnp.float32(x) for x in counts), jnp.float32(0))
        return jax.lax.fori_loop(0, steps, body, start)

    return jax.vmap(one)(jnp.arange(CLONES, dtype=jnp.uint32))


def off(sample, mean, variance):
    """How many standard errors a sample's mean and variance are from theirs; near-normal laws."""
    sample = np.asarray(sample, np.float64)
    return (
        abs(sample.mean() - mean) / np.sqrt(variance / CLONES),
        abs(sample.var() / variance - 1) / np.sqrt(2 / CLONES),
    )


class TestSpinLeap:
    @pytest.mark.parametrize("up", [40, 0])
    def test_lone_spins_are_exact_however_long_the_step(self, up):
        # After a time t an up-spin is up with p = (b + a e^(-t)) / (a + b), a down-spin with q, a + b = 1.
        state = leaps(Spins(), SpinLeap(2.0, 1), (up, 40 - up), 1)
        p, q = 0.3 + 0.7 * np.exp(-2), 0.3 - 0.3 * np.exp(-2)
        variance = up * p * (1 - p) + (40 - up) * q * (1 - q)
        assert max(off(state.n[0], up * p + (40 - up) * q, variance)) < SIGMAS
        assert (state.n[0] + state.n[1] == 40).all()

    def test_a_plain_probability_of_turning_would_show(self):
        state = leaps(Spins(), SpinLeap(2.0, 1), (40, 0), 1)
        plain = np.exp(-0.7 * 2)
        assert off(state.n[0], 40 * plain, 40 * plain * (1 - plain))[0] > SIGMAS

    def test_what_landed_books_is_seen_once(self):
        # Each half step is booked on its own, and their sum is the whole step.
        law = Spins()
        law.drift = lambda state, drive, params: State((0 * state.n[0],) * 2, 0 * state.heat)
        state = leaps(law, SpinLeap(0.5, 1), (40, 0), 6)
        assert (state.heat == 40 - state.n[0]).all()

    def test_spins_that_pull_on_each_other_fluctuate_as_they_should(self):
        # The stationary law follows from the ratios of rates, by detailed balance.
        law = Spins(0.5, 0.5, pull=0.8)
        ups = np.arange(31)
        states = State((jnp.asarray(ups, jnp.float32), jnp.asarray(30 - ups, jnp.float32)), jnp.zeros(31))
        down, up = (np.asarray(a, np.float64) for a in law.propensities(states, None, None))
        share = np.concatenate([[1], np.cumprod(up[:-1] / down[1:])])
        share = share / share.sum()
        variance = share @ (ups - 15.0) ** 2
        got = np.asarray(leaps(law, SpinLeap(0.2, 1), (15, 15), 120).n[0])
        square = (got - 15.0) ** 2
        error = square.std() / np.sqrt(CLONES)
        assert abs(square.mean() - variance) < SIGMAS * error + 0.005 * variance
        assert error < 0.005 * variance

    @pytest.mark.parametrize(
        "changes",
        [((-1, 1), (-1, 1)), ((-2, 1), (2, -1)), ((-1, 0), (1, 0)), ((-1, 1),)],
        ids=["one way", "two at once", "births and deaths", "no way back"],
    )
    def test_reactions_other_than_reversible_pairs_are_refused(self, changes):
        law = Spins()
        law.changes = changes
        with pytest.raises(UnsupportedLaw, match="world spins has"):
            leaps(law, SpinLeap(0.1, 1), (4, 4), 1)

    def test_pairs_that_share_a_count_are_refused(self):
        law = Spins()
        law.changes = ((-1, 1, 0), (1, -1, 0), (-1, 0, 1), (1, 0, -1))
        with pytest.raises(UnsupportedLaw, match="no separate reversible pairs"):
            leaps(law, SpinLeap(0.1, 1), (4, 4, 4), 1)


class TestTrapezoidLeap:
    def test_variances_are_right_where_those_of_the_midpoint_leap_are_not(self):
        # Steps of a tenth of a molecule's life.
        ours, midpoint = (leaps(Tank(), leap(0.02, 1), (4,), 100).n[0] for leap in (TrapezoidLeap, TauLeap))
        error = np.sqrt(3 / CLONES)  # relative, of the variance of a Poisson law with mean 4
        assert abs(float(ours.mean()) - 4) < SIGMAS * np.sqrt(4 / CLONES)
        assert abs(float(ours.var()) / 4 - 1) < SIGMAS * error + 0.005
        assert float(midpoint.var()) / 4 - 1 > SIGMAS * error + 0.02

    def test_no_count_turns_negative(self):
        assert float(leaps(Tank(), TrapezoidLeap(0.3, 1), (4,), 20).n[0].min()) >= 0
