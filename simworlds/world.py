"""What a family of worlds states: its law, its ports, how an instance is drawn.

A world file holds equations for one clone and nothing else: no scan, no batching, no solver. The fixed-step
ensemble, diffrax (through `World.terms`) and the docs all take the law from there.
"""

import abc
import dataclasses
from collections import namedtuple
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
import numpy as np

from simworlds.errors import UnsupportedLaw
from simworlds.integrate import Scheme
from simworlds.keys import Draws, Noise

if TYPE_CHECKING:
    from simworlds.instance import Instance


@dataclasses.dataclass(frozen=True)
class Drive:
    """A port to drive: a level in [0, 1] is mapped to a physical value.

    Attributes:
        name: the symbol in the equations.
        low: physical value at level 0.
        high: physical value at level 1.
        rest: the level at rest, in [0, 1].
        unit: of the physical value; empty where the equations are dimensionless.
        log: whether the map is geometric instead of affine.
    """

    name: str
    low: float
    high: float
    rest: float
    unit: str = ""
    log: bool = False

    def physical(self, level: Any) -> Any:
        """The physical value at a level."""
        if self.log:
            return self.low * (self.high / self.low) ** level
        return self.low + (self.high - self.low) * level


@dataclasses.dataclass(frozen=True)
class Sensor:
    """A port to read.

    Attributes:
        name: what it measures.
        low: lower end of the declared nominal range, from which the sensor noise is scaled.
        high: upper end of the nominal range.
        unit: of the reading before its gauge.
    """

    name: str
    low: float
    high: float
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class Grammar:
    """How a family's contracts are composed.

    Attributes:
        segments: fewest and most segments of a protocol.
        ticks: shortest and longest segment.
        window: shortest and longest window.
        changes: fewest and most drives that a segment sets.
        ask: weight of each sensor, by name; one that is absent is never asked about.
        sd_share: share of contracts that ask for an sd (both kinds always occur).
        levels: for a drive, by name, the interval of levels that protocols use; others use [0, 1].
    """

    segments: tuple[int, int]
    ticks: tuple[int, int]
    window: tuple[int, int]
    changes: tuple[int, int]
    ask: dict[str, float]
    sd_share: float = 0.3
    levels: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)


