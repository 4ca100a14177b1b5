"""PPO by TorchRL on many episodes at once, with masks.

python examples/torchrl_ppo.py --decisions 20480 --seed 1
"""

from __future__ import annotations

import argparse
import json

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from meshwright.models.candidate_scorer import CandidateScorer, blocking_rates


def main() -> None:
    """Train for some decisions, then play fixed seeds and print what was blocked, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", default="preset:quickstart")
    parser.add_argument("--decisions", type=int, default=20_480)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    episodes = gymnasium.make_vec(
        "meshwright/JobPartitioning-v0", num_envs=64, benchmark=options.benchmark, autoreset_mode="Disabled"
    )
    scorer = CandidateScorer(episodes.single_observation_space)
    env = GymWrapper(episodes, categorical_action_encoding=True)
    env.set_seed(1000 * (1 + options.seed))
    seeds = range(20)
    untrained = float(blocking_rates(scorer, options.benchmark, seeds).mean())

    def read(*columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, values = scorer(dict(zip(scorer.keys, columns, strict=True)))
        return scores, values.unsqueeze(-1)

    actor = ProbabilisticActor(
        TensorDictModule(lambda *columns: read(*columns)[0], in_keys=scorer.keys, out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=Categorical,
        return_log_prob=True,
    )
    actor.scorer = scorer  # so that its weights are the module's
    critic = TensorDictModule(lambda *columns: read(*columns)[1], in_keys=scorer.keys, out_keys=["state_value"])
    critic.scorer = scorer
    advantage = GAE(gamma=0.98, lmbda=0.95, value_network=critic, average_gae=False)
    loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.005, critic_coeff=0.05, normalize_advantage=True)
    optimizer = torch.optim.Adam(scorer.parameters(), lr=1e-3, eps=1e-5)
    collector = Collector(env, actor, frames_per_batch=4096, total_frames=-1)
    num_decisions = 0
    for frames in collector:
        with torch.no_grad():
            advantage(frames)
        rows = frames.reshape(-1)
        num_decisions += len(rows)
        for _ in range(4):
            for part in torch.randperm(len(rows)).chunk(8):
                terms = loss(rows[part])
                total = terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                torch.nn.utils.clip_grad_norm_(scorer.parameters(), 0.5)
                optimizer.step()
        if num_decisions >= options.decisions:
            break
    collector.shutdown()
    result = {"decisions": num_decisions, "random": float(blocking_rates(None, options.benchmark, seeds).mean())}
    trained = float(blocking_rates(scorer, options.benchmark, seeds).mean())
    print(json.dumps({**result, "untrained": untrained, "trained": trained}))


if __name__ == "__main__":
    main()
