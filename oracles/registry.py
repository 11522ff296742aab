"""Which compact oracle answers for which family; the only module that names theory files."""

import importlib

from oracles.theory import CompactTheory

# A theory is imported when it is asked for: a command on one family pays for one.
_THEORIES = {
    "A4": ("a4_choir", "ChoirTheory"),
    "B2": ("b2_contest", "ContestTheory"),
    "C2": ("c2_chemical_clock", "ChemicalClockTheory"),
    "D4": ("d4_resonator", "ResonatorTheory"),
}


def compact_theory(world_id: str) -> type[CompactTheory] | None:
    """The compact oracle of a family, or None if it has none."""
    if world_id not in _THEORIES:
        return None
    module, name = _THEORIES[world_id]
    return getattr(importlib.import_module(f"oracles.theories.{module}"), name)
