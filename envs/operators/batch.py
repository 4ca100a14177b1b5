"""Many episodes of operator placement, stepped side by side by compiled functions.

Legend of shapes: ``E`` episodes, ``n`` most ops, ``m`` most devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import PolicyError
from ...simulation.operators.decisions.placing import PlacingState, begin, is_over, new_state, place_next
from ...simulation.operators.decisions.stacked import StackedInstances, fill, has_room, room_for, stack
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement, placed
from ...simulation.operators.schedules import best_order_end_s


class PlacementBatch:
    """Episodes of many instances; each decision gives a group of ops a device.

    Args:
        instances: that may be placed, ``i`` of them.
        objective: what counts.
        num_episodes: ``E``.

    Attributes:
        instances: that may be placed, ``i`` of them; None in a place that is still empty.
        objective: what counts.
        stacked: the same as padded arrays.
        state: of ``E`` episodes; ``state.candidates`` ``(E, m, 17)`` and ``state.can_place`` ``(E, m)`` change in place.
        lead: the op of each episode's next decision, the first of its group, ``(E,)``; once an episode is over, any.
        is_live: whether an episode has a decision to make, ``(E,)``.
        is_dead: whether it ended because no device could hold the next ops, ``(E,)``.
    """

    def __init__(self, instances: Sequence[OperatorInstance], objective: OperatorObjective, num_episodes: int) -> None:
        self.instances = list(instances)
        self._make(stack(self.instances, objective), objective, num_episodes)

    def _make(self, stacked: StackedInstances, objective: OperatorObjective, num_episodes: int) -> None:
        self.objective: OperatorObjective = objective
        self.stacked: StackedInstances = stacked
        self.state: PlacingState = new_state(self.stacked, num_episodes)
        self.lead = np.zeros(num_episodes, np.int64)
        self.is_live = np.zeros(num_episodes, np.bool_)
        self.is_dead = np.zeros(num_episodes, np.bool_)

    @classmethod
    def with_room(cls, num_places: int, objective: OperatorObjective, num_episodes: int, most: tuple[int, int]) -> PlacementBatch:
        """A batch without instances; `put` fills its places.

        Args:
            num_places: of instances.
            objective: what counts.
            num_episodes: ``E``.
            most: ops and devices that an instance has at most.
        """
        batch = cls.__new__(cls)
        n, m = most
        batch.instances = [None] * num_places  # type: ignore[list-item]
        batch._make(room_for(num_places, (n, m, n, 4 * n, n), objective), objective, num_episodes)
        return batch

    def put(self, at: int, instance: OperatorInstance) -> None:
        """Fill a place with an instance that no episode under way has there."""
        self.instances[at] = instance
        if not has_room(self.stacked, instance):
            self._widen(instance)
        fill(self.stacked, at, instance, self.objective)

    def is_filled(self, at: int) -> bool:
        """Whether a place has an instance."""
        return self.instances[at] is not None

    def _widen(self, instance: OperatorInstance) -> None:
        """Make room for more edges and tensors; episodes go on as they are."""
        old, state = self.stacked, self.state
        e, k = max(2 * old.producer.shape[1], len(instance.edges)), max(2 * old.port_s.shape[1], len(instance.tensor_bytes))
        n, m = old.times_s.shape[1:]
        self.stacked = room_for(len(self.instances), (n, m, old.decided.shape[1], e, k), self.objective)
        for at, each in enumerate(self.instances):
            if each is not None:
                fill(self.stacked, at, each, self.objective)
        self.state = new_state(self.stacked, self.num_episodes)
        for name, values in state._asdict().items():
            getattr(self.state, name)[tuple(slice(size) for size in values.shape)] = values

    @property
    def num_episodes(self) -> int:
        """Number of episodes, ``E``."""
        return len(self.lead)

    @property
    def num_devices(self) -> int:
        """Most devices of an instance, ``m``."""
        return int(self.stacked.times_s.shape[2])

    def begin_with(self, e: int, at: int) -> None:
        """Start one episode on an instance, by number; the others go on."""
        _begin_one(self.stacked, self.state, e, at, self.lead, self.is_live, self.is_dead)

    def begin(self, of: NDArray[np.int64]) -> None:
        """Start every episode on an instance, by number; those beyond ``of`` rest."""
        _begin_all(self.stacked, self.state, of.astype(np.int64), self.lead, self.is_live, self.is_dead)
        self.is_live[len(of) :] = False

    def step(self, devices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Place the next group of each live episode on a device.

        Args:
            devices: ``(E,)``; of episodes that are over, any.

        Returns:
            Rewards ``(E,)``: minus what the value grew, in lower bounds of the instance, and minus 1 at a dead end. The last one
            of a placement holds what `reorder` gains.

        Raises:
            PolicyError: a group may not have the device.
        """
        rewards, was_live = np.zeros(self.num_episodes), self.is_live.copy()
        flags = self.lead, self.is_live, self.is_dead
        wrong = _step_all(self.stacked, self.state, np.asarray(devices, np.int64), rewards, *flags)
        if wrong >= 0:
            raise PolicyError("this device may not have the next ops", field=f"actions.{wrong}", value=int(devices[wrong]))
        ended = was_live & ~self.is_live & ~self.is_dead
        rewards[ended] += self.reorder(np.flatnonzero(ended))
        return rewards

    def reorder(self, whole: NDArray[np.int64]) -> NDArray[np.float64]:
        """Reorder the ops of whole placements by the best order known (`schedules.best_order`).

        Until then an op is where it ended first when it and all before it had devices.

        Args:
            whole: episodes that have a device for every op, ``(w,)``; their ``state.value_s`` become values of placements.

        Returns:
            What that gains, in lower bounds of the instance, ``(w,)``; nothing for throughput, which has no order.
        """
        before_s, of = self.state.value_s[whole], self.state.instance[whole]
        if self.objective == "latency":
            for e, instance in zip(whole, of, strict=True):
                ordered_s = best_order_end_s(self.instances[instance], self.device_of(e))
                self.state.value_s[e] = min(self.state.value_s[e], ordered_s)
        return np.asarray((before_s - self.state.value_s[whole]) / self.stacked.scale_s[of])

    def device_of(self, e: int) -> NDArray[np.int64]:
        """Device of each op of an episode that is over, ``(n,)``."""
        instance = self.instances[self.state.instance[e]]
        return np.asarray(self.state.device_of[e][instance.group])

    def placement(self, e: int, planner: str) -> OperatorPlacement:
        """The placement of an episode that is over.

        Raises:
            PlanError: it ended before every op had a device.
        """
        return placed(self.instances[self.state.instance[e]], self.device_of(e), self.objective, planner)


