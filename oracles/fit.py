"""Gradient fits of compact theories to god-mode calibration ensembles, never to the contracts' truth.

The loss is a proper score. Each protocol of the ensemble is cut into blocks of ticks; in each block, for each
channel, the mean and the sd over the block are statistics like those that contracts ask for. A theory's
replays are an ensemble forecast of them, scored by the fair CRPS over the channel's dynamic range:

    loss = mean over (protocol, block, channel, statistic) of [mean |X - y| - mean |X - X'| / 2] / range

with X, X' over different replays and y over the clones of the true world (Gneiting & Raftery 2007,
doi:10.1198/016214506000001437). Optimiser: Adam (Kingma & Ba 2015, arXiv:1412.6980) with a cosine schedule,
on parameters in units of their prior spread, kept within the prior's range. Gradients come in forward or in
reverse mode by the rule of `simworlds.gradients`: the number of free parameters
and of replays decides.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from oracles.prior import Prior, prior_of
from oracles.theory import NO_HISTORY, CompactTheory, replay
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.gradients import value_and_grad
from simworlds.instance import Instance
from simworlds.keys import Draws, key_for
from simworlds.protocol import held
from simworlds.store import Store, address_of, code_digest
from simworlds.truth import calibrate

Progress = Callable[[int], None]
_CLOSURE_SPREAD, _CLOSURE_RANGE = 0.3, 3.0


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """How a fit is made.

    Attributes:
        protocols: grammar protocols of the calibration ensemble.
        clones: clones of each.
        ticks: the most that a protocol of the ensemble lasts; longer ones are cut.
        block: ticks of a block.
        steps: gradient steps of a fit of everything.
        closure_steps: gradient steps of a fit of the closure's constants alone.
        learning_rate: of Adam at the start, in units of the prior spread.
    """

    protocols: int = 16
    clones: int = 16
    ticks: int = 128
    block: int = 16
    steps: int = 120
    closure_steps: int = 40
    learning_rate: float = 0.08

    def steps_of(self, form: str) -> int:
        """Gradient steps of a fit in god form (the closure alone) or in fitted form."""
        return self.closure_steps if form == "god" else self.steps


class Fit(NamedTuple):
    """A fitted theory, with the loss and the gradient's norm at each step ``[step]``."""

    theory: CompactTheory
    losses: np.ndarray
    gradients: np.ndarray


class FitData(NamedTuple):
    """What a theory is fitted to.

    Attributes:
        levels: ``[protocol, tick, port]``.
        blocks: the true world's `block_statistics` ``[protocol, clone, block, sensor, statistic]``.
        weight: 1 where the whole block lies inside the protocol, else 0 ``[protocol, block]``.
        reach: dynamic range ``[sensor]``.
    """

    levels: Any
    blocks: Any
    weight: Any
    reach: Any


@partial(jax.jit, static_argnums=1)
def block_statistics(readings: Any, block: int) -> Any:
    """Mean and sd (ddof 0) of each whole block: ``[..., tick, sensor] -> [..., block, sensor, 2]``."""
    count = readings.shape[-2] // block
    cut = readings[..., : count * block, :]
    cut = cut.reshape(*cut.shape[:-2], count, block, cut.shape[-1])
    mean = jnp.mean(cut, -2)
    square = jnp.mean((cut - mean[..., None, :]) ** 2, -2)
    return jnp.stack([mean, jnp.sqrt(square + 1e-12)], -1)


def _calibration(instance: Instance, settings: FitSettings, store: Store) -> FitData:
    """The ensemble to fit to, under the role ``fit``."""
    world = instance.world
    requests, levels = [], []
    for k in range(settings.protocols):
        draws = Draws.for_role(world.id, instance.seed, "fit", "protocol", k)
        protocol = grammar_protocol(instance, draws).first(settings.ticks)
        requests.append(Request(protocol, ("fit", k)))
        rows = protocol.levels(instance.drive_ports, instance.rest)
        levels.append(held(rows, settings.ticks))
    readings = simulate(instance, requests, settings.clones).values
    longest = settings.ticks - readings.shape[2]
    readings = np.pad(readings, ((0, 0), (0, 0), (0, longest), (0, 0)), constant_values=np.nan)
    blocks = np.array(block_statistics(readings, settings.block))
    weight = ~np.isnan(blocks[:, 0, :, 0, 0])
    blocks = np.where(weight[:, None, :, None, None], blocks, 0)
    reach = calibrate(instance, store).dynamic_range
    floats = (np.asarray(x, np.float32) for x in (levels, blocks, weight, reach))
    return FitData(*(jnp.asarray(x) for x in floats))


