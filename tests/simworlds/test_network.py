"""Reaction networks as data: what is accepted, and runs against closed forms, exact and by leaps."""

import numpy as np
import pytest

from simworlds.errors import InvalidNetwork, InvalidRequest
from simworlds.expressions import Expression
from simworlds.network import Network, exact_runs, leap_runs

RUNS, SIGMAS = 4000, 5.0
TIMES = np.array([0.0, 1.0, 3.0])


def immigration(**more):
    data = {
        "species": {"X": 0},
        "parameters": {"a": 5.0, "m": 0.5},
        "reactions": [
            {"name": "in", "propensity": "a", "change": {"X": 1}},
            {"name": "out", "propensity": "m*X", "change": {"X": -1}},
        ],
    }
    return Network({**data, **more})


def sigmas(values, expected):
    return abs(values.mean() - expected) / max(values.std(ddof=1) / np.sqrt(len(values)), 1e-12)


class TestExpressions:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("k1*P*(P-1)/2", 3.0),
            ("-P + 2**3", 5.0),
            ("2^P", 8.0),
            ("max(P, 7, k1)", 7.0),
            ("1e-2*floor(P/2)", 0.01),
            ("P > 2 and not k1 > 2", True),
            ("1 < P <= 3", True),
        ],
    )
    def test_values(self, text, value):
        assert float(Expression(text)({"P": 3.0, "k1": 1.0})) == pytest.approx(float(value))

    @pytest.mark.parametrize(
        "text",
        [
            "__import__('os')",
            "P.x",
            "P[0]",
            "lambda: 1",
            "'a'",
            "f'{P}'",
            "[P]",
            "open(1)",
            "P if P else 1",
            "True",
        ],
    )
    def test_nothing_but_arithmetic_is_accepted(self, text):
        with pytest.raises(InvalidNetwork, match="may hold arithmetic"):
            Expression(text)

    @pytest.mark.parametrize("text", ["", "P +", "1 2", "(" * 500, "P; P", "x = 1"])
    def test_what_is_no_expression_is_said_so(self, text):
        with pytest.raises(InvalidNetwork, match="is no expression"):
            Expression(text)

    def test_depth_and_length_are_bounded(self):
        with pytest.raises(InvalidNetwork, match="nested more than"):
            Expression("-" * 250 + "1")
        with pytest.raises(InvalidNetwork, match="more than 10000 characters"):
            Expression("1+" * 6000 + "1")

    def test_thresholds_are_the_constants_of_comparisons_with_the_name(self):
        trigger = Expression("t >= 25 and X > 3 or 2*k < t")
        assert trigger.thresholds("t", {"k": 4.0}) == {25.0, 8.0}


class TestNetwork:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (dict(species={}), "a network needs species"),
            (dict(species={"X": "many"}), "species X must be a number"),
            (dict(parameters={"a": np.nan, "m": 1}), "parameter a must be finite"),
            (dict(parameters={"a": 1}), "propensity of out names 'm', which is unknown"),
            (dict(boundary=["Z"]), "boundary names no species 'Z'"),
            (dict(rules={"y": "z + 1"}), "rule y names 'z'"),
            (dict(events=[{"trigger": "t >= 1", "assign": {"Q": "1"}}]), "event 0 assigns to no species 'Q'"),
            (
                dict(reactions=[{"propensity": "a", "change": {"Q": 1}}]),
                "the change of 0 names no species 'Q'",
            ),
            (dict(reactions=[{"propensity": "a", "change": {"X": 0.5}}]), "no whole number"),
            (dict(reactions=[{"propensity": "a", "change": {"X": "one"}}]), "no whole number: 'one'"),
        ],
    )
    def test_faults_are_named(self, change, message):
        with pytest.raises(InvalidNetwork, match=message):
            immigration(**change)

    @pytest.mark.parametrize("times", [[], [1.0, 1.0], [2.0, 1.0], [-1.0, 0.0]])
    def test_times_must_increase(self, times):
        with pytest.raises(InvalidRequest, match="must increase"):
            exact_runs(immigration(), times, 1)

    def test_a_run_that_does_not_end_is_an_error(self):
        with pytest.raises(InvalidRequest, match="more reactions between two readings"):
            exact_runs(immigration(), TIMES, 1, max_events=3)


