"""Which module holds the checks of which world; imported when asked for."""

import importlib
from collections.abc import Iterable

from experiments.validation.check import Check

_MODULES = {
    "A1": "a1_magnet",
    "A2": "a2_ratchet",
    "A3": "a3_lattice_conveyor",
    "A4": "a4_choir",
    "B1": "b1_closing_film",
    "B2": "b2_contest",
    "B3": "b3_swarm",
    "B4": "b4_handedness",
    "C1": "c1_relay",
    "C2": "c2_chemical_clock",
    "C3": "c3_food_chain",
    "C4": "c4_homeostat",
    "D1": "d1_delayed_regulator",
    "D2": "d2_latched_network",
    "D3": "d3_excitable_cell",
    "D4": "d4_resonator",
}


def modules_of(world: str) -> tuple[str, ...]:
    """The names of the modules that hold a world's checks."""
    return (f"experiments.validation.{_MODULES[world]}",) if world in _MODULES else ()


def checks_of(worlds: Iterable[str]) -> list[Check]:
    """The checks of some worlds by identifier; a world without any adds none."""
    modules = [importlib.import_module(name) for world in worlds for name in modules_of(world)]
    return [check for module in modules for check in module.checks()]
