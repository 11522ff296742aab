"""A check: one published number and the way to measure it here; a row: what came out."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

SIGMAS = 4.0


class Measured(NamedTuple):
    """A measured value with its statistical standard error, 0 where the measurement has no noise."""

    value: float
    error: float = 0.0


@dataclasses.dataclass(frozen=True)
class Check:
    """A number that others published or that theory gives, and how to measure it.

    Attributes:
        world: the identifier of the family, or the name of a problem outside the catalogue.
        quantity: what it is and under which parameters, in a few words.
        published: the value.
        source: who gives it: a short reference, a formula's name, or "catalogue".
        measure: runs the measurement; deterministic, under fixed keys.
        tolerance: absolute error that is allowed beyond four standard errors: the published value's rounding
            or own error, a known systematic difference, or the accuracy asked of a noise-free value.
        data: plain data that the measurement rests on beside code, such as a problem from a file.
        slow: whether it takes more than a few seconds; the default tests leave it to `simworlds validate`.
    """

    world: str
    quantity: str
    published: float
    source: str
    measure: Callable[[], Measured]
    tolerance: float = 0.0
    slow: bool = False
    data: Any = None

    def run(self) -> "Row":
        """Measure. An exception becomes a failing row, so that one broken check hides no other."""
        try:
            value, error = self.measure()
            note = ""
        except Exception as fault:  # whatever it is, the table must show it
            value, error, note = math.nan, 0.0, f"{type(fault).__name__}: {fault}"
        return self.row(value, error, note)

    def row(self, value: Any, error: Any, note: str = "") -> "Row":
        """The outcome that a measured value is."""
        return Row(
            self.world,
            self.quantity,
            float(self.published),
            float(value),
            float(error),
            self.tolerance,
            self.source,
            note,
        )


class Row(NamedTuple):
    """The outcome of a check."""

    world: str
    quantity: str
    published: float
    measured: float
    error: float
    tolerance: float
    source: str
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the two agree within the tolerance and four standard errors, all of them finite."""
        allowed = self.tolerance + SIGMAS * self.error
        return math.isfinite(allowed) and abs(self.measured - self.published) <= allowed
