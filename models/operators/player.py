"""A saved policy that places one instance: greedily, as the best of several draws, or as the start and guide of a search."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...envs.operators.batch import PlacementBatch
from ...errors import PolicyError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.operators.search.annealing import anneal
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement
from .compiled_steps import CompiledSteps
from .graphs import OperatorGraphs, batch, features
from .playing import play
from .policy import OperatorPolicy, StepPolicy
from .saved import SHIPPED, SavedOperatorPolicy, operator_policy_file, shipped_operators

RULE = "heft"
_EVEN = 0.8
"""Share of a search's proposals that do not follow the policy; on validation instances 0.2 and 0.5 found worse placements."""
_SOFTNESS = 0.5
"""Draws of a step-by-step policy are from its probabilities to the power of one over this; on validation instances the best of
64 is then 1.10 times the best known, with the probabilities as they are 1.12."""
_DRAWS_SHARE = 0.25
"""Share of a search's budget in which placements are drawn to start from."""
_HOTTEST = 0.1
"""A search from the policy's placement begins so much hot (see `annealing.HOTTEST`): hotter, it would forget where it started."""


@dataclass(frozen=True)
class PlayMode:
    """How a policy is asked.

    Attributes:
        kind: ``greedy``: the likeliest device each time. ``sample``: the best of so many draws and the greedy one. ``search``:
            annealing from the best of HEFT's placement, the greedy one and draws within a quarter of the budget, which tries
            devices as often as the policy found them likely. ``shuffled``: greedily, but the network reads a graph whose edges
            were dealt out anew, each op with as many as before; a probe of what it makes of them.
        samples: for ``sample``.
        budget_s: for ``search``, the policy's own time included.
    """

    kind: Literal["greedy", "sample", "search", "shuffled"] = "greedy"
    samples: int = 64
    budget_s: float = 0.1

    @classmethod
    def of(cls, text: str) -> PlayMode:
        """``greedy``, ``sample-K``, ``search-SECONDS`` or ``shuffled``.

        Raises:
            PolicyError: none of these.
        """
        kind, _, number = text.partition("-")
        try:
            if text in ("greedy", "shuffled"):
                return cls("shuffled" if text == "shuffled" else "greedy")
            if kind == "sample" and 1 <= int(number) <= 4096:
                return cls("sample", samples=int(number))
            if kind == "search" and 0 < float(number) <= 3600:
                return cls("search", budget_s=float(number))
        except ValueError:
            pass
        raise PolicyError(
            "is no way to ask a policy", field="policy", value=text, choices=["greedy", "sample-64", "search-0.1", "shuffled"]
        )


