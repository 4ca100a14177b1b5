"""A saved policy that places one instance: greedily, as the best of several draws, or as the start and guide of a search."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...budget_clock import clock_s
from ...envs.operators.batch import PlacementBatch
from ...errors import PolicyError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.operators.search.annealing import anneal
from ...planners.policy_names import parsed
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement
from ..graph.play_mode import PlayMode, one_thread
from ..policy_files import SHIPPED
from .decoding import CompiledSteps
from .familiar import familiar_part
from .graphs import OperatorGraphs, batch, features
from .policy import OperatorPolicy
from .saved import SavedOperatorPolicy, operator_policy_file, shipped_operators

RULE = "heft"
_EVEN = 0.8
"""Share of a search's proposals that do not follow the policy; on validation instances 0.2 and 0.5 found worse placements."""
_TEMPERATURE = 0.5
"""Draws are from the policy's probabilities to the power of one over this; on validation instances the best of 64 is then 1.10
times the best known, with the probabilities as they are 1.12."""
_DRAWS_SHARE = 0.25
"""Share of a search's budget in which placements are drawn to start from."""
_HOTTEST_AFTER_POLICY = 0.1
"""A search from the policy's placement begins so much hot (see `annealing.HOTTEST`): hotter, it would forget where it started."""


class OperatorPlayer:
    """A policy for one objective, asked for one instance at a time.

    Args:
        policy: that decides.
        objective: for which it was trained.
        name: whom placements name.
        trained: how it came about.
        most_slowdown: an op takes at most so many times as long on the slowest device as on the fastest in training; slower
            ones are left out (see `familiar.familiar_part`).
    """

    def __init__(
        self,
        policy: OperatorPolicy,
        objective: OperatorObjective,
        name: str,
        trained: dict[str, Any] | None = None,
        most_slowdown: float = np.inf,
    ) -> None:
        self.policy, self.objective, self.name = policy.eval(), objective, name
        self.trained = {} if trained is None else trained
        self._most_slowdown, self._is_loaded = most_slowdown, False

    def place(self, instance: OperatorInstance, mode: PlayMode, seed: int = 0) -> OperatorPlacement:
        """Place an instance.

        Raises:
            PlanError: neither the policy nor the rule behind it found a legal placement.
        """
        self.load()
        with one_thread():
            return self._place(instance, mode, seed)

    def load(self) -> None:
        """Load what placing needs, before a clock begins."""
        if self._is_loaded:
            return
        tiny = OperatorInstance.of_outputs("tiny", np.ones((2, 2)), [(0, 1)], [1.0, 1.0])
        with one_thread():
            self._place(tiny, PlayMode("sample", samples=1), 0)
        self._ruled(tiny)
        self._is_loaded = True

    def _place(self, instance: OperatorInstance, mode: PlayMode, seed: int) -> OperatorPlacement:
        begun_s = clock_s()
        part = familiar_part(instance, self._most_slowdown, self._ruled)
        graphs = batch([features(part.instance, self.objective)])
        if mode.kind == "shuffled":
            dealt = torch.randperm(len(graphs.producer), generator=torch.Generator().manual_seed(seed % 2**63))
            graphs = replace(graphs, producer=graphs.producer[dealt])
        draws_end_s = begun_s + _DRAWS_SHARE * mode.budget_s
        goes_on: Callable[[int], bool] = {
            "sample": lambda drawn: drawn < mode.samples,
            "search": lambda drawn: clock_s() < draws_end_s,
        }.get(mode.kind, lambda drawn: False)
        best, likely = self._best_of_draws(part.instance, graphs, seed, goes_on)
        best = None if best is None else part.of_whole(best)
        if mode.kind != "search":
            return self._by_rule(instance) if best is None else best
        starts = [self._ruled(instance).device_of, *([] if best is None else [best.device_of])]
        proposal = (1.0 - _EVEN) * part.likely_of_whole(likely) + _EVEN / instance.num_devices
        left_s = max(0.0, mode.budget_s - (clock_s() - begun_s))
        request = PlacementRequest(objective=self.objective, budget_s=left_s, seed=seed)
        return anneal(
            instance, request, start=np.stack(starts), proposal=proposal, planner=self.name, hottest=_HOTTEST_AFTER_POLICY
        )

    def _best_of_draws(
        self, instance: OperatorInstance, graphs: OperatorGraphs, seed: int, goes_on: Callable[[int], bool]
    ) -> tuple[OperatorPlacement | None, NDArray[np.float64]]:
        """Place greedily and by draws, as long as ``goes_on`` with the number of draws so far says so.

        Returns:
            The best placement, None where all ended early, and how likely the policy found each device for each op when it placed
            greedily, ``(n, m)``.
        """
        steps = CompiledSteps(self.policy, graphs)
        episodes, size = PlacementBatch([instance], self.objective, 1), (instance.num_groups, instance.num_devices)
        rng, best, best_s, drawn = np.random.default_rng(seed), None, np.inf, 0
        likely = steps.play(episodes)
        while True:
            value_s = np.inf if episodes.is_dead[0] else episodes.state.value_s[0]
            if value_s < best_s:
                best, best_s = episodes.placement(0, self.name), value_s
            if not goes_on(drawn):
                return best, likely
            noise = _TEMPERATURE * rng.gumbel(size=size)
            steps.play(episodes, noise.astype(np.float32))
            drawn += 1

    def _ruled(self, instance: OperatorInstance) -> OperatorPlacement:
        return place(instance, RULE, PlacementRequest(objective=self.objective))

    def _by_rule(self, instance: OperatorInstance) -> OperatorPlacement:
        """The rule's placement, for where the policy's decisions end with ops that no device can hold any more."""
        found = self._ruled(instance)
        note = f"memory left the policy no device for some op, so this is {RULE}'s placement"
        return replace(found, planner=self.name, note=note)


def load_player(spec: str, objective: OperatorObjective) -> tuple[OperatorPlayer, PlayMode]:
    """A policy and how it is asked: a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@MODE`` behind it or greedily.

    Raises:
        PolicyError: no such file or shipped policy, no such way to ask, or it was trained for another objective.
        CheckpointError: the file holds no policy of operator placement.
    """
    name, *_, how = parsed(spec)
    mode, file = PlayMode.of(how or "greedy"), operator_policy_file(name)
    if not os.path.exists(file):  # unlike Path.exists, it says no to names that are too long
        choices = [*PLACEMENT_PLANNERS, *(SHIPPED + each for each in shipped_operators())]
        raise PolicyError("no such planner, file or shipped policy", field="policy", value=spec, choices=choices)
    saved = SavedOperatorPolicy.load(file)
    if saved.objective != objective:
        raise PolicyError(f"was trained for {saved.objective}, not {objective}", field="policy", value=spec)
    trained = {**saved.trained, "network": saved.settings.model_dump(mode="json")}
    return OperatorPlayer(saved.policy(name), objective, spec, trained, saved.most_slowdown), mode
