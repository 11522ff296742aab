"""D4: the Duffing oscillator's three amplitudes, its hysteresis, and the response of two linear modes."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.integrate import RK4, advance
from simworlds.keys import Words

WORLD = load("D4")
FORCE = 0.25
TWO_MODES = {"be": 0.0, "g": 0.3}  # of the limit configuration, which has w0 = 1, de = .1, w2 = 1.3, d2 = .05
NAYFEH = "Nayfeh & Mook 1979, harmonic balance"
LINEAR = "linear response"
CATALOGUE = "catalogue"
HARMONIC, UNSTABLE = 0.006, 0.01  # relative: what one harmonic leaves out, more of it on the unstable branch
TURN = 128  # steps of a period of the drive
SETTLED = 200  # periods; the slowest mode rings down at the rate 0.025


def harmonic_balance(W: float) -> np.ndarray:
    """Amplitudes A with [(w0^2 - W^2 + .75 be A^2)^2 + (de W)^2] A^2 = F^2, in order: one or three."""
    p = WORLD.limit()
    detuning, stiffness = p.w0**2 - W**2, 0.75 * p.be
    cubic = [stiffness**2, 2 * detuning * stiffness, detuning**2 + (p.de * W) ** 2, -(FORCE**2)]
    roots = np.roots(cubic)
    return np.sort(np.sqrt(roots[np.abs(roots.imag) < 1e-9].real))


def response(W: float, **changes: float) -> complex:
    """H = (w2^2 - W^2 + i d2 W) / [(w0^2 - W^2 + i de W) (w2^2 - W^2 + i d2 W) - g^2]."""
    p = WORLD.limit(**changes)
    latent = p.w2**2 - W**2 + 1j * p.d2 * W
    return latent / ((p.w0**2 - W**2 + 1j * p.de * W) * latent - p.g**2)


def _run(params: Any, W: float, state: Any = None) -> Run:
    """A run in which each tick is one period of the drive."""
    period = RK4(dt=float(2 * np.pi / W / TURN), substeps=TURN)
    drive = {"F": FORCE, "W": float(W), "bias": 0.0, "c": 1.0}
    return Run(WORLD, params, drive, scheme=period, state=state)


def _first_harmonic(means: Any) -> float:
    """The amplitude of x at the drive's frequency.

    In a periodic state, the means of I and Q over a period are those of 2 x cos(phi) and 2 x sin(phi).
    """
    return float(np.hypot(means[0], means[1]))


@cache
def at_rest(W: float, **changes: float) -> float:
    """The amplitude that a resonator at rest comes to."""
    return _first_harmonic(_run(WORLD.limit(**changes), W).ticks(SETTLED)[0, -1])


@cache
def swept_up() -> float:
    """The amplitude at W = 1.25 after the drive's frequency rose from 0.8."""
    run = Run(WORLD, WORLD.limit(), {"F": FORCE, "bias": 0.0, "c": 1.0})
    for W in np.linspace(0.8, 1.25, 10).tolist():
        run.drive(W=W)
        run.ticks(64)
    return _first_harmonic(_run(WORLD.limit(), 1.25, _one(run.state)).ticks(SETTLED)[0, -1])


def _one(states: Any) -> Any:
    """The state of the only clone."""
    return jax.tree.map(lambda x: x[0], states)


