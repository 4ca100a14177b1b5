"""The benchmarks of a training run: that of the config and those mixed in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..envs.benchmark import BenchmarkSettings, load_benchmark
from ..envs.static_features import static_features
from ..errors import ConfigError
from ..simulation.cluster.scenario import Scenario
from .settings import TrainSettings
from .vec_env import JobPartitioningVecEnv
from .vec_env_wrappers import AfterstateFeatures, CentredReward


@dataclass(frozen=True, eq=False)
class PlayedBenchmarks:
    """Benchmarks that are played side by side, and validated on.

    Attributes:
        benchmarks: what is played; that of the config first.
        scenarios: the same, built.
    """

    benchmarks: tuple[BenchmarkSettings, ...]
    scenarios: tuple[Scenario, ...]

    def env(self, settings: TrainSettings) -> CentredReward:
        """The environments, with the features that the network reads."""
        rewards = [benchmark.reward for benchmark in self.benchmarks]
        episodes = JobPartitioningVecEnv(
            self.scenarios, settings.ppo.num_envs, rewards, settings.seed, staggered=settings.staggered
        )
        value_size = 1 + settings.network.after[-1] if settings.network.after else 0
        return CentredReward(AfterstateFeatures(episodes, value_size, has_prior=settings.network.prior))


def played_in(settings: TrainSettings, *, graphs_dir: Path | None = None, scenario: Scenario | None = None) -> PlayedBenchmarks:
    """The benchmarks of a run. Equal ones are built once.

    Args:
        settings: the config.
        graphs_dir: profiles by folder name.
        scenario: that of ``chosen.benchmark`` with the config's changes, if it is built already.

    Raises:
        MeshwrightError: a benchmark is missing or wrong, or does not go with the others or with the network.
    """
    built: dict[str, tuple[BenchmarkSettings, Scenario]] = {}
    for spec in (settings.benchmark, *settings.mixed):
        if spec not in built:
            benchmark = load_benchmark(spec, changes=list(settings.changes))
            known = scenario if spec == settings.benchmark else None
            built[spec] = benchmark, known or benchmark.build(graphs_dir=graphs_dir)
    _check(settings, list(built.values()))
    benchmarks, scenarios = zip(*(built[spec] for spec in (settings.benchmark, *settings.mixed)), strict=True)
    return PlayedBenchmarks(benchmarks, scenarios)


def _check(settings: TrainSettings, built: list[tuple[BenchmarkSettings, Scenario]]) -> None:
    """One network, which reads the job graphs, degrees and shapes of one of the scenarios, must serve them all."""
    first = built[0][1]
    target = vars(static_features(first))
    for benchmark, scenario in built:
        result = vars(static_features(scenario))
        is_alike = all(np.array_equal(result[name], target[name]) for name in target)
        if not is_alike or scenario.candidate_rule != first.candidate_rule:
            problem = "benchmarks of one run must have the same cluster, degrees, rules, slots, windows and job graphs"
            raise ConfigError(problem, field="benchmark", value=benchmark.name)
    if settings.network.after and not first.settings.shape_slots:
        problem = "needs observations of when blocks become free: add scenario.shape_slots=20 to changes"
        raise ConfigError(problem, field="network.after", value=list(settings.network.after))
