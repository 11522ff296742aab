"""Fixed-step integrators over pytrees: one step of a law, and one tick of readings.

Everything is written for one clone: only `simworlds.ensemble` batches. Drives are constant within a tick, so
no step crosses a switch. One kind of law a file: smooth (`continuous`), delayed (`delay`), switched
(`events`), absorbed at a boundary (`passage`), jumps of counts (`jumps`), and particles on
lattices (`lattice`).
"""

from simworlds.integrate.continuous import RK4, Heun
from simworlds.integrate.delay import DelayRK4
from simworlds.integrate.events import EventMap
from simworlds.integrate.jumps import SpinLeap, TauLeap, TrapezoidLeap
from simworlds.integrate.lattice import RandomSequential
from simworlds.integrate.passage import FirstPassage, SoftPassage
from simworlds.integrate.scheme import Scheme, advance, begin, cast

__all__ = [
    "RK4",
    "DelayRK4",
    "EventMap",
    "FirstPassage",
    "Heun",
    "RandomSequential",
    "Scheme",
    "SoftPassage",
    "SpinLeap",
    "TauLeap",
    "TrapezoidLeap",
    "advance",
    "begin",
    "cast",
]
