"""Checks that every family must pass, whatever its law: its step, its types, its derivatives."""

import dataclasses
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import with_scheme
from simworlds.catalogue import load
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.gradients import window_statistics
from simworlds.instance import Instance
from simworlds.keys import Draws, Noise, Words
from simworlds.protocol import Protocol, held
from simworlds.reference import reference_readings
from simworlds.world import JumpWorld, OdeWorld, World

STEP = 1e-4  # of the nominal range: what a fixed step may change a statistic by, tracks C and D
SINGLE = 1e-3  # of the nominal range: what single precision may, tracks C and D
SLOPE = 1e-4  # relative: by how much derivatives may differ from central differences
SIGMAS = 4.0
SMOOTH_TRACKS = ("C", "D")


def protocols_of(instance: Instance, count: int, purpose: str) -> list[Protocol]:
    """Random protocols of an instance's grammar."""
    draws = Draws.for_role(instance.world.id, instance.seed, purpose)
    return [grammar_protocol(instance, draws) for _ in range(count)]


def window_figures(readings: np.ndarray, instance: Instance, protocol: Protocol) -> np.ndarray:
    """Mean and sd of each sensor at the end of each segment, ``[window, (mean, sd), sensor]``.

    Windows are as long as the grammar's shortest and longest.
    """
    ends = np.cumsum([segment.ticks for segment in protocol.segments])
    windows = [readings[max(0, end - n) : end] for end in ends for n in instance.world.grammar.window]
    return np.stack([(rows.mean(0), rows.std(0)) for rows in windows])


def spans(world: World) -> np.ndarray:
    """The nominal range of each sensor, ``[sensor]``."""
    return np.array([sensor.high - sensor.low for sensor in world.sensors])


@cache
def stepped_statistics(world: World, refinement: int, dtype: Any, seeds: int, count: int) -> np.ndarray:
    """Window statistics of single clones over seeds and protocols, in shares of nominal ranges."""
    found = []
    for seed in range(seeds):
        instance = world.instance(seed).canonical()
        protocols = protocols_of(instance, count, "certificate")
        same = dataclasses.replace(
            instance, world=with_scheme(world, world.scheme.refined(refinement), min(world.lanes, 16))
        )
        requests = [Request(protocol, ("certificate", k)) for k, protocol in enumerate(protocols)]
        with jax.enable_x64(np.dtype(dtype) == np.float64):
            rows = simulate(same, requests, 1, noise=False, dtype=dtype).values[:, 0]
        found += [
            window_figures(r[: p.ticks], instance, p).reshape(-1, r.shape[-1]) / spans(world)
            for r, p in zip(rows, protocols, strict=True)
        ]
    return np.concatenate(found).astype(np.float64)


@cache
def adaptive_statistics(world: OdeWorld, seeds: int, count: int) -> np.ndarray:
    """The same statistics by adaptive solves."""
    found = []
    for seed in range(seeds):
        instance = world.instance(seed).canonical()
        for protocol in protocols_of(instance, count, "certificate"):
            # One length for all, so that one compiled solve serves all.
            rows = reference_readings(world, instance.params, held(instance.levels(protocol), world.horizon))
            found.append(window_figures(rows[: protocol.ticks], instance, protocol))
    return np.concatenate([f.reshape(-1, f.shape[-1]) for f in found]) / spans(world)


def halving_error(world: World, seeds: int = 4, count: int = 3) -> float:
    """The largest change of a window statistic by half the step, in shares of the nominal range."""
    step, half = (stepped_statistics(world, k, np.float64, seeds, count) for k in (1, 2))
    return float(np.abs(step - half).max())


def adaptive_error(world: OdeWorld, refinement: int = 1, seeds: int = 4, count: int = 3) -> float:
    """The largest difference from adaptive solves at 1e-9, in shares of the nominal range."""
    step = stepped_statistics(world, refinement, np.float64, seeds, count)
    return float(np.abs(step - adaptive_statistics(world, seeds, count)).max())


def single_error(world: World, seeds: int = 4, count: int = 3) -> float:
    """The largest difference of float32 from float64, in shares of the nominal range."""
    wide, single = (stepped_statistics(world, 1, dtype, seeds, count) for dtype in (np.float64, np.float32))
    return float(np.abs(wide - single).max())


