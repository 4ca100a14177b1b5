"""Episodes of a fleet as a vector environment of Stable-Baselines3.

Its observation has one key more than that of the environment: ``to_come``, the jobs that arrive soon. Only the critic reads it:
most of the variance of returns comes from the arrivals, which a critic may know in training.

Source:
    Mao et al., "Variance reduction for reinforcement learning in input-driven environments", 2019.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from torch import Tensor

from ...compiled import njit
from ...envs.episodes import Observations
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...jobs.seeds import FIRST_TRAINING_SEED
from ...planners.fleet.rule_kernel import choose
from ...planners.fleet.rules import fleet_rule
from ...simulation.fleet import dynamics
from ..libraries.sb3 import EpisodesVecEnv
from ..ppo import beyond_group

WINDOWS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
"""Of ``to_come``: lengths in mean durations of a job."""

TO_COME = 2 * len(WINDOWS)
"""Figures of ``to_come``: arrivals in each window, and their work, against what is expected."""


class FleetVecEnv(EpisodesVecEnv):
    """A vector environment of ``e`` episodes, which restart by themselves.

    After a reset a rule may play each episode up to a place of its own, spread over an episode. So no update sees only clusters
    that fill, or only clusters that empty.

    Args:
        fleet: what is played.
        num_envs: ``e``.
        seed: of all jobs.
        scale: factor on rewards.
        most: rewards beyond this are cut to it, so that a few jobs with a hundred times too few devices do not dominate the
            others.
        by_time: whether ``elapsed`` is the time, or 1.
        spreads: whether a reset spreads the episodes.
        group: consecutive episodes that meet the same arrivals; `regroup` brings them to one state again.

    Attributes:
        episode: how many each one has ended, ``(e,)``.
        decided_s: time at which the latest step of each was decided, ``(e,)``.
        elapsed: time that passed in the latest step of each episode, in mean times between two arrivals, ``(e,)``.
    """

    def __init__(
        self,
        fleet: Fleet,
        num_envs: int,
        seed: int,
        *,
        scale: float = 1.0,
        most: float = np.inf,
        by_time: bool = True,
        spreads: bool = True,
        group: int = 1,
    ) -> None:
        self.batch = FleetBatch(fleet, num_envs, reward_scale=scale)
        keys = {**self.batch.space.spaces, "to_come": spaces.Box(0.0, 1.0, (TO_COME,), np.float32)}
        keys.pop("links", None)  # which the network does not read
        super().__init__(self.batch, spaces.Dict(keys))
        self._rngs = [np.random.default_rng([FIRST_TRAINING_SEED + seed, number // group]) for number in range(num_envs)]
        self.group, self._regrouped = group, 0
        self.episode, self.decided_s = np.zeros(num_envs, np.int64), np.zeros(num_envs)
        self._starts = np.ones(num_envs, np.bool_)
        self._most = most
        self.elapsed = np.ones(num_envs)
        self._by_time, self._spreads = by_time, spreads
        self._to_come = np.zeros((num_envs, TO_COME), np.float32)

    def reset(self) -> Observations:
        """Start every episode and play it to its place."""
        fleet, state = self.batch.fleet, self.batch.state
        rule = fleet_rule("sjf+backfill", fleet.problem)
        for e, rng in enumerate(self._rngs):
            self.batch.reset(e, rng)
            if self._spreads:
                first = e // self.group * self.group
                _advance(fleet.problem, state, e, rule, first * fleet.settings.num_jobs // self.num_envs)
        self.batch.observe()
        self._starts[:], self.episode[:] = True, 0
        return self.observations()

    def regroup(self) -> tuple[Observations, NDArray[np.bool_]]:
        """Let each group continue from the state of one of its episodes, in turns; observations, and which begin.

        From equal states, what comes of decisions differs by the decisions alone.
        """
        if self.group > 1:
            for first in range(0, self.num_envs, self.group):
                taken, others = first + self._regrouped % self.group, slice(first, first + self.group)
                for values in (*self.batch.state, self._starts, self.episode):
                    values[others] = values[taken].copy()
                state = self._rngs[taken].bit_generator.state
                for rng in self._rngs[others]:
                    rng.bit_generator.state = state
            self._regrouped += 1
            self.batch.observe()
        return self.observations(), self._starts.copy()

    def observations(self) -> Observations:
        """Return copies of the observations."""
        fleet = self.batch.fleet
        windows_s = WINDOWS * fleet.mean_duration_s
        work = fleet.load * fleet.cluster.num_devices
        _write_to_come(fleet.problem, self.batch.state, windows_s, fleet.mean_interarrival_s, work, self._to_come)
        return {name: values.copy() for name, values in self.batch.observations._asdict().items()} | {
            "to_come": self._to_come.copy()
        }

    def state(self) -> dict[str, Any]:
        """Return the state from which `restore` continues."""
        arrays = {name: torch.as_tensor(array) for name, array in self.batch.arrays().items()}
        generators = [json.dumps(rng.bit_generator.state) for rng in self._rngs]
        counts = {"episode": torch.as_tensor(self.episode.copy()), "regrouped": self._regrouped}
        return {"arrays": arrays, "generators": generators, "starts": torch.as_tensor(self._starts.copy()), **counts}

    def restore(self, state: dict[str, Any]) -> Observations:
        """Continue from a state; the observations."""
        self.batch.restore({name: tensor.numpy() for name, tensor in state["arrays"].items()})
        for rng, text in zip(self._rngs, state["generators"], strict=True):
            rng.bit_generator.state = json.loads(text)
        self._starts = state["starts"].numpy().copy()
        self.episode, self._regrouped = state["episode"].numpy().copy(), state["regrouped"]
        return self.observations()

    def decide(self) -> tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the stored actions."""
        self.decided_s = self.batch.state.now_s.copy()
        rewards, over = self.batch.step(self._actions)
        if self._by_time:
            self.elapsed = (self.batch.state.now_s - self.decided_s) / self.batch.fleet.mean_interarrival_s
        self._starts = over.copy()
        self.episode += over
        return np.clip(rewards, -self._most, self._most), over, [{} for _ in range(self.num_envs)]

    def _begin(self, e: int) -> None:
        self.batch.reset(e, self._rngs[e])


