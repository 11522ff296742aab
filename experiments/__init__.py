"""What people run: evaluation, ladders, records, the command line."""

from typing import Any

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that the command line starts without JAX."""
    if name == "evaluate":
        from experiments.evaluation import evaluate

        return evaluate
    raise AttributeError(f"module 'experiments' has no attribute {name!r}")
