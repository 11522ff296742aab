"""B1: what its energy, growth, dye and flags do, what its outcomes mean, how far its relaxation is from it.

Barriers and first passages are checked in `experiments.validation.b1_closing_film`.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.catalogue import load
from simworlds.contracts import grammar_protocol
from simworlds.ensemble import Request, simulate
from simworlds.gradients import window_statistics
from simworlds.instance import draw_instance
from simworlds.integrate import advance
from simworlds.keys import Draws, Noise, Words, clone_words, role_words

WORLD = load("B1")
CLONES = 512
SIGMAS = 5.0
NOTHING = Noise(Words(jnp.uint32(0), jnp.uint32(0)), jnp.uint32(0))


def drive(feed=0.05, e=0.0, T=1.0, c_out=2.0):
    return WORLD.drive_type(*(jnp.float32(x) for x in (feed, e, T, c_out)))


def limit(**changes):
    return jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), WORLD.limit(**changes))


def state(params, **changes):
    """The initial state with fields replaced by numbers for all patches."""
    start = WORLD.initial(params, NOTHING)
    full = {k: jnp.full_like(getattr(start, k), v) for k, v in changes.items()}
    return start._replace(**full)


@partial(jax.jit, static_argnums=(3, 4))
def run(params, start, rows, clones=CLONES, world=WORLD):
    """The last states, and tick means ``[tick, clone, sensor]``, under drives ``[tick]`` field by field."""
    key = role_words("B1", 0, "test", "run")
    keys = jax.vmap(partial(clone_words, key))(jnp.arange(clones, dtype=jnp.uint32))
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (clones, *jnp.shape(x))), start)

    def tick(states, inputs):
        t, row = inputs
        states, means = jax.vmap(lambda s, k: advance(world, params, s, row, k, t))(states, keys)
        return states, jnp.stack(means, axis=-1)

    return jax.lax.scan(tick, states, (jnp.arange(rows.feed.shape[0], dtype=jnp.int32), rows))


def held(ticks, *drives):
    """Each of the drives for so many ticks."""
    return jax.tree.map(lambda *x: jnp.repeat(jnp.stack(x), ticks), *drives)


class TestEnergy:
    def test_the_rim_moves_down_the_gradient_of_the_documented_energy(self):
        p = draw_instance(WORLD, 0).params._replace(q=np.float32(0.7), a_0=np.full(6, 0.3, np.float32))
        d = drive(e=0.4, T=1.2)

        def energy(s):
            R = jnp.sqrt(0.3 / (4 * np.pi))
            gam = p.gam0 * (1 - p.phi * d.e / (d.e + p.Ke)) * (1 - p.aT * (d.T - 1))
            x = 1 - s**2
            bending = 4 * np.pi * p.kt * (x + gam * R / p.kt * (s - 1))
            return bending - 4 * np.pi * p.q * R * jnp.sqrt(x + 0.1**2)

        rims = jnp.linspace(0.05, 0.95, 6)
        start = state(p, a=0.3)._replace(s=rims)
        expected = -p.Mob / d.T * jax.vmap(jax.grad(energy))(rims)
        np.testing.assert_allclose(WORLD.drift(start, d, p).s, expected, rtol=2e-4, atol=1e-4)

    @pytest.mark.parametrize(("phi", "sign"), [(0.5, 1), (-0.5, -1)])
    def test_the_additive_holds_a_rim_open_or_closes_it(self, phi, sign):
        p = limit(phi=phi, gam0=1.5)
        without, with_it = (WORLD.drift(state(p, s=0.5), drive(e=e), p).s for e in (0.0, 1.0))
        assert (sign * (with_it - without) > 0).all()

    def test_spontaneous_curvature_closes_patches_sooner(self):
        times = []
        for q in (0.0, 0.2):
            p = limit(kt=1.0, gam0=1.2, q=q, Mob=0.05)
            _, means = run(p, state(p), held(24, drive(c_out=1.0)))
            times.append(np.asarray(means[..., 1]).mean())
        assert times[1] > 1.2 * times[0]


class TestBalance:
    def test_monomer_is_fed_lost_or_built_in(self):
        p = draw_instance(WORLD, 3).params._replace(k_cat=np.float32(0))
        start = state(p, m=1.0)._replace(z=jnp.array([1.0, 0, 1, 0, 1, 0]))
        rate = WORLD.drift(start, drive(), p)
        assert float(rate.m + rate.a.sum() / p.Vol) == pytest.approx(0.05 - float(p.k_out), abs=1e-6)

    def test_trapped_dye_makes_monomer_where_the_film_is_autopoietic(self):
        plain, fed = limit(), limit(k_cat=0.01)
        for z, made in ((0.0, 0.0), (1.0, 6 * 2 * 0.01)):
            rates = [WORLD.drift(state(p, z=z, c_in=2.0), drive(), p).m for p in (plain, fed)]
            assert float(rates[1] - rates[0]) == pytest.approx(made, abs=1e-6)

    def test_an_open_patch_grows_at_its_rim_and_a_closed_one_through_its_face(self):
        p = limit(k_on=0.1, k_face=0.02)
        area = 4 * np.pi
        grown = [WORLD.drift(state(p, m=m, z=z, s=0.5), drive(), p).a for m in (0.8, 0.1) for z in (0.0, 1.0)]
        rim = 2 * np.sqrt(np.pi * area) * 0.5
        expected = [0.1 * rim * 0.5, 0.02 * area * 0.5, 0.0, -0.02 * area * 0.2]
        np.testing.assert_allclose(np.stack(grown)[:, 0], expected, rtol=1e-4)


class TestDye:
    CLOSING = dict(kt=1.0, gam0=3.0, Mob=0.05, m_c=0.0, k_out=0.0)

    def test_a_closed_patch_keeps_what_was_outside_when_it_closed(self):
        p = limit(**self.CLOSING, P=0.05)
        start = state(p, z=1.0, s=0.0, c_in=3.0)
        end, means = run(p, start, held(20, drive(c_out=1.0)), 2)
        np.testing.assert_allclose(end.c_in, 1 + 2 * np.exp(-0.05 * 20), rtol=1e-4)
        kept = np.asarray(end.c_in).sum(1) * (4 * np.pi) ** 1.5
        np.testing.assert_allclose(means[-1, :, 1], kept, rtol=0.03)

    def test_what_closes_traps_what_is_outside_at_that_time(self):
        p = limit(**self.CLOSING)
        end, _ = run(p, state(p), held(30, drive(c_out=3.0)), 64)
        assert (end.z == 1).all()
        np.testing.assert_allclose(end.c_in, 3.0, rtol=1e-6)

    def test_too_great_a_difference_bursts_and_the_patch_closes_anew_over_the_new_outside(self):
        p = limit(**self.CLOSING, Pi_c=1.5)
        start = state(p, z=1.0, s=0.0, c_in=2.0)
        for c_out, burst in ((0.6, 0.0), (0.4, 1.0), (3.6, 1.0)):
            end, _ = run(p, start, held(30, drive(c_out=c_out)), 8)
            assert (end.b == burst).all()
            assert (end.z == 1).all()
            np.testing.assert_allclose(end.c_in, c_out if burst else 2.0, rtol=1e-6)

    def test_a_burst_patch_of_little_tension_flattens(self):
        p = limit(kt=5.0, gam0=1.0, Mob=0.05, Pi_c=1.5)
        end, _ = run(p, state(p, z=1.0, s=0.0, c_in=4.0), held(30, drive(c_out=1.0)), 64)
        assert (end.b == 1).all()
        assert end.z.mean() < 0.1
        assert end.s[end.z == 0].mean() > 0.9


class TestOutcomes:
    @pytest.mark.parametrize(
        ("z", "b", "label"),
        [
            ([0, 0, 0], [0, 0, 0], "open"),
            ([0, 1, 0], [0, 0, 0], "partly closed"),
            ([1, 1, 1], [0, 0, 0], "closed"),
            ([1, 1, 1], [0, 1, 0], "burst"),
            ([0, 0, 0], [1, 0, 0], "burst"),
        ],
    )
    def test_labels(self, z, b, label):
        p = limit(a_0=np.array([1.0, 1, 1, 0, 0, 0]))
        pad = [0, 0, 0]
        at = state(p)._replace(z=jnp.array(z + pad, jnp.float32), b=jnp.array(b + pad, jnp.float32))
        assert WORLD.branches[int(WORLD.branch(at, p))] == label

    def test_a_single_patch_ends_open_or_closed(self):
        p = limit(kt=10 / (4 * np.pi), gam0=1.2 * 10 / (4 * np.pi), Mob=0.02, a_0=np.eye(6)[0] * 4 * np.pi)
        end, means = run(p, state(p), held(20, drive()))
        shut = np.asarray(end.z[:, 0])
        assert 0.15 < shut.mean() < 0.85
        assert (end.z[:, 1:] == 0).all()
        dye = np.asarray(means[-1, :, 1])
        assert dye[shut == 1].max() > 80
        assert dye[shut == 0].max() == 0


def test_draws_stay_in_their_ranges():
    for seed in range(64):
        p = draw_instance(WORLD, seed).params
        there = p.a_0 > 0
        assert 10 <= 4 * np.pi * p.kt <= 40.001
        assert 0.01 <= p.Mob <= 0.05
        assert 0.002 <= p.P <= 0.05
        assert 1 <= p.Pi_c <= 3
        assert 0.3 <= abs(p.phi) <= 0.8
        assert 1 <= there.sum() <= 6
        xi = p.gam0 * np.sqrt(p.a_0[there] / (4 * np.pi)) / p.kt
        assert ((xi > 0.4) & (xi < 0.7)).all()


def test_each_element_of_each_parameter_moves_a_sensor():
    p = draw_instance(WORLD, 5).params
    p = p._replace(
        gam0=np.float32(1.5 * p.gam0),  # so that some patches close before the dye is washed out
        q=np.float32(0.5),
        k_cat=np.float32(0.003),
        P=np.float32(0.005),
        Pi_c=np.float32(1.2),
        a_0=np.full(6, 0.16, np.float32),
    )
    names, rows = ["nothing"], [p]
    for name, leaf in zip(p._fields, p, strict=True):
        for at in np.ndindex(leaf.shape):
            changed = np.array(leaf)
            changed[at] *= 1.5
            names.append(f"{name}{list(at)}")
            rows.append(p._replace(**{name: changed}))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    # The second outside leaks in, the third one bursts.
    rows = held(28, *(drive(0.1, 0.5, 1.1, c_out) for c_out in (3.0, 2.2, 1.4)))
    noise = Noise(Words(jnp.uint32(3), jnp.uint32(4)), jnp.uint32(0))
    read = np.asarray(jax.jit(jax.vmap(lambda q: run(q, WORLD.initial(q, noise), rows, 4)[1]))(stacked))
    apart = np.abs(read - read[0]).max(axis=(1, 2, 3))
    assert [name for name, moved in zip(names[1:], apart[1:], strict=True) if moved < 1e-4] == []


class TestRelaxation:
    def test_its_mean_readings_are_the_laws(self):
        span = np.array([s.high - s.low for s in WORLD.sensors])
        for seed in (1, 5):
            law = draw_instance(WORLD, seed).canonical()
            soft = dataclasses.replace(law, world=WORLD.relaxed())
            protocol = grammar_protocol(law, Draws.for_role("B1", seed, "test", "relaxed"))
            requests = [Request(protocol, ("relaxed",))]
            one, other = (simulate(x, requests, 256, noise=False).values[0] / span for x in (law, soft))
            error = np.sqrt((one.var(0) + other.var(0)) / 256)
            assert (np.abs(one.mean(0) - other.mean(0)) < SIGMAS * error + 5e-3).all()

    def test_derivatives_flow_to_what_decides_closing(self):
        relaxed, p = WORLD.relaxed(), draw_instance(WORLD, 5).params
        levels = jnp.tile(jnp.asarray(WORLD.rest, jnp.float32), (80, 1))

        def dye(gam0):
            return (
                window_statistics(relaxed, p._replace(gam0=gam0), levels, (40, 80), clones=16)
                .mean[:, 1]
                .mean()
            )

        slope = jax.jit(jax.grad(dye))(jnp.asarray(p.gam0))
        assert np.isfinite(slope)
        assert slope > 0
