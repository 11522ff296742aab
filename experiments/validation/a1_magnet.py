"""A1 against the Curie-Weiss model of finite size, and the mean-field theory of two lattices (Neel 1948)."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from math import lgamma, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of, state_type
from simworlds.catalogue import load
from simworlds.exact import ssa
from simworlds.integrate.jumps import expected_flow
from simworlds.keys import key_for

WORLD: Any = load("A1")
State = state_type(WORLD)
SPINS, BETA, FIELD = 100, 0.9, 0.02  # N, beta J, beta h of the finite model
MOMENTS: dict[str, Callable[[Any], Any]] = {"<m>": lambda m: m, "<|m|>": np.abs, "<m^2>": np.square}
PUBLISHED = {"<m>": 0.128552, "<|m|>": 0.231484, "<m^2>": 0.078049}
ORDER, CURIE, COMPENSATION = 0.858560, 1.492389, 1.041759
FERRIMAGNET = {"J_AA": 1.0, "J_BB": 0.35, "J_AB": -0.75, "mu_A": 1.0, "mu_B": 1.25}
ENDLESS = 1e12  # spins, for the mean-field equations


def enumerated(moment: Callable[[Any], Any]) -> Measured:
    """A moment of P(M) ~ C(N, (N + M) / 2) exp(beta J M^2 / 2N + beta h M), by enumeration."""
    ups = np.arange(SPINS + 1)
    M = 2.0 * ups - SPINS
    ways = np.array([lgamma(SPINS + 1) - lgamma(k + 1) - lgamma(SPINS - k + 1) for k in ups])
    weight = ways + BETA * M**2 / (2 * SPINS) + FIELD * M
    share = np.exp(weight - weight.max())
    return Measured(float(moment(M / SPINS) @ share / share.sum()))


def _bath(temperature: float, params: Any) -> dict[str, float]:
    """The drives of a bath temperature without field, pressure 1."""
    return {"th": temperature / float(WORLD.critical_temperature(params)), "H": 0.0, "p": 1.0}


@cache
def _leapt() -> np.ndarray:
    """Means of lattice A under leaps, ``[time, clone]``, 20 ticks (two relaxation times) apart."""
    params = WORLD.limit(N=float(SPINS))
    drive = {**_bath(1 / BETA, params), "H": FIELD / BETA}
    run = Run(WORLD, params, drive, clones=4096, label="finite", dtype=np.float32)
    run.ticks(60)
    rows = []
    for _ in range(10):
        run.ticks(20)
        rows.append((run.state.n[0] - run.state.n[1]) / SPINS)
    return np.stack(rows)


@cache
def _exact() -> np.ndarray:
    """Means of lattice A after 80 time units of exact simulation, ``[clone]``; lattice B is empty."""
    drive = WORLD.drive_type(th=1 / BETA, H=FIELD / BETA, p=1.0)
    keys = jax.random.split(key_for("A1", 0, "validation", "ssa"), 32768)
    with jax.enable_x64(True):
        half, none = jnp.asarray(SPINS / 2), jnp.zeros(())
        start = State((half, half, none, none), jnp.asarray(1 / BETA), none, none)
        run = partial(ssa, WORLD, WORLD.limit(N=float(SPINS)), start, drive, until=80.0)
        counts = np.asarray(jax.jit(jax.vmap(lambda key: run(key=key).counts))(keys))
    return (counts[:, 0] - counts[:, 1]) / SPINS


def leap_moment(moment: Callable[[Any], Any]) -> Measured:
    """A moment under leaps: the mean over clones of their means over time."""
    return mean_of(moment(_leapt()).mean(0))


def exact_moment(moment: Callable[[Any], Any]) -> Measured:
    """A moment under exact simulation."""
    return mean_of(moment(_exact()))


def _slopes(m: Any, temperature: Any, params: Any) -> Any:
    """The law's dm_A/dt and dm_B/dt in mean field."""
    drive = WORLD.drive_type(th=temperature / WORLD.critical_temperature(params), H=0.0, p=1.0)
    zero = jnp.zeros_like(m[0])
    n = tuple(ENDLESS * (1 + sign * x) / 2 for x in m for sign in (1, -1))
    flow = expected_flow(WORLD, params, State(n, temperature, zero, zero), drive)
    return jnp.stack([flow.n[0] - flow.n[1], flow.n[2] - flow.n[3]]) / ENDLESS


@jax.jit
def _equilibrium(temperature: Any, params: Any) -> Any:
    """m_A > 0 and m_B at rest, by relaxation in steps of tau0."""
    start = jnp.stack([jnp.ones_like(temperature), jnp.sign(params.J_AB)])
    return jax.lax.fori_loop(0, 2000, lambda _, m: m + params.tau0 * _slopes(m, temperature, params), start)


