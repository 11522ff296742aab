"""Fits and rungs, on a toy world whose theory is exact; and what every registered theory must keep to."""

import ast
import inspect
import io
import sys
import tokenize
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import fit, ladder
from oracles.exploration import reference_exploration
from oracles.fit import FitSettings, block_statistics, fit_theory
from oracles.ladder import (
    RUNGS,
    Persistence,
    climb,
    ensemble_answers,
    null_answers,
    outcomes_of,
    point_answers,
    tail_answers,
    theory_answers,
    theory_statistics,
)
from oracles.prior import Prior, float_leaves, god_theory, prior_of
from oracles.registry import compact_theory
from oracles.theory import (
    NO_HISTORY,
    CompactTheory,
    Ports,
    Theory,
    god_ports,
    replay,
    window_statistics,
)
from scoring import check_truth, scorecard
from simworlds.catalogue import worlds
from simworlds.contracts import contracts_of, grammar_protocol
from simworlds.instance import Budget
from simworlds.integrate import RK4
from simworlds.keys import Draws
from simworlds.store import Store
from simworlds.truth import truth_of
from simworlds.world import Drive, Grammar, OdeWorld, Sensor

# A toy: relaxation towards a drive


class Rates(NamedTuple):
    rate: Any


class Level(NamedTuple):
    x: Any


class Relaxation(OdeWorld):
    """x' = rate (u - x); the sensors are x and the idle drive v."""

    id, title, track, phenomenon = "T2", "Relaxation", "T", "follows its drive"
    drives = (Drive("u", 0.0, 1.0, rest=0.0), Drive("v", 0.0, 1.0, rest=0.5))
    sensors = (Sensor("x", 0.0, 1.0), Sensor("v", 0.0, 1.0))
    scheme = RK4(dt=0.25, substeps=4)
    grammar = Grammar((2, 3), (6, 16), (4, 8), (1, 2), {"x": 1.0, "v": 0.5})
    horizon, lanes = 48, 64
    mean_fraction, sd_fraction = 0.03, 0.015

    def draw(self, draws):
        return Rates(np.float32(draws.uniform(0.1, 0.5)))

    def limit(self, **changes):
        return Rates(np.float32(0.3))._replace(**changes)

    def initial(self, params, noise):
        return Level(jnp.zeros_like(params.rate))

    def drift(self, state, drive, params):
        return Level(params.rate * (drive.u - state.x))

    def read(self, state, drive, params):
        return state.x, drive.v * jnp.ones_like(state.x)


class Boost(NamedTuple):
    rate: Any


class NoConstants(NamedTuple):
    pass


class RelaxationTheory(CompactTheory):
    """The exact solution of a tick; the closure multiplies the rate."""

    world: ClassVar[str] = "T2"
    law: Rates
    ports: Ports
    closure: Any
    structure: Any

    @classmethod
    def from_god(cls, params, ports):
        rate = jnp.asarray(params.rate, jnp.float32)
        return cls(Rates(rate), ports, Boost(jnp.zeros_like(rate)), {"order": jnp.arange(2)})

    def init(self, history, *, key):
        return jnp.zeros_like(self.law.rate)

    def step(self, state, levels, *, key):
        u, v = self.ports.levels(levels)
        rate = self.law.rate * jnp.exp(self.closure.rate)
        later = u + (state - u) * jnp.exp(-rate)
        mean = u + (state - u) * (1 - jnp.exp(-rate)) / rate
        return later, self.ports.readings((mean, v), key=key)


QUICK = FitSettings(protocols=6, clones=4, ticks=32, block=8, steps=60, closure_steps=40)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def toy():
    return Relaxation().instance(0, redraws=0)


@pytest.fixture(scope="module")
def god(toy):
    return god_theory(RelaxationTheory, toy)


@pytest.fixture(scope="module")
def contracts(toy, store):
    return contracts_of(toy, store)


# Fits


