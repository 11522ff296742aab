"""Fixed-step integrators over pytrees: one step of a law, and one tick of readings.

Everything is written for one clone: only `simworlds.ensemble` batches. Drives are constant within a tick, so
no step crosses a switch. One kind of law a file: smooth (`continuous`), and jumps of counts (`jumps`).
"""

from simworlds.integrate.continuous import RK4, Heun
from simworlds.integrate.jumps import TauLeap
from simworlds.integrate.scheme import Scheme, advance, begin, cast

__all__ = ["RK4", "Heun", "Scheme", "TauLeap", "advance", "begin", "cast"]
