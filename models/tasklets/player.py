"""A saved policy that groups the devices of one network: greedily, as the best of several draws, or as the start of a search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import NO_MOVE, clock_s
from ...envs.tasklets.batch import FillingBatch
from ...errors import PolicyError
from ...planners.arrangement.arrange import SOLVERS, ArrangementRequest, arrange_from
from ...planners.policy_names import parsed
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets
from ..operators.player import PlayMode, one_thread
from ..policy_files import SHIPPED
from .decoding import fill_stages, filling_weights
from .graphs import tasklet_features, tasklet_graphs
from .policy import TaskletPolicy
from .saved import SavedTaskletPolicy, shipped_tasklets, tasklet_policy_file

_DRAWS_SHARE = 0.25
"""Share of a search's budget in which groupings are drawn to start from."""
_MOST_STARTS = 8
"""Draws from which a search starts."""


class TaskletPlayer:
    """A policy that is asked for one network at a time; ``trained`` is that of its file."""

    def __init__(self, policy: TaskletPolicy, name: str, trained: Mapping[str, Any] | None = None) -> None:
        self.policy, self.name, self.trained = policy.eval(), name, trained or {}
        self._is_loaded = False

    def place(self, instance: TaskletInstance, mode: PlayMode, seed: int = 0) -> TaskletPlacement:
        """Group the devices of a network.

        Args:
            instance: the network.
            mode: how the policy is asked; ``search`` anneals from the best of its draws within a quarter of the budget.
            seed: of what is drawn.
        """
        with one_thread():
            if not self._is_loaded:  # before its clock begins
                tiny = TaskletInstance("tiny", ("a",) * 4, np.ones((4, 4)), np.ones((4, 4)), 2, 1.0, 1.0)
                self._place(tiny, PlayMode("sample", samples=1), seed)
                self._is_loaded = True
            return self._place(instance, mode, seed)

    def _place(self, instance: TaskletInstance, mode: PlayMode, seed: int) -> TaskletPlacement:
        begun_s = clock_s()
        (weights,) = filling_weights(self.policy, tasklet_graphs([tasklet_features(instance)]))
        batch, rng = FillingBatch([instance], 1), np.random.default_rng(seed)
        n = instance.num_devices
        found: list[tuple[float, NDArray[np.int64]]] = []
        noise = None
        while True:
            fill_stages(weights, batch.stacked, batch.state, 0, 0, noise)
            found.append((float(batch.state.value_s[0]), batch.stages(0)))
            drawn = len(found) - 1
            if mode.kind == "sample" and drawn == mode.samples:
                break
            if mode.kind == "search" and clock_s() > begun_s + _DRAWS_SHARE * mode.budget_s:
                break
            if mode.kind == "greedy":
                break
            noise = rng.gumbel(size=(n, n)).astype(np.float32)
        # What is told while stages are filled is their value in that order; the best ones are valued in their best order.
        near = [found[0], *sorted(found[1:], key=lambda each: each[0])[: _MOST_STARTS - 1]]
        placed = [placed_tasklets(instance, stages, self.name, num_valued=len(found)) for _, stages in near]
        placed.sort(key=lambda each: each.value_s)
        best = placed[0]
        left_s = mode.budget_s - (clock_s() - begun_s)
        if mode.kind != "search" or instance.num_stages == 1:
            return best
        if left_s <= 0:
            return replace(best, note=NO_MOVE)
        made = arrange_from(instance, [each.device_of for each in placed], ArrangementRequest(left_s, seed))
        return replace(made, planner=self.name, num_valued=made.num_valued + len(found))


def load_tasklet_player(spec: str) -> tuple[TaskletPlayer, PlayMode]:
    """A policy and how it is asked: a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@MODE`` behind it or greedily.

    Raises:
        PolicyError: no such file or shipped policy, or no such way to ask.
        CheckpointError: the file holds no policy of tasklets.
    """
    name, *_, how = parsed(spec)
    mode, file = PlayMode.of(how or "greedy"), tasklet_policy_file(name)
    if mode.kind == "shuffled":
        choices = ["greedy", "sample-64", "search-0.1"]
        raise PolicyError("is no way to ask a policy of tasklets", field="policy", value=spec, choices=choices)
    if not os.path.exists(file):  # unlike Path.exists, it says no to names that are too long
        choices = [*SOLVERS, *(SHIPPED + each for each in shipped_tasklets())]
        raise PolicyError("no such solver, file or shipped policy", field="policy", value=spec, choices=choices)
    saved = SavedTaskletPolicy.load(file)
    return TaskletPlayer(saved.policy(name), spec, saved.trained), mode