def synthetic(theory, replays=16):
    """Calibration data that a theory itself produced, under steps of both drives."""
    levels = np.zeros((4, 32, 2), np.float32)
    for k in range(4):
        levels[k, 4 + 3 * k :, 0], levels[k, 20:, 0], levels[k, 10 + k :, 1] = 0.9, 0.2, 0.7
    keys = jax.random.split(jax.random.key(7), 4)
    blocks = block_statistics(replay(theory, jnp.asarray(levels), NO_HISTORY, keys, replays), 8)
    return fit.FitData(jnp.asarray(levels), blocks, jnp.ones((4, 4)), jnp.ones(2))


def hand_prior(god, low=0.05, high=1.0):
    """A prior in which the rate is wide and the ports are known."""
    ports = [np.asarray(leaf) for leaf in float_leaves(god)[1:]]
    spread = [np.full_like(leaf, 1e-3) for leaf in ports]
    rate = [np.asarray(x, np.float32) for x in (0.2, 0.1, low, high)]
    low_ports, high_ports = (
        [leaf + s * 3 * sign for leaf, s in zip(ports, spread, strict=True)] for sign in (-1, 1)
    )
    return Prior([rate[0], *ports], [rate[1], *spread], [rate[2], *low_ports], [rate[3], *high_ports])


def optimise(toy, start, prior, groups, data, steps=80, progress=None):
    settings = FitSettings(block=8, steps=steps)
    return fit._optimise(toy, start, fit._box(start, prior, groups), groups, data, settings, progress)


