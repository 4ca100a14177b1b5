"""The stages of a run before PPO: values are learned, then a linear scorer is tuned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import files
from ...errors import PolicyError
from ...models.network import CandidateNetwork
from ...planners.linear import FEATURES, LinearWeights
from ...simulation.cluster.scenario import Scenario
from ..linear.search import CorrectedTrial, ScorerTrial, scorer_search
from ..run import TrainingRun
from ..search import Search
from ..settings import TrainSettings
from ..vec_env_wrappers import CentredReward
from .settings import ValuePretraining
from .temporal_difference import ValueLearning

if TYPE_CHECKING:
    from ..train import PPOLearner


def check_pretraining(settings: TrainSettings, scenarios: Sequence[Scenario]) -> None:
    """Refuse a linear scorer that cannot be tuned, before anything is written.

    Raises:
        PolicyError: candidates may hold several blocks.
    """
    if settings.network.prior:
        for scenario in scenarios:
            if "published" in scenario.settings.placement_rules:
                problem = "a linear scorer can only be added to the worth of candidates of single blocks: leave this rule out"
                raise PolicyError(problem, field="placement_rules", value="published")


class Pretraining:
    """Prepares the network of a learner as its config says; it is then the best one of all validations.

    Args:
        learner: before it learns.

    Attributes:
        steps: decisions so far, at most those of the config.
        is_over: whether PPO has begun.
    """

    def __init__(self, learner: PPOLearner) -> None:
        pretraining = learner.settings.pretraining
        assert pretraining is not None
        self._learner, self._settings = learner, pretraining
        seed, scenario = learner.settings.seed, learner.played.scenarios[0]
        self._values = ValueLearning(learner.network, learner.env, pretraining, learner.settings.ppo.discount, seed)
        self._trial: ScorerTrial | None = None
        self._search: Search | None = None
        if pretraining.linear is not None:
            plays = CorrectedTrial(learner.network, scenario, learner.played.benchmarks[0].reward)
            self._trial = ScorerTrial(plays, pretraining.linear, seed)
            self._search = scorer_search(self._trial, start={})
        self.steps, self.is_over = 0, False
        self._saved_at, self._shown_at = 0, 0
        self._has_values = False
        self._tuning = list[dict[str, Any]]()

    def run(self, run: TrainingRun) -> None:
        """Go through the stages that are left."""
        learner = self._learner
        first = None if not run.is_resumed else self._shown_at + 1 if self.steps else 0
        with closing(learner.board(run, "pretraining", first)) as self._board:
            if not self._has_values:
                self._learn_values(run)
            if self._search is not None:
                self._tune(run)
        self._take_best()
        start_ppo(learner.network, learner.env, self._settings)
        self.is_over = True

    def show(self, figures: dict[str, Any]) -> None:
        """Show figures of this stage in TensorBoard."""
        self._board.write(figures, {}, self._shown_at)

    def state(self) -> dict[str, Any]:
        """Return tensors and plain data that `restore` continues from; network and environment are saved with the model."""
        if not self.is_over:
            self._board.flush()
        return {
            "values": None if self._has_values else self._values.state(),
            "search": None if self._search is None or self.is_over or not self._search.values else self._search.state(),
            "tuning": self._tuning,
            "steps": self.steps,
            "shown_at": self._shown_at,
            "has_values": self._has_values,
            "is_over": self.is_over,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.steps, self._shown_at = state["steps"], state["shown_at"]
        self._has_values, self.is_over = state["has_values"], state["is_over"]
        if state["values"] is not None:
            self._values.restore(state["values"])
        if self._search is not None and state["search"] is not None:
            self._search.restore(state["search"])
        self._tuning, self._saved_at = state["tuning"], self.steps

    def _learn_values(self, run: TrainingRun) -> None:
        """Learn values, and keep the best network by itself."""
        learner = self._learner
        if learner.network.settings.prior and self.steps == 0:
            learner.features.set_linear_prior(
                LinearWeights(np.zeros(len(FEATURES)), learner.env.episodes.scenario.settings.placement_rules)
            )
        self._values.run(lambda steps: self._after_update(run, steps))
        self.steps = self._shown_at = self._settings.steps
        run.report(run.validate("pretraining"), "pretraining")
        self._take_best()
        learner.env.reward_centre = learner.best_centre.copy()  # by which the values of these weights are centred
        assert learner.best is not None
        learner.best.save(run.folder.pretrained)
        self._has_values = True

    def _after_update(self, run: TrainingRun, steps: int) -> None:
        settings = self._learner.settings
        self.steps = self._shown_at = min(steps, self._settings.steps)
        is_last = self.steps == self._settings.steps
        self.show({"worth/loss": self._values.loss})
        saves = not is_last and self.steps - self._saved_at >= settings.checkpoint_every_steps
        if saves:
            self._saved_at = self.steps
        validates = not is_last and run.is_due(settings.validate_every_steps, phase="pretraining")
        run.between("pretraining", validates=validates, saves=saves)

    def _tune(self, run: TrainingRun) -> None:
        """Tune the linear scorer that is added to values, and set it in network and observations."""
        trial, search, learner = self._trial, self._search, self._learner
        assert trial is not None
        assert search is not None

        def after() -> None:
            self._shown_at, value = self._settings.steps + trial.steps(search.generation), None
            if search.is_validated:
                row = trial.row(search)
                value = row["validation_blocking_rate"]
                self._tuning.append(row | {"elapsed_s": run.elapsed_s})
                self.show({f"tuned_blocking_rate/{kind}": row[f"{kind}_blocking_rate"] for kind in ("validation", "training")})
            files.write_json(run.folder.tuning_curve, self._tuning)
            run.save()
            run.staged("search", search.share, value, search.best_of_all[1])

        search.run(after)
        settings = learner.settings
        learner.features.set_linear_prior(trial.weights(search, {"config": settings.name, "benchmark": settings.benchmark}))
        with torch.no_grad():
            learner.network.prior_sharpness.fill_(1.0)
        run.report(run.validate("tuned"), "tuned")

    def _take_best(self) -> None:
        """Give the network the weights of the best validation."""
        assert self._learner.best is not None
        self._learner.network.load_state_dict(self._learner.best.weights)


def start_ppo(network: CandidateNetwork, env: CentredReward, pretraining: ValuePretraining) -> None:
    """Set the temperature of PPO's first policy and the scale of its rewards."""
    env.reward_scale = pretraining.reward_scale
    with torch.no_grad():
        network.log_sharpness.sub_(math.log(pretraining.temperature))
        if network.settings.prior:
            network.prior_sharpness.div_(pretraining.temperature)
        network.value_scale.fill_(pretraining.reward_scale)
