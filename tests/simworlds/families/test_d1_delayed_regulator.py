"""D1: an independent solution, derivatives by delays, and what each flag, drive, sensor and parameter does.

Published values are measured in `experiments.validation.d1_delayed_regulator`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from simworlds.catalogue import load
from simworlds.families.d1_delayed_regulator import period_doubling
from simworlds.gradients import window_statistics
from simworlds.integrate import advance, begin
from simworlds.keys import Noise, Words

WORLD = load("D1")
SPAN = np.array([sensor.high - sensor.low for sensor in WORLD.sensors])
NO_KEY = Words(jnp.uint32(0), jnp.uint32(0))
ROWS, TICKS = 18, 24
DELAYS = ("t1", "t2", "t3")
# A cycling instance in which every parameter counts.
CYCLING = WORLD.limit(
    b=0.6, gam=0.2, n=5.0, t1=4.0, k=0.4, Ty=2.0, t2=1.5, Tz=3.0, t3=0.7, e=0.1, p1=1.0, p2=0.0
)._replace(hump=0.3, y_back=0.6, y_on=0.4)


@jax.jit
@jax.vmap
def _run(params, drives):
    start = begin(WORLD, params, Noise(NO_KEY, jnp.uint32(0)), params.b.dtype)

    def tick(carried, row):
        carried, read = advance(WORLD, params, carried, row[1], NO_KEY, row[0])
        return carried, (carried.state, jnp.stack(read))

    return jax.lax.scan(tick, start, (jnp.arange(TICKS, dtype=jnp.int32), drives))[1]


def runs(*rows):
    """States and raw readings ``[row, tick, sensor]`` in float64 of (parameters, drives over time).

    Drives are physical values, at rest if left out; of a list, each holds for an equal time. Rows are padded
    to `ROWS`, so that one compiled program serves all tests.
    """
    with jax.enable_x64(True):
        pairs = []
        for params, drive in rows:
            columns = {"u1": 1.0, "u2": 1.0, "I": 0.0, **drive}
            pairs.append(
                (
                    params,
                    WORLD.drive_type(**{k: np.repeat(v, TICKS // np.size(v)) for k, v in columns.items()}),
                )
            )
        pairs += pairs[-1:] * (ROWS - len(pairs))
        stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float64), *pairs)
        return jax.tree.map(lambda x: np.asarray(x)[: len(rows)], _run(*stacked))


def moved(params, drive=None, **changes):
    """By how much each sensor moves, in shares of its nominal range, if parameters are replaced."""
    _, read = runs((params, drive or {}), (params._replace(**changes), drive or {}))
    return np.abs(read[1] - read[0]).max(0) / SPAN


def by_hand(p, drives, piece=0.05):
    """The states at the end of each tick by the method of steps: DOP853 from kink to kink, NumPy alone."""
    y = p["k"] * p["Ty"] * p["x0"]
    s = y if p["y_on"] else p["x0"]
    start = np.array([p["x0"], y, p["Tz"] * s**2 / (1 + s**2), p["x0"]])
    solved, state, ends = [], start, []

    def rates(t, now, u1, u2, infusion):
        def then(lag):
            if lag == 0:
                return now
            return solved[min(int((t - lag) / piece + 1e-9), len(solved) - 1)](t - lag) if t > lag else start

        back, made, seen = (then(p[t]) for t in DELAYS)
        production = (u1 if p["p1"] else 1.0) * (u2 if p["p2"] else 1.0)
        clearance = (1.0 if p["p1"] else u1) * (1.0 if p["p2"] else u2)
        v, s = back[int(p["y_back"])], seen[int(p["y_on"])]
        feedback = (v if p["hump"] else 1.0) / (1 + v ** p["n"])
        x, y, z, w = now
        cleared = p["gam"] * clearance * (1 + p["e"] * z) * x
        return (
            p["b"] * production * feedback - cleared + infusion,
            p["k"] * made[0] - y / p["Ty"],
            s**2 / (1 + s**2) - z / p["Tz"],
            (x - w) / 2,
        )

    for row in zip(*drives, strict=True):
        for _ in range(round(2 / piece)):
            at = len(solved) * piece
            found = solve_ivp(
                rates, (at, at + piece), state, "DOP853", args=row, rtol=1e-10, atol=1e-11, dense_output=True
            )
            solved.append(found.sol)
            state = found.y[:, -1]
        ends.append(state)
    return np.array(ends)


class TestIndependentSolution:
    DRIVE = {"u1": [1.0, 0.7, 1.4, 0.9], "u2": [1.0, 1.3, 0.8, 1.1], "I": [0.0, 0.05, 0.02, 0.0]}

    @pytest.mark.parametrize("seed", [1, 8])
    def test_the_method_of_steps_agrees_across_switches(self, seed):
        drawn = WORLD.instance(seed, redraws=0).params
        params = drawn._replace(**{t: 0.05 * np.round(getattr(drawn, t) / 0.05) for t in DELAYS})
        state, _ = runs((params, self.DRIVE))
        plain = {name: float(x) for name, x in params._asdict().items()}
        columns = (np.repeat(self.DRIVE[name], TICKS // 4) for name in WORLD.drive_type._fields)
        exact = by_hand(plain, tuple(columns))
        assert np.stack([np.asarray(x)[0] for x in state], 1) == pytest.approx(exact, abs=1e-6)
        assert np.ptp(exact[:, 0]) > 0.1


@pytest.mark.usefixtures("x64")
class TestDerivatives:
    @staticmethod
    def figure(t1, params):
        levels = jnp.repeat(jnp.array([[0.5, 0.5, 0.0], [0.2, 0.9, 0.5]]), 10, axis=0)
        return window_statistics(WORLD, params._replace(t1=t1), levels, (12, 20)).mean[0]

    @pytest.mark.parametrize("t1", [4.0, 4.03])
    def test_by_a_delay_they_are_central_differences(self, t1):
        params = jax.tree.map(jnp.float64, CYCLING)
        figure = jax.jit(self.figure)
        slope = np.asarray(jax.jit(jax.jacfwd(self.figure))(jnp.float64(t1), params))
        difference = np.asarray(figure(t1 + 1e-4, params) - figure(t1 - 1e-4, params)) / 2e-4
        assert np.abs(slope).max() > 0.01
        assert np.abs(slope - difference).max() < 1e-4 * np.abs(slope).max()


class TestWiring:
    PLAIN = CYCLING._replace(hump=0.0, y_back=0.0, y_on=0.0, e=0.0)
    Y, Z, FLUX, X = range(4)

    @pytest.mark.parametrize(("y_back", "answers"), [(0.0, False), (1.0, True)])
    def test_y_feeds_back_only_where_it_is_wired(self, y_back, answers):
        change = moved(self.PLAIN._replace(y_back=y_back), k=0.5, t2=3.0)
        assert change[self.Y] > 0.05
        assert (change[self.X] > 0.05) == answers
        assert (change[self.X] == 0) != answers

    @pytest.mark.parametrize(("y_on", "answers"), [(0.0, False), (1.0, True)])
    def test_z_is_made_from_x_or_y(self, y_on, answers):
        assert (moved(self.PLAIN._replace(y_on=y_on), k=0.6)[self.Z] > 0.05) == answers

    @pytest.mark.parametrize(("e", "answers"), [(0.0, False), (0.2, True)])
    def test_z_speeds_clearance_only_with_its_loop(self, e, answers):
        assert (moved(self.PLAIN._replace(e=e), Tz=5.0)[self.X] > 0.02) == answers

    @pytest.mark.parametrize("drive", ["u1", "u2"])
    def test_each_multiplier_hits_production_or_clearance(self, drive):
        """At once the flux shows a change of clearance, and not one of production."""
        flag = {"u1": "p1", "u2": "p2"}[drive]
        rows = [
            (self.PLAIN._replace(**{flag: on}), {drive: [1.0, level]})
            for on in (0.0, 1.0)
            for level in (1.0, 1.4)
        ]
        _, read = runs(*rows)
        flux = read[:, TICKS // 2, self.FLUX]
        assert flux[1] / flux[0] == pytest.approx(1.4, rel=0.15)
        assert flux[3] / flux[2] == pytest.approx(1.0, rel=0.1)
        assert np.abs(read[1::2, :, self.X] - read[::2, :, self.X]).max(1).min() > 0.1

    def test_a_hump_needs_something_to_grow_from(self):
        """Without any, x stays away under a hump and appears without; an infusion feeds both."""
        rows = [(self.PLAIN._replace(hump=h, x0=0.0), {"I": i}) for h in (0.0, 1.0) for i in (0.0, 0.1)]
        last = runs(*rows)[1][:, -1, self.X]
        assert last[2] == 0
        assert min(last[[0, 1, 3]]) > 0.1

    def test_sensors_read_what_they_claim(self):
        (state, read), p = runs((CYCLING, {"u1": 1.2, "u2": 0.8, "I": 0.05})), CYCLING
        drive = WORLD.drive_type(u1=1.2, u2=0.8, I=0.05)
        x, y, z, w = (field[0] for field in state)
        now = np.stack(WORLD.read(state, drive, p), -1)[0]
        assert now == pytest.approx(np.stack([y, z, p.gam * 0.8 * (1 + p.e * z) * x, w], 1))
        assert np.ptp(x) > 0.2
        middle = (now[1:] + now[:-1]) / 2  # a tick's mean lies near its ends
        assert np.abs(read[0, 1:] - middle).max(0) == pytest.approx(0, abs=0.1)


class TestParameters:
    def test_each_moves_some_sensor(self):
        drive = {"u1": [1.0, 1.3], "u2": [0.8, 1.2]}
        changed = [CYCLING._replace(**{n: 1.1 * x + 0.02}) for n, x in CYCLING._asdict().items()]
        _, read = runs((CYCLING, drive), *((row, drive) for row in changed))
        size = (np.abs(read[1:] - read[0]).max(1) / SPAN).max(1)
        assert len(size) == 16
        assert [n for n, s in zip(CYCLING._fields, size, strict=True) if s < 1e-3] == []

    def test_draws_stay_in_their_ranges(self):
        p = jax.tree.map(lambda *x: np.stack(x), *(WORLD.instance(s, redraws=0).params for s in range(64)))
        within = dict(gam=(0.1, 0.3), n=(3, 8), t1=(2, 12), t2=(0, 8), t3=(0, 5), Ty=(1, 5), Tz=(1, 5))
        for name, (low, high) in within.items():
            assert ((getattr(p, name) >= low - 1e-6) & (getattr(p, name) <= high + 1e-6)).all(), name
        assert ((p.b / p.gam > 2) & (p.b / p.gam < 4)).all()
        for flag in (p.hump, p.y_back, p.y_on, p.p1, p.p2):
            assert set(flag.tolist()) == {0.0, 1.0}
        assert 0 < np.mean(p.e == 0) < 1
        for t in (p.t1, p.t2, p.t3):
            assert t / WORLD.scheme.dt == pytest.approx(np.round(t / WORLD.scheme.dt), abs=1e-4)

    def test_a_hump_stays_short_of_its_period_doubling(self):
        drawn = [WORLD.instance(seed, redraws=0).params for seed in range(64)]
        for p in (p for p in drawn if p.hump):
            fastest = p.gam * 1.4 ** (2 - p.p1 - p.p2) * (1 + p.e * p.Tz / 2)
            assert p.t1 + p.y_back * p.t2 <= 0.9 * period_doubling(float(p.n * fastest)) + 1e-4
