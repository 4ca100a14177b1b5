"""PPO by Tianshou on many episodes at once, with masks.

python examples/tianshou_ppo.py --decisions 40960 --seed 1
"""

from __future__ import annotations

import argparse
import json

import gymnasium
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from torch import nn
from torch.distributions import Categorical

import meshwright  # noqa: F401 - its environments become known
from meshwright.models.candidate_scorer import CandidateScorer, blocking_rates


class CandidateHead(nn.Module):
    """Scores ``(b, a)`` of a `CandidateScorer`, or its values ``(b, 1)``, as Tianshou's policies read them."""

    def __init__(self, scorer, *, is_critic):
        super().__init__()
        self.scorer, self.is_critic = scorer, is_critic

    def forward(self, obs, state=None, info=None):
        """Return values, or scores and the state as it is."""
        scores, values = self.scorer({key: torch.as_tensor(obs[key]) for key in self.scorer.keys})
        return values.unsqueeze(-1) if self.is_critic else (scores, state)


def main() -> None:
    """Train for some decisions, then play fixed seeds and print what was blocked, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", default="preset:quickstart")
    parser.add_argument("--decisions", type=int, default=40_960)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    num_envs, num_steps = 64, 64
    envs = DummyVectorEnv(
        [lambda: gymnasium.make("meshwright/JobPartitioning-v0", benchmark=options.benchmark) for _ in range(num_envs)]
    )
    scorer = CandidateScorer(envs.observation_space[0])
    envs.seed(1000 * (1 + options.seed))
    seeds = range(20)
    untrained = float(blocking_rates(scorer, options.benchmark, seeds).mean())
    policy = ProbabilisticActorPolicy(
        actor=CandidateHead(scorer, is_critic=False),
        dist_fn=lambda scores: Categorical(logits=scores),
        action_space=envs.action_space[0],
        action_scaling=False,
        action_bound_method=None,
    )
    ppo = PPO(
        policy=policy,
        critic=CandidateHead(scorer, is_critic=True),
        optim=AdamOptimizerFactory(lr=1e-3, eps=1e-5),
        gamma=0.98,
        gae_lambda=0.95,
        ent_coef=0.005,
        vf_coef=0.05,
        max_grad_norm=0.5,
        max_batchsize=4096,
    )
    buffer = VectorReplayBuffer(num_envs * num_steps, num_envs)
    collector = Collector(policy, envs, buffer)
    collector.reset()
    num_decisions = 0
    while num_decisions < options.decisions:
        policy.is_within_training_step = True
        num_decisions += collector.collect(n_step=num_envs * num_steps).n_collected_steps
        ppo.update(buffer=buffer, batch_size=512, repeat=4)
        buffer.reset(keep_statistics=True)
    result = {"decisions": num_decisions, "random": float(blocking_rates(None, options.benchmark, seeds).mean())}
    trained = float(blocking_rates(scorer, options.benchmark, seeds).mean())
    print(json.dumps({**result, "untrained": untrained, "trained": trained}))


if __name__ == "__main__":
    main()
