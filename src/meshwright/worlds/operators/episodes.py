"""Many episodes of operator placement, stepped side by side by compiled functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compiled import for_types_of, njit
from ...errors import PlanError, PolicyError
from ...simulation.operators.decisions.placing import begin, is_over, new_state, place_next
from ...simulation.operators.decisions.stacked import fill, room_for
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement, placed
from ...simulation.operators.schedules import best_order_end_s
from ..typed_graph import DecisionArrays, InstanceGraph, Sizes, WorldSpec
from ..world import WorldBatch
from .graph import FEEDS, operator_graph

STATE = ("share_placed", "value_so_far")
"""Share of the groups that have a device; the value of the partial placement ``v`` as ``v / (v + bound)``."""
_NONE_ENDED, _SOME_ENDED = -1, -2
"""Results of a step; any other is the episode of an action that is not possible."""


class OperatorEpisodes(WorldBatch[OperatorInstance]):
    """Each decision gives a group of ops a device; see `WorldBatch`.

    Groups are ordered by the upward rank of their first op: the most critical ops first, producers before their readers. A
    device is possible if it runs the ops and holds them in memory. The ops to come must also fit then, packed largest first.
    The reward of a decision is minus the growth of the value of the partial placement, in lower bounds of the instance. A
    dead end costs 1 more. An early dead end so costs less than a finished placement, which costs 1 or more. While ops are
    placed, each starts at its earliest time on its device. After the last op the devices run their ops in the best known
    order (`simulation.operators.schedules.best_order`) if that ends sooner. The last reward includes that gain.

    Args:
        spec: of the world.
        sizes: of the largest instance.
        num_places: of instances.
        num_episodes: ``E``.
        objective: what counts.

    Attributes:
        stacked: the instances as padded arrays.
        state: partial placements of all episodes.
        is_dead: whether an episode ended because no device could hold the next ops, ``(E,)``.
    """

    def __init__(self, spec: WorldSpec, sizes: Sizes, num_places: int, num_episodes: int, objective: OperatorObjective) -> None:
        self.objective: OperatorObjective = objective
        self.spec, self.instances = spec, [None] * num_places
        self.decisions = DecisionArrays.empty(spec, sizes, num_episodes)
        self.is_live, self.is_dead = np.zeros(num_episodes, np.bool_), np.zeros(num_episodes, np.bool_)
        self.stacked = room_for(num_places, sizes.nodes["op"], sizes.nodes["device"], sizes.edges[FEEDS], objective)
        self.state = new_state(self.stacked, num_episodes)
        self._step_all: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what is compiled for this process."""
        return {**self.__dict__, "_step_all": None}

    def put(self, at: int, instance: OperatorInstance) -> None:
        """See `WorldBatch`."""
        self.instances[at] = instance
        fill(self.stacked, at, instance, self.objective)

    def begin(self, e: int, at: int) -> None:
        """See `WorldBatch`."""
        _begin(self.stacked, self.state, e, at, self.is_live, self.is_dead, self.decisions)

    def graph(self, e: int) -> InstanceGraph:
        """See `WorldBatch`."""
        return operator_graph(self._instance(e), self.objective)

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `WorldBatch`."""
        rewards, was_live = np.zeros(self.num_episodes), self.is_live.copy()
        inputs = self.stacked, self.state, np.ascontiguousarray(actions, np.int64), rewards, self.is_live, self.is_dead
        self._step_all = self._step_all or for_types_of(_step_all, *inputs, self.decisions)
        wrong = self._step_all(*inputs, self.decisions)
        if wrong >= 0:
            raise PolicyError("this device may not have the next ops", field=f"actions.{wrong}", value=int(actions[wrong]))
        if self.objective == "latency" and wrong == _SOME_ENDED:  # throughput has no order
            for e in np.flatnonzero(was_live & ~self.is_live & ~self.is_dead).tolist():
                rewards[e] += self._reorder(e)
        return rewards

    def _reorder(self, e: int) -> float:
        """Value a whole placement in its best order; return the gain in lower bounds of the instance."""
        before_s = float(self.state.value_s[e])
        self.state.value_s[e] = min(before_s, best_order_end_s(self._instance(e), self.device_of(e)))
        return float(before_s - self.state.value_s[e]) / self._bound_s(e)

    def value(self, e: int) -> float:
        """See `WorldBatch`: of what is placed so far, in seconds."""
        return float("inf") if self.is_dead[e] else float(self.state.value_s[e])

    def outcome(self, e: int, name: str) -> OperatorPlacement:
        """See `WorldBatch`."""
        if self.is_dead[e]:
            raise PlanError("memory leaves no device for some op", field=name, value=self._instance(e).name)
        return placed(self._instance(e), self.device_of(e), self.objective, name)

    def device_of(self, e: int) -> NDArray[np.int64]:
        """Return the device of each op of an episode that is over, ``(n,)``."""
        return np.asarray(self.state.device_of[e][self._instance(e).group])

    def figures(self, e: int) -> dict[str, NDArray[Any]]:
        """See `WorldBatch`: ``op_s``, seconds of the next group on each device."""
        instance, op = self._instance(e), self.stacked.lead[self.state.instance[e], self.state.num_decided[e]]
        own_s = instance.times_s[instance.group == instance.group[op]].sum(axis=0)
        return {"op_s": np.pad(own_s, (0, self.decisions.mask.shape[1] - len(own_s)), constant_values=np.inf)}

    def info(self, e: int) -> dict[str, Any]:
        """See `WorldBatch`: the instance, its lower bound and the value so far in seconds, and whether it is a dead end."""
        about = {"instance": self._instance(e).name, "bound_s": self._bound_s(e)}
        return about | {"value_s": float(self.state.value_s[e]), "infeasible": bool(self.is_dead[e])}

    def lines(self, e: int) -> list[str]:
        """See `WorldBatch`: a line for each device with its ops so far, seconds of work and memory."""
        instance, state = self._instance(e), self.state
        lines, of_op = [f"{instance.name}: {state.value_s[e]:.4g} s placed"], self.device_of(e)
        for device, name in enumerate(instance.device_names):
            text = f"{name}: {np.count_nonzero(of_op == device)} ops, {state.work_s[e, device]:.3g} s of work"
            if 0 < instance.memory_bytes[device] < np.inf:
                text += f", {100 * state.held_bytes[e, device] / instance.memory_bytes[device]:.0f} % of its memory"
            lines.append(text)
        return lines

    def _bound_s(self, e: int) -> float:
        return float(self.stacked.scale_s[self.state.instance[e]])

    def _instance(self, e: int) -> OperatorInstance:
        instance: OperatorInstance = self.instances[self.state.instance[e]]
        return instance


@njit
def _begin(stacked, state, e, at, is_live, is_dead, decisions):  # type: ignore[no-untyped-def]
    begin(stacked, state, e, at)
    decisions.member[e] = -1
    decisions.nodes[e] = -1
    decisions.features[e] = 0.0
    decisions.mask[e] = False
    _show(stacked, state, e, is_live, is_dead, decisions)


@njit
def _step_all(stacked, state, devices, rewards, is_live, is_dead, decisions):  # type: ignore[no-untyped-def]
    for e in range(len(devices)):
        if is_live[e] and not (0 <= devices[e] < state.can_place.shape[1] and state.can_place[e, devices[e]]):
            return e
    result = _NONE_ENDED
    for e in range(len(devices)):
        if is_live[e]:
            at = state.instance[e]
            group = stacked.decided[at, state.num_decided[e]]
            rewards[e] = -place_next(stacked, state, e, devices[e])
            for place in range(stacked.first_member[at, group], stacked.first_member[at, group + 1]):
                decisions.member[e, stacked.member[at, place]] = devices[e]
            _show(stacked, state, e, is_live, is_dead, decisions)
            rewards[e] -= is_dead[e]
            result = result if is_live[e] else _SOME_ENDED
    return result


@njit
def _show(stacked, state, e, is_live, is_dead, decisions):  # type: ignore[no-untyped-def]
    """Write the next decision of an episode: a device for the first op of the next group."""
    at = state.instance[e]
    is_live[e] = not is_over(stacked, state, e)
    is_dead[e] = is_live[e] and not state.can_place[e].any()
    is_live[e] &= not is_dead[e]
    scale_s = stacked.scale_s[at]
    decisions.state[e, 0] = state.num_decided[e] / max(1, stacked.num_groups[at])
    decisions.state[e, 1] = state.value_s[e] / (state.value_s[e] + scale_s)
    for device in range(stacked.num_devices[at]):
        can = is_live[e] and state.can_place[e, device]
        decisions.mask[e, device] = can
        decisions.nodes[e, device, 0] = stacked.lead[at, state.num_decided[e]] if can else -1
        decisions.nodes[e, device, 1] = device if can else -1
        for f in range(decisions.features.shape[2]):
            decisions.features[e, device, f] = state.candidates[e, device, f]
