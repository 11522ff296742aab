"""Arithmetic written as text, such as ``k1*P*(P-1)/2``: parsed once, evaluated on numbers or arrays.

Only arithmetic, comparisons, ``and``, ``or``, ``not`` and a few functions are known; nothing is ever run as
Python code.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import jax.numpy as jnp

from simworlds.errors import InvalidNetwork

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "abs": jnp.abs,
    "min": lambda *x: reduce(jnp.minimum, x),
    "max": lambda *x: reduce(jnp.maximum, x),
}
_MOST_CHARACTERS = 10_000
_DEEPEST = 200


class Expression:
    """A parsed expression.

    Args:
        text: the expression; ``^`` is a power, as ``**`` is.
        where: what it is, for messages.

    Raises:
        InvalidNetwork: if it is not arithmetic; says where and what.
    """

    def __init__(self, text: Any, where: str = "expression"):
        self.text, self.where = str(text), where
        if len(self.text) > _MOST_CHARACTERS:
            raise InvalidNetwork(f"{where} has more than {_MOST_CHARACTERS} characters")
        try:
            self._tree = ast.parse(self.text.strip().replace("^", "**"), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
            raise InvalidNetwork(f"{where} {self.text!r} is no expression: {fault}") from None
        self.names = frozenset(self._check(self._tree, 0))

    def _check(self, node: ast.AST, depth: int) -> set[str]:
        """Refuse whatever is not arithmetic; the names that occur."""
        if depth > _DEEPEST:
            raise InvalidNetwork(f"{self.where} is nested more than {_DEEPEST} deep")
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return set()
            case ast.Name():
                return {node.id}
            case ast.BinOp() if type(node.op) in _BINARY:
                parts = [node.left, node.right]
            case ast.UnaryOp(op=ast.UAdd() | ast.USub() | ast.Not()):
                parts = [node.operand]
            case ast.Compare() if all(type(op) in _COMPARE for op in node.ops):
                parts = [node.left, *node.comparators]
            case ast.BoolOp():
                parts = node.values
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS and node.args:
                parts = node.args
            case _:
                raise InvalidNetwork(
                    f"{self.where} {self.text!r} may hold arithmetic, comparisons and "
                    f"{', '.join(sorted(_FUNCTIONS))} only, but holds {ast.unparse(node)!r}"
                )
        return set().union(*(self._check(part, depth + 1) for part in parts))

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The value, names taken from a mapping."""
        return _value(self._tree, values)

    def thresholds(self, name: str, values: Mapping[str, Any]) -> set[float]:
        """The constants that a name alone is compared with, such as 25 in ``t >= 25``."""
        found = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                if any(isinstance(side, ast.Name) and side.id == name for side in sides):
                    for side in sides:
                        used = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)}
                        if used <= set(values):
                            found.add(float(_value(side, values)))
        return found


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return float(node.value)  # type: ignore[arg-type]
        case ast.Name():
            return values[node.id]
        case ast.BinOp():
            return _BINARY[type(node.op)](_value(node.left, values), _value(node.right, values))
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, values)
        case ast.UnaryOp(op=ast.Not()):
            return jnp.logical_not(_value(node.operand, values))
        case ast.UnaryOp():
            return _value(node.operand, values)
        case ast.Compare():
            sides = [_value(side, values) for side in (node.left, *node.comparators)]
            pairs = zip(sides, node.ops, sides[1:], strict=False)
            return reduce(jnp.logical_and, [_COMPARE[type(op)](a, b) for a, op, b in pairs])
        case ast.BoolOp():
            join = jnp.logical_and if isinstance(node.op, ast.And) else jnp.logical_or
            return reduce(join, [_value(part, values) for part in node.values])
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name](*(_value(part, values) for part in node.args))
    raise AssertionError(f"{ast.dump(node)} passed the check of names")
