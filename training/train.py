"""`PPOLearner`: values of states and PPO on the batched environment `JobPartitioning-v0`, and benchmarks that it plays."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from .. import files
from ..envs.batch import EpisodeBatch
from ..envs.benchmark import BenchmarkSettings, load_benchmark
from ..envs.static_features import static_features
from ..envs.training_conditions import KEY, TrainingConditions
from ..errors import ConfigError
from ..jobs.seeds import validation_seeds
from ..models.linear_prior import KEY as PRIOR
from ..models.linear_prior import LinearPrior
from ..models.network import CandidateNetwork
from ..models.policy_files import STAGES, stage
from ..models.saved import SavedNetwork, scenario_metadata
from ..planners.linear import LinearWeights
from ..simulation.cluster.scenario import Scenario
from .device import in_fixed_order, pick_device
from .hooks.names import WITHOUT_EFFECT
from .hooks.writers import TensorBoardWriter
from .ppo import (
    NUM_RECENT,
    average_in,
    figures_of,
    learn_by_ppo,
    make_ppo,
    model_state,
    restore_model,
)
from .pretraining.stages import Pretraining, check_pretraining
from .run import Learner, ReportedMeasure, TrainingRun
from .settings import TrainSettings
from .ties import check_something_to_learn
from .vec_env import JobPartitioningVecEnv
from .vec_env_wrappers import AfterstateFeatures, CentredReward, wrapper_of


class PPOLearner(Learner):
    """Learns values of states, where the config says so, and then by PPO.

    Args:
        settings: the config.
        graphs_dir: profiles by folder name.
        scenario: of the benchmark, built; None: it is built.

    Attributes:
        settings: as given.
        played: what is played and validated on.
        network: that learns.
        env: the environments, with centred rewards.
        features: of observations.
        best: the best policy so far; None before the first validation.
        best_centre: what was subtracted from rewards when it was found, of each scenario.
        figures: of PPO, of the latest update.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        MeshwrightError: the config or benchmark is wrong.
    """

    reported = ReportedMeasure("ppo", "blocking_rate", "decisions")

    def __init__(self, settings: TrainSettings, *, graphs_dir: Path | None = None, scenario: Scenario | None = None) -> None:
        self.settings, self.played = settings, played_in(settings, graphs_dir=graphs_dir, scenario=scenario)
        benchmarks, scenarios = self.played.benchmarks, self.played.scenarios
        check_pretraining(settings, scenarios)
        validated = {benchmark.name: one for benchmark, one in zip(benchmarks, scenarios, strict=True)}
        check_something_to_learn(validated, validation_seeds(settings.num_validation_seeds))
        torch.set_num_threads(settings.num_threads)
        self._model = make_ppo(
            partial(CandidateNetwork, settings.network, static_features(scenarios[0])),
            self.played.env(settings),
            settings.ppo,
            total_steps=settings.total_steps,
            seed=settings.seed,
            device=pick_device(settings.device),
        )
        # A hash of all that a run's numbers depend on.
        of_scenarios = [[one.digest, one.settings.observed()] for one in scenarios]
        rewards = [benchmark.reward.model_dump() for benchmark in benchmarks]
        self.key = files.digest(settings.model_dump(exclude=set(WITHOUT_EFFECT)), rewards, of_scenarios)
        self.total_steps = settings.steps_before_ppo + settings.total_steps
        network = self._model.policy.get_submodule("network")
        assert isinstance(network, CandidateNetwork)
        self.network, self.env = network, wrapper_of(self._model, CentredReward)
        self.features = wrapper_of(self._model, AfterstateFeatures)
        self.best: SavedNetwork | None = None
        self.best_centre = np.zeros(1)
        self._pretraining = None if settings.pretraining is None else Pretraining(self)
        self._average: CandidateNetwork | None = None
        self._averaged_at, self._saved_at, self._first_shown = 0, 0, 0
        self._ended = list[float]()

    @property
    def step(self) -> int:
        """Decisions so far, those before PPO among them."""
        return self._model.num_timesteps + (0 if self._pretraining is None else self._pretraining.steps)

    def in_fixed_order(self) -> AbstractContextManager[None]:
        """See `Learner`."""
        return in_fixed_order(self._model.device)

    def learn(self, run: TrainingRun) -> None:
        """See `Learner`."""
        before = self._pretraining
        self._board = self.board(run, "", self._first_shown if run.is_resumed else None)
        with closing(self._board):
            self._model.set_logger(Logger(None, [self._board]))
            if before is not None and not before.is_over:
                before.run(run)
                self._saved_at = -self.settings.checkpoint_every_steps  # PPO's first checkpoint is its beginning
            self.features.set_value_network(self.network)
            if self.settings.ppo.averaging < 1.0 and self._average is None:
                self._average = copy.deepcopy(self.network)
            learn_by_ppo(self._model, self.settings.total_steps, lambda is_last: self._between(run, is_last), self._note)

    def board(self, run: TrainingRun, part: str, first_step: int | None) -> TensorBoardWriter:
        """Return a writer of scalars for TensorBoard, in a part of the run folder; of a resumed run with its first step."""
        return TensorBoardWriter(run.folder.tensorboard / part if "tensorboard" in self.settings.log else None, first_step)

    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """See `Learner`."""
        settings, network = self.settings, self._average or self.network
        rate = blocking_rate(network, self.played.scenarios, settings.num_validation_seeds, self.features.prior)
        trained = float(np.mean(self._ended)) if self._ended else None
        self._ended = []
        if stage == "ppo":
            shown = {"validation": rate} if trained is None else {"validation": rate, "training": trained}
            rates = {f"blocking_rate/{kind}": value for kind, value in shown.items()}
            self._board.write(rates, {}, self._model.num_timesteps)
        elif self._pretraining is not None:
            self._pretraining.show({"blocking_rate/validation": rate})
        return {"phase": stage, "steps": self.step, "validation_blocking_rate": rate, "training_blocking_rate": trained}

    def policy(self, run: TrainingRun) -> SavedNetwork:
        """See `Learner`."""
        row, settings, prior = run.curve[-1], self.settings, self.features.prior
        trained = {
            "config": settings.name,
            "benchmark": settings.benchmark,
            "seed": settings.seed,
            **{key: row[key] for key in ("phase", "steps", "validation_blocking_rate")},
            STAGES: self._stages(run, prior),
            **scenario_metadata(self.played.scenarios[0].settings),
            KEY: training_conditions_of(self.played),
        }
        self.best = SavedNetwork.from_network(self._average or self.network, trained, prior=prior)
        self.best_centre = self.env.reward_centre.copy()
        return self.best

    def state(self) -> dict[str, Any]:
        """See `Learner`."""
        # What is shown up to here is not shown again by a run that continues from here.
        self._board.flush()
        starts, prior = self._model._last_episode_starts, self.features.prior
        return {
            **model_state(self._model),
            "episodes": {name: torch.as_tensor(array) for name, array in self.env.state().items()},
            "episode_starts": None if starts is None else torch.as_tensor(np.asarray(starts)),
            "recent_episodes": list(self._model.ep_info_buffer or ()),
            "average": None if self._average is None else self._average.state_dict(),
            "averaged_at": self._averaged_at,
            "ended": self._ended,
            "best": None if self.best is None else self.best.to_data(),
            "best_centre": self.best_centre.tolist(),
            "prior": None if prior is None else prior.to_data(),
            "pretraining": None if self._pretraining is None else self._pretraining.state(),
        }

    def restore(self, state: dict[str, Any], file: Path) -> None:
        """See `Learner`."""
        self.best = None if state["best"] is None else SavedNetwork.from_data(state["best"], file)
        self.best_centre, self._ended = np.array(state["best_centre"]), list(state["ended"])
        self.features.set_linear_prior(None if state["prior"] is None else LinearWeights.from_data(state["prior"], file))
        self.features.set_value_network(self.network)  # which PPO does not change
        if self._pretraining is not None:
            self._pretraining.restore(state["pretraining"])
        restore_model(state, self._model)
        seen = self.env.restore({name: tensor.numpy() for name, tensor in state["episodes"].items()})
        if (starts := state["episode_starts"]) is not None:  # else PPO has yet to begin, and the episodes anew with it
            self._model._last_obs, self._model._last_episode_starts = seen, starts.numpy()  # SB3 has no public names
        self._model.ep_info_buffer = deque(state["recent_episodes"], maxlen=NUM_RECENT)
        self._model.ep_success_buffer = deque(maxlen=NUM_RECENT)
        if state["average"] is not None:
            self._average = copy.deepcopy(self.network)
            self._average.load_state_dict(state["average"])
        self._averaged_at, self._saved_at = state["averaged_at"], self._model.num_timesteps
        if self._pretraining is None or self._pretraining.is_over:
            self._first_shown = self._model.num_timesteps + 1

    def _between(self, run: TrainingRun, is_last: bool) -> None:
        """Average, validate, save and report between two updates of PPO."""
        model, steps, settings = self._model, self._model.num_timesteps, self.settings
        if self._average is not None and steps > self._averaged_at:
            average_in(self._average, self.network, settings.ppo.averaging)
        self._averaged_at = steps
        # PPO's figures of the update that has just ended would be lost with a process that dies before the next one.
        figures = figures_of(model.logger)
        model.logger.dump(steps)
        if is_last:
            model.policy.set_training_mode(False)
        is_new = not run.curve or run.curve[-1]["steps"] < self.step
        validates = is_new if is_last else run.is_due(settings.validate_every_steps, phase="ppo")
        saves = is_last or steps - self._saved_at >= settings.checkpoint_every_steps
        if saves:
            self._saved_at = steps
        run.between("ppo", figures, validates=validates, saves=saves)

    def _note(self, infos: list[dict[str, Any]]) -> None:
        self._ended += [info["blocking_rate"] for info in infos if "blocking_rate" in info]

    def _stages(self, run: TrainingRun, prior: LinearWeights | None) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        steps, before, result = self.step, self.settings.steps_before_ppo, []

        def best(phase: str) -> float | None:
            return min((row["validation_blocking_rate"] for row in run.curve if row["phase"] == phase), default=None)

        if before and steps > 0:
            result.append(stage("td", min(steps, before), "decisions", best("pretraining")))
        if prior is not None and "generation" in prior.trained:
            of = f"{len(prior.weights)} weights"
            result.append(stage("search", prior.trained["generation"], "generations", best("tuned"), of=of))
        if steps > before:
            result.append(stage("ppo", steps - before, "decisions", best("ppo")))
        return result


def training_conditions_of(played: PlayedBenchmarks) -> list[dict[str, Any]]:
    """Return the ground of each benchmark of a run, once (see `envs.training_conditions`)."""
    pairs = zip(played.benchmarks, played.scenarios, strict=True)
    result = {id(scenario): TrainingConditions.from_scenario(benchmark.name, scenario) for benchmark, scenario in pairs}
    return [ground.model_dump(mode="json") for ground in result.values()]


def blocking_rate(
    network: CandidateNetwork, scenarios: Scenario | Sequence[Scenario], num_seeds: int, prior: LinearWeights | None = None
) -> float:
    """Return the mean share of counted jobs turned away, with best-scored candidates taken, seeds from 100 on.

    Of several scenarios, the mean over all of them, with the same network. ``prior`` is the linear scorer of a network that has
    one.
    """
    several = [scenarios] if isinstance(scenarios, Scenario) else scenarios
    return float(np.mean([_blocking_rate(network, scenario, num_seeds, prior) for scenario in several]))


def _blocking_rate(network: CandidateNetwork, scenario: Scenario, num_seeds: int, prior: LinearWeights | None) -> float:
    batch = EpisodeBatch(scenario, num_seeds)
    for e, seed in enumerate(validation_seeds(num_seeds)):
        batch.reset(e, np.random.default_rng(seed))
    device = next(network.parameters()).device
    scorer = None if prior is None else LinearPrior(prior, scenario)
    while not batch.is_over.all():
        seen = network.observed(batch.observations)
        if scorer is not None:
            seen = {**seen, PRIOR: scorer.of_episodes(batch.episodes)}
        observation = {key: torch.as_tensor(value, device=device) for key, value in seen.items()}
        with torch.no_grad():
            scores = network(observation)[0]
        batch.step(scores.argmax(dim=1).cpu().numpy(), ~batch.is_over)
    return float(np.mean([batch.record(e).blocking_rate(scenario.settings.counted) for e in range(num_seeds)]))


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
