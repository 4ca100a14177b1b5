"""`JobPartitioning-v0` as `evaluate` plays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...costs.training_step.foreign_figures import foreign_figures
from ...envs.benchmark import BenchmarkSettings, load_variants
from ...envs.job_partitioning import play_episode
from ...envs.training_conditions import TrainingConditions
from ...jobs.load import profile_names
from ...jobs.seeds import validation_seeds
from ...planners.bounds import known_episode, linear_program
from ...planners.rules import NAMES
from ...planning import policies
from ...planning.policies import fixed_names
from ...simulation.cluster.scenario import Scenario
from ...worlds.benchmark_files import SCENARIO
from ..cluster import episodes
from ..cluster.cluster_figures import ClusterFigures, shares
from ..cluster.episodes import carried, play_episodes
from ..metrics import METRICS, Metric
from ..progress import Progress
from .evaluated_episodes import EvaluatedEpisodes
from .evaluated_world import REFERENCE, EvaluatedWorld, Options, PlayedCases, Row, ValidationEpisodes


class EvaluatedCluster(EvaluatedEpisodes):
    """See `EvaluatedEpisodes`; what is built is a `Scenario`."""

    name, words, question = "cluster", "one job after another", "which policy blocks fewest jobs?"
    key, made_from = SCENARIO, BenchmarkSettings
    takes = frozenset({"references", "graphs", "trace", "dump"})
    trade_offs = (("mean_completion_s", "blocking_rate"),)
    carries, plays, views = staticmethod(carried), staticmethod(play_episodes), ClusterFigures
    bound = episodes.LINEAR_PROGRAMME, "blocking_rate"
    built: Scenario

    @classmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """See `EvaluatedWorld`; of a family every variant."""
        if options.graphs is not None:
            profile_names(options.graphs)  # refuses a folder without any
        return [cls(one, options) for one in load_variants(spec, changes=list(changes), trace=options.trace)]

    def build(self, progress: Progress | None = None) -> None:
        """See `EvaluatedWorld`."""
        self.built = self.built or self.benchmark.build(graphs_dir=self.options.graphs, progress=progress)

    def note_files(self, specs: Sequence[str]) -> None:
        """See `EvaluatedWorld`."""
        policies.note_files([spec for spec in specs if not self._is_reference(spec)])

    def _is_reference(self, spec: str) -> bool:
        return episodes.is_reference(spec) or spec in self.options.references

    def for_policies(self, specs: Sequence[str]) -> None:
        """Play the trace as `Workload.for_rules` has it where nothing was trained or tuned."""
        if all(self._is_reference(spec) or policies.is_untrained(spec) for spec in specs):
            self.built = replace(self.built, workload=self.built.workload.for_rules())

    @property
    def objective(self) -> Metric:
        """See `EvaluatedWorld`."""
        return METRICS["blocking_rate"]

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        settings, workload = self.built.settings, self.built.workload
        return {
            "cluster": self.built.cluster.name,
            "num_devices": self.built.cluster.num_devices,
            "jobs": [graph.name for graph in workload.graphs],
            "degrees": list(self.built.space.degrees),
            "placement_rules": list(settings.placement_rules),
            "mean_interarrival_s": workload.mean_interarrival_s,
            "num_jobs": settings.num_jobs,
            "num_warmup_jobs": settings.num_warmup_jobs,
            "num_cooldown_jobs": settings.num_cooldown_jobs,
            "queue_capacity": settings.queue_capacity,
            "digest": self.built.digest,
            "digest_but_arrivals": self.built.digest_but_arrivals,
        }

    def kind(self, spec: str) -> str:
        """See `EvaluatedWorld`."""
        return REFERENCE if self._is_reference(spec) else policies.kind(spec)

    def display_name(self, spec: str) -> str:
        """See `EvaluatedWorld`."""
        return spec if self._is_reference(spec) else policies.display_name(spec)

    def trained_file(self, spec: str) -> Path | None:
        """See `EvaluatedWorld`; of a rollout planner that of its base."""
        base = policies.base_of(spec) if policies.is_rollout(spec) else spec
        return None if self._is_reference(spec) else policies.trained_file(base)

    def check(self, spec: str) -> None:
        """See `EvaluatedWorld`."""
        if self._is_reference(spec):
            episodes.check(spec, self.built)
        elif policies.is_best_fixed(spec):
            policies.check_best_fixed(spec, self.built)
        else:
            policies.policy(spec, self.built)

    def choices(self, spec: str) -> dict[str, str]:
        """See `EvaluatedWorld`."""
        return policies.each_fixed(spec, self.built) if policies.is_best_fixed(spec) else {}

    def least(self, case: int) -> float:
        """See `EvaluatedEpisodes`."""
        return linear_program.bound(known_episode.draw(self.built, case)).blocking_rate_at_least

    def validation(self, config: Mapping[str, Any], others: Sequence[EvaluatedWorld]) -> ValidationEpisodes:
        """See `EvaluatedWorld`."""
        for world in (self, *others):
            world.build()
        scenarios: list[Scenario] = [world.built for world in (self, *others)]
        episodes = [(scenario, seed) for seed in validation_seeds(2 * config["num_validation_seeds"]) for scenario in scenarios]
        names = (*NAMES, *fixed_names(self.built, ""))
        rules = [f"{name}@{placement}" for placement in self.built.settings.placement_rules for name in names]

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            playing = [policies.policy(spec, scenario) for scenario in scenarios]
            values = []
            for number in numbers:
                scenario, seed = episodes[number]
                record = play_episode(playing[number % len(scenarios)], scenario, seed)
                values.append(record.blocking_rate(scenario.settings.counted))
            return values

        return ValidationEpisodes(rules, len(episodes) // 2, play)

    def details(self, kind: str, played: PlayedCases) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        return shares(played.records, self.built, is_policy=kind != REFERENCE) if played.records else {}

    def remarks(self, specs: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
        """See `EvaluatedWorld`: policies off the ground of their training, and figures of other devices."""
        here = TrainingConditions.from_scenario(self.benchmark.name, self.built)
        results = [policies.condition_changes(spec, here) for spec in specs.values() if self.kind(spec) != REFERENCE]
        results += foreign_figures(self.built.cluster, self.built.settings.costs, has_layers=False)
        return [f"{sentence}." for sentence in results if sentence is not None]
