"""A1: heat and energy, compensation, hysteresis, the sensors, and what each parameter does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.validation.runs import Run
from simworlds.catalogue import load
from simworlds.families.a1_magnet import State, moment
from simworlds.integrate import advance
from simworlds.keys import Draws, Noise, Words, role_words

WORLD = load("A1")
SENSORS = [sensor.name for sensor in WORLD.sensors]
SIGMAS = 4
FERRIMAGNET = WORLD.limit(J_BB=0.35, J_AB=-0.75, mu_B=1.25, N=4000.0)
ORDERED = FERRIMAGNET._replace(m_A=0.8, m_B=-0.8)


def run(params, **drive):
    return Run(WORLD, params, {"H": 0.0, **drive}, clones=64, label="test", dtype=np.float32)


def after(clones, blocks, skipped=0):
    """Readings of blocks of 20 ticks, one program for all tests, less those that are skipped."""
    return np.concatenate([clones.ticks(20) for _ in range(blocks)], 1)[:, 20 * skipped :]


def sensor(read, name):
    return read[..., SENSORS.index(name)]


class TestHeat:
    def test_an_isolated_host_holds_the_energy_at_fixed_field_and_pressure(self):
        params = FERRIMAGNET._replace(C_L=1.0, tau_T=1e9, m_A=-0.9, m_B=0.2)
        drive = WORLD.drive_type(th=1.0, H=0.4, p=1.2)
        clones = run(params, **drive._asdict())
        before = clones.state
        after(clones, 2)
        energy = np.asarray(WORLD.energy(clones.state, drive, params) - WORLD.energy(before, drive, params))
        heat = params.C_L * (clones.state.T - before.T)
        assert heat.min() > 0.01
        assert np.abs(energy + heat).max() < 2e-5

    def test_work_done_by_field_and_pressure_heats_nothing(self):
        clones = run(ORDERED._replace(C_L=1.0, tau_T=1e9, tau0=1e9), th=0.5)
        after(clones, 1)
        before = clones.state.T
        clones.drive(H=-0.4, p=1.3)
        after(clones, 1)
        assert np.abs(clones.state.T - before).max() < 1e-5

    def test_the_heat_flow_is_what_the_bath_takes(self):
        clones = run(FERRIMAGNET._replace(C_L=2.0, tau_T=4.0), th=0.4)
        read = after(clones, 1)
        flow, T = sensor(read, "heat flow"), sensor(read, "lattice temperature")
        assert flow == pytest.approx(
            2.0 * (T - 0.4 * float(WORLD.critical_temperature(FERRIMAGNET))) / 4.0, rel=1e-4
        )
        assert (flow[:, 0] > 0.1).all()


class TestOrder:
    def test_order_persists_where_the_moment_vanishes(self):
        # T_comp = 1.041759 and T_c = 1.492389: Neel 1948, as checked in experiments/validation.
        read = after(run(ORDERED, th=1.041759 / 1.492389), 8, skipped=3)
        M = sensor(read, "net moment").mean(1)
        assert abs(M.mean()) < SIGMAS * M.std(ddof=1) / np.sqrt(len(M)) + 1e-3
        assert (sensor(read, "contrast").mean(1) > 0.5).all()

    def test_there_is_none_far_above_the_critical_temperature(self):
        read = after(run(ORDERED, th=1.8), 3, skipped=2)
        assert (sensor(read, "contrast").mean(1) < 0.01).all()

    def test_below_it_the_moment_remembers_a_field(self):
        moments = []
        for H in (0.4, -0.4):
            clones = run(FERRIMAGNET, th=0.9, H=H)
            after(clones, 2)
            clones.drive(H=0.0)
            moments.append(sensor(after(clones, 3, skipped=2), "net moment").mean(1))
        assert moments[0].min() > 0.05
        assert moments[1].max() < -0.05

    def test_pressure_strengthens_the_order(self):
        orders = [
            sensor(after(run(ORDERED, th=0.9, p=p), 3, skipped=2), "contrast").mean() for p in (0.7, 1.0, 1.3)
        ]
        assert orders[0] < orders[1] - 0.05 < orders[2] - 0.1

    def test_small_lattices_flip_by_themselves(self):
        share = {}
        for N in (60.0, 1000.0):
            clones = run(WORLD.limit(N=N, m_A=0.7), th=0.85)
            after(clones, 10)
            share[N] = np.mean(moment(clones.state, WORLD.limit(N=N)) < 0)
        assert share[60.0] > 0.2
        assert share[1000.0] < 0.02


class TestSensors:
    def test_contrast_is_blind_to_signs(self):
        drive = WORLD.drive_type(th=0.5, H=0.0, p=1.0)
        one, zero = jnp.ones(()), jnp.zeros(())
        up = State((3000 * one, 1000 * one, 500 * one, 3500 * one), one, zero, zero)
        down = up._replace(n=(up.n[1], up.n[0], up.n[3], up.n[2]))
        read, turned = (WORLD.read(state, drive, FERRIMAGNET) for state in (up, down))
        assert read[0] == pytest.approx(0.5 - 1.25 * 0.75)
        assert turned[0] == -read[0]
        assert turned[1] == read[1] == pytest.approx(0.5**2 + 0.75**2 / 2)

    def test_running_variance_settles_at_the_variance_of_the_moment(self):
        # Lone spins, so M varies with variance 1/N and memory tau0; the smoothed moment takes a share of
        # tau0 / (tau0 + tau) of it.
        N = 400.0
        params = WORLD.limit(J_AA=1e-6, N=N)
        params = params._replace(J_BB=2.0)  # so that T_c = 2 and the bath is hot
        variance = sensor(after(run(params, th=1.0), 60, skipped=4), "running variance").mean(1)
        error = variance.std(ddof=1) / np.sqrt(len(variance))
        assert abs(variance.mean() - (1 - 1 / 11) / N) < SIGMAS * error
        assert error < 0.02 / N


class TestParameters:
    @pytest.mark.parametrize("name", WORLD.limit()._fields)
    def test_each_moves_a_sensor(self, name):
        params = WORLD.instance(0).params
        other = params._replace(**{name: np.float32(getattr(params, name) * 1.2)})
        assert np.abs(self.readings(params) - self.readings(other)).max() > 1e-3

    @staticmethod
    @jax.jit
    def readings(params):
        words = (Words(*(jnp.uint32(x) for x in role_words("A1", 0, "test", part))) for part in "ab")
        first, later = words
        start = WORLD.initial(params, Noise(first, jnp.uint32(0)))
        drive = WORLD.physical(jnp.asarray(WORLD.rest, jnp.float32))

        def tick(state, t):
            state, read = advance(WORLD, params, state, drive, later, t)
            return state, jnp.stack(read)

        return jax.lax.scan(tick, start, jnp.arange(24, dtype=jnp.int32))[1]

    def test_draws_stay_in_their_ranges(self):
        drawn = [WORLD.draw(Draws.for_role("A1", seed, "test", "ranges")) for seed in range(64)]
        rows = {name: np.array([getattr(p, name) for p in drawn]) for name in drawn[0]._fields}
        assert (rows["N"] == np.round(rows["N"])).all()
        for name, low, high in (("N", 1000, 4000), ("J_BB", 0.2, 0.6), ("mu_B", 1.1, 1.5), ("tau0", 0.5, 2)):
            assert rows[name].min() >= low
            assert rows[name].max() <= high
        opposed = rows["J_AB"] < 0
        assert ((np.abs(rows["J_AB"]) >= 0.3) & (np.abs(rows["J_AB"]) <= 0.9)).all()
        # 4 of 5, within four standard errors.
        assert abs(opposed.mean() - 0.8) < SIGMAS * np.sqrt(0.16 / 64)
        assert (np.sign(rows["m_A"] * rows["m_B"]) == np.sign(rows["J_AB"])).all()
