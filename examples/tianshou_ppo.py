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
from torch.distributions import Categorical

from meshwright.training.libraries.scorer import CandidateScorer, blocking_rates
from meshwright.training.libraries.tianshou import TianshouActor, TianshouBatch, TianshouCritic


def main() -> None:
    """Train for some decisions, then play fixed seeds and print what was blocked, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", default="preset:quickstart")
    parser.add_argument("--decisions", type=int, default=40_960)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    torch.set_num_threads(1)
    num_envs, num_steps = 64, 64
    episodes = gymnasium.make_vec(
        "meshwright/JobPartitioning-v0", num_envs=num_envs, benchmark=chosen.benchmark, autoreset_mode="Disabled"
    )
    scorer = CandidateScorer(episodes.single_observation_space)
    envs = TianshouBatch(episodes, scorer.keys)
    envs.seed(1000 * (1 + chosen.seed))
    seeds = range(20)
    untrained = float(blocking_rates(scorer, chosen.benchmark, seeds).mean())
    policy = ProbabilisticActorPolicy(
        actor=TianshouActor(scorer),
        dist_fn=lambda scores: Categorical(logits=scores),
        action_space=episodes.single_action_space,
        action_scaling=False,
        action_bound_method=None,
    )
    ppo = PPO(
        policy=policy,
        critic=TianshouCritic(scorer),
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
    while num_decisions < chosen.decisions:
        policy.is_within_training_step = True
        num_decisions += collector.collect(n_step=num_envs * num_steps).n_collected_steps
        ppo.update(buffer=buffer, batch_size=512, repeat=4)
        buffer.reset(keep_statistics=True)
    told = {"decisions": num_decisions, "random": float(blocking_rates(None, chosen.benchmark, seeds).mean())}
    trained = float(blocking_rates(scorer, chosen.benchmark, seeds).mean())
    print(json.dumps({**told, "untrained": untrained, "trained": trained}))


if __name__ == "__main__":
    main()
