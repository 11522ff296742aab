"""A4: order and thresholds of the Kuramoto model, for many oscillators and for few."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.validation.check import Check, Measured
from experiments.validation.runs import Run, mean_of
from simworlds.catalogue import load
from simworlds.keys import Noise, Words

WORLD: Any = load("A4")
SIZE = len(WORLD.limit().first)
MANY = 2048
SAKAGUCHI = "Sakaguchi 1988, doi:10.1143/PTP.79.39"
STROGATZ = "Strogatz & Mirollo 1991, doi:10.1007/BF01029202"
KURAMOTO = "Kuramoto 1984"
XY = "mean-field XY model; Hubbard 1959, doi:10.1103/PhysRevLett.3.77"
ROUNDING = 5e-7
UNSEEN = 1e-3  # the error of a finite choir's mean order that its clones share
FEW = 32  # oscillators whose Jacobian shows the threshold


def gaussian(n: int) -> np.ndarray:
    """The n mid-point quantiles of the standard Gaussian."""
    return np.array([NormalDist().inv_cdf(float(u)) for u in (np.arange(n) + 0.5) / n])


def lorentzian(n: int) -> np.ndarray:
    """The n mid-point quantiles of the standard Lorentzian."""
    return np.tan(np.pi * ((np.arange(n) + 0.5) / n - 0.5))


def choir(om: np.ndarray) -> Any:
    """Parameters of one section, in effect, of oscillators with such frequencies."""
    n = len(om)
    half = (np.arange(n) < n // 2).astype(float)
    return WORLD.limit(normal=om, cauchy=np.zeros(n), spread=1.0, first=half)


def fixed_point(rise: Callable[[float], float]) -> float:
    """The order r = rise(r), from above."""
    r = 1.0
    for _ in range(4000):
        r = rise(r)
    return float(r)


def bessel_ratio(kappa: float) -> float:
    """I1 / I0."""
    turn = np.linspace(0, 2 * np.pi, 512, endpoint=False)
    weight = np.exp(kappa * (np.cos(turn) - 1))
    return float((weight @ np.cos(turn)) / weight.sum())


def noisy_order(K: float, D: float) -> float:
    """The order of identical oscillators with noise, r = I1(K r / D) / I0(K r / D)."""
    return fixed_point(lambda r: bessel_ratio(K * r / D))


def mean_square_order(K: float, D: float, n: int) -> float:
    """<|z|^2> of n identical noisy oscillators, exactly.

    They are the mean-field XY model at inverse temperature b = K / D: p(th) ~ exp(b |sum exp(i th)|^2 / 2n).
    With a Gaussian field y, p(y) ~ y exp(-n y^2 / 2b) I0(y)^n and <|z|^2> = (<y^2> - 2b / n) / b^2.
    """
    if K == 0:
        return 1 / n
    b = K / D
    y = np.linspace(1e-4, 3 * b + 3, 40001)
    log_weight = np.log(y) - n * y**2 / (2 * b) + n * np.log(np.i0(y))
    weight = np.exp(log_weight - log_weight.max())
    return float(((weight @ y**2) / weight.sum() - 2 * b / n) / b**2)


def locked_order(om: np.ndarray, K: float) -> float:
    """The order <sqrt(1 - (om / K r)^2)> of those that lock, |om| < K r; drifters on either side cancel."""
    return fixed_point(lambda r: np.sqrt(np.maximum(1 - (om / (K * max(r, 1e-9))) ** 2, 0)).mean())


def hierarchy_order(K: float, gamma: float, D: float, modes: int = 64) -> float:
    """The order z_1 = r of a Lorentzian choir: (gamma + k D) z_k = K r (z_(k-1) - z_(k+1)) / 2, z_0 = 1."""

    def first(r: float) -> float:
        ratio = 0.0
        for k in range(modes, 0, -1):
            ratio = K * r / 2 / (gamma + k * D + K * r / 2 * ratio)
        return ratio

    return fixed_point(first)


def order(
    om: np.ndarray, K: float, D: float = 0.0, warm: int = 40, clones: int = 8, ticks: int = 60
) -> Measured:
    """The mean of |z| over time and clones, from phases that are random at first."""
    drive = {"K": K, "D": D, "F": 0.0, "nu": 0.0}
    run = Run(WORLD, choir(om), drive, clones=clones, label=f"order {K} {D}", dtype=np.float32)
    run.ticks(warm)
    return mean_of(run.ticks(ticks)[:, :, 0].mean(1))


def square(K: float, D: float, clones: int = 64) -> Measured:
    """The mean of |z|^2 of 128 identical oscillators, over times 4 ticks apart and clones."""
    drive = {"K": K, "D": D, "F": 0.0, "nu": 0.0}
    run = Run(WORLD, WORLD.limit(), drive, clones=clones, label=f"square {K} {D}", dtype=np.float32)
    run.ticks(40)
    rows = []
    for _ in range(20):
        run.ticks(4)
        rows.append(np.abs(np.exp(1j * run.state.th.astype(float)).mean(1)) ** 2)
    return mean_of(np.mean(rows, 0))


def threshold(D: float) -> Measured:
    """The K beyond which identical oscillators with noise leave disorder, from the linear law.

    Drift makes the first harmonic of a perturbation of evenly spread phases grow at the largest eigenvalue of
    its Jacobian; diffusion of amplitude b damps the harmonic at the rate b^2 / 2.
    """
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, choir(np.zeros(FEW)))
        still = WORLD.initial(params, Noise(Words(np.uint32(0), np.uint32(0)), np.uint32(0)))
        even = still._replace(th=2 * jnp.pi * jnp.arange(FEW) / FEW)

        @jax.jit
        def jacobian(K: Any) -> Any:
            drive = WORLD.drive_type(K=K, D=jnp.float64(D), F=jnp.float64(0), nu=jnp.float64(0))
            return jax.jacfwd(lambda th: WORLD.drift(even._replace(th=th), drive, params).th)(even.th)

        amplitude = WORLD.diffusion(even, WORLD.drive_type(K=0.0, D=D, F=0.0, nu=0.0), params).th[0]
        damping = float(amplitude) ** 2 / 2
        low, high = 0.5 * D, 8.0 * D
        for _ in range(40):
            middle = (low + high) / 2
            growth = np.linalg.eigvals(np.asarray(jacobian(middle))).real.max() - damping
            low, high = (middle, high) if growth < 0 else (low, middle)
    return Measured((low + high) / 2)


def weak_field(om: np.ndarray, D: float, field: float) -> Measured:
    """A weak field over the order that it makes, both at rest, in a choir without coupling: its K_c.

    Coupling K is a field of strength K r on each, so an order that holds itself has K = field / r. The error
    is of the order of the field's square; two fields, one twice the other, leave the fourth power.
    """
    found = []
    for strength in (field, 2 * field):
        drive = {"K": 0.0, "D": D, "F": strength, "nu": 0.0}
        label = f"field {D} {strength}"
        run = Run(WORLD, choir(om), drive, clones=16, label=label, dtype=np.float32)
        run.ticks(100)
        rows = []
        for _ in range(40):
            run.ticks(5)
            rows.append(run.state.lock_re.astype(float))
        r = mean_of(np.mean(rows, 0))
        found.append((strength / r.value, strength * r.error / r.value**2))
    (near, near_error), (far, far_error) = found
    return Measured((4 * near - far) / 3, float(np.hypot(4 * near_error, far_error) / 3))


def _formulas(check: Callable[..., Check]) -> Iterator[Check]:
    """Closed forms against published values, and against one another."""
    for K, D, published in ((2.0, 0.5, 0.831462), (3.0, 1.0, 0.724159)):
        given = f"identical, K = {K:g}, D = {D:g}"
        formula, finite = partial(noisy_order, K, D), partial(mean_square_order, K, D, 10**6)
        yield check(f"r: I1 / I0, {given}", published, SAKAGUCHI, lambda f=formula: Measured(f()), ROUNDING)
        yield check(
            f"r: a million, exactly, {given}", published, XY, lambda f=finite: Measured(f() ** 0.5), 2e-6
        )
    root, curvature = (
        partial(Measured, float(np.sqrt(1 - 2 * 0.5 / 2))),
        partial(Measured, float(np.sqrt(8 / np.pi))),
    )
    yield check("r: sqrt(1 - 2 gamma / K), gamma = .5, K = 2", 0.707107, KURAMOTO, root, ROUNDING)
    yield check("K_c: sqrt(8 / pi), Gaussian, sigma = 1", 1.595769, STROGATZ, curvature, ROUNDING)
    for gamma, D, published in ((0.0, 0.5, 0.831462), (0.5, 1e-9, 0.707107)):
        measure = lambda gamma=gamma, D=D: Measured(hierarchy_order(2.0, gamma, D))  # noqa: E731
        yield check(
            f"r: hierarchy of modes, gamma = {gamma:g}, D = {D:g}, K = 2", published, SAKAGUCHI, measure, 2e-6
        )


def checks() -> Iterator[Check]:
    """Formulas against published values, the law against formulas."""
    check = partial(Check, "A4")
    yield from _formulas(check)
    for K, D in ((2.0, 0.5), (3.0, 1.0)):
        measure = partial(order, np.zeros(MANY), K, D)
        yield check(
            f"r of {MANY}, identical, K = {K:g}, D = {D:g}", noisy_order(K, D), SAKAGUCHI, measure, UNSEEN
        )
    # Far above the threshold, above it, on it, and below it, where r ~ 1 / sqrt(N).
    for K, D in ((2.0, 0.5), (3.0, 1.0), (2.4, 1.0), (2.0, 1.0), (1.0, 1.0), (0.0, 1.0)):
        exact = mean_square_order(K, D, SIZE)
        yield check(f"<|z|^2> of {SIZE}, K = {K:g}, D = {D:g}", exact, XY, partial(square, K, D))
    for D in (0.5, 1.0):
        yield check(f"K_c = 2 D, linear law, D = {D:g}", 2 * D, SAKAGUCHI, partial(threshold, D), 1e-8)
    wide = {n: 0.5 * lorentzian(n) for n in (512, MANY)}
    for n, K, warm in ((512, 2.0, 40), (MANY, 2.0, 40), (MANY, 1.25, 80)):
        quantity, exact = f"r of {n}, Lorentzian, gamma = .5, K = {K:g}", float(np.sqrt(1 - 1 / K))
        yield check(quantity, exact, KURAMOTO, partial(order, wide[n], K, warm=warm), UNSEEN)
    bell, narrow = gaussian(MANY), 0.2 * lorentzian(MANY)
    yield check(
        f"r of {MANY}, Gaussian, sigma = 1, K = 1.9",
        locked_order(bell, 1.9),
        STROGATZ,
        partial(order, bell, 1.9, warm=80),
        UNSEEN,
    )
    yield check(
        f"r of {MANY}, Lorentzian, gamma = .2, D = .3, K = 2",
        hierarchy_order(2.0, 0.2, 0.3),
        SAKAGUCHI,
        partial(order, narrow, 2.0, 0.3),
        UNSEEN,
    )
    weak = (
        ("2 D, identical, D = .5", np.zeros(MANY), 0.5, 0.2, 1.0, SAKAGUCHI),
        ("2 gamma, Lorentzian, gamma = .5", wide[MANY], 0.0, 0.1, 1.0, KURAMOTO),
        ("2 / (pi g(0)), Gaussian, sigma = 1", bell, 0.0, 0.2, 1.595769, STROGATZ),
        ("2 (gamma + D), Lorentzian, gamma = .2, D = .3", narrow, 0.3, 0.2, 1.0, SAKAGUCHI),
    )
    for name, om, D, field, published, source in weak:
        measure = partial(weak_field, om, D, field)
        yield check(f"K_c = {name}, response to a weak field", published, source, measure, UNSEEN, slow=True)
