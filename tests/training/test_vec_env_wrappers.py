"""Wrappers between episodes and a network change neither the episodes nor the network's outputs."""

import numpy as np
import pytest
import torch

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.models.linear_prior import KEY, LinearPrior
from meshwright.models.network import CandidateNetwork
from meshwright.models.settings import NetworkSettings
from meshwright.planners.linear import FEATURES, LinearWeights
from meshwright.training.vec_env import JobPartitioningVecEnv
from meshwright.training.vec_env_wrappers import AfterstateFeatures, CentredReward


def test_a_network_scores_wrapped_observations_as_plain_ones_also_at_the_end_of_episodes(config):
    benchmark = load_benchmark(str(config.with_name("busy.yaml")), changes=["scenario.shape_slots=4"])
    scenario = benchmark.build()
    torch.manual_seed(0)
    network = CandidateNetwork(NetworkSettings(after=(8, 4)), static_features(scenario))
    prior = LinearWeights(np.random.default_rng(0).normal(size=len(FEATURES)), scenario.settings.placement_rules)
    plain, other = (JobPartitioningVecEnv(scenario, 2, benchmark.reward, 5) for _ in range(2))
    features = AfterstateFeatures(other, 1 + 4, has_prior=True)
    features.set_value_network(network)
    features.set_linear_prior(prior)
    env, scorer = CentredReward(features), LinearPrior(prior, scenario)
    env.reward_centre, env.reward_scale = np.array([0.25]), 0.5

    def scores(seen):
        with torch.no_grad():
            return network({key: torch.as_tensor(value) for key, value in seen.items()})[0]

    seen, expected, rng, ended = env.reset(), plain.reset(), np.random.default_rng(1), 0
    for _ in range(31):  # an episode of 30 decisions and one more
        assert {key: value.shape[1:] for key, value in seen.items()} == {
            key: space.shape for key, space in env.observation_space.items()
        }
        torch.testing.assert_close(scores(seen), scores(expected))
        assert seen[KEY].tobytes() == scorer.of_episodes(plain.batches[0].episodes).tobytes()
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in expected["action_mask"]])
        seen, paid, is_over, infos = env.step(actions)
        expected, rewards, their_over, their_infos = plain.step(actions)
        assert paid.tolist() == (np.float32(0.5) * (rewards - np.float32(0.25))).tolist()
        assert is_over.tolist() == their_over.tolist()
        for e in np.flatnonzero(is_over).tolist():
            ours, theirs = infos[e].pop("terminal_observation"), their_infos[e].pop("terminal_observation")
            assert set(ours) == set(seen)
            both = [scores({key: value[None] for key, value in one.items()}) for one in (ours, theirs)]
            torch.testing.assert_close(*both)
            ended += 1
        assert infos == their_infos
    assert ended == 2


def test_figures_of_a_network_that_was_not_given_are_refused(config):
    benchmark = load_benchmark(str(config.with_name("busy.yaml")), changes=["scenario.shape_slots=4"])
    env = JobPartitioningVecEnv(benchmark.build(), 2, benchmark.reward, 5)
    for options, problem in (({"value_size": 5}, "set_value_network first"), ({"has_prior": True}, "set_linear_prior first")):
        with pytest.raises(RuntimeError, match=problem):
            AfterstateFeatures(env, **options).reset()