@pytest.mark.parametrize("simulate", [exact_runs, leap_runs])
class TestRuns:
    def test_immigration_and_death_are_poisson(self, simulate):
        """From 0 the count is Poisson with mean a/m (1 - exp(-m t))."""
        runs = simulate(immigration(), TIMES, RUNS)
        assert runs.shape == (RUNS, 3, 1)
        assert np.all(runs[:, 0] == 0)
        for k in (1, 2):
            mean = 10 * (1 - np.exp(-0.5 * TIMES[k]))
            assert sigmas(runs[:, k, 0], mean) < SIGMAS
            assert sigmas((runs[:, k, 0] - mean) ** 2, mean) < SIGMAS
            assert sigmas(runs[:, k, 0], 1.1 * mean) > SIGMAS  # a tenth more would be seen

    def test_an_event_by_time_counts_at_its_own_time(self, simulate):
        """At t = 2 the count is set to 50, from where it relaxes."""
        network = immigration(events=[{"trigger": "t >= 2", "assign": {"X": "40 + 2*a"}}])
        runs = simulate(network, [1.0, 2.0, 3.0], RUNS)
        assert np.all(runs[:, 1] == 50)
        assert sigmas(runs[:, 0, 0], 10 * (1 - np.exp(-0.5))) < SIGMAS
        assert sigmas(runs[:, 2, 0], 10 + 40 * np.exp(-0.5)) < SIGMAS

    def test_an_event_by_count_fires_whenever_its_trigger_turns_true(self, simulate):
        """Pure immigration that is emptied at 3: the count cycles through 0, 1, 2."""
        network = immigration(
            parameters={"a": 5.0, "m": 0.0}, events=[{"trigger": "X >= 3", "assign": {"X": 0}}]
        )
        runs = (
            simulate(network, [20.0], RUNS)
            if simulate is exact_runs
            else simulate(network, [20.0], RUNS, step=0.01)
        )
        assert set(np.unique(runs)) <= {0.0, 1.0, 2.0, 3.0}
        if simulate is exact_runs:
            for count in (0, 1, 2):
                assert sigmas(runs[:, 0, 0] == count, 1 / 3) < SIGMAS

    def test_what_an_event_assigns_may_trigger_another(self, simulate):
        events = [
            {"trigger": "X >= 100", "assign": {"X": 7}},
            {"trigger": "t >= 1", "assign": {"X": 200}},
        ]
        assert np.all(simulate(immigration(events=events), [1.0], 100) == 7)

    def test_rules_report_and_feed_rates(self, simulate):
        network = immigration(
            rules={"double": "2*X", "rate": "a + 0*double"},
            reactions=[{"propensity": "rate", "change": {"X": 1}}],
        )
        runs = simulate(network, [1.0], RUNS)
        assert np.array_equal(runs[:, 0, 1], 2 * runs[:, 0, 0])
        assert sigmas(runs[:, 0, 0], 5.0) < SIGMAS

    def test_boundary_species_stand_still(self, simulate):
        network = immigration(
            species={"X": 0, "S": 3},
            reactions=[{"propensity": "S", "change": {"X": 1, "S": -1}}],
            boundary=["S"],
        )
        runs = simulate(network, [2.0], RUNS)
        assert np.all(runs[:, 0, 1] == 3)
        assert sigmas(runs[:, 0, 0], 6.0) < SIGMAS

    def test_what_is_consumed_twice_is_conserved(self, simulate):
        """2 P <-> P2: P + 2 P2 stays, and no count is negative."""
        network = Network(
            {
                "species": {"P": 9, "P2": 0},
                "parameters": {"k": 0.5},
                "reactions": [
                    {"propensity": "k*P*(P-1)/2", "change": {"P": -2, "P2": 1}},
                    {"propensity": "k*P2", "change": {"P": 2, "P2": -1}},
                ],
            }
        )
        runs = simulate(network, TIMES, 500)
        assert np.all(runs[:, :, 0] + 2 * runs[:, :, 1] == 9)
        assert runs.min() >= 0

    def test_more_runs_change_no_earlier_one(self, simulate):
        few, many = (simulate(immigration(), TIMES, n) for n in (3, 1500))
        assert np.array_equal(few, many[:3])
        assert not np.array_equal(few, simulate(immigration(), TIMES, 3, name="other"))
