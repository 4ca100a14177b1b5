"""Playing many episodes of one benchmark, in one process or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..envs.benchmark import BenchmarkSettings
from ..envs.playing import play_episode
from ..planners.policy import Policy
from ..planning.policies import policy
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from .bounds import beam_record, is_beam
from .processes import in_processes


@dataclass(frozen=True)
class Player:
    """Plays episodes of one benchmark, in this process or in several.

    Attributes:
        benchmark: what is played.
        scenario: built from it.
        graphs_dir: profiles by folder name.
        num_processes: how many episodes are played at a time; the records are the same for any number.
        latency_s: seconds that each decision took, by policy; they grow as episodes are played, and are never the same.
    """

    benchmark: BenchmarkSettings
    scenario: Scenario
    graphs_dir: Path | None = None
    num_processes: int = 1
    latency_s: dict[str, list[float]] = field(default_factory=dict, compare=False)

    def play_all(
        self, tasks: Sequence[tuple[str, int]], progress: Callable[[int, int], None] | None = None
    ) -> list[EpisodeRecord]:
        """A record for each (policy or beam search, seed), in the order of the tasks.

        Raises:
            MeshwrightError: a policy is unknown or does not fit.
        """
        specs = dict.fromkeys(spec for spec, _ in tasks)
        choosers = {spec: None if is_beam(spec) else policy(spec, self.scenario) for spec in specs}
        records: list[EpisodeRecord] = []

        def keep(task: tuple[str, int], played: tuple[EpisodeRecord, list[float]]) -> None:
            records.append(played[0])
            self.latency_s.setdefault(task[0], []).extend(played[1])
            if progress is not None:
                progress(len(records), len(tasks))

        if self.num_processes == 1 or len(tasks) < 2:
            for spec, seed in tasks:
                keep((spec, seed), _timed(spec, choosers[spec], self.scenario, seed))
        else:
            in_processes(_play, tasks, self.num_processes, _set_up, (self.benchmark, self.graphs_dir), keep)
        return records


# What a worker process keeps between tasks: the scenario and the policies used so far.
_scenario: Scenario
_choosers: dict[str, Policy | None]


def _set_up(benchmark: BenchmarkSettings, graphs_dir: Path | None) -> None:
    global _scenario, _choosers
    _scenario, _choosers = benchmark.build(graphs_dir=graphs_dir), {}


def _play(task: tuple[str, int]) -> tuple[EpisodeRecord, list[float]]:
    spec, seed = task
    if spec not in _choosers:
        _choosers[spec] = None if is_beam(spec) else policy(spec, _scenario)
    return _timed(spec, _choosers[spec], _scenario, seed)


def _timed(spec: str, chooser: Policy | None, scenario: Scenario, seed: int) -> tuple[EpisodeRecord, list[float]]:
    """One episode and how long each decision took; a beam search (no chooser) decides all at once and has none."""
    if chooser is None:
        return beam_record(spec, scenario, seed), []
    latency_s: list[float] = []
    return play_episode(chooser, scenario, seed, latency_s), latency_s
