"""C2 against the Brusselator: its Hopf point, its limit cycle, its clock in a warm bath, its parameters.

Values marked "catalogue" are those of the catalogue of worlds, C2. The law is the world's own in its limit
configuration; its step is certified in `test_reference.py`.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from simworlds.catalogue import load
from simworlds.ensemble import Request, simulate
from simworlds.keys import Noise, Words

WORLD = load("C2")
DT = WORLD.scheme.dt
SEED = 0
NO_NOISE = Noise(Words(np.uint32(0), np.uint32(0)), np.uint32(0))


def limit(**changes):
    return jax.tree.map(jnp.float64, WORLD.limit(**changes))


def drive(A, B, sig=0.0, th_b=1.0):
    return WORLD.drive_type(*(jnp.float64(x) for x in (A, B, sig, th_b)))


@partial(jax.jit, static_argnums=(3, 4))
def _run(params, state, drive, wait, keep):
    def step(state, _):
        state = WORLD.scheme.step(WORLD, params, state, drive, ())
        return state, state

    state, _ = jax.lax.scan(lambda s, _: (step(s, _)[0], None), state, length=wait)
    return jax.lax.scan(step, state, length=keep)[1]


def settled(params, drive, wait=1200.0, keep=60.0):
    """The states of the last `keep` time units, step by step: fields ``[step]``."""
    path = _run(params, WORLD.initial(params, NO_NOISE), drive, round(wait / DT), round(keep / DT))
    return jax.tree.map(np.asarray, path)


def period(x, level):
    """The mean time between upward crossings of a level."""
    before = np.flatnonzero((x[:-1] < level) & (x[1:] >= level))
    crossing = before + (level - x[before]) / (x[before + 1] - x[before])
    assert len(crossing) > 2, "the signal does not oscillate"
    return np.diff(crossing).mean() * DT


def spectrum(params, drive):
    """Eigenvalues of the law's Jacobian at X = A, Y = B / A in both cells, temperature that of the bath."""
    fixed = WORLD.initial(params, NO_NOISE)._replace(
        x1=drive.A, y1=drive.B / drive.A, x2=drive.A, y2=drive.B / drive.A, th=drive.th_b
    )
    flat, unravel = ravel_pytree(fixed)
    rates = lambda v: ravel_pytree(WORLD.drift(unravel(v), drive, params))[0]  # noqa: E731
    assert np.abs(rates(flat)).max() < 1e-14
    return np.linalg.eigvals(jax.jacfwd(rates)(flat))


@pytest.mark.usefixtures("x64")
class TestHopfPoint:
    """B = 1 + A^2, where the angular frequency is A. Prigogine & Lefever 1968, doi:10.1063/1.1668896."""

    @pytest.mark.parametrize("A", [0.5, 1.0, 1.5])
    def test_both_cells_are_marginal_at_the_frequency_a(self, A):
        roots = spectrum(limit(), drive(A, 1 + A**2))
        clock = roots[np.abs(roots.imag) > 1e-6]
        assert len(clock) == 4
        assert (
            np.abs(clock.real).max() < 1e-7
        )  # two cells: double roots are found to the root of the precision
        assert np.abs(clock.imag) == pytest.approx(A, abs=1e-7)

    @pytest.mark.parametrize("excess", [-0.1, 0.1])
    def test_growth_is_half_the_excess(self, excess):
        roots = spectrum(limit(), drive(1.0, 2 + excess))
        assert roots.real.max() == pytest.approx(excess / 2, abs=1e-7)

    def test_stirring_damps_the_difference_alone(self):
        """The sum keeps its growth; the difference of X loses 2 sig, that of Y 2 sig q."""
        sig, q = 0.1, 0.5
        roots = spectrum(limit(q=q), drive(1.0, 2.1, sig))
        apart = np.array([[1.1 - 2 * sig, 1.0], [-2.1, -1.0 - 2 * sig * q]])
        for root in np.linalg.eigvals(apart):
            assert np.abs(roots - root).min() < 1e-7
        assert roots.real.max() == pytest.approx(0.05, abs=1e-7)


@pytest.mark.usefixtures("x64")
class TestLimitCycle:
    def test_below_the_hopf_point_it_decays(self):
        assert np.ptp(settled(limit(), drive(1.0, 1.95)).x1) < 1e-8

    @pytest.mark.parametrize(
        ("B", "height", "time"),
        [(2.05, 0.528, 6.3016), (3.0, 3.3812, 7.1570)],  # catalogue
    )
    def test_above_it_height_and_period_are_the_published_ones(self, B, height, time):
        x = settled(limit(), drive(1.0, B)).x1
        assert np.ptp(x) == pytest.approx(height, abs=1.5e-4)
        assert period(x, 1.0) == pytest.approx(time, abs=1e-4)

    def test_a_warm_bath_makes_the_same_clock_faster(self):
        """Without heat of its own, temperature multiplies every rate by k = exp(E (1 - 1/th_b))."""
        x = settled(limit(E=2.0), drive(1.0, 3.0, th_b=1.1)).x1
        assert np.ptp(x) == pytest.approx(3.3812, abs=1.5e-4)
        assert period(x, 1.0) == pytest.approx(7.1570 / np.exp(2 * (1 - 1 / 1.1)), abs=1e-4)

    def test_heat_is_the_rate_of_the_third_step(self):
        """Over whole periods as much is made from B as is turned back: <X^2 Y> = B <X> = A B in each cell."""
        path = settled(limit(), drive(1.0, 3.0))
        heat = np.asarray(WORLD.read(path, drive(1.0, 3.0), limit())[2])
        whole = round(8 * 7.15692 / DT)
        assert heat[-whole:].mean() == pytest.approx(2 * 3.0, rel=1e-4)


def readings(**changes):
    """Raw readings ``[tick, sensor]`` of a heated, oscillating instance, with parameters replaced."""
    instance = WORLD.instance(SEED, redraws=0).canonical()
    levels = {"u0": 0.6, "u1": 0.7, "u2": 0.1, "u3": 0.8}
    request = Request(instance.protocol([{"ticks": 40, "set": levels}]), ("test",))
    params = instance.params._replace(**{name: np.float32(x) for name, x in changes.items()})
    return simulate(dataclasses.replace(instance, params=params), [request], 1, noise=False).values[0, 0]


class TestParameters:
    def test_the_instance_is_heated(self):
        assert WORLD.instance(SEED, redraws=0).params.E > 0

    @pytest.mark.parametrize("name", WORLD.limit()._fields)
    def test_each_moves_some_sensor(self, name):
        moved = readings(**{name: 1.2 * getattr(WORLD.instance(SEED, redraws=0).params, name)}) - readings()
        span = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
        assert (np.abs(moved).max(0) / span).max() > 1e-3

    def test_equal_cells_stay_equal(self):
        assert np.all(readings(m=0, x1=1, x2=1)[:, 3] == 0)
