"""The weights of a linear scorer by trying them on drawn episodes (see `training.search`), and `LinearLearner`, a run of that.

In the run folder (see `training.run_folder`) ``checkpoint.json`` is the newest generation, ``policy.json`` the best mean on the
validation episodes so far (see `planners.linear`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...envs.benchmark import load_benchmark
from ...envs.ground import KEY, Ground
from ...jobs.seeds import FIRST_TRAINING_SEED, validation_seeds
from ...models.corrected_trial import CorrectedTrial
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
        chosen: constants of the search.
        seed: of the training episodes.
    """

    plays: LinearTrial | CorrectedTrial
    chosen: SearchSettings
    seed: int

    def costs(self, weights: NDArray[np.float64], generation: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the blocking rate of each scorer, the same new episodes for all of them."""
        words = [[FIRST_TRAINING_SEED + self.seed, generation, i] for i in range(self.chosen.num_episodes)]
        mean: NDArray[np.float64] = self.plays.blocking_rates(weights, list(map(np.random.default_rng, words))).mean(axis=1)
        return mean

    def value(self, mean: NDArray[np.float64]) -> float:
        """Return the blocking rate in the validation episodes."""
        rngs = list(map(np.random.default_rng, validation_seeds(self.chosen.num_validation_seeds)))
        return float(self.plays.blocking_rates(mean[None], rngs).mean())

    def steps(self, generation: int) -> int:
        """Decisions that have been played after so many generations, those of validation apart."""
        return generation * self.chosen.population * self.chosen.num_episodes * self.plays.scenario.settings.num_jobs

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
        found = {**trained, "seed": self.seed, "generation": generation, "validation_blocking_rate": rate, STAGES: made}
        return LinearWeights(search.best, self.plays.placement_rules, found)


def scorer_search(trial: ScorerTrial, start: Mapping[str, float] = START) -> Search:
    """Return a search before its first generation.

    Args:
        trial: plays the scorers.
        start: weights where it begins, by the names of features; others are zero.
    """
    chosen, mean = trial.chosen, np.array([start.get(name, 0.0) for name in FEATURES])
    if chosen.strategy == "cma-es":
        population: CrossEntropy | CovarianceAdaptation = CovarianceAdaptation(mean, chosen.spread, chosen.population)
    else:
        population = CrossEntropy(mean, chosen.spread, chosen.population, chosen.elite, chosen.added_spread)
    seed = ((FIRST_TRAINING_SEED + trial.seed,), ())
    return Search(population, trial, chosen.generations, chosen.validate_every_generations, seed)


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
