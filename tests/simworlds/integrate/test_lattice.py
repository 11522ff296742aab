"""Random-sequential updates against a plain loop, bit by bit, and against exact Markov chains."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from experiments.validation.a3_lattice_conveyor import chain, sweeps
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.integrate import RandomSequential, advance, cast
from simworlds.integrate.lattice import half_full, occupied, split
from simworlds.keys import Noise, Words, bits, role_words

WORLD = load("A3")
TUBES = 3
STREAM = role_words("A3", 0, "test", "lattice")
KEY = Words(*(jnp.uint32(x) for x in STREAM))
FAST = {"alpha": 0.9, "beta": 0.7, "Omega_A": 0.6, "Omega_D": 0.4, "speed": 2.0}


def unpacked(cells, N):
    """Occupation of each site, ``[..., tube, site]``."""
    words = np.stack([np.asarray(cell) for cell in cells], axis=-1)[..., None]
    every = (words >> np.arange(32, dtype=np.uint32)) & 1
    every = every.reshape(*every.shape[:-2], -1)
    assert not every[..., N:].any(), "a bit beyond the last site is set"
    return every[..., :N].astype(bool)


class TestSplit:
    @pytest.mark.parametrize("count", [6, 65, 129, 1001, 65536])
    def test_halves_are_those_of_the_long_product(self, count):
        word = np.concatenate([bits(STREAM, np.uint32(0), np.arange(2000, dtype=np.uint32)), [0, 2**32 - 1]])
        whole, uniform = split(jnp.asarray(word, jnp.uint32), jnp.uint32(count), np.float32)
        expected = [divmod(int(w) * count, 2**32) for w in word]
        np.testing.assert_array_equal(whole, [high for high, _ in expected])
        np.testing.assert_allclose(uniform, [low / 2**32 for _, low in expected], atol=2.0**-24)
        assert float(uniform.max()) < 1

    def test_both_precisions_agree(self, x64):
        word = jnp.asarray(bits(STREAM, np.uint32(1), np.arange(4000, dtype=np.uint32)))
        (one, single), (other, double) = (split(word, jnp.uint32(101), d) for d in (np.float32, np.float64))
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(single, double, atol=2.0**-24)
        assert (double.min(), double.max()) == pytest.approx((0, 1), abs=3e-3)

    def test_number_and_uniform_are_unrelated(self):
        n, count = 2**17, 129
        word = jnp.asarray(bits(STREAM, np.uint32(2), np.arange(n, dtype=np.uint32)))
        whole, uniform = (np.asarray(x, float) for x in split(word, jnp.uint32(count), np.float32))
        table = np.histogram2d(whole, uniform, bins=(count, 8), range=((-0.5, count - 0.5), (0, 1)))[0]
        cells = table.size
        score = ((table - n / cells) ** 2).sum() / (n / cells) - (cells - 1)
        assert abs(score) < 4 * np.sqrt(2 * (cells - 1))


def slowly(state, noise, drive, params, scheme):
    """One sweep of each tube, site by site."""
    N, tubes = int(params.N), len(state.cells[0])
    full = unpacked(state.cells, N).copy()
    entered, left = np.zeros(tubes), np.zeros(tubes)
    share = np.float32(scheme.dt) * np.float32(N + 1) / scheme.attempts
    for attempt in range(scheme.attempts):
        for tube in range(tubes):
            word = bits(STREAM, np.uint32(noise), np.uint32(attempt * tubes + tube))
            bond, low = divmod(int(word) * (N + 1), 2**32)
            inside = params.q if params.slow and bond == params.at else 1
            hop = drive["alpha"] if bond == 0 else drive["beta"] if bond == N else inside
            target = bond < N and full[tube, bond]
            exchange = drive["Omega_D" if target else "Omega_A"] / N
            u = low / 2**32
            if u < share * drive["speed"] * hop:
                if (bond == 0 or full[tube, bond - 1]) and not target:
                    entered[tube] += bond == 0
                    left[tube] += bond == N
                    full[tube, bond - 1 : bond] = False
                    full[tube, bond : bond + 1] = True
            elif u < share * drive["speed"] * (hop + exchange) and bond < N:
                full[tube, bond] ^= True
    return full, entered.mean() / scheme.dt, left.mean() / scheme.dt


@pytest.mark.parametrize(("N", "words"), [(5, 1), (64, 2), (100, 4), (128, 4), (200, 8)])
def test_a_sweep_is_that_of_a_plain_loop(N, words):
    scheme = RandomSequential(dt=1.0, substeps=1, attempts=int(2.4 * (N + 1)))
    params = WORLD.limit(N=float(N), slow=1.0, q=0.4, at=float(N // 3))
    where = Noise(KEY, jnp.uint32(7))
    single = cast(params, jnp.float32)
    state = WORLD.initial(single, where)._replace(cells=half_full(where, single.N, TUBES, words))
    drive = WORLD.drive_type(**{name: jnp.float32(x) for name, x in FAST.items()})
    step = jax.jit(partial(scheme.step, WORLD))
    for k in range(3):
        expected = slowly(state, k, FAST, params, scheme)
        state = step(single, state, drive, Noise(KEY, jnp.uint32(k)))
        np.testing.assert_array_equal(unpacked(state.cells, N), expected[0])
        assert (float(state.entry), float(state.exit)) == pytest.approx(expected[1:], rel=1e-6)


class TestExactChain:
    """Occupation of four sites, from empty, at several times: exp(generator t)."""

    N, Q, AT = 4, 0.3, 2

    def error(self, until, rate=1.0):
        """The largest departure of a site's occupation, in standard errors."""
        flow, full = chain(self.N, self.Q, self.AT, FAST)
        expected = expm(rate * flow * until)[:, 0] @ full
        params = WORLD.limit(N=float(self.N), slow=1.0, q=self.Q, at=float(self.AT))
        # Many attempts in little time: their number varies little in the jump process too.
        scheme = dataclasses.replace(sweeps(self.N, until / 2, FAST), attempts=400)
        start = cast(WORLD.initial(cast(params, jnp.float32), Noise(KEY, jnp.uint32(0))), jnp.float32)
        empty = start._replace(cells=(jnp.zeros(16, jnp.uint32),))
        settings = {"clones": 1024, "dtype": np.float32, "scheme": scheme, "state": empty}
        run = Run(WORLD, params, FAST, **settings)
        run.ticks(1)
        rho = unpacked(run.state.cells, self.N).mean((0, 1))
        return np.abs((rho - expected) / np.sqrt(expected * (1 - expected) / (1024 * 16))).max()

    @pytest.mark.parametrize("until", [0.3, 1.0, 4.0])
    def test_transients_are_exact(self, until):
        assert self.error(until) < 4

    def test_rates_off_by_a_tenth_would_show(self):
        assert self.error(0.3, rate=1.1) > 4