@cache
def orbit(W: float, branch: int) -> tuple[float, float]:
    """A periodic orbit of the law: its amplitude, and by how much a perturbation grows in a period.

    Newton's method on the map over one period, from where harmonic balance puts the branch.
    """
    run, p = _run(WORLD.limit(), W), WORLD.limit()
    A = harmonic_balance(W)[branch]
    # x = A cos(phi - delay), with F cos(delay) and F sin(delay) from the two parts of the balance.
    delay = np.arctan2(p.de * W, p.w0**2 - W**2 + 0.75 * p.be * A**2)
    guess = {"x": A * np.cos(delay), "v": W * A * np.sin(delay), "square": A**2 / 2}
    guess |= {"in_phase": A * np.cos(delay), "quadrature": A * np.sin(delay)}
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, p)
        drive = WORLD.drive_type(
            F=jnp.float64(FORCE), W=jnp.float64(W), bias=jnp.float64(0), c=jnp.float64(1)
        )
        still = jax.tree.map(jnp.float64, _one(run.state))
        moving = tuple(name for name in still._fields if name != "phi")

        @jax.jit
        def period(x: Any) -> Any:
            state = still._replace(**dict(zip(moving, x, strict=True)))
            end, means = advance(run.world, params, state, drive, Words(0, 0), 0)
            return jnp.stack([getattr(end, name) for name in moving]), jnp.stack(means)

        slope = jax.jit(jax.jacfwd(lambda x: period(x)[0]))
        x = jnp.array([guess.get(name, 0.0) for name in moving])
        for _ in range(20):
            x = x - jnp.linalg.solve(slope(x) - jnp.eye(len(moving)), period(x)[0] - x)
        end, means = period(x)
        if not jnp.abs(end - x).max() < 1e-12:
            raise ArithmeticError(f"Newton's method did not converge on branch {branch} at W = {W}")
        return _first_harmonic(means), float(np.abs(np.linalg.eigvals(np.asarray(slope(x)))).max())


def on_branch(W: float, branch: int) -> Measured:
    """The amplitude of one of three orbits; only the middle one must be unstable."""
    amplitude, growth = orbit(W, branch)
    if (growth > 1) != (branch == 1):
        raise ValueError(f"perturbations of branch {branch} grow by {growth} in a period")
    return Measured(amplitude)


def checks() -> Iterator[Check]:
    """Formulas against published values, the law against formulas; deterministic, in float64."""
    check = partial(Check, "D4")
    balanced = harmonic_balance(1.25)
    for W, published in ((1.25, (0.45829, 1.84388, 1.97233)), (1.5, (0.19951,))):
        for k, value in enumerate(published):
            quantity = f"amplitude {k + 1} of {len(published)} at W = {W:g}: the formula"
            formula = lambda W=W, k=k: Measured(float(harmonic_balance(W)[k]))  # noqa: E731
            yield check(quantity, value, NAYFEH, formula, 5e-6)
    for k, (name, share) in enumerate((("lower", HARMONIC), ("middle", UNSTABLE), ("upper", HARMONIC))):
        quantity, value = f"amplitude of the {name} orbit at W = 1.25", float(balanced[k])
        yield check(quantity, value, NAYFEH, partial(on_branch, 1.25, k), share * value)
    for W, simulated in ((1.25, 0.45831), (1.5, 0.19951)):
        measure = lambda W=W: Measured(at_rest(W))  # noqa: E731
        yield check(f"amplitude from rest at W = {W:g}", simulated, CATALOGUE, measure, 5e-6)
    yield check(
        "amplitude at W = 1.25 when W rises to it", 1.9606, CATALOGUE, lambda: Measured(swept_up()), 5e-5
    )
    for W, published in ((0.9, 7.713085), (1.6, 0.681554)):
        exact = float(abs(response(W, **TWO_MODES)))
        formula, measure = partial(Measured, exact), lambda W=W: Measured(at_rest(W, **TWO_MODES) / FORCE)
        yield check(f"|H| of two modes at W = {W:g}: the formula", published, LINEAR, formula, 5e-7)
        yield check(f"|H| of two modes at W = {W:g}", exact, LINEAR, measure, 1e-6 * exact)
    notch = float(abs(response(1.3, **TWO_MODES)))
    measure = lambda: Measured(at_rest(1.3, **TWO_MODES) / FORCE)  # noqa: E731
    yield check("|H| of two modes in the notch, W = w2 = 1.3", notch, LINEAR, measure, 1e-6 * notch)
