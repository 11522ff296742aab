"""A laboratory of simulated worlds whose laws are hidden from whoever explores them.

import simworlds
instance = simworlds.load("B2").instance(seed=0)
session = instance.session()
readings = session.run([{"ticks": 40, "set": {"u0": 0.8}}, {"ticks": 88}])
"""

from typing import Any

_PUBLIC = {
    "load": "simworlds.catalogue",
    "worlds": "simworlds.catalogue",
    "measure": "simworlds.ensemble",
    "measure_each": "simworlds.ensemble",
    "measure_adaptive": "simworlds.adaptive",
    "summarise": "simworlds.ensemble",
    "simulate": "simworlds.ensemble",
    "Request": "simworlds.ensemble",
    "Readout": "simworlds.ensemble",
    "Session": "simworlds.session",
    "Budget": "simworlds.instance",
    "Instance": "simworlds.instance",
    "World": "simworlds.world",
    "SimworldsError": "simworlds.errors",
    "start_jax": "simworlds.startup",
}

__all__ = [
    "Budget",
    "Instance",
    "Readout",
    "Request",
    "Session",
    "SimworldsError",
    "World",
    "load",
    "measure",
    "measure_adaptive",
    "measure_each",
    "simulate",
    "start_jax",
    "summarise",
    "worlds",
]


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that importing the package costs nothing."""
    if name in _PUBLIC:
        import importlib

        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'simworlds' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
