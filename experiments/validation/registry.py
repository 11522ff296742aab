"""Which module holds the checks of which world; imported when asked for."""

import importlib
from collections.abc import Iterable

from experiments.validation.check import Check

_MODULES = {
    # "A1": "a1_magnet",
}


def checks_of(names: Iterable[str] | None = None) -> list[Check]:
    """The checks of some worlds, by identifier, or of all that have any."""
    wanted = _MODULES if names is None else [name for name in names if name in _MODULES]
    modules = [importlib.import_module(f"experiments.validation.{_MODULES[name]}") for name in wanted]
    return [check for module in modules for check in module.checks()]
