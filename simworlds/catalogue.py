"""The registry of families: the only module that names world files."""

from collections.abc import Iterator
from functools import cache

from simworlds.errors import UnknownWorld
from simworlds.families.a4_choir import Choir
from simworlds.families.b2_contest import Contest
from simworlds.families.c2_chemical_clock import ChemicalClock
from simworlds.families.d4_resonator import Resonator
from simworlds.world import World


@cache
def _registry() -> dict[str, World]:
    families = (Choir(), Contest(), ChemicalClock(), Resonator())
    return {world.id: world for world in families}


def worlds() -> Iterator[World]:
    """All registered families, in the order of their identifiers."""
    return iter(sorted(_registry().values(), key=lambda world: world.id))


def load(name: str) -> World:
    """The family of an identifier such as ``"B2"`` or a title such as ``"Contest"``, in any case.

    Raises:
        UnknownWorld: if there is none; the message lists those that there are.
    """
    wanted = str(name).strip().casefold()
    for world in worlds():
        if wanted in (world.id.casefold(), world.title.casefold()):
            return world
    known = ", ".join(f"{world.id} ({world.title})" for world in worlds())
    raise UnknownWorld(f"there is no world {name!r}; the worlds are {known}")
