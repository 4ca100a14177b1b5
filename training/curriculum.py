"""What is played in which part of a training run: the phases of the curriculum, then the benchmark and those mixed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

SetUp = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class TrainingPhase:
    """Benchmarks that are played side by side until a number of decisions.

    Attributes:
        until_steps: decisions of PPO after which the next phase begins.
        benchmarks: what is played.
        scenarios: the same, built.
    """

    until_steps: int
    benchmarks: tuple[BenchmarkSettings, ...]
    scenarios: tuple[Scenario, ...]

    def pairs(self) -> Iterator[tuple[BenchmarkSettings, Scenario]]:
        """Each benchmark with its scenario."""
        return zip(self.benchmarks, self.scenarios, strict=True)

    def env(self, chosen: TrainSettings) -> CentredReward:
        """The environments of the phase, with the features that the network reads."""
        rewards = [benchmark.reward for benchmark in self.benchmarks]
        episodes = JobPartitioningVecEnv(self.scenarios, chosen.ppo.num_envs, rewards, chosen.seed, staggered=chosen.staggered)
        value_size = 1 + chosen.network.after[-1] if chosen.network.after else 0
        return CentredReward(AfterstateFeatures(episodes, value_size, has_prior=chosen.network.prior))


def phases(
    chosen: TrainSettings, *, graphs_dir: Path | None = None, scenario: Scenario | None = None, progress: SetUp | None = None
) -> list[TrainingPhase]:
    """The phases of a run; the last one is what is validated. Equal benchmarks are built once.

    Args:
        chosen: the config.
        graphs_dir: profiles by folder name.
        scenario: that of ``chosen.benchmark`` with the config's changes, if it is built already.
        progress: called while step times are simulated.

    Raises:
        MeshwrightError: a benchmark is missing or wrong, or does not go with the others or with the network.
    """
    built: dict[str, tuple[BenchmarkSettings, Scenario]] = {}
    if scenario is not None:
        built[chosen.benchmark] = load_benchmark(chosen.benchmark, changes=list(chosen.changes)), scenario
    made = []
    for until_steps, specs in _parts(chosen):
        for spec in specs:
            if spec not in built:
                benchmark = load_benchmark(spec, changes=list(chosen.changes))
                built[spec] = benchmark, benchmark.build(graphs_dir=graphs_dir, progress=progress)
        benchmarks, scenarios = zip(*(built[spec] for spec in specs), strict=True)
        made.append(TrainingPhase(until_steps, benchmarks, scenarios))
    _check(chosen, list(built.values()))
    return made


def _check(chosen: TrainSettings, built: list[tuple[BenchmarkSettings, Scenario]]) -> None:
    """One network, which reads the job graphs, degrees and shapes of one of the scenarios, must serve them all."""
    first = built[0][1]
    wanted = vars(static_features(first))
    for benchmark, scenario in built:
        found = vars(static_features(scenario))
        is_alike = all(np.array_equal(found[name], wanted[name]) for name in wanted)
        if not is_alike or scenario.candidate_rule != first.candidate_rule:
            problem = "benchmarks of one run must have the same cluster, degrees, rules, slots, windows and job graphs"
            raise ConfigError(problem, field="benchmark", value=benchmark.name)
    if chosen.network.after and not first.settings.shape_slots:
        problem = "needs observations that tell when blocks become free: add scenario.shape_slots=20 to changes"
        raise ConfigError(problem, field="network.after", value=list(chosen.network.after))


def _parts(chosen: TrainSettings) -> Iterator[tuple[int, tuple[str, ...]]]:
    share = 0.0
    for phase in chosen.curriculum:
        share += phase.share
        yield round(share * chosen.total_steps), phase.benchmarks
    yield chosen.total_steps, (chosen.benchmark, *chosen.mixed)