def _mask(theory: CompactTheory, groups: tuple[str, ...]) -> Any:
    """A tree like the theory: True at the float leaves of the groups that a fit may change."""
    nothing = jax.tree.map(lambda _: False, theory)
    chosen = lambda tree: tuple(getattr(tree, group) for group in groups)  # noqa: E731
    return eqx.tree_at(
        chosen, nothing, tuple(jax.tree.map(eqx.is_inexact_array, part) for part in chosen(theory))
    )


def fit_loss(free: Any, fixed: Any, data: FitData, key: jax.Array, block: int) -> Any:
    """The loss of a fit: a fair CRPS in units of each channel's range, averaged; see the module.

    Args:
        free: a theory that holds None in place of whatever is fixed; see ``equinox.partition``.
        fixed: the rest of it.
        data: what it is fitted to.
        key: of the replays.
        block: ticks of a block.
    """
    theory = eqx.combine(free, fixed)
    keys = jax.random.split(key, data.levels.shape[0])
    forecast = block_statistics(replay(theory, data.levels, NO_HISTORY, keys, theory.fit_replays), block)
    members, truth = forecast[:, :, None], data.blocks[:, None, :]
    error = jnp.mean(jnp.abs(members - truth), (1, 2))
    count = theory.fit_replays
    pairs = jnp.abs(forecast[:, :, None] - forecast[:, None, :])
    spread = jnp.sum(pairs, (1, 2)) / (count * (count - 1))
    score = (error - spread / 2) / data.reach[None, None, :, None]
    return jnp.sum(jnp.mean(score, (-1, -2)) * data.weight) / jnp.sum(data.weight)


class _Box(NamedTuple):
    """The scale and the bounds of each free leaf, trees like the free part."""

    unit: Any
    low: Any
    high: Any


def _update(
    free: Any, fixed: Any, box: _Box, state: Any, data: FitData, key: jax.Array, settings: FitSettings
) -> Any:
    replays = data.levels.shape[0] * fixed.fit_replays
    loss, gradient = value_and_grad(fit_loss, trajectories=replays)(free, fixed, data, key, settings.block)
    scaled = jax.tree.map(lambda g, u: jnp.nan_to_num(g) * u, gradient, box.unit)
    updates, state = _optimiser(settings).update(scaled, state)
    moved = jax.tree.map(lambda x, d, u: x + d * u, free, updates, box.unit)
    return jax.tree.map(jnp.clip, moved, box.low, box.high), state, loss, optax.tree.norm(scaled)


@eqx.filter_jit
def _step(free: Any, fixed: Any, box: _Box, state: Any, data: FitData, address: Any, settings: Any) -> Any:
    """One step; `address` is the fit's key and the step's number, which give the replays' key."""
    return _update(free, fixed, box, state, data, jax.random.fold_in(*address), settings)


@partial(jax.jit, static_argnums=0)
def _start(settings: FitSettings, free: Any) -> Any:
    return _optimiser(settings).init(free)


def _optimiser(settings: FitSettings) -> Any:
    schedule = optax.cosine_decay_schedule(settings.learning_rate, settings.steps, alpha=0.05)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


