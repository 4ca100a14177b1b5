"""Many episodes of filling stages, stepped side by side by compiled functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import PolicyError
from ...simulation.tasklets.filling import begin_filling, fill_network, is_filled, join, new_filling, room_for_networks
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets
from ...simulation.tasklets.values import worked_out
from ..typed_graph import DecisionArrays, InstanceGraph, Sizes, WorldSpec
from ..world import WorldBatch
from .graph import network_graph


class TaskletEpisodes(WorldBatch[TaskletInstance]):
    """Each decision lets a device join the stage that is being filled; see `WorldBatch`.

    The reward of a decision is minus the growth of the value, in lower bounds of the network. While stages are filled they
    follow each other in the order of filling. After the last device they are put in the best order, and the last reward includes
    that gain.

    Args:
        spec: of the world.
        sizes: of the largest network.
        num_places: of networks.
        num_episodes: ``E``.
    """

    def __init__(self, spec: WorldSpec, sizes: Sizes, num_places: int, num_episodes: int) -> None:
        self.spec, self.instances = spec, [None] * num_places
        self.decisions = DecisionArrays.empty(spec, sizes, num_episodes)
        self.is_live = np.zeros(num_episodes, np.bool_)
        self._stacked = room_for_networks(num_places, sizes.actions)
        self._state = new_filling(self._stacked, num_episodes)

    def put(self, at: int, instance: TaskletInstance) -> None:
        """See `WorldBatch`."""
        self.instances[at] = instance
        fill_network(self._stacked, at, instance)

    def begin(self, e: int, at: int) -> None:
        """See `WorldBatch`."""
        begin_filling(self._stacked, self._state, e, at)
        self.is_live[e] = True
        _show(self._stacked, self._state, e, self.decisions)

    def graph(self, e: int) -> InstanceGraph:
        """See `WorldBatch`."""
        return network_graph(self._instance(e))

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `WorldBatch`."""
        rewards, was_live = np.zeros(self.num_episodes), self.is_live.copy()
        wrong = _step_all(self._stacked, self._state, np.asarray(actions, np.int64), rewards, self.is_live, self.decisions)
        if wrong >= 0:
            raise PolicyError("this device may not join the stage", field=f"actions.{wrong}", value=int(actions[wrong]))
        for e in np.flatnonzero(was_live & ~self.is_live).tolist():
            rewards[e] += self._reorder(e)
        return rewards

    def _reorder(self, e: int) -> float:
        """Value the stages of an episode in their best order; return the gain in lower bounds of the network."""
        instance, before_s = self._instance(e), self._state.value_s[e]
        data_s, pipeline_s, *_ = worked_out(instance.reduce_s, instance.hand_over_s, self.stages(e))
        self._state.value_s[e] = min(before_s, data_s + pipeline_s)
        return float(before_s - self._state.value_s[e]) / self._bound_s(e)

    def value(self, e: int) -> float:
        """See `WorldBatch`: of the stages filled so far, in seconds."""
        return float(self._state.value_s[e])

    def outcome(self, e: int, name: str) -> TaskletPlacement:
        """See `WorldBatch`."""
        return placed_tasklets(self._instance(e), self.stages(e), name)

    def stages(self, e: int) -> NDArray[np.int64]:
        """Return the devices of each stage of an episode that is over, in the order in which they joined, ``(k, p)``."""
        instance = self._instance(e)
        joined = self._state.joined[e, : instance.num_devices]
        return joined.reshape(instance.num_stages, instance.num_replicas).copy()

    def info(self, e: int) -> dict[str, Any]:
        """See `WorldBatch`: the network, its lower bound and the value of the stages filled so far, in seconds."""
        return {"instance": self._instance(e).name, "bound_s": self._bound_s(e), "value_s": self.value(e)}

    def lines(self, e: int) -> list[str]:
        """See `WorldBatch`: a line for each stage that has a device."""
        instance, joined = self._instance(e), self._state.joined[e, : self._state.num_joined[e]].tolist()
        lines, p = [f"{instance.name}: {self.value(e):.4g} s"], instance.num_replicas
        stages = [joined[first : first + p] for first in range(0, len(joined), p)]
        return lines + [f"stage {stage}: {' '.join(map(str, members))}" for stage, members in enumerate(stages)]

    def _bound_s(self, e: int) -> float:
        return float(self._stacked.scale_s[self._state.instance[e]])

    def _instance(self, e: int) -> TaskletInstance:
        instance: TaskletInstance = self.instances[self._state.instance[e]]
        return instance


@njit
def _step_all(stacked, state, devices, rewards, is_live, decisions):  # type: ignore[no-untyped-def]
    for e in range(len(devices)):
        if is_live[e] and not (0 <= devices[e] < state.can_join.shape[1] and state.can_join[e, devices[e]]):
            return e
    for e in range(len(devices)):
        if is_live[e]:
            rewards[e] = -join(stacked, state, e, devices[e])
            is_live[e] = not is_filled(stacked, state, e)
            _show(stacked, state, e, decisions)
    return -1


@njit
def _show(stacked, state, e, decisions):  # type: ignore[no-untyped-def]
    """Write the next decision of an episode: any device that has not joined, the stage being filled, the one before it."""
    at, count = state.instance[e], state.num_joined[e]
    p = stacked.num_devices[at] // stacked.num_stages[at]
    stage = count // p
    decisions.member[e] = -1
    for place in range(count):
        decisions.member[e, state.joined[e, place]] = place // p
    for f in range(decisions.state.shape[1]):
        decisions.state[e, f] = state.progress[e, f]
    for device in range(state.can_join.shape[1]):
        can = state.can_join[e, device]
        decisions.mask[e, device] = can
        decisions.nodes[e, device, 0] = device if can else -1
        decisions.nodes[e, device, 1] = stage if can else -1
        decisions.nodes[e, device, 2] = stage - 1 if can else -1
        for f in range(decisions.features.shape[2]):
            decisions.features[e, device, f] = state.candidates[e, device, f]