def halves(losses):
    return losses[: len(losses) // 4].mean(), losses[-len(losses) // 4 :].mean()


@pytest.mark.parametrize("factor", [0.5, 1.8])
def test_a_fit_of_the_closure_recovers_a_known_constant(toy, god, factor):
    data = synthetic(eqx.tree_at(lambda t: t.closure.rate, god, jnp.log(jnp.float32(factor))))
    found = optimise(toy, god, hand_prior(god), ("closure",), data)
    assert float(jnp.exp(found.theory.closure.rate)) == pytest.approx(factor, rel=0.05)
    first, last = halves(found.losses)
    assert last < 0.5 * first
    assert found.losses.shape == found.gradients.shape == (80,)
    assert np.isfinite(found.gradients).all()
    # In god form law and ports keep every bit.
    for one, other in zip(float_leaves(found.theory), float_leaves(god), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_fit_of_the_law_recovers_a_known_constant(toy, god):
    truth = float(god.law.rate)
    start = eqx.tree_at(lambda t: t.law.rate, god, jnp.float32(truth / 2))
    found = optimise(toy, start, hand_prior(god), ("law",), synthetic(god))
    assert float(found.theory.law.rate) == pytest.approx(truth, rel=0.05)
    first, last = halves(found.losses)
    assert last < 0.5 * first


def test_a_fit_does_not_move_where_it_starts_at_the_truth(toy, god):
    found = optimise(toy, god, hand_prior(god), ("closure",), synthetic(god))
    assert float(jnp.exp(found.theory.closure.rate)) == pytest.approx(1, rel=0.05)


def test_a_fit_stays_within_the_prior_s_range(toy, god):
    low = float(god.law.rate) * 1.2
    start = eqx.tree_at(lambda t: t.law.rate, god, jnp.float32(low * 1.3))
    found = optimise(toy, start, hand_prior(god, low=low, high=2 * low), ("law",), synthetic(god))
    assert float(found.theory.law.rate) == pytest.approx(low, rel=1e-6)


def test_the_loss_is_a_proper_score(god):
    """The fair CRPS is least where replays and clones share a law, and about 0 there with no spread."""
    data = synthetic(god)

    def loss(factor):
        theory = eqx.tree_at(lambda t: t.closure.rate, god, jnp.log(jnp.float32(factor)))
        groups = ("closure",)
        free, fixed = eqx.partition(theory, fit._mask(theory, groups))
        return float(fit.fit_loss(free, fixed, data, jax.random.key(1), 8))

    losses = {factor: loss(factor) for factor in (0.6, 0.8, 1.0, 1.25, 1.6)}
    assert min(losses, key=losses.get) == 1.0
    assert losses[0.6] > losses[0.8]
    assert losses[1.6] > losses[1.25]


def test_blocks_hold_means_and_sds():
    readings = np.random.default_rng(0).normal(size=(3, 22, 2)).astype(np.float32)
    found = block_statistics(jnp.asarray(readings), 5)
    cut = readings[:, :20].reshape(3, 4, 5, 2)
    np.testing.assert_allclose(found[..., 0], cut.mean(2), atol=1e-6)
    np.testing.assert_allclose(found[..., 1], cut.std(2), atol=1e-6)


def test_calibration_weighs_whole_blocks_inside_a_protocol(toy, store):
    data = fit._calibration(toy, QUICK, store)
    for k in range(QUICK.protocols):
        ticks = grammar_protocol(toy, Draws.for_role("T2", 0, "fit", "protocol", k)).ticks
        inside = np.arange(8, QUICK.ticks + 1, 8) <= ticks
        np.testing.assert_array_equal(data.weight[k], inside)
    assert data.levels.shape == (6, 32, 2)
    assert data.blocks.shape == (6, 4, 4, 2, 2)
    assert all(np.isfinite(x).all() for x in data)


@pytest.mark.parametrize(("form", "steps"), [("god", 40), ("fitted", 60)])
def test_a_fit_is_made_once_and_kept(toy, god, store, form, steps):
    done = []
    first = fit_theory(toy, god, form, QUICK, store, done.append)
    assert sum(done) == steps == len(first.losses)
    again = fit_theory(toy, god, form, QUICK, store, done.append)
    assert sum(done) == steps
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    before, after = halves(first.losses)
    assert after < before or form == "god"
    assert jax.tree.structure(first.theory) == jax.tree.structure(god)
    np.testing.assert_array_equal(first.theory.structure["order"], god.structure["order"])


def test_a_fitted_theory_comes_near_the_true_world(toy, god, store):
    found = fit_theory(toy, god, "fitted", QUICK, store).theory
    prior = prior_of(toy.world, RelaxationTheory, store)
    rate = lambda theory: float(theory.law.rate * jnp.exp(theory.closure.rate))  # noqa: E731
    assert abs(rate(found) - rate(god)) < 0.3 * abs(float(prior.mean[0]) - rate(god)) + 0.03


def test_other_settings_are_another_fit(toy, god, store):
    done = []
    settings = FitSettings(protocols=6, clones=4, ticks=32, block=8, steps=60, closure_steps=3)
    fit_theory(toy, god, "god", settings, store, done.append)
    assert sum(done) == 3


def test_a_god_form_without_constants_needs_no_fit(toy, god, store):
    complete = eqx.tree_at(lambda t: t.closure, god, NoConstants())
    found = fit_theory(toy, complete, "god", QUICK, store)
    assert found.theory is complete
    assert found.losses.size == found.gradients.size == 0


def test_a_form_is_god_or_fitted(toy, god, store):
    with pytest.raises(ValueError, match="`form` must be 'god' or 'fitted', but is 'best'"):
        fit_theory(toy, god, "best", QUICK, store)


def test_a_fit_never_sees_the_truth_s_clones(toy, god, tmp_path, monkeypatch):
    asked = []
    original = fit.simulate

    def spy(instance, requests, clones, **options):
        asked.extend(request.purpose[0] for request in requests)
        return original(instance, requests, clones, **options)

    monkeypatch.setattr(fit, "simulate", spy)
    fit_theory(toy, god, "god", QUICK, Store(tmp_path))
    assert set(asked) == {"fit"}


def test_the_prior_is_that_of_the_family(toy, store):
    prior = prior_of(toy.world, RelaxationTheory, store)
    assert float(prior.mean[0]) == pytest.approx(0.3, abs=0.03)
    assert float(prior.sd[0]) == pytest.approx(0.4 / 12**0.5, rel=0.15)
    assert 0.1 <= prior.low[0] < prior.high[0] <= 0.5
    for low, mean, high in zip(prior.low, prior.mean, prior.high, strict=True):
        assert ((low <= mean) & (mean <= high)).all()


# Every registered theory

THEORIES = [(world, compact_theory(world.id)) for world in worlds() if compact_theory(world.id)]
every_theory = pytest.mark.parametrize(("world", "kind"), THEORIES, ids=[world.id for world, _ in THEORIES])
MOST_LINES = 70


def code_lines(source):
    """Lines that hold code: no docstring, no comment, no blank line."""
    silent = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        scope = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if scope and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def imported(source):
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "." * node.level)
    return found


def is_foreign(name):
    """Whether a theory may not import it: a world, or anything from which one could be had."""
    return name.startswith((".", "simworlds", "experiments", "importlib")) or name == "oracles"


def test_each_track_has_a_world_with_a_theory():
    assert [world.track for world, _ in THEORIES] == list("ABCD")
    assert compact_theory("Z9") is None


@every_theory
def test_a_theory_is_compact_and_knows_no_world(world, kind):
    source = inspect.getsource(sys.modules[kind.__module__])
    assert kind.world == world.id
    assert code_lines(source) <= MOST_LINES
    assert {name for name in imported(source) if is_foreign(name)} == set()


def test_the_rules_for_theories_can_fail():
    function = 'def f():\n    """Doc."""\n    return (1,\n    2)\n'
    source = f'"""Doc\n\nmore."""\n\nimport simworlds.world\n\n# why\n{function}'
    assert code_lines(source) == 4
    assert [name for name in imported(source) if is_foreign(name)] == ["simworlds.world"]
    assert is_foreign("simworlds")
    assert not is_foreign("oracles.theory")


TICKS = 64


@eqx.filter_jit
def _gradients(theory, data, key):
    free, fixed = eqx.partition(theory, fit._mask(theory, ("law", "ports", "closure")))
    return jax.value_and_grad(fit.fit_loss)(free, fixed, data, key, 16)


def grammar_data(instance):
    """Two grammar protocols with made-up truth within the gauges' reach."""
    world, levels = instance.world, []
    for k in range(2):
        protocol = grammar_protocol(instance, Draws.for_role(world.id, instance.seed, "test", k)).first(TICKS)
        rows = protocol.levels(instance.drive_ports, instance.rest)
        levels.append(np.pad(rows, ((0, TICKS - len(rows)), (0, 0)), mode="edge"))
    middle = instance.gauge.offset + 0.5 * instance.gauge.gain
    blocks = np.broadcast_to(np.stack([middle, np.full_like(middle, 0.1)], -1), (2, 3, 4, len(middle), 2))
    arrays = (levels, blocks, np.ones((2, 4)), np.ones(len(middle)))
    return fit.FitData(*(jnp.asarray(np.asarray(x, np.float32)) for x in arrays))


@every_theory
def test_gradients_are_finite_at_god_and_at_prior_mean(world, kind):
    prior = prior_of(world, kind, Store())
    for seed in range(4):
        instance = world.instance(seed, redraws=0)
        god, data = god_theory(kind, instance), grammar_data(instance)
        for name, theory in {"god": god, "prior mean": fit._like(god, prior.mean, 0.0)}.items():
            loss, gradient = _gradients(theory, data, jax.random.key(seed))
            where = f"{world.id}, seed {seed}, {name}"
            assert np.isfinite(loss), where
            leaves = jax.tree.leaves(gradient)
            assert all(np.isfinite(leaf).all() for leaf in leaves), where
            assert any(np.abs(leaf).max() > 0 for leaf in leaves), where


@every_theory
def test_a_theory_takes_every_instance_in_one_shape(world, kind):
    """One compiled program serves every seed: structure is data, not shape."""
    shapes = {
        jax.tree.structure(theory): [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(theory)]
        for theory in (god_theory(kind, world.instance(seed, redraws=0)) for seed in range(24))
    }
    assert len(shapes) == 1


@every_theory
def test_god_ports_put_levels_and_readings_in_order(world, kind):
    instance = world.instance(5, redraws=0)
    ports = god_ports(instance.gauge, instance.wiring)
    by_port = np.linspace(0, 1, len(world.drives), dtype=np.float32)
    by_drive = np.empty_like(by_port)
    by_drive[list(instance.wiring.drives)] = by_port
    np.testing.assert_array_equal(ports.levels(jnp.asarray(by_port)), by_drive)
    silent = eqx.tree_at(lambda p: p.sigma, ports, jnp.zeros_like(ports.sigma))
    raw = np.arange(1.0, len(world.sensors) + 1, dtype=np.float32)
    expected = instance.gauge.offset + instance.gauge.gain * raw[instance.gauge.order]
    np.testing.assert_allclose(silent.readings(tuple(raw), key=jax.random.key(0)), expected, rtol=1e-6)


# Answers


def test_a_point_answer_names_one_number(contracts):
    answers = point_answers(contracts, np.arange(8, dtype=np.float32) / 4)
    for k, answer in enumerate(answers):
        assert (answer.id, answer.mean, answer.low, answer.high, answer.quantiles) == (
            k,
            k / 4,
            k / 4,
            k / 4,
            None,
        )
    assert {answer.mean for answer in null_answers(contracts)} == {0.0}
    with pytest.raises(ValueError, match="zip"):
        point_answers(contracts, [1.0])


def test_an_ensemble_answer_holds_its_mean_and_inverted_cdf_quantiles(contracts):
    values = np.random.default_rng(3).normal(size=(8, 20)).astype(np.float32)
    for row, answer in zip(values.astype(np.float64), ensemble_answers(contracts, values), strict=True):
        ordered = np.sort(row)
        expected = [ordered[int(np.ceil(level * 20)) - 1] for level in (0.1, 0.25, 0.5, 0.75, 0.9)]
        assert answer.mean == row.mean()
        assert list(answer.quantiles) == expected
        assert (answer.low, answer.high) == (expected[0], expected[-1])


def test_answers_are_valid_when_handed_in(contracts):
    from scoring import check_answers

    values = np.random.default_rng(3).normal(size=(8, 20))
    for answers in (ensemble_answers(contracts, values), null_answers(contracts)):
        parsed, faults = check_answers([answer.to_json() for answer in answers], range(8))
        assert faults == []
        assert list(parsed.values()) == answers


class Echo(Theory):
    """Reads the first port's level; deterministic."""

    replays: ClassVar[int] = 1

    def init(self, history, *, key):
        return jnp.float32(0)

    def step(self, state, levels, *, key):
        return state, jnp.stack([levels[0], state])


class Broken(Echo):
    """Is no number once the first port is driven above a level."""

    level: float = 0.6

    def step(self, state, levels, *, key):
        broken = jnp.where(levels[0] > self.level, jnp.nan, state)
        return broken, jnp.stack([levels[0] + broken, broken])


NOTHING = NO_HISTORY


def test_a_deterministic_theory_gives_points(toy, contracts):
    answers = theory_answers(toy, contracts, Echo(), NOTHING, "echo")
    for contract, answer in zip(contracts, answers, strict=True):
        rows = contract.protocol.levels(toy.drive_ports, toy.rest)[slice(*contract.window), 0]
        values = rows if contract.port == "y0" else 0 * rows
        expected = values.std() if contract.statistic == "sd" else values.mean()
        assert answer.mean == pytest.approx(expected, abs=2e-6)
        assert answer.quantiles is None


def test_a_stochastic_theory_gives_quantiles(toy, contracts, god):
    values = theory_statistics(toy, contracts, god, NOTHING, "god")
    assert values.shape == (8, god.replays) == (8, 64)
    answers = theory_answers(toy, contracts, god, NOTHING, "god")
    assert answers == ensemble_answers(contracts, values)
    other = theory_statistics(toy, contracts, god, NOTHING, "another name")
    assert (values != other).all()
    np.testing.assert_array_equal(values, theory_statistics(toy, contracts, god, NOTHING, "god"))


def test_a_theory_that_is_no_number_gives_missing_answers_that_count(toy, contracts):
    answers = theory_answers(toy, contracts, Broken(), NOTHING, "broken")
    kept = {answer.id for answer in answers}
    for contract in contracts:
        rows = contract.protocol.levels(toy.drive_ports, toy.rest)[: contract.window[1], 0]
        assert (contract.id in kept) == (not (rows.astype(np.float32) > 0.6).any())
    assert 0 < len(kept) < 8
    draws = np.random.default_rng(0).normal(size=(8, 8))
    truth = check_truth(draws, np.zeros((8, 8), int), fraction=0.03, dynamic_range=2.0)
    card = scorecard(truth, {answer.id: answer for answer in answers}, range(8))
    assert card.missing == 8 - len(kept)
    assert card.contracts == 8
    assert card.accuracy == pytest.approx(sum(row.accuracy for row in card.rows if row.id in kept) / 8)
    assert all(row.accuracy == 0 for row in card.rows if row.id not in kept)


def test_a_theory_that_is_never_a_number_gives_no_answers(toy, contracts):
    assert theory_answers(toy, contracts, Broken(level=-1.0), NOTHING, "broken") == []


def test_window_statistics_are_those_of_numpy():
    readings = np.random.default_rng(0).normal(size=(3, 4, 12, 2)).astype(np.float32)
    port, start, stop, sd = (
        jnp.asarray(x) for x in ([0, 1, 1], [0, 3, 10], [12, 8, 12], [False, True, False])
    )
    found = window_statistics(jnp.asarray(readings), port, start, stop, sd)
    expected = [readings[0, :, :, 0].mean(1), readings[1, :, 3:8, 1].std(1), readings[2, :, 10:, 1].mean(1)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_replays_of_a_protocol_are_independent_and_repeat(god):
    levels, keys = jnp.zeros((2, 10, 2)), jax.random.split(jax.random.key(0), 2)
    readings = replay(god, levels, NOTHING, keys, 5)
    assert readings.shape == (2, 5, 10, 2)
    assert len(np.unique(readings[..., 0])) == 100
    np.testing.assert_array_equal(readings, replay(god, levels, NOTHING, keys, 5))


# Outcomes


@pytest.mark.parametrize(
    ("values", "branch", "scale", "expected"),
    [
        ([0, 0, 0, 0], [0, 0, 0, 0], 1.0, 1),
        ([0, 0, 5, 5], [0, 0, 1, 1], 1.0, 2),
        ([0, 0, 5, 5], [0, 0, 0, 0], 1.0, 1),  # one branch, however wide
        ([0, 0, 5, 5], [0, 0, 1, 1], 5.0, 1),  # as far apart as one scale, no further
        ([0, 0, 5, 5], [0, 0, 1, 1], 4.99, 2),
        ([0, 0, 5, 5], [3, 3, 1, 1], 1.0, 2),
        ([0, 4, 2, 0, 4, 2], [0, 1, 2, 0, 1, 2], 1.0, 3),
        ([0, 4, 2, 0, 4, 2], [0, 1, 2, 0, 1, 2], 3.0, 1),  # neighbours are compared, ordered by their means
        ([0] * 9 + [5], [0] * 9 + [1], 1.0, 1),  # a tenth of the clones is no outcome
        ([0] * 17 + [5] * 3, [0] * 17 + [1] * 3, 1.0, 2),  # 15 % are
    ],
)
def test_outcomes_are_branches_that_the_statistic_tells_apart(values, branch, scale, expected):
    found = outcomes_of(np.array([values], float), np.array([branch]), np.array([scale]))
    assert found.tolist() == [expected]


def test_outcomes_of_many_small_branches_are_at_least_one():
    found = outcomes_of(np.arange(8.0)[None], np.arange(8)[None], np.array([0.1]))
    assert found.tolist() == [1]


# The ladder


@pytest.fixture(scope="module")
def exploration(toy, store):
    return reference_exploration(toy, store)


def test_the_reference_exploration_spends_a_quarter_at_rest(toy, exploration):
    history = exploration.history
    runs = history.runs()
    ticks = [len(readings) for _, readings in runs]
    assert history.ticks.tolist() == ticks + [0] * (Budget().preparations - len(ticks))
    assert sum(ticks) <= Budget().ticks
    assert len(ticks) <= Budget().preparations
    assert exploration.rest_runs == 21  # a quarter of 4096 ticks in runs of 48
    for k, (levels, readings) in enumerate(runs):
        assert levels.shape == readings.shape == (ticks[k], 2)
        assert np.isfinite(readings).all()
        assert (levels == toy.rest.astype(np.float32)).all() == (k < exploration.rest_runs)


def test_a_small_budget_still_explores(toy, store):
    found = reference_exploration(toy, store, Budget(ticks=130, preparations=3))
    assert found.rest_runs == 1
    assert 2 <= len(found.history.runs()) <= 3
    assert found.history.ticks.sum() <= 130


def test_the_tail_rung_answers_with_resting_statistics(contracts, exploration):
    rest = exploration.history.readings[: exploration.rest_runs, 24:48].astype(np.float64)
    for contract, answer in zip(contracts, tail_answers(contracts, exploration), strict=True):
        values, length = rest[:, :, int(contract.port[1:])], contract.window[1] - contract.window[0]
        if contract.statistic == "mean":
            assert answer.mean == pytest.approx(values.mean(), rel=1e-6)
        else:
            windows = [values[:, s : s + length].std(1) for s in range(0, 24 - length + 1, length)]
            assert answer.mean == pytest.approx(np.mean(windows), rel=1e-6)


def test_persistence_repeats_the_last_reading(toy, contracts, exploration):
    last = exploration.history.runs()[-1][1][-1]
    answers = theory_answers(toy, contracts, Persistence(), exploration.history, "persistence")
    for contract, answer in zip(contracts, answers, strict=True):
        expected = 0 if contract.statistic == "sd" else last[int(contract.port[1:])]
        assert answer.mean == pytest.approx(expected, abs=2e-6)


def accuracy_of(toy, contracts, store, answers):
    ensemble = truth_of(toy, contracts, store=store)
    parts = {name: getattr(ensemble, name) for name in ("fraction", "dynamic_range", "tau")}
    truth = check_truth(ensemble.draws, ensemble.branch, **parts)
    return scorecard(truth, {answer.id: answer for answer in answers}, range(8)).accuracy


def test_a_world_without_a_theory_has_the_other_rungs(toy, contracts, store):
    found = climb(toy, contracts, store, QUICK)
    assert [rung.name for rung in found.rungs] == [name for name in RUNGS if "oracle" not in name]
    assert found.replicates.shape == found.branches.shape == (8, 256)


def test_the_rungs_come_in_order_and_knowledge_pays(toy, contracts, store, monkeypatch):
    monkeypatch.setattr(ladder, "compact_theory", {"T2": RelaxationTheory}.get)
    stages = []
    found = climb(toy, contracts, store, QUICK, lambda stage, total, more: stages.append((stage, total)))
    assert tuple(rung.name for rung in found.rungs) == RUNGS
    accuracy = {rung.name: accuracy_of(toy, contracts, store, rung.answers) for rung in found.rungs}
    assert accuracy["null"] < 0.5
    assert accuracy["compact oracle"] > 0.9
    assert accuracy["ensemble replication"] > 0.9
    assert accuracy["compact oracle"] > max(accuracy[name] for name in ("null", "tail", "persistence"))
    assert [rung.fit is not None for rung in found.rungs] == [False] * 3 + [True] * 2 + [False] * 2
    assert ("ensemble replication", 2048) not in stages, "a warm ensemble reports nothing"
