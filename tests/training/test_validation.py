import numpy as np
import torch

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.static_features import static_features
from meshwright.models.network import CandidateNetwork
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.models.settings import NetworkSettings
from meshwright.simulation.cluster.decision import decision
from meshwright.training.train import blocking_rate

SEED = 0


def test_validation_plays_the_network_as_its_saved_policy_plays(scenario):
    torch.manual_seed(SEED)
    network = CandidateNetwork(NetworkSettings(), static_features(scenario))
    acting = NetworkPolicy("mine", SavedNetwork.from_network(network, {}), scenario)
    rates = []
    for seed in (100, 101):
        batch = EpisodeBatch(scenario, 1)
        batch.reset(0, np.random.default_rng(seed))
        while not batch.is_over[0]:
            observation = {key: value[0] for key, value in batch.observations.current().items()}
            batch.step(np.array([acting.choose(decision(scenario, batch.episodes, 0), observation)]))
        rates.append(batch.record(0).blocking_rate(scenario.settings.counted))
    assert blocking_rate(network, scenario, 2) == np.mean(rates)
    assert 0 < np.mean(rates) < 1  # it neither takes nor rejects every job, so another choice would show
