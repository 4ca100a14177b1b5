"""Episodes of a world in the form of Stable-Baselines3: groups of them meet the same instances, and graphs stay in a bank."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...envs.episodes import Observations
from ...jobs.seeds import FIRST_TRAINING_SEED
from ...models.graph.graph_network import ChangingGraphs, GraphBank, compact, compact_space
from ...worlds.world import World
from ..libraries.sb3 import MaskedVecEnv

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
        self._world, self._bank, self._seed, self.group = world, bank, seed, group
        sizes = world.sizes
        self._batch = world.batch(num_envs, num_envs, sizes)
        self._instances = dict[int, Any]()
        self._graph = np.zeros(num_envs, np.int64)
        self._changing = ChangingGraphs(bank, num_envs) if world.spec.changes else None
        self._number, self._actions_taken = np.full(num_envs, -1), [list[int]() for _ in range(num_envs)]
        self.at, self.past = np.zeros((num_envs, 2), np.int64), np.zeros(num_envs)
        self.returns, self._return = list[float](), np.zeros(num_envs)
        super().__init__(num_envs, compact_space(world.spec, sizes), spaces.Discrete(sizes.actions))

    def reset(self) -> Observations:
        """Start the first episode of every environment, unless a state was restored."""
        for e in np.flatnonzero(self._number < 0).tolist():
            self._begin(e)
        return self.observations()

    def decide(self) -> tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the stored actions."""
        self.at = np.stack([self._number, np.array([len(each) for each in self._actions_taken])], axis=1)
        self.past = self._return.copy()
        for e, action in enumerate(self._actions.tolist()):
            self._actions_taken[e].append(action)
        rewards = self._batch.step(self._actions)
        self._return += rewards
        is_over = ~self._batch.is_live
        self.returns += self._return[is_over].tolist()
        return rewards.astype(np.float32), is_over, [{} for _ in range(self.num_envs)]

    def observations(self) -> Observations:
        """Return the decisions, and which graphs of the bank they are about."""
        if self._changing is not None:
            self._changing.note(self._batch)
            self._graph[:] = self._changing.numbers
        return compact(self._batch.decisions, self._graph.copy())

    def action_masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(e, a)``."""
        return self._batch.decisions.mask.copy()

    def forget_graphs(self) -> None:
        """Drop returns, graphs and instances that no episode plays any more; for the end of an update."""
        self.returns.clear()
        self._bank.keep(set(self._graph.tolist()))
        playing = {self._key(e, number) for e, number in enumerate(self._number.tolist())}
        self._instances = {key: instance for key, instance in self._instances.items() if key in playing}

    def state(self) -> dict[str, Any]:
        """Return plain data from which `restore` continues: what each episode plays, and its actions so far."""
        state = {"numbers": self._number.tolist(), "actions": [list(each) for each in self._actions_taken]}
        return state if self._changing is None else state | {"graphs": self._changing.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state; episodes in progress are played again up to where they were."""
        if min(state["numbers"]) < 0:  # no episode had begun
            return
        for e, number in enumerate(state["numbers"]):
            self._begin_on(e, number)
        taken = state["actions"]
        for step in range(max(map(len, taken), default=0)):
            self._batch.is_live[:] = [step < len(each) for each in taken]
            self._return += self._batch.step(np.array([each[step] if step < len(each) else 0 for each in taken]))
        self._batch.is_live[:] = True
        self._actions_taken = [list(each) for each in taken]
        if self._changing is not None:
            self._changing.restore(state["graphs"], self._batch)

    def _begin(self, e: int) -> None:
        self._begin_on(e, int(self._number[e]) + 1)

    def _begin_on(self, e: int, number: int) -> None:
        """Start the instance of a number in the sequence of an episode's group."""
        key = self._key(e, number)
        if key not in self._instances:
            rng = np.random.default_rng([FIRST_TRAINING_SEED + self._seed, e // self.group, number])
            self._instances[key] = self._world.instance("training", int(rng.integers(self.FIRST_SEED, _LATEST)))
            if self._changing is None:
                self._bank.put(key, self._world.graph(self._instances[key]))
        self._graph[e], self._number[e] = key, number
        self._actions_taken[e], self._return[e] = [], 0.0
        self._batch.put(e, self._instances[key])
        self._batch.begin(e, e)

    def _key(self, e: int, number: int) -> int:
        """Return a number of an instance and of its graph that is the same in a run that was resumed."""
        return number * (self.num_envs // self.group) + e // self.group

    FIRST_SEED = 1_000_000
    """Of PPO; those of imitation are below."""
