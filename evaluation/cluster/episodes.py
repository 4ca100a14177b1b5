"""Playing many episodes of one benchmark, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ...envs.benchmark import BenchmarkSettings
from ...envs.playing import play_episode
from ...models.policy_files import SHIPPED
from ...planners.policy import Policy
from ...planning.policies import base_of, is_rollout, network_of, policy, trained_file
from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ..workers import CarriedPolicies, Workers
from .bounds import beam_record, is_beam


@dataclass(frozen=True)
class Player:
    """Plays episodes of one benchmark.

    Attributes:
        benchmark: what is played.
        scenario: built from it.
        workers: who plays them; the records are the same whoever does.
        latency_s: seconds that each decision took, by policy; they grow as episodes are played, and are never the same.
    """

    benchmark: BenchmarkSettings
    scenario: Scenario
    workers: Workers = field(default_factory=Workers)
    latency_s: dict[str, list[float]] = field(default_factory=dict, compare=False)

    def play_all(
        self, tasks: Sequence[tuple[str, int]], progress: Callable[[int, int], None] | None = None
    ) -> list[EpisodeRecord]:
        """A record for each (policy or beam search, seed), in the order of the tasks.

        Raises:
            MeshwrightError: a policy is unknown or does not fit.
        """
        records: list[EpisodeRecord] = []

        def keep(task: tuple[str, int], played: tuple[EpisodeRecord, list[float]]) -> None:
            records.append(played[0])
            self.latency_s.setdefault(task[0], []).extend(played[1])
            if progress is not None:
                progress(len(records), len(tasks))

        specs = [spec for spec, _ in tasks if not is_beam(spec)]
        policies = CarriedPolicies(partial(policy, scenario=self.scenario), policy_carried, specs)
        self.workers.do(partial(_play, self.scenario, policies), tasks, keep)
        return records


def policy_carried(spec: str) -> tuple[str, Path] | None:
    """The part of a spelling that names the file of a trained policy, and that file; None for others and shipped ones."""
    named = network_of(base_of(spec) if is_rollout(spec) else spec)
    file = None if named.startswith(SHIPPED) else trained_file(named)
    return None if file is None else (named, file)


def _play(scenario: Scenario, policies: CarriedPolicies[Policy], task: tuple[str, int]) -> tuple[EpisodeRecord, list[float]]:
    """One episode and how long each decision took; a beam search decides all at once and has none."""
    spec, seed = task
    if is_beam(spec):
        return beam_record(spec, scenario, seed), []
    latency_s: list[float] = []
    return play_episode(policies[spec], scenario, seed, latency_s), latency_s