def _like(theory: CompactTheory, leaves: list[np.ndarray], closure: float) -> CompactTheory:
    """A theory's tree with other numbers: leaves of law and ports from a list, one number in the closure."""
    tree, supply = (theory.law, theory.ports), iter(leaves)

    def renumbered(leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        return jnp.asarray(np.broadcast_to(np.asarray(next(supply), leaf.dtype), leaf.shape))

    law, ports = jax.tree.map(renumbered, tree)
    constants = jax.tree.map(lambda x: jnp.asarray(np.full(x.shape, closure, x.dtype)), theory.closure)
    return eqx.tree_at(lambda t: (t.law, t.ports, t.closure), theory, (law, ports, constants))


def _box(theory: CompactTheory, prior: Prior, groups: tuple[str, ...]) -> _Box:
    mask = _mask(theory, groups)
    trees = (
        _like(theory, prior.sd, _CLOSURE_SPREAD),
        _like(theory, prior.low, -_CLOSURE_RANGE),
        _like(theory, prior.high, _CLOSURE_RANGE),
    )
    return _Box(*(eqx.filter(tree, mask) for tree in trees))


def _optimise(
    instance: Instance,
    start: CompactTheory,
    box: _Box,
    groups: tuple[str, ...],
    data: FitData,
    settings: FitSettings,
    progress: Progress | None,
) -> Fit:
    """Gradient steps from a start; the average over the last tenth of the steps is returned."""
    free, fixed = eqx.partition(start, _mask(start, groups))
    state = _start(settings, free)
    key = key_for(instance.world.id, instance.seed, "fit", "replays", "-".join(groups))
    losses, norms, tail = [], [], []
    for k in range(settings.steps):
        address = key, np.asarray(k, np.int32)  # an array, so that one program serves every step
        free, state, loss, norm = _step(free, fixed, box, state, data, address, settings)
        losses.append(loss)
        norms.append(norm)
        if k >= settings.steps - max(settings.steps // 10, 1):
            tail.append(free)
        if progress:
            progress(1)
    mean = jax.tree.map(_average, *tail)
    return Fit(eqx.combine(mean, fixed), np.array(losses, np.float64), np.array(norms, np.float64))


def _average(*leaves: Any) -> jax.Array:
    """The mean of arrays, taken on the host: a program for each shape would cost more."""
    numbers = np.asarray(jax.device_get(leaves))
    return jnp.asarray(sum(numbers) / numbers.dtype.type(len(leaves)))


def fit_theory(
    instance: Instance,
    god: CompactTheory,
    form: str,
    settings: FitSettings | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Fit a compact theory to an instance; the result is cached.

    Args:
        instance: the instance, god-mode side.
        god: its theory with god-mode parameters.
        form: ``"god"`` keeps them and fits the closure's constants; ``"fitted"`` starts law and ports at the
            family's prior mean and fits everything but structure.
        settings: how; the default if None.
        store: where fits are kept; the default store if None.
        progress: called with the number of steps made.

    Returns:
        The fit. A theory in god form without closure constants is returned as it is, with empty curves.
    """
    settings, store = settings or FitSettings(), store or Store()
    if form not in ("god", "fitted"):
        raise ValueError(f"`form` must be 'god' or 'fitted', but is {form!r}")
    groups = ("closure",) if form == "god" else ("law", "ports", "closure")
    settings = dataclasses.replace(settings, steps=settings.steps_of(form))
    if form == "god" and not jax.tree.leaves(god.closure):
        return Fit(god, np.empty(0), np.empty(0))

    def compute() -> dict[str, np.ndarray]:
        prior = prior_of(instance.world, type(god), store)
        start = god if form == "god" else _like(god, prior.mean, 0.0)
        data = _calibration(instance, settings, store)
        fit = _optimise(instance, start, _box(god, prior, groups), groups, data, settings, progress)
        leaves = [np.asarray(x) for x in jax.tree.leaves(fit.theory)]
        return {"losses": fit.losses, "gradients": fit.gradients} | {
            f"leaf{k:03}": x for k, x in enumerate(leaves)
        }

    how = {"form": form, "settings": dataclasses.asdict(settings)}
    code = code_digest(
        type(god), "oracles.fit", "oracles.theory", "oracles.chance", "oracles.prior", "simworlds.gradients"
    )
    found = store.fetch(address_of(instance, "fit", theory=code, **how), compute)
    leaves = [jnp.asarray(found[name]) for name in sorted(found) if name.startswith("leaf")]
    theory = jax.tree.unflatten(jax.tree.structure(god), leaves)
    return Fit(theory, found["losses"], found["gradients"])