class TestTick:
    DRIVE = WORLD.drive_type(*(jnp.float32(x) for x in (0.8, 0.6, 0.0, 0.0, 1.0)))
    PARAMS = cast(WORLD.limit(N=90.0), jnp.float32)

    def run(self, scheme, ticks=3):
        world = type("Stepped", (type(WORLD),), {"scheme": scheme})()
        state = WORLD.initial(self.PARAMS, Noise(KEY, jnp.uint32(0)))
        counts, means = [unpacked(state.cells, 90).sum()], []
        tick = jax.jit(partial(advance, world))
        for k in range(ticks):
            state, mean = tick(self.PARAMS, state, self.DRIVE, KEY, jnp.int32(k))
            counts.append(unpacked(state.cells, 90).sum())
            means.append([float(x) for x in mean])
        return np.array(counts), np.array(means)

    @pytest.mark.parametrize("refinement", [1, 3])
    def test_currents_count_every_passage_of_the_tick(self, refinement):
        scheme = WORLD.scheme.refined(refinement)
        counts, means = self.run(scheme)
        gained = (means[:, 1] - means[:, 0]) * scheme.tick_time * 16
        np.testing.assert_allclose(np.diff(counts), gained, atol=1e-3)

    def test_densities_are_means_over_the_tick(self):
        _, coarse = self.run(RandomSequential(dt=2.0, substeps=1, attempts=520), ticks=1)
        state = WORLD.initial(self.PARAMS, Noise(KEY, jnp.uint32(0)))
        scheme = RandomSequential(dt=2.0, substeps=1, attempts=520)
        after = scheme.step(WORLD, self.PARAMS, state, self.DRIVE, Noise(KEY, jnp.uint32(0)))
        ends = [unpacked(s.cells, 90)[:, :30].mean() for s in (state, after)]
        assert coarse[0, 2] == pytest.approx(np.mean(ends), rel=1e-6)


def test_occupied_counts_within_bounds():
    cells = half_full(Noise(KEY, jnp.uint32(3)), jnp.float32(77), TUBES, 4)
    full = unpacked(cells, 77)
    for start, stop in ((0, 77), (0, 32), (31, 33), (32, 64), (5, 5), (63, 77)):
        count = occupied(cells, jnp.float32(start), jnp.float32(stop))
        assert float(count) == pytest.approx(full[:, start:stop].sum(1).mean())


def test_sites_start_full_with_probability_one_half():
    many = half_full(Noise(KEY, jnp.uint32(4)), jnp.float32(100), 2000, 4)
    full = unpacked(many, 100)
    assert np.abs(full.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(2000)  # the most extreme of 100 sites
    assert abs(full.mean() - 0.5) < 4 * 0.5 / np.sqrt(full.size)


def test_tubes_are_independent():
    """Particles in the left third of tube i against those of tube i + 1, after a warm-up."""
    drive = {"alpha": 0.5, "beta": 0.5, "Omega_A": 0.0, "Omega_D": 0.0, "speed": 1.0}
    run = Run(WORLD, WORLD.limit(N=64.0), drive, clones=96, dtype=np.float32)
    run.ticks(24)
    count = unpacked(run.state.cells, 64)[..., :21].sum(-1).astype(float)
    z = (count - count.mean()) / count.std()
    for lag in (1, 2, 8):
        score = (z[:, lag:] * z[:, :-lag]).sum() / np.sqrt(z[:, lag:].size)
        assert abs(score) < 4
    neighbours = (z[1:] * z[:-1]).sum() / np.sqrt(z[1:].size)
    assert abs(neighbours) < 4