@njit
def _note(stacked, state, e, lead, is_live, is_dead):  # type: ignore[no-untyped-def]
    is_dead[e] = False
    is_live[e] = not is_over(stacked, state, e)
    if is_live[e]:
        lead[e] = stacked.lead[state.instance[e], state.num_decided[e]]
        if not state.can_place[e].any():
            is_live[e] = False
            is_dead[e] = True


@njit
def _begin_all(stacked, state, of, lead, is_live, is_dead):  # type: ignore[no-untyped-def]
    for e in range(len(of)):
        _begin_one(stacked, state, e, of[e], lead, is_live, is_dead)


@njit
def _begin_one(stacked, state, e, at, lead, is_live, is_dead):  # type: ignore[no-untyped-def]
    begin(stacked, state, e, at)
    _note(stacked, state, e, lead, is_live, is_dead)


@njit
def _step_all(stacked, state, devices, rewards, lead, is_live, is_dead):  # type: ignore[no-untyped-def]
    for e in range(len(devices)):
        if is_live[e] and not (0 <= devices[e] < state.can_place.shape[1] and state.can_place[e, devices[e]]):
            return e
    for e in range(len(devices)):
        if is_live[e]:
            rewards[e] = -place_next(stacked, state, e, devices[e])
            _note(stacked, state, e, lead, is_live, is_dead)
            if is_dead[e]:
                rewards[e] -= 1.0
    return -1
