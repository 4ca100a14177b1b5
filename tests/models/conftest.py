"""Two scenarios that differ in everything: devices, degrees, placement rules, graphs, deadlines."""

import numpy as np
import pytest
import torch

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static import static_features
from meshwright.models.network import CandidateNetwork
from meshwright.models.settings import NetworkSettings


@pytest.fixture(scope="session")
def toy():
    return load_benchmark("preset:toy").build()


@pytest.fixture(scope="session")
def quickstart():
    return load_benchmark("preset:quickstart").build()


@pytest.fixture
def network(quickstart):
    """Random weights, and score layers as wide as the others so that scores differ."""
    torch.manual_seed(0)
    network = CandidateNetwork(NetworkSettings(hidden=16, graph_hidden=8), static_features(quickstart))
    torch.nn.init.normal_(network.score[-1].weight)
    return network


@pytest.fixture(scope="session")
def observations():
    """Observations of a scenario after some random decisions, as tensors."""

    def seen(scenario, num=6, steps=12, seed=0):
        batch = EpisodeBatch(scenario, num)
        rng = np.random.default_rng(seed)
        for e in range(num):
            batch.begin(e, np.random.default_rng([seed, e]))
        for _ in range(steps):
            batch.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in batch.observations.action_mask]))
        return {key: torch.as_tensor(value.copy()) for key, value in batch.observations.shown().items()}

    return seen