def halving_sigmas(world: World, seeds: int = 2, count: int = 2, clones: int = 256) -> float:
    """The largest change of an ensemble's mean statistic by half the step, in standard errors."""
    worst = 0.0
    for seed in range(seeds):
        instance = world.instance(seed).canonical()
        protocols = protocols_of(instance, count, "halving")
        means, errors = [], []
        for refinement in (1, 2):
            same = dataclasses.replace(instance, world=with_scheme(world, world.scheme.refined(refinement)))
            requests = [Request(p, ("halving", refinement, k)) for k, p in enumerate(protocols)]
            rows = simulate(same, requests, clones, noise=False).values
            last = np.stack([row[:, p.ticks - 16 : p.ticks] for row, p in zip(rows, protocols, strict=True)])
            values = np.stack([last.mean(2), last.std(2)]) / spans(world)
            means.append(values.mean(2))
            errors.append(values.std(2, ddof=1) / np.sqrt(clones))
        # A statistic that hardly varies is compared to within 1e-6 of its range.
        error = np.hypot(np.hypot(*errors), 1e-6)
        worst = max(worst, float(np.max(np.abs(means[0] - means[1]) / error)))
    return worst


def slope_error(world: World, seed: int = 0, ticks: int = 24, clones: int = 2) -> float:
    """How far derivatives of window statistics are from central differences, along random directions.

    Over parameters and drives together, in float64, relative to the largest; of the family's relaxation where
    it jumps.
    """
    relaxed = world.relaxed()
    with jax.enable_x64(True):
        params = jax.tree.map(partial(jnp.asarray, dtype=jnp.float64), world.instance(seed).params)
        levels = jnp.tile(jnp.clip(jnp.asarray(world.rest), 0.2, 0.8), (ticks, 1))
        draws = Draws.for_role(world.id, seed, "slope")
        toward = jax.tree.map(
            lambda x, free: jnp.asarray(2 * draws.unit(int(np.size(x))).reshape(np.shape(x)) - 1) * x * free,
            params,
            _continuous(relaxed, params),
        )
        tilt = jnp.asarray(2 * draws.unit(levels.size).reshape(levels.shape) - 1)

        @jax.jit
        def along(t: Any) -> Any:
            moved = jax.tree.map(lambda x, d: x + t * d, params, toward)
            found = window_statistics(
                relaxed, moved, levels + t * tilt, (ticks // 2, ticks), clones=clones, seed=seed
            )
            return jnp.stack(found) / jnp.asarray(spans(world))[None, None]

        slope = np.asarray(jax.jit(jax.jacfwd(along))(0.0))
        steps = [np.asarray(along(h) - along(-h)) / (2 * h) for h in (1e-5, 1e-6)]
    difference = min(np.abs(slope - step).max() for step in steps)
    if not np.abs(slope).max() > 0:
        raise ValueError("all derivatives are zero")
    return float(difference / np.abs(slope).max())


def _continuous(world: World, params: Any) -> Any:
    """1 for each number along which trajectories are smooth.

    0 for whole numbers and for those that initial counts are drawn by.
    """

    def start(params: Any) -> Any:
        return world.initial(params, Noise(Words(jnp.uint32(1), jnp.uint32(2)), jnp.uint32(0))).n

    free = jax.tree.map(jnp.ones_like, params)
    free = free._replace(**{name: 0 * getattr(free, name) for name in world.discrete})
    if not isinstance(world, JumpWorld):
        return free
    slopes = jax.jacfwd(start)(params)
    return jax.tree.map(lambda x, *s: x * all(not jnp.any(j) for j in s), free, *slopes)


def checks(name: str) -> Iterator[Check]:
    """The checks of a family by identifier; they run on its instances, not on its limit."""
    world = load(name)

    def check(quantity: str, figure: Any, tolerance: float) -> Check:
        measured = lambda: Measured(figure(world))  # noqa: E731
        return Check(world.id, quantity, 0.0, "step 0 limit", measured, tolerance, slow=True)

    if world.track in SMOOTH_TRACKS:
        yield check("statistics at the step v half of it, share of range", halving_error, STEP)
        if isinstance(world, OdeWorld):
            yield check("statistics v adaptive solve at 1e-9, share of range", adaptive_error, STEP)
        yield check("float32 v float64, share of range", single_error, SINGLE)
    else:
        yield check("ensemble means at the step v half of it, standard errors", halving_sigmas, SIGMAS)
    relaxed = "" if world.scheme.smooth else " of the relaxation"
    yield check(f"derivatives{relaxed} v central differences, relative", slope_error, SLOPE)
