"""The registry of families: the only module that names world files; open to plug-ins.

A package adds families of its own through entry points of the group ``simworlds.worlds``, each of which names
a `World` subclass; in its pyproject.toml:

    [project.entry-points."simworlds.worlds"]
    X1 = "their_package.their_module:TheirWorld"
"""

import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from simworlds.errors import UnknownWorld
from simworlds.world import World

PLUGINS = "simworlds.worlds"

_FAMILIES = (
    "a1_magnet:Magnet",
    "a2_ratchet:Ratchet",
    "a3_lattice_conveyor:LatticeConveyor",
    "a4_choir:Choir",
    "b1_closing_film:ClosingFilm",
    "b2_contest:Contest",
    "b3_swarm:Swarm",
    "b4_handedness:Handedness",
    "c1_relay:Relay",
    "c2_chemical_clock:ChemicalClock",
    "c3_food_chain:FoodChain",
    "c4_homeostat:Homeostat",
    "d1_delayed_regulator:DelayedRegulator",
    "d2_latched_network:LatchedNetwork",
    "d3_excitable_cell:ExcitableCell",
    "d4_resonator:Resonator",
)


@cache
def _registry() -> dict[str, World]:
    known: dict[str, World] = {}
    for name in _FAMILIES:
        module, family = name.split(":")
        world = getattr(import_module(f"simworlds.families.{module}"), family)()
        known[world.id] = world
    for point in entry_points(group=PLUGINS):
        try:
            world = point.load()()
            if not isinstance(world, World):
                raise TypeError(f"it is no simworlds.World, but {world!r}")
            if world.id in known:
                raise ValueError(f"the identifier {world.id} is taken by {known[world.id]!r}")
        except Exception as fault:  # a broken plug-in must not take the other worlds along
            warnings.warn(f"the world plug-in {point.value!r} is left out: {fault}", stacklevel=2)
        else:
            known[world.id] = world
    return known


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
