"""Published elastic workloads as `evaluate` plays them; their published completion times are rows of the kind ``published``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...envs.elastic.benchmark import ElasticBenchmark, PublishedElastic, load_elastic_benchmark
from ...planners.elastic.scheduler import play as play_elastic
from ...quantities import counted
from ...training.elastic.search import validation_workloads
from ...training.elastic.settings import ElasticTrainSettings
from ...worlds.benchmark_files import ELASTIC
from ..elastic import policies
from ..elastic.elastic_figures import ElasticFigures
from ..elastic.episodes import MOST_AT_A_TIME, carried, play_workloads
from ..metrics import METRICS, Metric, figures
from ..progress import Progress
from ..workers import CarriedPolicies
from .evaluated_episodes import EvaluatedEpisodes
from .evaluated_world import PUBLISHED, EvaluatedWorld, PlayedCases, ValidationEpisodes

PUBLISHED_ROW = "published:"


class EvaluatedElastic(EvaluatedEpisodes):
    """See `EvaluatedEpisodes`; what is built is a `PublishedElastic`."""

    name, words, case = "elastic", "elastic jobs", "workload"
    key, made_from = ELASTIC, ElasticBenchmark
    question = "which scheduler completes elastic jobs first?"
    trade_offs = (("makespan_s", "mean_completion_s"),)
    policies: ClassVar[Any] = policies
    plays, at_a_time, loads = staticmethod(play_workloads), MOST_AT_A_TIME, staticmethod(load_elastic_benchmark)
    built: PublishedElastic

    def build(self, progress: Progress | None = None) -> None:
        """See `EvaluatedWorld`."""
        self.built = self.built or self.benchmark.build()

    def carried(self, specs: Sequence[str]) -> CarriedPolicies[Any]:
        """See `EvaluatedEpisodes`."""
        return carried(specs)

    def view(self, record: Any) -> Any:
        """See `EvaluatedEpisodes`: a record is a view."""
        return record

    @property
    def objective(self) -> Metric:
        """See `EvaluatedWorld`."""
        return METRICS["mean_completion_s"]

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        chosen = self.benchmark.elastic
        return {
            "load": chosen.load,
            "against": chosen.against,
            "num_jobs": [len(each.job_names) for each in self.built.workloads[:num_cases]],
            "num_devices": chosen.cluster.num_devices,
            "cluster": chosen.cluster.model_dump(),
        }

    def facts(self) -> list[str]:
        """See `EvaluatedWorld`."""
        return [counted(self.benchmark.elastic.cluster.num_devices, "device")]

    def title(self, num_cases: int) -> str:
        """See `EvaluatedWorld`."""
        return f"{super().title(num_cases)} of {self.benchmark.elastic.load}"

    def check(self, spec: str) -> None:
        """See `EvaluatedWorld`."""
        policies.elastic_scheduler(spec)

    def limits(self) -> tuple[int, int]:
        """See `EvaluatedWorld`."""
        return 1, len(self.built.workloads)

    def cases(self, number: int | None) -> list[int]:
        """See `EvaluatedWorld`; all workloads by default."""
        return super().cases(len(self.built.workloads) if number is None else number)

    def case_names(self, cases: Sequence[int]) -> list[Any]:
        """See `EvaluatedWorld`."""
        return [self.built.workloads[case].name for case in cases]

    def validation(self, config: Mapping[str, Any], others: Sequence[EvaluatedWorld]) -> ValidationEpisodes:
        """See `EvaluatedWorld`: drawn workloads."""
        simulation = self.benchmark.simulation()
        chosen = ElasticTrainSettings.model_validate(config)
        twice = chosen.model_copy(update={"validation_num_jobs": 2 * chosen.validation_num_jobs})
        workloads = [one for several in validation_workloads(twice, simulation) for one in several]

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            scheduler = policies.elastic_scheduler(spec)
            return [float(play_elastic(simulation, scheduler, [workloads[number]])[0].mean()) for number in numbers]

        return ValidationEpisodes(policies.BASELINES, len(workloads) // 2, play)

    def published(self, cases: Sequence[int]) -> dict[str, tuple[str, PlayedCases]]:
        """See `EvaluatedWorld`."""
        found = {}
        for name, spans in self.built.published.items():
            views = [ElasticFigures(self.built.workloads[case], spans[case]) for case in cases]
            found[PUBLISHED_ROW + name] = PUBLISHED, PlayedCases([figures(self.name, view) for view in views])
        return found

    def comparisons(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `EvaluatedWorld`: each to the published times of the scheduler that the benchmark names."""
        other = PUBLISHED_ROW + self.benchmark.elastic.against
        return {f"published {self.benchmark.elastic.against}": {name: other for name in names if name != other}}