@njit
def _advance(problem, state, e, rule, num_arrived):  # type: ignore[no-untyped-def]
    """Play an episode by a rule until so many jobs have arrived and no hosts are being picked."""
    while not state.is_over[e] and (state.num_arrived[e] < num_arrived or state.building[e] >= 0):
        dynamics.act(problem, state, e, choose(problem, state, e, rule))


@njit
def _write_to_come(problem, state, windows_s, interarrival_s, work_per_s, out):  # type: ignore[no-untyped-def]
    """Write arrivals within each window from now, and their work, as ``x / (1 + x)`` of what is expected."""
    out[:] = 0.0
    last = len(windows_s) - 1
    for e in range(len(out)):
        job = state.num_arrived[e]
        while job < state.arrival_s.shape[1] and state.arrival_s[e, job] - state.now_s[e] < windows_s[last]:
            work = state.num_steps[e, job] * problem.menu.work_device_s[state.job_type[e, job]]
            for i in range(last + 1):
                if state.arrival_s[e, job] - state.now_s[e] < windows_s[i]:
                    out[e, 2 * i] += interarrival_s / windows_s[i]
                    out[e, 2 * i + 1] += work / (work_per_s * windows_s[i])
            job += 1
        for i in range(out.shape[1]):
            out[e, i] /= 1.0 + out[e, i]


_MS_OF_EPISODE = 2**42
"""No episode takes as many milliseconds."""


class TimedRolloutBuffer(MaskableDictRolloutBuffer):
    """Decisions with the time that passed after each, by which it discounts.

    Decisions of a fleet come in bursts without time between them, as each picked host is one. A job that has to wait causes one
    with every event. A discount for each decision would pay for few decisions. Here the discount is for each mean time between
    two arrivals. So is the weight of later differences in generalised advantage estimation:

        A_t = r_t + g^d V_{t+1} - V_t + (g l)^d A_{t+1}

    with ``d`` arrivals' time between the decisions, so that a burst is taken as one decision of several parts.

    Where episodes form groups that meet the same arrivals, the mean advantage of the others at the same time is subtracted from
    each (see `training.ppo`). Nearly all variance of returns comes from the arrivals.

    Source:
        Bradtke and Duff, "Reinforcement learning methods for continuous-time Markov decision problems", 1994; Schulman et al.,
        "High-dimensional continuous control using generalized advantage estimation", 2016.

    Args:
        env: that is played; it has the time.
    """

    def __init__(self, *args: Any, env: FleetVecEnv, **kwargs: Any) -> None:
        self._env = env
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        self.elapsed: NDArray[np.float64] = np.zeros((self.buffer_size, self.n_envs))
        self._at: NDArray[np.int64] = np.zeros((self.buffer_size, self.n_envs), np.int64)
        super().reset()

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Keep the decision that the environment has just carried out."""
        self.elapsed[self.pos] = self._env.elapsed
        self._at[self.pos] = self._env.episode * _MS_OF_EPISODE + (1e3 * self._env.decided_s).astype(np.int64)
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: NDArray[np.bool_]) -> None:
        """Write advantages and returns.

        Args:
            last_values: of the states after the last decisions, ``(e,)``.
            dones: whether these ended an episode, ``(e,)``.
        """
        following = last_values.detach().cpu().numpy().flatten()
        not_done = 1.0 - np.asarray(dones, np.float64)
        advantage = np.zeros(self.n_envs)
        for step in reversed(range(self.buffer_size)):
            discount = not_done * self.gamma ** self.elapsed[step]
            surprise = self.rewards[step] + discount * following - self.values[step]
            advantage = surprise + discount * self.gae_lambda ** self.elapsed[step] * advantage
            self.advantages[step] = advantage
            following, not_done = self.values[step], 1.0 - self.episode_starts[step]
        self.returns = self.advantages + self.values
        if self._env.group > 1:
            self.advantages[:] = beyond_group(self.advantages, self._at, self._env.group, _MS_OF_EPISODE)