class World(abc.ABC):
    """A family of worlds. A family is a final subclass; its instances carry no data of their own.

    Class attributes state what the family fixes. The methods are written for one clone, over scalars and
    small arrays.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    track: ClassVar[str]
    phenomenon: ClassVar[str]
    law_version: ClassVar[int] = 1
    drives: ClassVar[tuple[Drive, ...]]
    sensors: ClassVar[tuple[Sensor, ...]]
    scheme: ClassVar[Scheme]
    grammar: ClassVar[Grammar]
    branches: ClassVar[tuple[str, ...]] = ("only",)
    discrete: ClassVar[tuple[str, ...]] = ()  # parameters that are whole numbers: no derivative is due
    horizon: ClassVar[int] = 256
    lanes: ClassVar[int] = 128
    mean_fraction: ClassVar[float]
    sd_fraction: ClassVar[float]

    @abc.abstractmethod
    def draw(self, draws: Draws) -> Any:
        """The parameters of an instance: a NamedTuple of float32 arrays, structure flags included."""

    @abc.abstractmethod
    def limit(self, **changes: Any) -> Any:
        """The parameters under which the world is its reference model, with fields replaced by name."""

    @abc.abstractmethod
    def initial(self, params: Any, noise: Noise) -> Any:
        """The initial state of one clone: a NamedTuple of scalars, small arrays or tuples of them."""

    @abc.abstractmethod
    def read(self, state: Any, drive: Any, params: Any) -> tuple[Any, ...]:
        """The instantaneous value of each sensor, in the order of `sensors`."""

    def wrap(self, state: Any) -> Any:
        """The same state with its angles brought back to one turn; called every tick, for precision."""
        return state

    def branch(self, state: Any, params: Any) -> Any:
        """The emergent outcome as an index into `branches`; 0 where the family has none."""
        del state, params
        return jnp.int32(0)

    def relaxed(self) -> "World":
        """A family with the same ports and parameters through which derivatives flow.

        A smooth law is its own relaxation. A law that jumps gives a limit of itself (diffusion, mean field);
        its docstring says which, and the family's card how far its statistics are from the law's.

        Raises:
            UnsupportedLaw: if the law jumps and states no relaxation.
        """
        if self.scheme.smooth:
            return self
        raise UnsupportedLaw(f"world {self.id} jumps and states no relaxation")

    @cached_property
    def drive_type(self) -> Any:
        """A NamedTuple type with one field a drive, in which the law receives physical values."""
        return namedtuple("Drives", [d.name for d in self.drives])

    @property
    def rest(self) -> np.ndarray:
        """The level of each drive at rest, ``[drive]`` in family order."""
        return np.array([d.rest for d in self.drives])

    def physical(self, levels: Any) -> Any:
        """Levels ``[drive]`` in family order as the NamedTuple of physical values that the law takes."""
        return self.drive_type(*(d.physical(levels[k]) for k, d in enumerate(self.drives)))

    def instance(self, seed: int | str, *, redraws: int | None = None) -> "Instance":
        """The instance of this family at a seed.

        Drawn again until it is fit to be explored (see `simworlds.admission`), which takes some ensembles the
        first time; what came of it is kept in the store.

        Args:
            seed: a whole number from 0, or a string.
            redraws: take the draw of this number as it is, 0 being the first, without examining it.

        Raises:
            InvalidSeed: if the seed is neither an integer from 0 to 2^63 - 1 nor a non-empty string.
            Inadmissible: if no draw is fit; says what each lacks.
        """
        from simworlds.admission import admitted
        from simworlds.instance import draw_instance

        return admitted(self, seed) if redraws is None else draw_instance(self, seed, redraws)

    def terms(self, params: Any, levels: Any, *, key: Any = None) -> Any:
        """The law as diffrax terms, so that any diffrax solver runs on it.

        Args:
            params: parameters, as `draw` or `limit` gives them.
            levels: a function of time that returns levels ``[drive]`` in family order.
            key: of the Brownian path of a world with noise; a fixed one if None.

        Raises:
            UnsupportedLaw: if the law is no differential equation: if it jumps, switches or has delays.
        """
        from simworlds.reference import terms

        return terms(self, params, levels, key=key)

    def __repr__(self) -> str:
        return f"<World {self.id} {self.title}>"


class Relaxation(World):
    """A differentiable stand-in for a law that jumps: ports, grammar, parameters and draws are the law's.

    Class attributes:
        law: the family that it stands for; of the attributes in `STATED`, those left out are its.
    """

    STATED: ClassVar[tuple[str, ...]] = (
        "title", "track", "phenomenon", "law_version", "drives", "sensors", "grammar", "branches", "horizon",
        "lanes", "mean_fraction", "sd_fraction",
    )  # fmt: skip
    law: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        for name in cls.STATED:
            if "law" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, getattr(cls.law, name))

    def draw(self, draws: Draws) -> Any:
        """As the law."""
        return self.law.draw(draws)

    def limit(self, **changes: Any) -> Any:
        """As the law."""
        return self.law.limit(**changes)


class OdeWorld(World):
    """A world of ordinary differential equations: `drift` is the whole law."""

    @abc.abstractmethod
    def drift(self, state: Any, drive: Any, params: Any) -> Any:
        """The rate of change of the state, a NamedTuple like it."""


class DelayWorld(World):
    """A world of delay differential equations: the drift also takes the state as it was some time ago.

    Before the start the state was constant, so the past is continuous.

    Class attributes:
        longest_lag: the longest delay that an instance may have, in the world's time units.
    """

    longest_lag: ClassVar[float]

    @abc.abstractmethod
    def lags(self, params: Any) -> tuple[Any, ...]:
        """The delays, in the world's time units: each 0 or at least a step."""

    @abc.abstractmethod
    def drift(self, state: Any, drive: Any, params: Any, past: tuple[Any, ...]) -> Any:
        """The rate of change of the state, a NamedTuple like it; `past` is the state at each lag ago."""

    def remembered(self, state: Any) -> Any:
        """The state with None in the fields that the law never looks back on; so is each state in `past`."""
        return state


