"""PPO by RLlib on many episodes at once, with masks.

python examples/rllib_ppo.py --decisions 12288 --seed 1
"""

from __future__ import annotations

import argparse
import json
import logging

import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

from meshwright.models.candidate_scorer import CandidateScorer, blocking_rates


class ScorerRLModule(TorchRLModule, ValueFunctionAPI):
    """A `CandidateScorer` as a module of RLlib."""

    def setup(self):
        """See RLlib."""
        self.scorer = CandidateScorer(self.observation_space)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.scorer(batch[Columns.OBS])[0]}

    def compute_values(self, batch, embeddings=None):
        """Return the values of states, ``(b,)``."""
        return self.scorer(batch[Columns.OBS])[1]


def main() -> None:
    """Train for some decisions, then play fixed seeds and print what was blocked, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", default="preset:quickstart")
    parser.add_argument("--decisions", type=int, default=12_288)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    config = (
        PPOConfig()
        # The module before the colon makes the id known in every process.
        .environment("meshwright:meshwright/JobPartitioning-v0", env_config={"benchmark": options.benchmark})
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=64,
            gym_env_vectorize_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
            rollout_fragment_length=64,
            batch_mode="truncate_episodes",
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=ScorerRLModule))
        .training(
            train_batch_size_per_learner=4096,
            minibatch_size=512,
            num_epochs=4,
            lr=1e-3,
            gamma=0.98,
            lambda_=0.95,
            entropy_coeff=0.005,
            vf_loss_coeff=0.05,
            vf_clip_param=1e9,
            clip_param=0.2,
            grad_clip=0.5,
            use_kl_loss=False,
        )
        .debugging(seed=options.seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    seeds, scorer = range(20), algorithm.get_module().scorer
    untrained = float(blocking_rates(scorer, options.benchmark, seeds).mean())
    num_decisions = 0
    while num_decisions < options.decisions:
        algorithm.train()
        num_decisions += 4096
    result = {"decisions": num_decisions, "random": float(blocking_rates(None, options.benchmark, seeds).mean())}
    trained = float(blocking_rates(algorithm.get_module().scorer, options.benchmark, seeds).mean())
    print(json.dumps({**result, "untrained": untrained, "trained": trained}))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
