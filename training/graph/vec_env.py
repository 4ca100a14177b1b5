"""Episodes of a world in the form of Stable-Baselines3: groups of them meet the same instances, and graphs stay in a bank."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...jobs.seeds import FIRST_TRAINING_SEED
from ...models.graph.graph_network import GraphBank, compact, compact_space
from ...worlds.world import World
from ..libraries.sb3 import MaskedVecEnv

Observations = dict[str, NDArray[Any]]
_LATEST = 2**31
"""Seeds of training instances are below this number."""


class WorldVecEnv(MaskedVecEnv):
    """A vector environment of episodes that restart by themselves.

    Each group has its own sequence of training instances, which all its episodes play in the same order.

    Args:
        world: that is played.
        num_envs: ``e``.
        seed: of all instances.
        group: episodes of a group; divides ``num_envs``.
        bank: where graphs are kept.

    Attributes:
        at: instance and decision of each episode when it was last stepped, ``(e, 2)``.
        past: its rewards until then, ``(e,)``.
        returns: of the episodes that ended since `forget_graphs`.
    """

    def __init__(self, world: World[Any], num_envs: int, seed: int, group: int, bank: GraphBank) -> None:
        self._world, self._bank, self.group = world, bank, group
        sizes = world.sizes
        self._batch = world.batch(num_envs, num_envs, sizes)
        self._rngs = [np.random.default_rng([FIRST_TRAINING_SEED + seed, place]) for place in range(num_envs // group)]
        self._sequences = [list[int]() for _ in self._rngs]
        self._shared = dict[int, tuple[int, Any]]()
        self._graph = np.zeros(num_envs, np.int64)
        self._number, self._actions_taken = np.full(num_envs, -1), [list[int]() for _ in range(num_envs)]
        self._dropped = np.zeros(len(self._rngs), np.int64)
        self.at, self.past = np.zeros((num_envs, 2), np.int64), np.zeros(num_envs)
        self.returns, self._return = list[float](), np.zeros(num_envs)
        super().__init__(num_envs, compact_space(world.spec, sizes), spaces.Discrete(sizes.actions))

    def reset(self) -> Observations:
        """Start the first episode of every environment, unless a state was restored."""
        for e in range(self.num_envs):
            if self._number[e] < 0:
                self._begin(e, 0)
        return self._seen()

    def step_wait(self) -> tuple[Observations, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the actions; an environment whose episode ends starts the next one."""
        self.at = np.stack([self._number, np.array([len(each) for each in self._actions_taken])], axis=1)
        self.past = self._return.copy()
        for e, action in enumerate(self._actions.tolist()):
            self._actions_taken[e].append(action)
        rewards = self._batch.step(self._actions)
        self._return += rewards
        is_over = ~self._batch.is_live
        for e in np.flatnonzero(is_over).tolist():
            self.returns.append(float(self._return[e]))
            self._begin(e, int(self._number[e]) + 1)
        return self._seen(), rewards.astype(np.float32), is_over, [{} for _ in range(self.num_envs)]

    def action_masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(e, a)``."""
        return self._batch.decisions.mask.copy()

    def forget_graphs(self) -> None:
        """Drop returns, graphs and instances that no episode plays any more; for the end of an update."""
        self.returns.clear()
        playing = set(self._graph.tolist())
        self._bank.keep(sorted(playing))
        self._shared = {seed: kept for seed, kept in self._shared.items() if kept[0] in playing}
        for g in range(len(self._rngs)):
            first = int(self._number[g * self.group : (g + 1) * self.group].min())
            del self._sequences[g][: first - int(self._dropped[g])]
            self._dropped[g] = first

    def state(self) -> dict[str, Any]:
        """Return plain data from which `restore` continues: generators, and the actions of episodes in progress."""
        return {
            "generators": [json.dumps(rng.bit_generator.state) for rng in self._rngs],
            "seeds": [list(each) for each in self._sequences],
            "dropped": self._dropped.tolist(),
            "numbers": self._number.tolist(),
            "actions": [list(each) for each in self._actions_taken],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state; episodes in progress are played again up to where they were."""
        for rng, text in zip(self._rngs, state["generators"], strict=True):
            rng.bit_generator.state = json.loads(text)
        self._sequences, self._dropped = [list(each) for each in state["seeds"]], np.array(state["dropped"], np.int64)
        if min(state["numbers"]) < 0:  # no episode had begun
            return
        for e, number in enumerate(state["numbers"]):
            self._begin(e, number)
        taken = state["actions"]
        for step in range(max(map(len, taken), default=0)):
            self._batch.is_live[:] = [step < len(each) for each in taken]
            actions = np.array([each[step] if step < len(each) else 0 for each in taken])
            self._return += self._batch.step(actions)
        self._batch.is_live[:] = True
        self._actions_taken = [list(each) for each in taken]

    def _begin(self, e: int, number: int) -> None:
        """Start the instance of a number in the sequence of an episode's group."""
        g = e // self.group
        seeds = self._sequences[g]
        while len(seeds) <= number - self._dropped[g]:
            seeds.append(int(self._rngs[g].integers(self.FIRST_SEED, _LATEST)))
        seed = seeds[number - int(self._dropped[g])]
        if seed not in self._shared:
            instance = self._world.instance("training", seed)
            self._shared[seed] = self._bank.add(self._world.checked_graph(instance)), instance
        self._graph[e], instance = self._shared[seed]
        self._number[e] = number
        self._actions_taken[e], self._return[e] = [], 0.0
        self._batch.put(e, instance)
        self._batch.begin(e, e)

    FIRST_SEED = 1_000_000
    """Of PPO; those of imitation are below."""

    def _seen(self) -> Observations:
        return compact(self._batch.decisions, self._graph.copy())
