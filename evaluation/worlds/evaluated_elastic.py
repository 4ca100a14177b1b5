"""Published elastic workloads as `evaluate` plays them; their published completion times are rows of the kind ``published``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import inputs
from ...errors import CheckpointError
from ...jobs.readers.elastic import ElasticWorkload
from ...models.policy_files import SHIPPED
from ...planners.elastic.saved_shares import SavedShares
from ...planners.own_policy import OWN
from ...planners.policy_names import parsed
from ...planning.policies import display_name, policy_file
from ...quantities import counted
from ...training.elastic.search import validation_workloads
from ...training.elastic.settings import ElasticTrainSettings
from ...worlds.benchmark_files import ELASTIC
from ...worlds.elastic.benchmark import MODELLED, ElasticBenchmark
from ...worlds.elastic.episodes import ElasticOutcome
from ...worlds.elastic.world import ElasticWorld
from ..metrics import METRICS, Metric, figures
from ..playing import PlayedEpisodes, play_all
from ..progress import Progress
from ..workers import CarriedPolicies
from ..world_policies import PlacingPolicy, world_policy
from .evaluated_graph_world import EvaluatedGraphWorld
from .evaluated_world import LEARNED, PUBLISHED, EvaluatedWorld, PlayedCases, Row, ValidationEpisodes

PUBLISHED_ROW = "published:"


def elastic_policy(spec: str, world: ElasticWorld) -> PlacingPolicy[Any, ElasticOutcome]:
    """Return a policy by its spelling: saved shares, or any other as `world_policies.world_policy`.

    Raises:
        PolicyError: there is none of this name.
        CheckpointError: the file is damaged or holds another kind of policy.
        InputFileError: the file is an output of the command.
    """
    file, how = _file(spec), parsed(spec).mode
    if file is None:
        return world_policy(spec, world)
    inputs.note(file)
    if file.suffix != ".json" or how is not None:
        try:
            return world_policy(str(file) if how is None else f"{file}@{how}", world)
        except CheckpointError as error:
            raise CheckpointError(f"is no policy of elastic jobs: {error.problem}", file=file, value=error.value) from None
    saved = SavedShares.load(file)
    return PlacingPolicy(spec, LEARNED, lambda instance, seed: world.scheduled(instance, saved.scheduler(), spec), saved.trained)


def carried_file(spec: str) -> tuple[str, Path] | None:
    """Return the part of a spelling that names the file of a trained policy, and that file; None for others and shipped ones."""
    file = None if spec.startswith(SHIPPED) else _file(spec)
    return None if file is None else (parsed(spec).whole, file)


def _file(spec: str) -> Path | None:
    """Return the file of a trained policy; None for others."""
    is_other = spec in ElasticWorld.rules or spec.startswith(OWN)
    return None if is_other else policy_file(parsed(spec).whole, ElasticWorld.rules)


def _placed(
    workloads: Sequence[ElasticWorkload], policy: PlacingPolicy[Any, ElasticOutcome], cases: Sequence[int]
) -> PlayedEpisodes:
    return PlayedEpisodes([policy.place(workloads[case], case) for case in cases])


class EvaluatedElastic(EvaluatedGraphWorld):
    """See `EvaluatedGraphWorld`; policies are compared by completion times, on the published workloads.

    Attributes:
        workloads: all of the load.
        stored: completion times of the jobs of each workload, in seconds, by scheduler.
    """

    name, words = "elastic", "elastic jobs"
    key, made_from = ELASTIC, ElasticBenchmark
    takes = frozenset()
    question = "which scheduler completes elastic jobs first?"
    trade_offs = (("makespan_s", "mean_completion_s"),)
    is_parallel = True
    world: ElasticWorld
    more = EvaluatedWorld.more  # there are no values of single instances

    @classmethod
    def from_settings(cls, benchmark: ElasticBenchmark) -> EvaluatedWorld:
        """See `EvaluatedWorld`."""
        return cls(ElasticWorld(benchmark))

    def build(self, progress: Progress | None = None) -> None:
        """See `EvaluatedWorld`."""
        self.workloads = self.benchmark.workloads(self.world.simulation)
        self.stored = self.benchmark.stored(self.workloads)

    def made(self, spec: str) -> PlacingPolicy[Any, Any]:
        """See `EvaluatedGraphWorld`."""
        if spec not in self._made:
            self._made[spec] = elastic_policy(spec, self.world)
        return self._made[spec]

    def display_name(self, spec: str) -> str:
        """See `EvaluatedWorld`."""
        whole, *_, how = parsed(spec)
        return spec if spec in ElasticWorld.rules else display_name(whole) + (f"@{how}" if how else "")

    def trained_file(self, spec: str) -> Path | None:
        """See `EvaluatedWorld`."""
        return _file(spec)

    def play(self, specs: Sequence[str], cases: Sequence[int], progress: Progress | None, phase: str) -> dict[str, PlayedCases]:
        """See `EvaluatedWorld`."""
        policies = CarriedPolicies(partial(elastic_policy, world=self.world), carried_file, specs)
        report = None if progress is None else partial(progress, phase)
        played = play_all(_placed, self.workloads, policies, cases, workers=self.workers, progress=report)
        result = {}
        for spec, one in played.items():
            seconds = [outcome.decision_s for outcome in one.records if outcome.decision_s is not None]
            shown = [figures(self.name, outcome) for outcome in one.records]
            result[spec] = PlayedCases(shown, one.records, {"mean": float(np.mean(seconds))} if seconds else {})
        return result

    @property
    def objective(self) -> Metric:
        """See `EvaluatedWorld`."""
        return METRICS["mean_completion_s"]

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        elastic = self.benchmark.elastic
        return {
            "load": self._load,
            "against": elastic.against,
            "num_jobs": [len(each.job_names) for each in self.workloads[:num_cases]],
            "num_devices": elastic.cluster.num_devices,
            "cluster": elastic.cluster.model_dump(),
        }

    def facts(self) -> list[str]:
        """See `EvaluatedWorld`."""
        return [counted(self.benchmark.elastic.cluster.num_devices, "device")]

    def title(self, num_cases: int) -> str:
        """See `EvaluatedWorld`."""
        return f"{super().title(num_cases)} of {self._load}"

    @property
    def _load(self) -> str:
        """The folder of the workloads; of modelled ones their number of jobs."""
        elastic = self.benchmark.elastic
        return f"{elastic.num_jobs} modelled jobs" if elastic.folder is None else str(elastic.load)

    def remarks(self, specs: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
        """See `EvaluatedWorld`."""
        elastic = self.benchmark.elastic
        if elastic.folder is None:
            return [MODELLED]
        without = f"No stored completion times are compared: there is no folder {elastic.folder / 'published'}."
        return [] if self.stored or not elastic.published else [without]

    def limits(self) -> tuple[int, int]:
        """See `EvaluatedWorld`."""
        return 1, len(self.workloads)

    def cases(self, number: int | None) -> list[int]:
        """See `EvaluatedWorld`; all workloads by default."""
        return super().cases(len(self.workloads) if number is None else number)

    def case_names(self, cases: Sequence[int]) -> list[Any]:
        """See `EvaluatedWorld`."""
        return [self.workloads[case].name for case in cases]

    def validation(self, config: Mapping[str, Any], others: Sequence[EvaluatedWorld]) -> ValidationEpisodes:
        """See `EvaluatedWorld`: where weights are searched for, the mean completion times of drawn workloads."""
        if config["method"] != ElasticTrainSettings.model_fields["method"].default:
            return super().validation(config, others)
        settings = ElasticTrainSettings.model_validate(config)
        twice = settings.model_copy(update={"validation_num_jobs": 2 * settings.validation_num_jobs})
        drawn = validation_workloads(twice, self.benchmark, self.world.simulation)
        workloads = [one for several in drawn for one in several]

        def played(spec: str, numbers: Sequence[int]) -> list[float]:
            policy = elastic_policy(spec, self.world)
            return [policy.place(workloads[number], 0).value_s for number in numbers]

        return ValidationEpisodes(ElasticWorld.rules, len(workloads) // 2, played)

    def published(self, cases: Sequence[int]) -> dict[str, tuple[str, PlayedCases]]:
        """See `EvaluatedWorld`."""
        result = {}
        for name, spans in self.stored.items():
            views = [ElasticOutcome(self.workloads[case].submission_s, spans[case], name) for case in cases]
            result[PUBLISHED_ROW + name] = PUBLISHED, PlayedCases([figures(self.name, view) for view in views])
        return result

    def comparisons(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `EvaluatedWorld`: each to the published times of the scheduler that the benchmark names."""
        if not self.stored:
            return {}
        other = PUBLISHED_ROW + self.benchmark.elastic.against
        return {f"published {self.benchmark.elastic.against}": {name: other for name in names if name != other}}
