"""How the compiler for CPUs is told what it does not see by itself."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import jaxpr_as_fun, jaxprs_in_params

# Otherwise it uses half the width of registers of 512 bits. Without effect elsewhere.
WIDE: dict[str, Any] = {"xla_cpu_prefer_vector_width": 512}

# What it is known to put into one function: element by element, moved about, or looped over. Sums, products
# of matrices, sorting and scattering go through libraries that it can only call from outside.
_KNOWN = frozenset(
    """
    abs acos acosh add and asin asinh atan atan2 atanh bitcast_convert_type broadcast_in_dim cbrt
    ceil clamp concatenate cond convert_element_type copy cos cosh custom_jvp_call digamma div
    dynamic_slice dynamic_update_slice eq erf erf_inv erfc exp exp2 expm1 floor gather ge gt
    integer_pow iota is_finite jit le lgamma log log1p logistic lt max min mul ne neg nextafter not
    or pjit pow reduce_and reduce_or rem reshape reshard rev round rsqrt scan select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh slice split sqrt square squeeze stack
    stop_gradient sub tan tanh transpose while xor
    """.split()
)


def as_one(function: Callable[..., Any], *operands: Any) -> Any:
    """``function(*operands)``, on a CPU compiled into one machine function.

    XLA dispatches the operations of a loop one by one, which takes longer than to compute them where arrays
    are small, and only loops over at most 1 KiB does it put into one function by itself. The attributes do
    it for this call; a compiler that does not know them ignores them. The operations are the same. A function
    that sums, multiplies matrices, sorts or scatters is compiled as ever.

    Args:
        function: to be traced; a loop whose arrays fit into a core's cache.
        operands: trees of arrays.
    """
    if jax.default_backend() != "cpu":
        return function(*operands)
    traced, shapes = jax.make_jaxpr(jax.jit(function), return_shape=True)(*operands)
    call, leaves = jaxpr_as_fun(traced), jax.tree.leaves(operands)
    if _KNOWN.issuperset(_operations(traced.jaxpr)):
        # Traced before and called here, so that the call has the attributes and what is in it has not.
        with set_xla_metadata(inlineable="false", xla_cpu_small_call="true"):
            results = call(*leaves)
    else:
        results = call(*leaves)
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _operations(jaxpr: Any) -> Iterator[str]:
    """The names of all operations, those of inner functions included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from _operations(inner)
