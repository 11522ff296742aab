"""Gradients of fit losses against their forward pass, 8 free numbers, and against diffrax.

The loss of the oracles' fit: B2's compact theory, 16 protocols x 8 replays, by `oracles.fit`. The loss of a
bare law: C2 as a world, squared means and sds of a window of each sensor. Its cost is nearly all the law's,
without random numbers to share, so it is the harder of the two. The rivals solve the same law by diffrax, by
the same Runge-Kutta scheme with the same fixed steps, and differentiate by its two adjoints; they read at the
ticks' ends, which is less work than a tick's mean.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from experiments.benchmarks.adaptive import classical
from experiments.benchmarks.harness import Ratio, Row, Tell, Timing, installed, race, ratio
from oracles.fit import FitData, FitSettings, block_statistics, fit_loss
from oracles.prior import god_theory
from oracles.registry import compact_theory
from oracles.theory import NO_HISTORY, replay
from simworlds.catalogue import load
from simworlds.gradients import mode_for, value_and_grad, window_statistics
from simworlds.keys import Noise, key_for, role_words

NAME = "gradient"
TITLE = "Gradients of fit losses against the forward pass"

NUMBERS = 8
LIMIT = 8.0
TARGET = f"at most {LIMIT:.0f} times the forward pass"
SMALL, LARGE = 16, 1024  # protocols
TICKS = 8  # of the bare law


class Problem(NamedTuple):
    """A loss over a vector of free numbers ``[number]``, where to differentiate it, and how wide it is."""

    loss: Callable[[jax.Array], jax.Array]
    at: jax.Array
    trajectories: int


def fit_problem(ticks: int = FitSettings.ticks) -> Problem:
    """The fit of B2's oracle: two closure constants, four mortalities, the pigment's decay, the volume."""
    world, settings = load("B2"), FitSettings()
    kind = compact_theory("B2")
    assert kind is not None
    instance = world.instance(0, redraws=0)
    god = god_theory(kind, instance)
    levels = _protocols(len(world.drives), settings.protocols, ticks)
    keys = jax.random.split(key_for("B2", 0, "benchmark", "truth"), settings.protocols)
    truth = jax.jit(replay, static_argnums=4)(god, levels, NO_HISTORY, keys, settings.clones)
    blocks = block_statistics(truth, settings.block)
    data = FitData(levels, blocks, jnp.ones((len(blocks), blocks.shape[2])), jnp.ones(blocks.shape[3]))
    chosen = lambda t: (t.closure, t.law.loss, t.law.k_P, t.law.V)  # noqa: E731
    flat, tree_of = ravel_pytree(chosen(god))
    unit = jnp.where(flat == 0, 1, jnp.abs(flat))
    key = key_for("B2", 0, "benchmark", "replays")

    def loss(x: jax.Array) -> jax.Array:
        free, fixed = eqx.partition(eqx.tree_at(chosen, god, tree_of(flat + unit * x)), eqx.is_inexact_array)
        return fit_loss(free, fixed, data, key, settings.block)

    return Problem(loss, jnp.full(NUMBERS, 0.01, jnp.float32), settings.protocols * kind.fit_replays)


def law_problem(protocols: int) -> Problem:
    """The bare law of C2: its seven parameters as factors, and an offset of all levels."""
    world = load("C2")
    levels = _protocols(len(world.drives), protocols, TICKS)

    def loss(x: jax.Array) -> jax.Array:
        params = _scaled(x)

        def one(rows: jax.Array) -> Any:
            found = window_statistics(world, params, rows + x[-1], (2, TICKS))
            return found.mean[0], found.sd[0]

        mean, sd = jax.vmap(one)(levels)
        return jnp.mean(mean**2) + jnp.mean(sd**2)

    return Problem(loss, _start(), protocols)


def diffrax_problem(protocols: int, adjoint: Any) -> Problem:
    """The same by diffrax: its steps, controller and adjoint, vmapped over protocols."""
    import diffrax

    world = load("C2")
    levels = _protocols(len(world.drives), protocols, TICKS)
    scheme = world.scheme
    times = scheme.tick_time * jnp.arange(1, TICKS + 1, dtype=jnp.float32)

    def loss(x: jax.Array) -> jax.Array:
        params = _scaled(x)

        def one(rows: jax.Array) -> Any:
            def drive(t: Any) -> Any:
                return rows[jnp.clip((t / scheme.tick_time).astype(int), 0, TICKS - 1)] + x[-1]

            start = world.initial(params, Noise(role_words("C2", 0, "initial", "benchmark"), jnp.uint32(0)))
            found = diffrax.diffeqsolve(
                world.terms(params, drive),
                classical(),
                0.0,
                scheme.tick_time * TICKS,
                scheme.dt,
                jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), start),
                saveat=diffrax.SaveAt(ts=times),
                stepsize_controller=diffrax.ConstantStepSize(),
                adjoint=adjoint,
                max_steps=TICKS * scheme.substeps + 64,
            )
            read = jax.vmap(lambda state, row: world.read(state, world.physical(row), params))
            readings = jnp.stack(read(found.ys, rows + x[-1]), axis=-1)[2:]
            return readings.mean(0), jnp.sqrt(readings.var(0) + 1e-12)

        mean, sd = jax.vmap(one)(levels)
        return jnp.mean(mean**2) + jnp.mean(sd**2)

    return Problem(loss, _start(), protocols)


def _protocols(drives: int, protocols: int, ticks: int) -> jax.Array:
    """Random levels ``[protocol, tick, drive]``, held for 8 ticks."""
    key = key_for("C2", 0, "benchmark", "levels", drives)
    rows = jax.random.uniform(key, (protocols, -(-ticks // 8), drives), minval=0.3, maxval=0.7)
    return jnp.repeat(rows, 8, axis=1)[:, :ticks]


def _scaled(x: jax.Array) -> Any:
    flat, tree_of = ravel_pytree(
        jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), load("C2").instance(0, redraws=0).params)
    )
    return tree_of(flat * x[:-1])


def _start() -> jax.Array:
    return jnp.asarray([1.01] * (NUMBERS - 1) + [0.0], jnp.float32)


def both_modes(problem: Problem) -> dict[str, Callable[[], Any]]:
    """Compiled parties: the forward pass, and value and gradient in each mode."""
    parties: dict[str, Callable[[], Any]] = {"value": _party(problem.loss, problem.at)}
    for mode in ("forward", "reverse"):
        parties[mode] = _party(value_and_grad(problem.loss, mode=mode), problem.at)
    return parties


def _party(function: Callable[[Any], Any], at: jax.Array) -> Callable[[], Any]:
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(at))


def _row(name: str, chosen: str, times: dict[str, Timing], rivals: dict[str, Ratio], more: str) -> Row:
    ratios = {mode: ratio(times[mode], times["value"]) for mode in ("forward", "reverse")}
    figure = f"{ratios[chosen]} times ({chosen} mode, by the rule)"
    detail = {
        "seconds": {party: timing.to_json() for party, timing in times.items()},
        "times the forward pass": {mode: found._asdict() for mode, found in ratios.items()},
    }
    other = "reverse" if chosen == "forward" else "forward"
    note = f"{other} mode: {ratios[other]}. {more}"
    return Row(name, figure, TARGET, ratios[chosen].median, LIMIT, rivals=rivals, detail=detail, note=note)


def rows(quick: bool, tell: Tell) -> list[Row]:
    """The oracle's fit loss, and that of a bare law on a small and (unless `quick`) on a large batch."""
    repeats = 3 if quick else 9
    tell("gradient of the oracle's fit loss, B2, 8 numbers")
    problem = fit_problem()
    times, chosen = race(both_modes(problem), repeats), mode_for(problem.at, problem.trajectories)
    found = [
        _row("gradient, oracle's fit loss, 8 numbers", chosen, times, {}, "B2, 16 protocols x 8 replays.")
    ]
    for protocols in (SMALL,) if quick else (SMALL, LARGE):
        tell(f"gradient through the law of C2, {protocols} protocols")
        problem = law_problem(protocols)
        parties, chosen = both_modes(problem), mode_for(problem.at, protocols)
        if protocols == SMALL and installed("diffrax"):
            import diffrax

            adjoints = {
                "diffrax, reverse": ("reverse", diffrax.RecursiveCheckpointAdjoint()),
                "diffrax, forward": ("forward", diffrax.ForwardMode()),
            }
            for name, (mode, adjoint) in adjoints.items():
                rival = diffrax_problem(protocols, adjoint)
                parties[name] = _party(value_and_grad(rival.loss, mode=mode), rival.at)
        times = race(parties, repeats)
        rivals = {name: ratio(times[chosen], times[name]) for name in times if name.startswith("diffrax")}
        name = f"gradient, bare law, {protocols} protocols, 8 numbers"
        found.append(_row(name, chosen, times, rivals, f"C2, {TICKS} ticks."))
    return found
