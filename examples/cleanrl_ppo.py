"""PPO in one file, in the manner of CleanRL: the loop, the network and the loss, and nothing of meshwright but the environment.

python examples/cleanrl_ppo.py --decisions 98304 --seed 1
"""

from __future__ import annotations

import argparse
import json

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import meshwright  # noqa: F401 - its environments become known


class Agent(nn.Module):
    """Scores each candidate from its features and those of job and cluster; the value from the mean candidate."""

    def __init__(self, space: gymnasium.spaces.Dict, width: int = 64) -> None:
        super().__init__()
        inputs = sum(space[key].shape[-1] for key in ("candidates", "job", "cluster"))
        self.actor = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.critic = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, seen: dict[str, torch.Tensor]) -> tuple[Categorical, torch.Tensor]:
        """The distribution of actions and the values."""
        rest = torch.cat([seen["job"], seen["cluster"]], dim=1)
        spread = rest.unsqueeze(1).expand(-1, seen["candidates"].shape[1], -1)
        each = torch.cat([seen["candidates"], spread], dim=2)
        offered = seen["action_mask"] > 0
        scores = self.actor(each).squeeze(2).masked_fill(~offered, -1e9)
        mean = (each * offered.unsqueeze(2)).sum(1) / offered.sum(1, keepdim=True)
        return Categorical(logits=scores), self.critic(mean).squeeze(1)


def main() -> None:
    """Train for some decisions, then play fixed seeds and print what was blocked, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", default="preset:quickstart")
    parser.add_argument("--decisions", type=int, default=98_304)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    num_envs, num_steps, epochs, minibatches, gamma, gae_lambda = 64, 64, 4, 8, 0.98, 0.95
    torch.manual_seed(chosen.seed)
    torch.set_num_threads(1)
    envs = gymnasium.make_vec("meshwright/JobPartitioning-v0", num_envs=num_envs, benchmark=chosen.benchmark)
    agent = Agent(envs.single_observation_space)
    untrained = blocked(agent, chosen.benchmark)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    num_decisions = 0
    # Seeds from 1000 on are for training; fixed ones below are for the end.
    seen = tensors(envs.reset(seed=1000 * (1 + chosen.seed))[0])
    was_over = torch.zeros(num_envs, dtype=torch.bool)
    while num_decisions < chosen.decisions:
        rows = []
        for _ in range(num_steps):
            with torch.no_grad():
                choice, value = agent(seen)
            action = choice.sample()
            after, reward, ended, cut, _ = envs.step(action.numpy())
            over = torch.from_numpy(ended | cut)
            rows.append((seen, action, choice.log_prob(action), value, torch.from_numpy(reward).float(), over, was_over))
            seen, was_over = tensors(after), over
        with torch.no_grad():
            following = agent(seen)[1]
        # What is foreseen after an episode that is cut is the value of its last state; the step that begins anew counts nothing.
        advantages, ahead = [], torch.zeros(num_envs)
        for _, _, _, value, reward, _, skipped in reversed(rows):
            ahead = torch.where(skipped, 0.0, reward + gamma * following - value + gamma * gae_lambda * ahead)
            advantages.insert(0, ahead)
            following = value
        used = ~torch.cat([row[6] for row in rows])
        old = {key: torch.cat([row[0][key] for row in rows])[used] for key in seen}
        actions, log_probs, values = (torch.cat([row[i] for row in rows])[used] for i in (1, 2, 3))
        advantage = torch.cat(advantages)[used]
        returns, num_rows = advantage + values, int(used.sum())
        num_decisions += num_rows
        for _ in range(epochs):
            for part in torch.randperm(num_rows).chunk(minibatches):
                choice, value = agent({key: column[part] for key, column in old.items()})
                ratio = (choice.log_prob(actions[part]) - log_probs[part]).exp()
                scaled = (advantage[part] - advantage[part].mean()) / (advantage[part].std() + 1e-8)
                gain = torch.min(scaled * ratio, scaled * ratio.clamp(0.8, 1.2)).mean()
                loss = -gain + 0.5 * (value - returns[part]).square().mean() * 0.1 - 0.005 * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    told = {"decisions": num_decisions, "random": blocked(None, chosen.benchmark), "untrained": untrained}
    print(json.dumps({**told, "trained": blocked(agent, chosen.benchmark)}))


def tensors(seen: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """What the agent reads."""
    return {key: torch.from_numpy(seen[key]) for key in ("candidates", "job", "cluster", "action_mask")}


def blocked(agent: Agent | None, benchmark: str, num_episodes: int = 20) -> float:
    """Mean share of jobs turned away in the episodes of seeds 0, 1, ...; without an agent by offered candidates at random."""
    envs = gymnasium.make_vec("meshwright/JobPartitioning-v0", num_envs=num_episodes, benchmark=benchmark)
    rng = np.random.default_rng(0)
    seen, infos = envs.reset(seed=0)
    while "episode_counts" not in infos:
        scores = rng.random(seen["action_mask"].shape) * seen["action_mask"]
        if agent is not None:
            with torch.no_grad():
                scores = agent(tensors(seen))[0].logits.numpy()
        seen, *_, infos = envs.step(scores.argmax(axis=1))
    counts = {name: numbers for name, numbers in infos["episode_counts"].items() if not name.startswith("_")}
    return float(1.0 - (counts["accepted"] / sum(counts.values())).mean())


if __name__ == "__main__":
    main()
