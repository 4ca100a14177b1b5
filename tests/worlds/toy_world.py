"""A world in one file: jobs of known lengths get machines of known speeds, and the last machine to finish counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from meshwright import settings
from meshwright.errors import PolicyError
from meshwright.worlds.benchmark import WorldBenchmark
from meshwright.worlds.benchmark_files import find_benchmark
from meshwright.worlds.typed_graph import DecisionArrays, InstanceGraph, Sizes, WorldSpec
from meshwright.worlds.world import World, WorldBatch


class ToyDraw(settings.Settings):
    """How instances are drawn.

    Attributes:
        jobs: of an instance.
        machines: of an instance.
    """

    jobs: int = Field(default=8, ge=1)
    machines: int = Field(default=3, ge=1)


class ToyBenchmark(WorldBenchmark):
    """Instances and what is compared on them."""

    toy_jobs: ToyDraw


@dataclass(frozen=True, eq=False)
class ToyInstance:
    """Lengths of jobs ``(n,)``, longest first, and speeds of machines ``(m,)``."""

    name: str
    length_s: NDArray[np.float64]
    speed: NDArray[np.float64]

    @property
    def bound_s(self) -> float:
        """All machines busy to the end."""
        return float(self.length_s.sum() / self.speed.sum())

    def value_s(self, machine_of: NDArray[np.int64]) -> float:
        """Return the end of the last machine."""
        return float((np.bincount(machine_of, self.length_s, len(self.speed)) / self.speed).max())


@dataclass(frozen=True, eq=False)
class ToyPlacement:
    """Machine of each job, ``(n,)``."""

    machine_of: NDArray[np.int64]
    value_s: float
    planner: str
    note: str = field(default="")


class ToyEpisodes(WorldBatch[ToyInstance]):
    """Each decision gives the next job a machine."""

    def __init__(self, sizes: Sizes, num_places: int, num_episodes: int) -> None:
        self.spec, self.instances = ToyWorld.spec, [None] * num_places
        self.decisions = DecisionArrays.empty(ToyWorld.spec, sizes, num_episodes)
        self.is_live = np.zeros(num_episodes, np.bool_)
        self._at, self._next = np.zeros(num_episodes, np.int64), np.zeros(num_episodes, np.int64)
        self._end_s = np.zeros((num_episodes, sizes.actions))

    def put(self, at: int, instance: ToyInstance) -> None:
        self.instances[at] = instance

    def begin(self, e: int, at: int) -> None:
        self._at[e], self._next[e], self._end_s[e], self.is_live[e] = at, 0, 0.0, True
        self.decisions.member[e] = -1
        self._show(e)

    def graph(self, e: int) -> InstanceGraph:
        return _graph(self._instance(e), self._instance(e).length_s, self._instance(e).speed[:, None])

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        rewards = np.zeros(self.num_episodes)
        for e in np.flatnonzero(self.is_live).tolist():
            machine, instance, before_s = int(actions[e]), self._instance(e), self.value(e)
            if not 0 <= machine < len(instance.speed):
                raise PolicyError("there is no such machine", field=f"actions.{e}", value=machine)
            self._end_s[e, machine] += instance.length_s[self._next[e]] / instance.speed[machine]
            self.decisions.member[e, self._next[e]] = machine
            self._next[e] += 1
            self.is_live[e] = self._next[e] < len(instance.length_s)
            rewards[e] = (before_s - self.value(e)) / instance.bound_s
            self._show(e)
        return rewards

    def _show(self, e: int) -> None:
        instance, job, m = self._instance(e), int(self._next[e]), len(self._instance(e).speed)
        self.decisions.mask[e], self.decisions.nodes[e] = False, -1
        if not self.is_live[e]:
            return
        after_s = self._end_s[e, :m] + instance.length_s[job] / instance.speed
        self.decisions.mask[e, :m] = True
        self.decisions.nodes[e, :m] = np.stack([np.full(m, job), np.arange(m)], axis=1)
        self.decisions.features[e, :m] = np.stack([self._end_s[e, :m], after_s], axis=1) / instance.bound_s
        self.decisions.state[e] = job / len(instance.length_s)

    def value(self, e: int) -> float:
        return float(self._end_s[e].max())

    def outcome(self, e: int, name: str) -> ToyPlacement:
        machine_of = self.decisions.member[e, : len(self._instance(e).length_s)].astype(np.int64)
        return ToyPlacement(machine_of, self.value(e), name)

    def info(self, e: int) -> dict[str, Any]:
        return {"instance": self._instance(e).name, "value_s": self.value(e)}

    def _instance(self, e: int) -> ToyInstance:
        instance = self.instances[self._at[e]]
        assert instance is not None
        return instance


class ToyWorld(World[ToyInstance]):
    """Jobs on machines."""

    spec = WorldSpec(
        name="toy",
        nodes={"job": ("length",), "machine": ("speed",)},
        edges={("job", "may_use", "machine"): ("seconds",), ("machine", "may_run", "job"): ("seconds",)},
        whole=("jobs", "machines"),
        member="job",
        group="machine",
        slots=("job", "machine"),
        action=("end_before", "end_after"),
        state=("done",),
    )
    reference_name = "longest-first"
    rules = ("longest-first", "in-turns")

    def __init__(self, benchmark: ToyBenchmark) -> None:
        self.benchmark = benchmark

    @property
    def sizes(self) -> Sizes:
        return _sizes(self.benchmark.toy_jobs.jobs, self.benchmark.toy_jobs.machines)

    def sizes_of(self, instance: ToyInstance) -> Sizes:
        return _sizes(len(instance.length_s), len(instance.speed))

    def instance(self, split: str, seed: int) -> ToyInstance:
        number = self.benchmark.seed(split, seed)
        rng, draw = np.random.default_rng(number), self.benchmark.toy_jobs
        lengths = np.sort(rng.uniform(1.0, 4.0, draw.jobs))[::-1].copy()
        return ToyInstance(f"toy-{number}", lengths, rng.uniform(0.5, 2.0, draw.machines))

    def batch(self, num_places: int, num_episodes: int, sizes: Sizes | None = None) -> ToyEpisodes:
        return ToyEpisodes(sizes or self.sizes, num_places, num_episodes)

    def solve(self, instance: ToyInstance, rounds: int, seed: int) -> NDArray[np.int64]:
        return _descended(instance, _longest_first(instance, 0)).machine_of

    def improve(self, instance: ToyInstance, outcomes: Sequence[ToyPlacement], budget_s: float, seed: int) -> ToyPlacement:
        return _descended(instance, outcomes[0])

    def tiny(self) -> ToyInstance:
        return ToyInstance("tiny", np.ones(2), np.ones(2))

    def solver(self, spec: str) -> Callable[[ToyInstance, int], ToyPlacement]:
        return {"longest-first": _longest_first, "in-turns": _in_turns}[spec]

    def best_known(self, instance: ToyInstance, seed: int) -> ToyPlacement:
        return _descended(instance, _longest_first(instance, seed))

    def bound(self, instance: ToyInstance) -> float:
        return instance.bound_s


def load_toy_world(spec: str, changes: Sequence[str] | None = None) -> ToyWorld:
    """The entry point of the group ``meshwright.worlds`` by the name ``toy_jobs``."""
    return ToyWorld(settings.load(ToyBenchmark, find_benchmark(spec)[0], changes=changes))


def _graph(instance: ToyInstance, length_s: NDArray[np.float64], machines: NDArray[np.float64]) -> InstanceGraph:
    """The graph of some of an instance's jobs, and its machines by features, their speed first."""
    n, m = len(length_s), len(machines)
    job, machine = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    seconds = (length_s[job] / instance.speed[machine] / instance.bound_s)[:, None].astype(np.float32)
    may_use, may_run = ToyWorld.spec.edges
    return InstanceGraph(
        {
            "job": (length_s / instance.length_s.mean())[:, None].astype(np.float32),
            "machine": (machines / instance.speed.mean()).astype(np.float32),
        },
        {may_use: np.stack([job, machine]), may_run: np.stack([machine, job])},
        {may_use: seconds, may_run: seconds},
        np.array([n / (n + 8), m / (m + 8)], np.float32),
    )