@jax.jit
def _jacobian(temperature: Any, params: Any) -> Any:
    """Of the slopes of the disordered state, ``[2, 2]``."""
    return jax.jacfwd(lambda m: _slopes(m, temperature, params))(jnp.zeros(2))


def _root(function: Callable[[float], float], low: float, high: float) -> Measured:
    """Where a function changes its sign, by bisection."""
    sign = np.sign(function(low))
    if sign == np.sign(function(high)):
        raise ValueError(f"the function has one sign at {low} and {high}")
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sign(function(middle)) == sign else (low, middle)
    return Measured((low + high) / 2)


def order() -> Measured:
    """The mean at which the mean-field law of one lattice rests, beta J = 1.5."""
    with jax.enable_x64(True):
        return Measured(float(_equilibrium(jnp.asarray(1 / 1.5), WORLD.limit(N=ENDLESS))[0]))


def simulated_order() -> Measured:
    """The mean of a lattice of so many spins that their noise hardly counts, beta J = 1.5."""
    params = WORLD.limit(N=1e8, m_A=0.5)
    run = Run(WORLD, params, _bath(1 / 1.5, params), clones=16, label="order")
    return mean_of(run.ticks(80)[:, 40:, 0].mean(1))


def curie() -> Measured:
    """Where the disordered state of the mean-field law loses its stability."""
    params = WORLD.limit(N=ENDLESS, **FERRIMAGNET)

    def growth(temperature: float) -> float:
        with jax.enable_x64(True):
            return float(np.linalg.eigvals(np.asarray(_jacobian(temperature, params))).real.max())

    return _root(growth, 1.2, 1.8)


def curie_formula() -> Measured:
    """[J_AA + J_BB + sqrt((J_AA - J_BB)^2 + 4 J_AB^2)] / 2, evaluated here."""
    return Measured((1.35 + sqrt(0.65**2 + 4 * 0.75**2)) / 2)


def compensation() -> Measured:
    """Where the moment of the ordered mean-field law vanishes."""
    params = WORLD.limit(N=ENDLESS, **FERRIMAGNET)

    def moment(temperature: float) -> float:
        with jax.enable_x64(True):
            m_A, m_B = np.asarray(_equilibrium(jnp.asarray(temperature), params))
        return float(params.mu_A * m_A + params.mu_B * m_B)

    return _root(moment, 0.9, 1.2)


def simulated_compensation() -> Measured:
    """Where the moment of simulated lattices of 20000 spins changes its sign: between 1.03 and 1.05."""
    params = WORLD.limit(N=2e4, m_A=0.8, m_B=-0.8, **FERRIMAGNET)
    temperatures, moments = (1.03, 1.05), []
    for temperature in temperatures:
        label = f"T = {temperature}"
        run = Run(WORLD, params, _bath(temperature, params), clones=256, label=label, dtype=np.float32)
        moments.append(mean_of(run.ticks(160)[:, 40:, 0].mean(1)))
    (low, low_error), (high, high_error) = moments
    if not low < 0 < high:
        raise ValueError(f"the moment does not change its sign: {low} and {high}")
    width = (temperatures[1] - temperatures[0]) / (high - low)
    part = -low / (high - low)
    error = width * sqrt(((1 - part) * low_error) ** 2 + (part * high_error) ** 2)
    return Measured(temperatures[0] - width * low, error)


def checks() -> Iterator[Check]:
    """All checks of A1."""
    given = "N = 100, beta J = 0.9, beta h = 0.02"
    for name, moment in MOMENTS.items():
        value = PUBLISHED[name]
        check = partial(Check, "A1", published=value, source="Curie-Weiss, exact P(M)")
        yield check(
            quantity=f"{name} by enumeration, {given}", measure=partial(enumerated, moment), tolerance=5e-7
        )
        yield check(quantity=f"{name} by leaps, {given}", measure=partial(leap_moment, moment), slow=True)
        yield check(quantity=f"{name} by SSA, {given}", measure=partial(exact_moment, moment), slow=True)
    given = "J = (1, 0.35, -0.75)"
    rounding = 5e-7
    yield Check("A1", "m, mean field, beta J = 1.5", ORDER, "m = tanh(beta J m)", order, rounding)
    yield Check(
        "A1",
        "m of 1e8 spins, beta J = 1.5",
        ORDER,
        "m = tanh(beta J m)",
        simulated_order,
        rounding,
        slow=True,
    )
    yield Check("A1", f"T_c by its formula, {given}", CURIE, "Neel 1948", curie_formula, rounding)
    yield Check("A1", f"T_c, mean field, {given}", CURIE, "Neel 1948", curie, rounding)
    given += ", mu_B = 1.25"
    yield Check("A1", f"T_comp, mean field, {given}", COMPENSATION, "Neel 1948", compensation, rounding)
    yield Check(
        "A1",
        f"T_comp, 2e4 spins, {given}",
        COMPENSATION,
        "Neel 1948",
        simulated_compensation,
        1e-4,
        slow=True,
    )
