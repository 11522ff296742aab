"""Differentiable stand-ins for laws that jump between whole numbers."""

from functools import cache
from typing import Any

from simworlds.integrate.langevin import LangevinLeap
from simworlds.world import JumpWorld, Relaxation


class DiffusionLimit(Relaxation, JumpWorld):
    """A jump law with real counts that follow its chemical Langevin equation.

    Ports, parameters, initial states and readings are the law's. Of drawn initial counts the derivative is
    that of `simworlds.keys.poisson_from`.
    """

    def initial(self, params: Any, noise: Any) -> Any:
        return self.law.initial(params, noise)

    def propensities(self, state: Any, drive: Any, params: Any) -> tuple[Any, ...]:
        return self.law.propensities(state, drive, params)

    def drift(self, state: Any, drive: Any, params: Any) -> Any:
        return self.law.drift(state, drive, params)

    def landed(self, before: Any, after: Any, drive: Any, params: Any) -> Any:
        return self.law.landed(before, after, drive, params)

    def read(self, state: Any, drive: Any, params: Any) -> tuple[Any, ...]:
        return self.law.read(state, drive, params)

    def branch(self, state: Any, params: Any) -> Any:
        return self.law.branch(state, params)

    def wrap(self, state: Any) -> Any:
        return self.law.wrap(state)


@cache
def diffusion_limit(law: JumpWorld) -> DiffusionLimit:
    """The diffusion limit of a jump law, with the law's step."""
    fields = {
        "id": f"{law.id}-diffusion",
        "law": law,
        "changes": law.changes,
        "discrete": law.discrete,
        "scheme": LangevinLeap(law.scheme.dt, law.scheme.substeps),
    }
    return type(f"{type(law).__name__}DiffusionLimit", (DiffusionLimit,), fields)()
