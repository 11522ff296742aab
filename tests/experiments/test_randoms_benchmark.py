"""The race of addressed draws against `jax.random`: all parties draw the same law."""

import pytest

from experiments.benchmarks import randoms


@pytest.mark.validation  # the rivals' loops are slow to compile
@pytest.mark.parametrize("sampler", randoms.SAMPLERS[1:], ids=lambda sampler: sampler.name)
def test_parties_agree_on_the_mean_of_counts(sampler):
    assert randoms.agreement(sampler, 1000, 4) < 6


def test_parties_agree_on_the_mean_of_normals():
    assert randoms.agreement(randoms.SAMPLERS[0], 1000, 4) < 6


def test_the_agreement_sees_another_law():
    normal = randoms.SAMPLERS[0]
    shifted = normal._replace(ours=lambda word, _: 0.2 + normal.ours(word, _))
    assert randoms.agreement(shifted, 1000, 4) > 6


def test_parameters_lie_evenly_in_their_range():
    found = sorted(float(x) for x in randoms.parameters(randoms.SAMPLERS[1], 1000))
    assert found == pytest.approx([20 * (k + 0.5) / 1000 for k in range(1000)])
