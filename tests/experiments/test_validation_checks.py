"""The checks of published values: they pass, every world has some, and each can be told from the others."""

from collections import Counter

import numpy as np
import pytest

from experiments.validation.check import Check
from experiments.validation.registry import checks_of, modules_of
from simworlds.catalogue import worlds

NAMES = [world.id for world in worlds()]
CHECKS = checks_of(NAMES)


def name_of(check):
    return f"{check.world}: {check.quantity}"


# Worlds whose checks are statistical: a few seconds each, most of them to compile.
NOISY = {world.id for world in worlds() if world.track in ("A", "B")}
EVERY = 3  # of their checks that are quick, the default tests take one in so many


def case(number, check):
    """A check as a parameter; what costs time is left to `simworlds validate` and `make validate`."""
    costly = check.slow or (check.world in NOISY and number % EVERY)
    return pytest.param(check, id=name_of(check), marks=[pytest.mark.validation] if costly else [])


@pytest.mark.parametrize("check", [case(number, check) for number, check in enumerate(CHECKS)])
def test_the_measured_value_is_the_published_one(check):
    row = check.run()
    assert row.passed, row


@pytest.mark.parametrize("world", NAMES)
def test_every_world_is_held_against_published_values(world):
    own = [check for check in CHECKS if check.world == world]
    assert modules_of(world)
    assert len({check.quantity for check in own if np.isfinite(check.published)}) >= 2
    assert not all(check.slow for check in own), "the default tests hold the world against nothing"


def test_checks_have_names_of_their_own():
    doubles = [name for name, times in Counter(map(name_of, CHECKS)).items() if times > 1]
    assert doubles == []


def test_a_check_says_what_it_is():
    for check in CHECKS:
        assert check.world in NAMES
        assert check.quantity.strip() == check.quantity != "", check
        assert check.source, check
        # A tolerance as wide as the value would let anything pass; what is to vanish has one of its own.
        widest = abs(check.published) / 10 if check.published else np.inf
        assert 0 <= check.tolerance < widest, check


def test_the_registry_skips_what_it_does_not_hold():
    assert modules_of("Z9") == ()
    assert checks_of(["Z9"]) == []
    assert all(isinstance(check, Check) for check in checks_of(["C2", "Z9"]))
    assert {check.world for check in checks_of(["C2", "Z9"])} == {"C2"}
