"""B2: exact simulation, the advantage of a head start, the step, the parameters.

Fixation, neutrality and the R* rule stand in `experiments/validation/b2_contest.py`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.b2_contest import exact_fixation, moran, rivals, share_of
from simworlds.catalogue import load
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.exact import ssa_network
from simworlds.families.b2_contest import Contest
from simworlds.integrate import advance
from simworlds.keys import Draws, Noise, Words, key_for, role_words

WORLD = load("B2")
RUNS = 4096
SIGMAS = 4


class Halved(Contest):
    scheme = Contest.scheme.refined(2)


HALVED = Halved()


def words(*address):
    return Words(*(jnp.uint32(x) for x in role_words("B2", 0, "test", *address)))


class TestExactSimulation:
    """The direct method on laws whose outcome is known in closed form."""

    @staticmethod
    def pure_deaths(n, **options):
        keys = jax.random.split(key_for("B2", 0, "test", "deaths"), RUNS)
        counts = jnp.array([float(n)])
        return jax.vmap(lambda k: ssa_network(lambda c: c, np.array([[-1]]), counts, key=k, **options))(keys)

    def test_survivors_are_binomial(self):
        alive = np.asarray(self.pure_deaths(20, until=0.7).counts[:, 0])
        p = np.exp(-0.7)
        assert abs(alive.mean() - 20 * p) < SIGMAS * np.sqrt(20 * p * (1 - p) / RUNS)
        # The variance of a sample variance of a near-normal law is 2 v^2 / n.
        assert abs(alive.var() / (20 * p * (1 - p)) - 1) < SIGMAS * np.sqrt(2 / RUNS)

    def test_the_last_death_is_the_longest_of_exponential_lives(self):
        end = self.pure_deaths(20)
        mean, variance = sum(1 / k for k in range(1, 21)), sum(1 / k**2 for k in range(1, 21))
        assert end.finished.all()
        assert (end.events == 20).all()
        assert abs(float(end.time.mean()) - mean) < SIGMAS * np.sqrt(variance / RUNS)

    def test_a_run_that_is_cut_off_says_so(self):
        end = self.pure_deaths(20, max_events=5)
        assert not end.finished.any()
        assert (end.counts == 15).all()

    def test_a_five_percent_error_in_the_rates_would_show(self):
        share, error = exact_fixation(1.05, 5, 100, RUNS)
        assert abs(share - moran(1.05, 5, 100)) < SIGMAS * error
        assert abs(share - moran(1.0, 5, 100)) > SIGMAS * error


class TestFounderControl:
    def test_a_head_start_counts_for_more_than_its_share(self):
        """Neutral species would give 9/21 to the first."""
        left = rivals((9.0, 6.0, 6.0), RUNS)
        (first, error), (second, _), (third, _) = (share_of(left[:, k]) for k in range(3))
        assert first - 9 / 21 > SIGMAS * error
        assert abs(second - third) < SIGMAS * np.sqrt((second + third) / RUNS)


def statistics(seed, protocols, clones, purpose, world=WORLD, change=lambda params: params):
    """Sensor means and sds over the last 16 ticks, and the outcome: ``[protocol, clone, statistic]``."""
    instance = WORLD.instance(seed, redraws=0).canonical()
    instance = dataclasses.replace(instance, world=world, params=change(instance.params))
    draws = [Draws.for_role("B2", seed, "test", "protocol", k) for k in range(protocols)]
    requests = [Request(grammar_protocol(instance, d), (purpose, k)) for k, d in enumerate(draws)]
    got = simulate(instance, requests, clones, noise=False)
    ends = [request.protocol.ticks for request in requests]
    cut = np.stack([got.values[k, :, end - 16 : end] for k, end in enumerate(ends)]).astype(float)
    outcome = got.branch[..., None] == np.arange(len(world.branches))
    return np.concatenate([cut.mean(2), cut.std(2), outcome], -1)


def differences(seed, protocols, clones, **other):
    """How many statistics have means that are more than 4 standard errors apart from those of the world."""
    first = statistics(seed, protocols, clones, "own")
    second = statistics(seed, protocols, clones, "other", **other)
    error = np.sqrt((first.var(1) + second.var(1)) / clones)
    return int(np.sum(np.abs(first.mean(1) - second.mean(1)) > SIGMAS * error + 1e-6))


class TestStep:
    @pytest.mark.parametrize("seed", range(2))
    def test_half_the_step_gives_the_same_statistics(self, seed):
        assert differences(seed, 2, 256, world=HALVED) == 0

    @pytest.mark.validation
    @pytest.mark.parametrize("seed", range(8))
    def test_half_the_step_gives_the_same_statistics_on_many_clones(self, seed):
        assert differences(seed, 3, 1024, world=HALVED) == 0

    def test_a_faster_growth_of_five_percent_would_show(self):
        assert (
            differences(0, 2, 256, change=lambda params: params._replace(mu=params.mu * np.float32(1.05))) > 0
        )


class TestParameters:
    """Every element of every parameter moves some sensor, so nothing derived from one is kept."""

    def test_each_element_moves_a_sensor(self):
        seeds = (WORLD.instance(seed, redraws=0).params for seed in range(100))
        params = next(p for p in seeds if (p.inoculum > 0).all() and (p.A > 0).sum() == 12)
        # Large cultures, in which no rate is too small to change a count.
        leaves, tree = jax.tree.flatten(params._replace(inoculum=np.full(4, 60, np.float32)))
        names, rows = ["nothing"], [leaves]
        for k, (name, leaf) in enumerate(zip(params._fields, leaves, strict=True)):
            for at in np.ndindex(leaf.shape):
                changed = leaf.copy()
                changed[at] = 3 * changed[at] or 0.5
                names.append(f"{name}{list(at)}")
                rows.append([*leaves[:k], changed, *leaves[k + 1 :]])
        stacked = jax.tree.unflatten(tree, [jnp.stack(column) for column in zip(*rows, strict=True)])
        read = np.asarray(self.readings(stacked))
        apart = np.abs(read - read[0]).max(axis=(1, 2))
        still = [name for name, moved in zip(names[1:], apart[1:], strict=True) if moved < 1e-4]
        assert len(names) == 1 + sum(leaf.size for leaf in leaves)
        assert still == []

    @staticmethod
    @jax.jit
    @jax.vmap
    def readings(params):
        """Noise-free readings ``[tick, sensor]`` of a clone at rest; all parameters meet the same noise."""
        start = WORLD.initial(params, Noise(words("parameters", "initial"), jnp.uint32(0)))
        levels = WORLD.physical(jnp.asarray(WORLD.rest, jnp.float32))

        def tick(state, t):
            state, read = advance(WORLD, params, state, levels, words("parameters", "process"), t)
            return state, jnp.stack(read)

        return jax.lax.scan(tick, start, jnp.arange(48, dtype=jnp.int32))[1]