class OperatorPlayer:
    """A policy for one objective, asked for one instance at a time."""

    def __init__(self, policy: OperatorPolicy, objective: OperatorObjective, name: str) -> None:
        self.policy, self.objective, self.name = policy.eval(), objective, name

    def place(self, instance: OperatorInstance, mode: PlayMode, seed: int = 0) -> OperatorPlacement:
        """Place an instance.

        Raises:
            PlanError: neither the policy nor the rule behind it found a legal placement.
        """
        with _one_thread():
            return self._place(instance, mode, seed)

    def _place(self, instance: OperatorInstance, mode: PlayMode, seed: int) -> OperatorPlacement:
        begun_s = time.perf_counter()
        graphs = batch([features(instance, self.objective)])
        if mode.kind == "shuffled":
            dealt = torch.randperm(len(graphs.producer), generator=_generator(seed))
            graphs = replace(graphs, producer=graphs.producer[dealt])
        if mode.kind == "search":
            return self._searched(instance, graphs, begun_s, mode.budget_s, seed)
        greedy, _ = self._greedy(instance, graphs)
        found = [] if greedy is None else [greedy]
        if mode.kind == "sample":
            found += self._drawn(instance, graphs, mode.samples, seed)
        return min(found, key=lambda each: each.value_s) if found else self._by_rule(instance)

    def _searched(
        self, instance: OperatorInstance, graphs: OperatorGraphs, begun_s: float, budget_s: float, seed: int
    ) -> OperatorPlacement:
        """Annealing from the best of the greedy placement, of draws within a share of the budget, and of the rule's."""
        episodes, starts = PlacementBatch([instance], self.objective, 1), [self._by_rule(instance).device_of]
        if isinstance(self.policy, StepPolicy):
            steps, rng = CompiledSteps(self.policy, graphs), np.random.default_rng(seed)
            likely = steps.play(episodes)
            draws_end_s = begun_s + _DRAWS_SHARE * budget_s
            while True:
                if not episodes.is_dead[0]:
                    starts.append(episodes.device_of(0))
                if time.perf_counter() >= draws_end_s:
                    break
                steps.play(episodes, _noise(instance, rng))
        else:
            greedy, likely = self._greedy(instance, graphs)
            starts += [] if greedy is None else [greedy.device_of]
        proposal = (1.0 - _EVEN) * likely + _EVEN / instance.num_devices
        left_s = max(0.0, budget_s - (time.perf_counter() - begun_s))
        request = PlacementRequest(objective=self.objective, budget_s=left_s, seed=seed)
        return anneal(instance, request, start=np.stack(starts), proposal=proposal, planner=self.name, hottest=_HOTTEST)

    def _greedy(self, instance: OperatorInstance, graphs: OperatorGraphs) -> tuple[OperatorPlacement | None, NDArray[np.float64]]:
        """The likeliest placement, None at a dead end, and how likely each device was for each op, ``(n, m)``."""
        episodes = PlacementBatch([instance], self.objective, 1)
        if isinstance(self.policy, StepPolicy):
            likely = CompiledSteps(self.policy, graphs).play(episodes)
        else:
            with torch.no_grad():
                likely = np.asarray(self.policy(graphs).exp()[0].double())
            play(self.policy, graphs, episodes, np.zeros(1, np.int64))
        return None if episodes.is_dead[0] else episodes.placement(0, self.name), likely

    def _by_rule(self, instance: OperatorInstance) -> OperatorPlacement:
        """The rule's placement, for where the policy's decisions end with ops that no device can hold any more."""
        found = place(instance, RULE, PlacementRequest(objective=self.objective))
        note = f"memory left the policy no device for some op, so this is {RULE}'s placement"
        return replace(found, planner=self.name, note=note)

    def _drawn(self, instance: OperatorInstance, graphs: OperatorGraphs, samples: int, seed: int) -> list[OperatorPlacement]:
        """The best of some draws; nothing where all of them ended early."""
        if isinstance(self.policy, StepPolicy):
            steps, episodes = CompiledSteps(self.policy, graphs), PlacementBatch([instance], self.objective, 1)
            rng, found = np.random.default_rng(seed), list[OperatorPlacement]()
            for _ in range(samples):
                steps.play(episodes, _noise(instance, rng))
                if not episodes.is_dead[0]:
                    found.append(episodes.placement(0, self.name))
            return [min(found, key=lambda each: each.value_s)] if found else []
        episodes = PlacementBatch([instance], self.objective, samples)
        play(self.policy, graphs, episodes, np.zeros(1, np.int64), samples=samples, generator=_generator(seed))
        best = int(np.where(episodes.is_dead, np.inf, episodes.state.value_s).argmin())
        return [] if episodes.is_dead[best] else [episodes.placement(best, self.name)]


def _noise(instance: OperatorInstance, rng: np.random.Generator) -> NDArray[np.float32]:
    """What makes a draw of the likeliest devices, ``(g, m)``."""
    noise: NDArray[np.float32] = (_SOFTNESS * rng.gumbel(size=(instance.num_groups, instance.num_devices))).astype(np.float32)
    return noise


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed % 2**63)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch in one thread, for the tensors of one instance are small; then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_player(spec: str, objective: OperatorObjective) -> tuple[OperatorPlayer, PlayMode]:
    """A policy and how it is asked: a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@MODE`` behind it or greedily.

    Raises:
        PolicyError: no such file or shipped policy, no such way to ask, or it was trained for another objective.
        CheckpointError: the file holds no policy of operator placement.
    """
    name, _, how = spec.partition("@")
    mode, file = PlayMode.of(how or "greedy"), operator_policy_file(name)
    if not os.path.exists(file):  # unlike Path.exists, it says no to names that are too long
        choices = [*PLACEMENT_PLANNERS, *(SHIPPED + each for each in shipped_operators())]
        raise PolicyError("no such planner, file or shipped policy", field="policy", value=spec, choices=choices)
    saved = SavedOperatorPolicy.load(file)
    if saved.objective != objective:
        raise PolicyError(f"was trained for {saved.objective}, not {objective}", field="policy", value=spec)
    return OperatorPlayer(saved.policy(name), objective, spec), mode
