"""`PPOLearner`: a search for linear scores and PPO on the batched environment `JobPartitioning-v0`."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from .. import files
from ..envs.batch import EpisodeBatch
from ..envs.benchmark import load_benchmark
from ..envs.static_features import static_features
from ..envs.training_conditions import KEY, TrainingConditions
from ..errors import PolicyError
from ..jobs.seeds import validation_seeds
from ..models.linear_prior import KEY as PRIOR
from ..models.linear_prior import LinearPrior
from ..models.network import CandidateNetwork
from ..models.policy_files import STAGES, stage
from ..models.saved import SavedNetwork, scenario_metadata
from ..planners.episode_player import LinearTrial
from ..planners.linear import LinearWeights
from ..simulation.cluster.scenario import Scenario
from .device import in_fixed_order, pick_device
from .hooks.names import WITHOUT_EFFECT
from .hooks.writers import TensorBoardWriter
from .linear.search import ScorerTrial, scorer_search
from .ppo import NUM_RECENT, figures_of, learn_by_ppo, make_ppo, model_state, restore_model
from .run import Learner, ReportedMeasure, TrainingRun
from .settings import TrainSettings
from .ties import check_something_to_learn
from .vec_env import JobPartitioningVecEnv


class PPOLearner(Learner):
    """Searches for linear scores, where the config says so, and learns by PPO, with these scores as the first policy.

    Args:
        settings: the config.
        graphs_dir: profiles by folder name.
        scenario: of the benchmark, built; None: it is built.

    Attributes:
        settings: as given.
        scenario: that is played and validated on.
        network: that learns.
        env: the environments.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        PolicyError: scores are searched for, and candidates may hold several blocks.
        MeshwrightError: the config or benchmark is wrong.
    """

    reported = ReportedMeasure("ppo", "blocking_rate", "decisions")

    def __init__(self, settings: TrainSettings, *, graphs_dir: Path | None = None, scenario: Scenario | None = None) -> None:
        benchmark = load_benchmark(settings.benchmark, changes=settings.changes)
        scenario = scenario or benchmark.build(graphs_dir=graphs_dir)
        self.settings, self.scenario, self._name, self._trial = settings, scenario, benchmark.name, None
        if settings.search is not None:
            self._trial = ScorerTrial(_trial(scenario), settings.search, settings.seed)
        check_something_to_learn(benchmark.name, scenario, validation_seeds(settings.num_validation_seeds))
        torch.set_num_threads(settings.num_threads)
        self.env = JobPartitioningVecEnv(
            scenario,
            settings.ppo.num_envs,
            benchmark.reward,
            settings.seed,
            has_prior=self._trial is not None,
        )
        self._model = make_ppo(
            partial(CandidateNetwork, settings.network, static_features(scenario), has_prior=self._trial is not None),
            self.env,
            settings.ppo,
            total_steps=settings.total_steps,
            seed=settings.seed,
            device=pick_device(settings.device),
        )
        # A hash of all that a run's numbers depend on.
        known = benchmark.reward.model_dump(), scenario.digest, scenario.settings.arrivals_per_slot
        self.key = files.digest(settings.model_dump(exclude=set(WITHOUT_EFFECT)), *known)
        self.total_steps = settings.total_steps
        network = self._model.policy.get_submodule("network")
        assert isinstance(network, CandidateNetwork)
        self.network = network
        self._search = None if self._trial is None else scorer_search(self._trial)
        self._is_in_ppo = False
        self._saved_at, self._first_shown = 0, 0
        self._ended = list[float]()

    @property
    def step(self) -> int:
        """Decisions of PPO so far."""
        return self._model.num_timesteps

    def in_fixed_order(self) -> AbstractContextManager[None]:
        """See `Learner`."""
        return in_fixed_order(self._model.device)

    def learn(self, run: TrainingRun) -> None:
        """See `Learner`."""
        shown = run.folder.tensorboard if "tensorboard" in self.settings.log else None
        self._board = TensorBoardWriter(shown, self._first_shown if run.is_resumed else None)
        with closing(self._board):
            self._model.set_logger(Logger(None, [self._board]))
            if not self._is_in_ppo:
                if self._search is not None:
                    self._find_scores(run)
                self._is_in_ppo = True
                self._saved_at = -self.settings.checkpoint_every_steps  # PPO's first checkpoint is its beginning
            learn_by_ppo(self._model, self.settings.total_steps, lambda is_last: self._between(run, is_last), self._note)

    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """See `Learner`."""
        rate = blocking_rate(self.network, self.scenario, self.settings.num_validation_seeds, self.env.prior)
        trained = float(np.mean(self._ended)) if self._ended else None
        self._ended = []
        shown = {"validation": rate} if trained is None else {"validation": rate, "training": trained}
        rates = {f"blocking_rate/{kind}": value for kind, value in shown.items()}
        self._board.write(rates, {}, self._model.num_timesteps)
        return {"stage": stage, "steps": self.step, "validation_blocking_rate": rate, "training_blocking_rate": trained}

    def policy(self, run: TrainingRun) -> SavedNetwork:
        """See `Learner`."""
        row, settings = run.curve[-1], self.settings
        trained = {
            "config": settings.name,
            "benchmark": settings.benchmark,
            "seed": settings.seed,
            **{key: row[key] for key in ("stage", "steps", "validation_blocking_rate")},
            STAGES: self._stages(run),
            **scenario_metadata(self.scenario.settings),
            KEY: [TrainingConditions.from_scenario(self._name, self.scenario).model_dump(mode="json")],
        }
        return SavedNetwork.from_network(self.network, trained, prior=self.env.prior)

    def state(self) -> dict[str, Any]:
        """See `Learner`."""
        # Figures up to here are not shown again by a run that continues from here.
        self._board.flush()
        if not self._is_in_ppo:  # all else is as at the start
            assert self._search is not None, "a run without a search begins with PPO"
            return {"search": self._search.state()}
        prior = self.env.prior
        return {
            **model_state(self._model),
            "episodes": {name: torch.as_tensor(array) for name, array in self.env.state().items()},
            "episode_starts": torch.as_tensor(np.asarray(self._model._last_episode_starts)),
            "recent_episodes": list(self._model.ep_info_buffer or ()),
            "ended": self._ended,
            "prior": None if prior is None else prior.to_data(),
        }

    def restore(self, state: dict[str, Any], file: Path) -> None:
        """See `Learner`."""
        self._is_in_ppo = "episodes" in state
        if not self._is_in_ppo:
            assert self._search is not None, "the key of the checkpoint is that of a config with a search"
            self._search.restore(state["search"])
            return
        self._ended = list(state["ended"])
        self.env.set_prior(None if state["prior"] is None else LinearWeights.from_data(state["prior"], file))
        restore_model(state, self._model)
        # SB3 has no public names.
        self._model._last_obs = self.env.restore({name: tensor.numpy() for name, tensor in state["episodes"].items()})
        self._model._last_episode_starts = state["episode_starts"].numpy()
        self._model.ep_info_buffer = deque(state["recent_episodes"], maxlen=NUM_RECENT)
        self._model.ep_success_buffer = deque(maxlen=NUM_RECENT)
        self._saved_at = self._model.num_timesteps
        self._first_shown = self._model.num_timesteps + 1

    def _find_scores(self, run: TrainingRun) -> None:
        """Search, and let the network begin with the best scores.

        Raises:
            TrainingStopped: a callback has stopped the run; the scores that were found so far are validated and kept.
        """
        trial, search, settings = self._trial, self._search, self.settings
        assert trial is not None
        assert search is not None
        assert settings.search is not None

        search.run_stage(run)
        self.env.set_prior(trial.weights(search, {"config": settings.name, "benchmark": settings.benchmark}))
        with torch.no_grad():
            self.network.prior_sharpness.fill_(settings.search.sharpness)
        run.report(run.validate("search", run.folder.searched), "search")
        run.stop_if_requested()

    def _between(self, run: TrainingRun, is_last: bool) -> None:
        """Validate, save and report between two updates of PPO."""
        model, steps, settings = self._model, self._model.num_timesteps, self.settings
        # PPO's figures of the update that has just ended would be lost with a process that dies before the next one.
        figures = figures_of(model.logger)
        model.logger.dump(steps)
        if is_last:
            model.policy.set_training_mode(False)
        is_new = not run.curve or run.curve[-1]["steps"] < self.step
        validates = is_new if is_last else run.is_due(settings.validate_every_steps)
        saves = is_last or steps - self._saved_at >= settings.checkpoint_every_steps
        if saves:
            self._saved_at = steps
        run.between("ppo", figures, validates=validates, saves=saves)

    def _note(self, infos: list[dict[str, Any]]) -> None:
        self._ended += [info["blocking_rate"] for info in infos if "blocking_rate" in info]

    def _stages(self, run: TrainingRun) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        prior, result = self.env.prior, []
        best = {row["stage"]: row["validation_blocking_rate"] for row in sorted(run.curve, key=_rate, reverse=True)}
        if prior is not None:
            of = f"{len(prior.weights)} weights"
            result.append(stage("search", prior.trained["generation"], "generations", best.get("search"), of=of))
        if self.step > 0:
            result.append(stage("ppo", self.step, "decisions", best.get("ppo")))
        return result


def _rate(row: dict[str, Any]) -> float:
    return float(row["validation_blocking_rate"])


def _trial(scenario: Scenario) -> LinearTrial:
    """Return what plays the scores of all candidates.

    Raises:
        PolicyError: candidates may hold several blocks.
    """
    rules = scenario.settings.placement_rules
    if "published" in rules:
        problem = "scores are searched for among candidates of single blocks: leave this rule out, or give search=null"
        raise PolicyError(problem, field="placement_rules", value="published")
    return LinearTrial.only(scenario, rules)


def blocking_rate(network: CandidateNetwork, scenario: Scenario, num_seeds: int, prior: LinearWeights | None = None) -> float:
    """Return the mean share of counted jobs turned away, with best-scored candidates taken, seeds from 100 on.

    ``prior`` is the linear scorer of a network that has one.
    """
    batch = EpisodeBatch(scenario, num_seeds)
    for e, seed in enumerate(validation_seeds(num_seeds)):
        batch.reset(e, np.random.default_rng(seed))
    device = next(network.parameters()).device
    scorer = None if prior is None else LinearPrior(prior, scenario)
    while not batch.is_over.all():
        seen = batch.shown()
        if scorer is not None:
            seen = {**seen, PRIOR: scorer.of_episodes(batch.episodes)}
        observation = {key: torch.as_tensor(value, device=device) for key, value in seen.items()}
        with torch.no_grad():
            scores = network(observation)[0]
        batch.step(scores.argmax(dim=1).cpu().numpy(), ~batch.is_over)
    return float(np.mean([batch.record(e).blocking_rate(scenario.settings.counted) for e in range(num_seeds)]))
