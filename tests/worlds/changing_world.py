"""The toy world as one whose graph changes with every decision: jobs leave it once they have a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from toy_world import ToyDraw, ToyEpisodes, ToyPlacement, ToyWorld, _graph

from meshwright import settings
from meshwright.worlds.benchmark import WorldBenchmark
from meshwright.worlds.benchmark_files import find_benchmark
from meshwright.worlds.typed_graph import InstanceGraph, Sizes

SPEC = replace(ToyWorld.spec, name="changing", nodes={"job": ("length",), "machine": ("speed", "end")}, changes=True)


class ChangingBenchmark(WorldBenchmark):
    """Instances and what is compared on them."""

    changing_jobs: ToyDraw

    @property
    def toy_jobs(self) -> ToyDraw:
        return self.changing_jobs


class ChangingEpisodes(ToyEpisodes):
    """The job that is decided is node 0, those behind it follow; no job in the graph has a machine."""

    def __init__(self, sizes: Sizes, num_places: int, num_episodes: int) -> None:
        super().__init__(sizes, num_places, num_episodes)
        self.spec, self._machine_of = SPEC, np.zeros(self.decisions.member.shape, np.int64)

    def graph(self, e: int) -> InstanceGraph:
        instance, m = self._instance(e), len(self._instance(e).speed)
        machines = np.stack([instance.speed, self._end_s[e, :m] / instance.bound_s], axis=1)
        return _graph(instance, instance.length_s[self._next[e] :], machines)

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        for e in np.flatnonzero(self.is_live).tolist():
            self._machine_of[e, self._next[e]] = actions[e]
        return super().step(actions)

    def _show(self, e: int) -> None:
        super()._show(e)
        self.decisions.member[e] = -1
        self.decisions.nodes[e, :, 0] = np.where(self.decisions.mask[e], 0, -1)

    def outcome(self, e: int, name: str) -> ToyPlacement:
        return ToyPlacement(self._machine_of[e, : len(self._instance(e).length_s)].copy(), self.value(e), name)


class ChangingWorld(ToyWorld):
    """Jobs on machines, one after another."""

    spec = SPEC

    def batch(self, num_places: int, num_episodes: int, sizes: Sizes | None = None) -> ChangingEpisodes:
        return ChangingEpisodes(sizes or self.sizes, num_places, num_episodes)


def load_changing_world(spec: str, changes: Sequence[str] | None = None) -> ChangingWorld:
    """The entry point of the group ``meshwright.worlds`` by the name ``changing_jobs``."""
    return ChangingWorld(settings.load(ChangingBenchmark, find_benchmark(spec)[0], changes=changes))