class SdeWorld(World):
    """A world with additive noise: ``dx = drift dt + diffusion dW``."""

    @abc.abstractmethod
    def drift(self, state: Any, drive: Any, params: Any) -> Any:
        """The deterministic rate of change of the state, a NamedTuple like it."""

    @abc.abstractmethod
    def diffusion(self, state: Any, drive: Any, params: Any) -> Any:
        """Noise amplitudes, a NamedTuple like the state in which a field without noise is None."""


class AbsorbingWorld(World):
    """A world with additive noise of which one field is absorbed at 0 and reflected at a wall above.

    Class attributes:
        absorbing: the name of that field, which has noise.
        wall: where it is reflected.
    """

    absorbing: ClassVar[str]
    wall: ClassVar[float] = 1.0

    @abc.abstractmethod
    def drift(self, state: Any, drive: Any, params: Any) -> Any:
        """The deterministic rate of change of the state, a NamedTuple like it."""

    @abc.abstractmethod
    def diffusion(self, state: Any, drive: Any, params: Any) -> Any:
        """Noise amplitudes as of an `SdeWorld`; an element of the absorbing field with 0 is not at risk."""

    @abc.abstractmethod
    def landed(self, before: Any, after: Any, hit: Any, drive: Any, params: Any) -> Any:
        """The state after a step, with what absorption did to it; `hit` says which elements were absorbed."""


class SwitchedWorld(World):
    """A world of exponentials between switches of gates: ``T_i dx_i/dt = f_i - x_i``.

    Gate i turns on when x_i rises to its upper edge and off when x_i falls to its lower one. A state has the
    arrays ``x`` and ``b`` (gates, 0 or 1 as floats), and ``rate``, the switches of all gates through a
    first-order filter, ``tau rate' = -rate + sum_k delta(t - t_k)``; its other fields stand still in a tick.
    Sensors are affine in ``x``, ``b`` and ``rate``: `read` receives their means over a tick.

    Class attributes:
        counter_time: the filter's time constant tau, in the world's time units.
    """

    counter_time: ClassVar[float]

    @abc.abstractmethod
    def targets(self, state: Any, drive: Any, params: Any) -> Any:
        """The target f of each x, ``[gate]``; in a tick only ``state.b`` may move it."""

    @abc.abstractmethod
    def times(self, params: Any) -> Any:
        """The time constant T of each x, ``[gate]``."""

    @abc.abstractmethod
    def edges(self, params: Any) -> tuple[Any, Any]:
        """Where each gate turns off, and where it turns on, which is not below: ``[gate]`` each."""

    def clocked(self, state: Any, drive: Any, params: Any) -> Any:
        """The state after a tick, with what moves once a tick (a register of past drives)."""
        del drive, params
        return state


class JumpWorld(World):
    """A world of reactions between counts beside continuous fields; a state's ``n`` is a tuple of counts.

    Class attributes:
        changes: what each reaction adds to each count, ``[reaction][count]``.
    """

    changes: ClassVar[tuple[tuple[int, ...], ...]]

    @abc.abstractmethod
    def propensities(self, state: Any, drive: Any, params: Any) -> tuple[Any, ...]:
        """The rate of each reaction, in all, at least 0."""

    @abc.abstractmethod
    def drift(self, state: Any, drive: Any, params: Any) -> Any:
        """The rate of change of the continuous fields; ``n`` in it is ignored."""

    def landed(self, before: Any, after: Any, drive: Any, params: Any) -> Any:
        """The state after a leap, with what the jumps did to the continuous fields (a heat of reaction)."""
        del before, drive, params
        return after

    def relaxed(self) -> "World":
        """The diffusion limit of the reactions: see `simworlds.relaxation.DiffusionLimit`."""
        from simworlds.relaxation import diffusion_limit

        return self if self.scheme.smooth else diffusion_limit(self)


class LatticeWorld(World):
    """A world of particles on open lattices of single occupancy.

    A state has the fields that `simworlds.integrate.RandomSequential` says: ``cells``, ``entry``, ``exit``.
    """

    @abc.abstractmethod
    def sites(self, params: Any) -> Any:
        """The number of sites N, a whole number as a float."""

    @abc.abstractmethod
    def rates(self, bond: Any, drive: Any, params: Any) -> tuple[Any, Any, Any]:
        """Rates at given bonds, numbered from 0 (in) to N (out).

        Those of a hop over the bond, and at the empty or the full site behind it of taking up a particle and
        of giving one off: arrays like `bond`, or scalars.
        """
