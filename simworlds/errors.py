"""Errors that a user can meet: each with a code, and each fault in a sentence of its own."""

from collections.abc import Iterable


class SimworldsError(Exception):
    """The base of this package's errors.

    Attributes:
        code: a short name for programs.
        faults: one sentence a fault; the message joins them.
    """

    code = "error"

    def __init__(self, faults: str | Iterable[str]):
        self.faults = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("; ".join(self.faults))


class UnknownWorld(SimworldsError):
    """No world of that name is registered."""

    code = "unknown_world"


class InvalidSeed(SimworldsError):
    """The seed is neither an integer from 0 to 2^63 - 1 nor a non-empty string."""

    code = "invalid_seed"


class InvalidProtocol(SimworldsError):
    """The protocol has faults; nothing ran and nothing was charged."""

    code = "invalid_protocol"


class InvalidContract(SimworldsError):
    """A contract has faults: an unknown port, a window outside its protocol, an unknown statistic."""

    code = "invalid_contract"


class InvalidAnswers(SimworldsError):
    """The answers have faults; nothing was scored."""

    code = "invalid_answers"


class InvalidRequest(SimworldsError):
    """An argument is out of range."""

    code = "invalid_request"


class BudgetExceeded(SimworldsError):
    """The protocol costs more than what is left; nothing ran and nothing was charged."""

    code = "budget_exceeded"


class UnsupportedLaw(SimworldsError):
    """The world's law has no form of the kind asked for."""

    code = "unsupported_law"


class Unanswerable(SimworldsError):
    """The instance has no channel to ask about."""

    code = "unanswerable"


class InvalidNetwork(SimworldsError):
    """A reaction network has faults: an unknown name, something that is not arithmetic, a missing field."""

    code = "invalid_network"


class Inadmissible(SimworldsError):
    """No draw of a (world, seed) is fit to be explored."""

    code = "inadmissible"


class Diverged(SimworldsError):
    """A trajectory left the finite numbers."""

    code = "diverged"
