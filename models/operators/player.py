"""A saved policy that places one instance: greedily, as the best of several draws, or as the start and guide of a search."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...envs.operators.batch import PlacementBatch
from ...errors import PlanError, PolicyError
from ...planners.operators.request import PlacementRequest
from ...planners.operators.search.annealing import anneal
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement
from .graphs import OperatorGraphs, batch, features
from .playing import play
from .policy import OneShotPolicy, OperatorPolicy

_EVEN = 0.2
"""Share of a search's proposals that do not follow the policy."""


@dataclass(frozen=True)
class PlayMode:
    """How a policy is asked.

    Attributes:
        kind: ``greedy``: the likeliest device each time. ``sample``: the best of so many draws and the greedy one. ``search``:
            annealing from the best of 16 draws and the greedy one, which tries devices as often as the policy chose them.
        samples: for ``sample``.
        budget_s: for ``search``, draws included.
    """

    kind: Literal["greedy", "sample", "search"] = "greedy"
    samples: int = 64
    budget_s: float = 0.1

    @classmethod
    def of(cls, text: str) -> PlayMode:
        """``greedy``, ``sample-K`` or ``search-SECONDS``.

        Raises:
            PolicyError: none of these.
        """
        kind, _, number = text.partition("-")
        try:
            if text == "greedy":
                return cls()
            if kind == "sample" and 1 <= int(number) <= 4096:
                return cls("sample", samples=int(number))
            if kind == "search" and 0 < float(number) <= 3600:
                return cls("search", budget_s=float(number))
        except ValueError:
            pass
        raise PolicyError("is no way to ask a policy", field="policy", value=text, choices=["greedy", "sample-64", "search-0.1"])


class OperatorPlayer:
    """A policy for one objective, asked for one instance at a time."""

    def __init__(self, policy: OperatorPolicy, objective: OperatorObjective, name: str) -> None:
        self.policy, self.objective, self.name = policy.eval(), objective, name

    def place(self, instance: OperatorInstance, mode: PlayMode, seed: int = 0) -> OperatorPlacement:
        """Place an instance.

        Raises:
            PlanError: the policy found no legal placement.
        """
        begun_s = time.perf_counter()
        torch.set_num_threads(1)  # the tensors of one instance are small
        graphs = batch([features(instance, self.objective)])
        greedy = self._played(instance, graphs, 1, None)[0]
        if mode.kind == "greedy":
            return greedy
        samples = mode.samples if mode.kind == "sample" else 16
        drawn = self._played(instance, graphs, samples, torch.Generator().manual_seed(seed))
        drawn.append(greedy)
        best = min(drawn, key=lambda each: each.value_s)
        if mode.kind == "sample":
            return best
        chosen = np.zeros((instance.num_ops, instance.num_devices))
        for each in drawn:
            chosen[np.arange(instance.num_ops), each.device_of] += 1.0 / len(drawn)
        proposal = (1.0 - _EVEN) * chosen + _EVEN / instance.num_devices
        left_s = max(0.0, mode.budget_s - (time.perf_counter() - begun_s))
        request = PlacementRequest(objective=self.objective, budget_s=left_s, seed=seed)
        return anneal(instance, request, start=best.device_of, proposal=proposal, planner=self.name)

    def probabilities(self, instance: OperatorInstance) -> NDArray[np.float64] | None:
        """Those of a one-shot policy for each op and device, ``(n, m)``; None of one that decides step by step."""
        if not isinstance(self.policy, OneShotPolicy):
            return None
        with torch.no_grad():
            return np.asarray(self.policy(batch([features(instance, self.objective)])).exp()[0].double())

    def _played(
        self, instance: OperatorInstance, graphs: OperatorGraphs, samples: int, generator: torch.Generator | None
    ) -> list[OperatorPlacement]:
        episodes = PlacementBatch([instance], self.objective, samples)
        play(self.policy, graphs, episodes, np.zeros(1, np.int64), samples=samples, generator=generator)
        found = [episodes.placement(e, self.name) for e in range(samples) if not episodes.is_dead[e]]
        if not found:
            raise PlanError("the policy found no device for some op", field="memory_bytes", value=instance.name)
        return found