def _sizes(n: int, m: int) -> Sizes:
    return Sizes({"job": n, "machine": m}, dict.fromkeys(ToyWorld.spec.edges, n * m), m)


def _longest_first(instance: ToyInstance, seed: int) -> ToyPlacement:
    """Each job, longest first, where it ends first."""
    end_s, machine_of = np.zeros(len(instance.speed)), np.zeros(len(instance.length_s), np.int64)
    for job, length_s in enumerate(instance.length_s):
        machine_of[job] = (end_s + length_s / instance.speed).argmin()
        end_s[machine_of[job]] += length_s / instance.speed[machine_of[job]]
    return ToyPlacement(machine_of, instance.value_s(machine_of), "longest-first")


def _in_turns(instance: ToyInstance, seed: int) -> ToyPlacement:
    machine_of = np.arange(len(instance.length_s)) % len(instance.speed)
    return ToyPlacement(machine_of, instance.value_s(machine_of), "in-turns")


def _descended(instance: ToyInstance, start: ToyPlacement) -> ToyPlacement:
    """Move single jobs for as long as that helps."""
    machine_of, value_s, is_better = start.machine_of.copy(), start.value_s, True
    while is_better:
        is_better = False
        for job in range(len(machine_of)):
            for machine in range(len(instance.speed)):
                other = machine_of.copy()
                other[job] = machine
                if instance.value_s(other) < value_s - 1e-12:
                    machine_of, value_s, is_better = other, instance.value_s(other), True
    return ToyPlacement(machine_of, value_s, start.planner)
