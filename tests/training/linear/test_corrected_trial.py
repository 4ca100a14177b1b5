"""Worth with a linear scorer added to it: the compiled player does as the network itself, and as the scorer alone."""

import numpy as np
import pytest
import torch

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.jobs.seeds import FIRST_VALIDATION_SEED
from meshwright.models.network import CandidateNetwork
from meshwright.models.settings import NetworkSettings
from meshwright.planners.episode_player import LinearTrial
from meshwright.planners.linear import FEATURES, LinearWeights
from meshwright.training.linear.search import CorrectedTrial
from meshwright.training.train import blocking_rate

SEEDS = range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + 3)


@pytest.fixture(scope="module")
def benchmark(config):
    """Rewards that a network can predict exactly from whether a candidate can be placed or is the rejection."""
    changes = ["scenario.shape_slots=4", "reward.accepted=2.0", "reward.blocked=-0.5", "reward.slack=0.0"]
    return load_benchmark(str(config.with_name("busy.yaml")), changes=changes)


@pytest.fixture(scope="module")
def scenario(benchmark):
    return benchmark.build()


def network_of(scenario, seed, without=()):
    torch.manual_seed(seed)
    network = CandidateNetwork(NetworkSettings(after=(8, 4), prior=True, without=without), static_features(scenario))
    with torch.no_grad():
        for weight in network.after.parameters():
            weight.normal_(std=1.0)
        network.after.value.weight.normal_(std=2.0)
        network.score[-1].weight.zero_()
        network.score[-1].bias.zero_()
        network.prior_sharpness.fill_(1.0)
        network.pays.weight.zero_()
        network.pays.weight[0, 0], network.pays.weight[0, 1] = 2.0, -2.5  # can place, is reject
        network.pays.bias.zero_()
    return network


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("without", [(), ("reject",)])
def test_episodes_go_as_when_the_network_chooses(benchmark, scenario, seed, without):
    network = network_of(scenario, seed, without)
    weights = np.random.default_rng(seed).normal(size=(2, len(FEATURES)))
    trial = CorrectedTrial(network, scenario, benchmark.reward)
    result = trial.blocking_rates(weights, [np.random.default_rng(e) for e in SEEDS]).mean(axis=1)
    for rate, one in zip(result, weights, strict=True):
        prior = LinearWeights(one, scenario.settings.placement_rules)
        assert rate == pytest.approx(blocking_rate(network, scenario, len(SEEDS), prior))
    assert len({*result}) == 2


def test_without_worth_and_pay_the_scorer_decides_alone(benchmark, scenario):
    network = network_of(scenario, 0)
    with torch.no_grad():
        network.after.value.weight.zero_()
    weights = np.random.default_rng(3).normal(size=(5, len(FEATURES)))
    rngs = [np.random.default_rng(e) for e in SEEDS]
    nothing = benchmark.reward.model_copy(update={"accepted": 0.0, "blocked": 0.0})
    ours = CorrectedTrial(network, scenario, nothing).blocking_rates(weights, rngs)
    trial = LinearTrial.only(scenario, scenario.settings.placement_rules)
    theirs = trial.blocking_rates(weights, [np.random.default_rng(e) for e in SEEDS])
    np.testing.assert_array_equal(ours, theirs)
    assert len({*ours.ravel()}) > 3
