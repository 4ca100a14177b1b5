"""Many episodes of filling stages, stepped side by side by compiled functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import PolicyError
from ...simulation.tasklets.filling import (
    FillingState,
    StackedNetworks,
    begin_filling,
    fill_network,
    is_filled,
    join,
    new_filling,
    room_for_networks,
    stack_networks,
)
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.values import worked_out


class FillingBatch:
    """Episodes on many networks; each decision lets a device join the stage that is being filled.

    Attributes:
        instances: that may be played, ``i`` of them; None in a place that is still empty.
        stacked: the same as padded arrays.
        state: of ``E`` episodes; ``state.candidates`` ``(E, n, f)`` and ``state.can_join`` ``(E, n)`` change in place.
        is_live: whether an episode has a decision to make, ``(E,)``.
    """

    def __init__(self, instances: Sequence[TaskletInstance], num_episodes: int) -> None:
        self.instances: list[TaskletInstance] = list(instances)
        self._make(stack_networks(self.instances), num_episodes)

    def _make(self, stacked: StackedNetworks, num_episodes: int) -> None:
        self.stacked: StackedNetworks = stacked
        self.state: FillingState = new_filling(stacked, num_episodes)
        self.is_live = np.zeros(num_episodes, np.bool_)

    @classmethod
    def with_room(cls, num_places: int, num_episodes: int, most_devices: int) -> Self:
        """A batch without networks; `put` fills its places."""
        batch = cls.__new__(cls)
        batch.instances = [None] * num_places  # type: ignore[list-item]
        batch._make(room_for_networks(num_places, most_devices), num_episodes)
        return batch

    def put(self, at: int, instance: TaskletInstance) -> None:
        """Fill a place with a network that no episode under way has there."""
        self.instances[at] = instance
        fill_network(self.stacked, at, instance)

    def is_filled(self, at: int) -> bool:
        """Whether a place has a network."""
        return self.instances[at] is not None

    @property
    def num_episodes(self) -> int:
        """Number of episodes, ``E``."""
        return len(self.is_live)

    def begin_with(self, e: int, at: int) -> None:
        """Start one episode on a network, by number; the others go on."""
        begin_filling(self.stacked, self.state, e, at)
        self.is_live[e] = True

    def begin(self, of: NDArray[np.int64]) -> None:
        """Start every episode on a network, by number; those beyond ``of`` rest."""
        self.is_live[:] = False
        for e, at in enumerate(of.tolist()):
            self.begin_with(e, at)

    def step(self, devices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Add a device to the current stage of each live episode.

        Args:
            devices: ``(E,)``; of episodes that are over, any.

        Returns:
            Rewards ``(E,)``: minus what the value grew, in lower bounds of the network. The last one of an episode holds what
            `reorder` gains.

        Raises:
            PolicyError: a device is in a stage already, or there is none of this number.
        """
        rewards, was_live = np.zeros(self.num_episodes), self.is_live.copy()
        wrong = _step_all(self.stacked, self.state, np.asarray(devices, np.int64), rewards, self.is_live)
        if wrong >= 0:
            raise PolicyError("this device may not join the stage", field=f"actions.{wrong}", value=int(devices[wrong]))
        ended = np.flatnonzero(was_live & ~self.is_live)
        rewards[ended] += self.reorder(ended)
        return rewards

    def reorder(self, whole: NDArray[np.int64]) -> NDArray[np.float64]:
        """Order the stages of finished episodes in the best way, so that ``state.value_s`` is that of the grouping.

        Args:
            whole: those episodes, ``(w,)``.

        Returns:
            What that gains, in lower bounds of the network, ``(w,)``.
        """
        gains = np.zeros(len(whole))
        for row, e in enumerate(whole.tolist()):
            instance = self.instances[self.state.instance[e]]
            data_s, pipeline_s, *_ = worked_out(instance.reduce_s, instance.hand_over_s, self.stages(e))
            before_s = self.state.value_s[e]
            self.state.value_s[e] = min(before_s, data_s + pipeline_s)
            gains[row] = (before_s - self.state.value_s[e]) / self.stacked.scale_s[self.state.instance[e]]
        return gains

    def stages(self, e: int) -> NDArray[np.int64]:
        """Devices of each stage of an episode that is over, in the order in which they joined, ``(k, p)``."""
        instance = self.instances[self.state.instance[e]]
        joined = self.state.joined[e, : instance.num_devices]
        return joined.reshape(instance.num_stages, instance.num_replicas).copy()


@njit
def _step_all(stacked, state, devices, rewards, is_live):  # type: ignore[no-untyped-def]
    for e in range(len(devices)):
        if is_live[e] and not (0 <= devices[e] < state.can_join.shape[1] and state.can_join[e, devices[e]]):
            return e
    for e in range(len(devices)):
        if is_live[e]:
            rewards[e] = -join(stacked, state, e, devices[e])
            is_live[e] = not is_filled(stacked, state, e)
    return -1
