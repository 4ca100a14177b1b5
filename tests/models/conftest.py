"""Two scenarios that differ in everything: devices, degrees, placement rules, graphs, deadlines."""

import dataclasses

import numpy as np
import pytest
import torch

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.models.network import CandidateNetwork
from meshwright.models.settings import NetworkSettings

# Matrices are small: a second thread costs more than it does, most of all where another core is busy.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def toy():
    return load_benchmark("preset:toy").build()


@pytest.fixture(scope="session")
def quickstart():
    return load_benchmark("preset:quickstart").build()


@pytest.fixture(scope="session")
def changed():
    """A scenario with some of its settings changed."""

    def made(scenario, **changes):
        return dataclasses.replace(scenario, settings=scenario.settings.model_copy(update=changes))

    return made


@pytest.fixture(scope="session")
def random_network():
    """A network of random weights, and last layers as wide as the others so that scores and values differ."""

    def made(scenario, *, has_prior=False, **widths):
        torch.manual_seed(0)
        settings = NetworkSettings(**{"hidden": 16, "graph_hidden": 8, **widths})
        network = CandidateNetwork(settings, static_features(scenario), has_prior=has_prior)
        for last in (network.score[-1], network.value[-1]):
            torch.nn.init.normal_(last.weight)
        return network

    return made


@pytest.fixture
def network(quickstart, random_network):
    return random_network(quickstart)


@pytest.fixture(scope="session")
def observations():
    """Observations of a scenario after some random decisions, as tensors."""

    def seen(scenario, **played):
        batch = after_random_decisions(scenario, **played)
        return {key: torch.as_tensor(value.copy()) for key, value in batch.observations.current().items()}

    return seen


@pytest.fixture(scope="session")
def batch_of():
    """Episodes of a scenario after some random decisions."""
    return after_random_decisions


def after_random_decisions(scenario, num=6, steps=12, seed=0):
    batch = EpisodeBatch(scenario, num)
    rng = np.random.default_rng(seed)
    for e in range(num):
        batch.reset(e, np.random.default_rng([seed, e]))
    for _ in range(steps):
        batch.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in batch.observations.action_mask]))
    return batch
