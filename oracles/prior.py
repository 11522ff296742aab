"""The prior of a compact theory's parameters: what the instances of a family have in common."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from oracles.theory import CompactTheory, god_ports
from simworlds.store import Store, code_digest
from simworlds.world import World

_DRAWS = 256


class Prior(NamedTuple):
    """Mean, sd and extremes over draws of each float leaf of ``(law, ports)``: lists of arrays."""

    mean: list[np.ndarray]
    sd: list[np.ndarray]
    low: list[np.ndarray]
    high: list[np.ndarray]


def god_theory(kind: type[CompactTheory], instance: Any) -> CompactTheory:
    """The compact theory of an instance with god-mode parameters."""
    return kind.from_god(instance.params, god_ports(instance.gauge, instance.wiring))


def float_leaves(theory: CompactTheory) -> list[Any]:
    """The float leaves of a theory's law and ports, in a fixed order."""
    return [x for x in jax.tree.leaves((theory.law, theory.ports)) if eqx.is_inexact_array(x)]


def prior_of(world: World, kind: type[CompactTheory], store: Store) -> Prior:
    """The prior over 256 instances of the family.

    Their seeds are strings, so that no public seed is among them.
    """

    def compute() -> dict[str, np.ndarray]:
        drawn = [world.instance(f"prior-{k}", redraws=0) for k in range(_DRAWS)]
        each = [(instance.params, god_ports(instance.gauge, instance.wiring)) for instance in drawn]
        rows = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
        columns = jax.jit(jax.vmap(lambda *row: float_leaves(kind.from_god(*row))))(*rows)
        arrays = {}
        for i, column in enumerate(columns):
            values = np.asarray(column, np.float64)
            for name, statistic in (("mean", np.mean), ("sd", np.std), ("low", np.min), ("high", np.max)):
                arrays[f"{name}{i:03}"] = np.asarray(statistic(values, axis=0))
        return arrays

    code = code_digest(type(world), kind, "simworlds.keys", "simworlds.ports")
    found = store.fetch({"kind": "prior", "world": world.id, "draws": _DRAWS, "code": code}, compute)
    columns = {name: [found[key] for key in sorted(found) if key.startswith(name)] for name in Prior._fields}
    return Prior(**columns)
