"""`LinearLearner`: a linear scorer by trying weights.

In the run folder (see `training.run_folder`) ``checkpoint.json`` is the newest generation, ``policy.json`` the best mean on the
validation episodes so far (see `planners.linear`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ... import files
from ...envs.benchmark import load_benchmark
from ...envs.ground import KEY, Ground
from ...jobs.seeds import validation_seeds
from ...planners.episode_player import LinearTrial
from ...planners.linear import DIGEST, LinearWeights
from ...simulation.cluster.scenario import Scenario
from ..hooks.names import WITHOUT_EFFECT
from ..run import ReportedMeasure, TrainingRun
from ..search import SearchLearner
from ..ties import check_something_to_learn
from .search import ScorerTrial, scorer_search
from .settings import LinearSettings


class LinearLearner(SearchLearner):
    """Tunes a linear scorer.

    Args:
        chosen: the config.
        graphs_dir: profiles by folder name.
        scenario: of the benchmark, built; None: it is built.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        MeshwrightError: the config or benchmark is wrong.
    """

    reported = ReportedMeasure("linear", "blocking_rate", "generations")

    def __init__(self, chosen: LinearSettings, *, graphs_dir: Path | None = None, scenario: Scenario | None = None) -> None:
        benchmark = load_benchmark(chosen.benchmark, changes=chosen.changes)
        scenario = scenario or benchmark.build(graphs_dir=graphs_dir)
        plays = LinearTrial.only(scenario, chosen.placement_rules)
        check_something_to_learn({benchmark.name: plays.scenario}, validation_seeds(chosen.num_validation_seeds))
        self._trial = ScorerTrial(plays, chosen, chosen.seed)
        self.search = scorer_search(self._trial)
        kept = chosen.model_dump(mode="json", exclude={"benchmark", "changes", *WITHOUT_EFFECT})
        self.key = files.digest(kept, plays.scenario.digest, DIGEST)
        grounds = [Ground.of(benchmark.name, scenario).model_dump(mode="json")]
        self._about = {"config": chosen.name, "benchmark": chosen.benchmark, KEY: grounds}

    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """See `SearchLearner`."""
        return self._trial.row(self.search)

    def policy(self, run: TrainingRun) -> LinearWeights:
        """See `SearchLearner`."""
        return self._trial.weights(self.search, self._about)
