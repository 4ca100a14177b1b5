"""The weights of a linear scorer by trying them on drawn episodes (see `training.search`), and `LinearLearner`, a run of that.

In the run folder (see `training.run_folder`) ``checkpoint.json`` is the newest generation, ``policy.json`` the best mean on the
validation episodes so far (see `planners.linear`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...envs.benchmark import load_benchmark
from ...envs.training_conditions import KEY, TrainingConditions
from ...jobs.seeds import FIRST_TRAINING_SEED, validation_seeds
from ...models.policy_files import STAGES, stage
from ...planners.episode_player import LinearTrial
from ...planners.linear import DIGEST, FEATURES, LinearWeights
from ...simulation.cluster.scenario import Scenario
from ..hooks.names import WITHOUT_EFFECT
from ..run import ReportedMeasure, TrainingRun
from ..search import CovarianceAdaptation, CrossEntropy, Search, SearchLearner
from ..ties import check_something_to_learn
from .settings import LinearSettings, SearchSettings

# Where the search begins: every job is placed, anywhere.
START = {"reject": -1.0}


@dataclass(frozen=True)
class ScorerTrial:
    """Linear scorers on the episodes of a seed; see `training.search.Trial`.

    Attributes:
        plays: the scorers.
        settings: constants of the search.
        seed: of the training episodes.
    """

    plays: LinearTrial
    settings: SearchSettings
    seed: int

    def costs(self, weights: NDArray[np.float64], generation: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the blocking rate of each scorer, the same new episodes for all of them."""
        words = [[FIRST_TRAINING_SEED + self.seed, generation, i] for i in range(self.settings.num_episodes)]
        mean: NDArray[np.float64] = self.plays.blocking_rates(weights, list(map(np.random.default_rng, words))).mean(axis=1)
        return mean

    def value(self, mean: NDArray[np.float64]) -> float:
        """Return the blocking rate in the validation episodes."""
        rngs = list(map(np.random.default_rng, validation_seeds(self.settings.num_validation_seeds)))
        return float(self.plays.blocking_rates(mean[None], rngs).mean())

    def steps(self, generation: int) -> int:
        """Return the decisions that have been played after so many generations, those of validation apart."""
        return generation * self.settings.population * self.settings.num_episodes * self.plays.scenario.settings.num_jobs

    def row(self, search: Search) -> dict[str, Any]:
        """Return the latest validation of a search as a row of a learning curve."""
        generation, rate = search.values[-1]
        return {
            "steps": self.steps(generation),
            "generation": generation,
            "validation_blocking_rate": rate,
            "training_blocking_rate": None if search.latest is None else float(search.latest.mean()),
        }

    def weights(self, search: Search, trained: dict[str, Any]) -> LinearWeights:
        """Return the best mean so far, with how it was found, added to what is given."""
        generation, rate = search.best_of_all
        made = [stage("search", generation, "generations", rate, of=f"{len(search.best)} weights")]
        result = {**trained, "seed": self.seed, "generation": generation, "validation_blocking_rate": rate, STAGES: made}
        return LinearWeights(search.best, self.plays.placement_rules, result)


def scorer_search(trial: ScorerTrial) -> Search:
    """Return a search before its first generation.

    Args:
        trial: plays the scorers.
    """
    settings, mean = trial.settings, np.array([START.get(name, 0.0) for name in FEATURES])
    if settings.strategy == "cma-es":
        population: CrossEntropy | CovarianceAdaptation = CovarianceAdaptation(mean, settings.spread, settings.population)
    else:
        population = CrossEntropy(mean, settings.spread, settings.population, settings.elite, settings.added_spread)
    seed = ((FIRST_TRAINING_SEED + trial.seed,), ())
    return Search(population, trial, settings.generations, settings.validate_every_generations, seed)


class LinearLearner(SearchLearner):
    """Tunes a linear scorer.

    Args:
        settings: the config.
        graphs_dir: profiles by folder name.
        scenario: of the benchmark, built; None: it is built.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        MeshwrightError: the config or benchmark is wrong.
    """

    reported = ReportedMeasure("linear", "blocking_rate", "generations")

    def __init__(self, settings: LinearSettings, *, graphs_dir: Path | None = None, scenario: Scenario | None = None) -> None:
        benchmark = load_benchmark(settings.benchmark, changes=settings.changes)
        scenario = scenario or benchmark.build(graphs_dir=graphs_dir)
        plays = LinearTrial.only(scenario, settings.placement_rules)
        check_something_to_learn(benchmark.name, plays.scenario, validation_seeds(settings.num_validation_seeds))
        self._trial = ScorerTrial(plays, settings, settings.seed)
        self.search = scorer_search(self._trial)
        settings_data = settings.model_dump(mode="json", exclude={"benchmark", "changes", *WITHOUT_EFFECT})
        self.key = files.digest(settings_data, plays.scenario.digest, DIGEST)
        grounds = [TrainingConditions.from_scenario(benchmark.name, scenario).model_dump(mode="json")]
        self._about = {"config": settings.name, "benchmark": settings.benchmark, KEY: grounds}

    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """See `SearchLearner`."""
        return self._trial.row(self.search)

    def policy(self, run: TrainingRun) -> LinearWeights:
        """See `SearchLearner`."""
        return self._trial.weights(self.search, self._about)
