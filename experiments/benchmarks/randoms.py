"""Random numbers inside a loop over steps: addressed draws against those of `jax.random`, law by law.

Both draw one number a clone and step and add it up. Ours come from (clone, step, component), whoever else is
in the batch. The rival that can do the same folds the step into a key for each clone, and so hashes twice.
The one that takes a key a step for the whole batch is given for comparison: there a clone's numbers depend
on its batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.benchmarks.harness import Row, Tell, race, ratio
from simworlds.keys import (
    binomial_from,
    bits,
    clone_words,
    key_for,
    normal_from,
    poisson_from,
    role_words,
    unit_interval,
)

NAME, TITLE = "randoms", "Random numbers, addressed by clone and step"
CLONES = 10_000
ADDRESS = ("benchmark", 0, "process")
TRIALS = 64.0


class Sampler(NamedTuple):
    """A law: from one of our words and a parameter, and from a key of jax and a parameter.

    Attributes:
        name: of the law.
        least: how many times as fast as the per-clone rival it should be.
        ours: draws from words and parameters.
        theirs: draws from a key and parameters of any shape.
        top: the largest parameter; those of the clones are spread evenly from 0 to it.
    """

    name: str
    least: float
    ours: Callable[[Any, Any], Any]
    theirs: Callable[[Any, Any], Any]
    top: float


SAMPLERS = (
    Sampler(
        "normal",
        2.0,
        lambda word, _: normal_from(word),
        lambda key, parameter: jax.random.normal(key, parameter.shape),
        1.0,
    ),
    Sampler(
        "Poisson, means to 20",
        20.0,
        lambda word, mean: poisson_from(unit_interval(word), mean),
        lambda key, mean: jax.random.poisson(key, mean, mean.shape).astype(jnp.float32),
        20.0,
    ),
    Sampler(
        f"binomial, {TRIALS:g} trials",
        20.0,
        lambda word, p: binomial_from(unit_interval(word), TRIALS, p),
        lambda key, p: jax.random.binomial(key, TRIALS, p, p.shape),
        0.5,
    ),
)


def parameters(sampler: Sampler, clones: int) -> jax.Array:
    """The clones' parameters, in an order in which neighbours differ."""
    return sampler.top * ((jnp.arange(clones) * 617) % clones + 0.5).astype(jnp.float32) / clones


def _over_steps(draw: Callable[[Any], Any], clones: int, steps: int) -> Any:
    def body(step: Any, total: Any) -> Any:
        return total + draw(step.astype(jnp.uint32))

    return jax.lax.fori_loop(0, steps, body, jnp.zeros(clones, jnp.float32))


@partial(jax.jit, static_argnums=(0, 2))
def addressed(sampler: Sampler, parameter: Any, steps: int) -> Any:
    """The sum of each clone's draws over the steps, ``[clone]``: ours."""
    clones = parameter.shape[0]
    keys = clone_words(role_words(*ADDRESS), jnp.arange(clones, dtype=jnp.uint32))
    return _over_steps(lambda step: sampler.ours(bits(keys, step, jnp.uint32(0)), parameter), clones, steps)


@partial(jax.jit, static_argnums=(0, 2))
def per_clone(sampler: Sampler, parameter: Any, steps: int) -> Any:
    """The same by `jax.random`, a key folded for each clone and step."""
    clones = parameter.shape[0]
    keys = jax.vmap(partial(jax.random.fold_in, key_for(*ADDRESS)))(jnp.arange(clones, dtype=jnp.uint32))

    def draw(step: Any) -> Any:
        return jax.vmap(lambda key, p: sampler.theirs(jax.random.fold_in(key, step), p))(keys, parameter)

    return _over_steps(draw, clones, steps)


@partial(jax.jit, static_argnums=(0, 2))
def per_batch(sampler: Sampler, parameter: Any, steps: int) -> Any:
    """The same by `jax.random`, one key a step for the whole batch."""
    key = key_for(*ADDRESS)
    return _over_steps(
        lambda step: sampler.theirs(jax.random.fold_in(key, step), parameter), parameter.shape[0], steps
    )


PARTIES = {"addressed": addressed, "a key for each clone": per_clone, "a key for each step": per_batch}


def agreement(sampler: Sampler, clones: int, steps: int) -> float:
    """How far the means of the parties lie apart over all draws, at most, in standard errors of one."""
    parameter = parameters(sampler, clones)
    sums = [run(sampler, parameter, steps) for run in PARTIES.values()]
    means = [float(jnp.mean(total)) / steps for total in sums]
    error = float(jnp.std(sums[0] - steps * _mean_of(sampler, parameter))) / steps / clones**0.5
    return (max(means) - min(means)) / error


def _mean_of(sampler: Sampler, parameter: jax.Array) -> jax.Array:
    known = {"normal": jnp.zeros_like(parameter), "Poisson": parameter, "binomial": TRIALS * parameter}
    return known[sampler.name.split(",")[0]]


def rows(quick: bool, tell: Tell) -> list[Row]:
    """One row a law: how many times as fast as `jax.random` with a key for each clone."""
    steps, repeats = (10, 3) if quick else (50, 7)
    made = []
    for sampler in SAMPLERS:
        tell(f"random numbers: {sampler.name}")
        parameter = parameters(sampler, CLONES)
        runs = {
            name: partial(lambda run, s, p: run(s, p, steps).block_until_ready(), run, sampler, parameter)
            for name, run in PARTIES.items()
        }
        times = race(runs, repeats)
        ours = times["addressed"]
        rivals = {
            f"jax.random, {name}": ratio(ours, time) for name, time in times.items() if time is not ours
        }
        nearest = rivals["jax.random, a key for each clone"]
        draws = CLONES * steps
        nanoseconds = {f"{name}, ns a draw": 1e9 * time.cpu / draws for name, time in times.items()}
        made.append(
            Row(
                name=f"draws: {sampler.name}",
                figure=f"{1 / nearest.median:.1f} times as fast ({1e9 * ours.cpu / draws:.1f} ns a draw)",
                target=f"at least {sampler.least:g} times as fast as per-clone jax.random",
                value=1 / nearest.median,
                limit=sampler.least,
                smaller_is_better=False,
                rivals=rivals,
                detail=nanoseconds | {"means apart, standard errors": agreement(sampler, CLONES, steps)},
                note=f"{CLONES:,} clones x {steps} steps, float32, CPU time",
            )
        )
    return made
