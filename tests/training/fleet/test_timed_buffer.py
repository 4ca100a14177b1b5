"""Discounts by time: by hand, as those of sb3-contrib where each decision takes one arrival's time, and bursts as one."""

from types import SimpleNamespace

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer

from meshwright.training.fleet.vec_env import TimedRolloutBuffer

SPACES = spaces.Dict({"x": spaces.Box(0.0, 1.0, (1,))}), spaces.Discrete(2)


def filled(kind, elapsed, rewards, values, starts, last=0.0, done=False, **keys):
    """Advantages of one episode's decisions, by a discount of 0.5 and a weight of 0.8."""
    env = SimpleNamespace(elapsed=np.zeros(1), group=1, episode=np.zeros(1, np.int64), decided_s=np.zeros(1))
    more = {"env": env} if kind is TimedRolloutBuffer else {}
    buffer = kind(len(rewards), *SPACES, gae_lambda=0.8, gamma=0.5, n_envs=1, **more)
    buffer.reset()
    for number, reward in enumerate(rewards):
        env.elapsed = np.array([elapsed[number]])
        value = torch.tensor([values[number]])
        buffer.add(
            {"x": np.zeros((1, 1))}, np.zeros((1, 1)), np.array([reward]), np.array([starts[number]]), value, torch.zeros(1)
        )
    buffer.compute_returns_and_advantage(torch.tensor([last]), np.array([done]))
    np.testing.assert_allclose(buffer.returns, buffer.advantages + buffer.values)
    return buffer.advantages[:, 0].tolist()


def test_two_decisions_by_hand():
    # Two arrivals' time after the second: 1 + 0.25 x 4 - 2 = 0; then 0 + 0.5 x 2 - 3 + 0.5 x 0.8 x 0 = -2.
    assert filled(TimedRolloutBuffer, [1, 2], [0.0, 1.0], [3.0, 2.0], [1, 0], last=4.0) == [-2.0, 0.0]


def test_where_each_decision_takes_an_arrivals_time_it_is_the_usual_estimate():
    rng = np.random.default_rng(0)
    rewards, values, starts = rng.normal(size=9), rng.normal(size=9), np.array([1, 0, 0, 0, 1, 0, 0, 0, 0])
    given = rewards.tolist(), values.tolist(), starts.tolist()
    for done in (False, True):
        usual = filled(MaskableDictRolloutBuffer, [1] * 9, *given, last=0.7, done=done)
        np.testing.assert_allclose(filled(TimedRolloutBuffer, [1] * 9, *given, last=0.7, done=done), usual, rtol=1e-5)


def test_a_burst_is_one_decision_whatever_the_critic_says_in_between():
    one = filled(TimedRolloutBuffer, [3], [2.0], [1.0], [1], last=5.0)
    burst = filled(TimedRolloutBuffer, [0, 0, 3], [0.5, 1.0, 0.5], [1.0, -7.0, 9.0], [1, 0, 0], last=5.0)
    np.testing.assert_allclose(burst[0], one[0], rtol=1e-6)


def test_nothing_comes_after_the_end_of_an_episode():
    first = filled(TimedRolloutBuffer, [1, 1], [1.0, 0.0], [0.0, 100.0], [1, 1], last=100.0)
    assert first[0] == 1.0
