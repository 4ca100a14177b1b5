"""The stages of a run before PPO: values are learned, then a linear scorer is tuned."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from sb3_contrib import MaskablePPO

from ... import files
from ...envs.reward import RewardSettings
from ...errors import PolicyError
from ...models.corrected_trial import CorrectedTrial
from ...models.linear_prior import zero_prior
from ...models.network import CandidateNetwork
from ...models.saved import SavedNetwork
from ...planners.linear import LinearWeights
from ...simulation.cluster.scenario import Scenario
from ..averaging import network_of
from ..callbacks import TrainingCallbacks
from ..hooks.tensorboard import TensorBoardWriter
from ..linear.search import LinearSearch
from ..run_folder import RunFolder
from ..settings import TrainSettings
from ..vec_env_wrappers import AfterstateFeatures, CentredReward, wrapper_of
from .settings import ValuePretraining
from .temporal_difference import ValueLearning


def check_pretraining(chosen: TrainSettings, scenarios: Sequence[Scenario]) -> None:
    """Refuse a linear scorer that cannot be tuned, before anything is written.

    Raises:
        PolicyError: candidates may hold several blocks.
    """
    if chosen.network.prior:
        for scenario in scenarios:
            if "published" in scenario.settings.placement_rules:
                problem = "a linear scorer can only be added to the worth of candidates of single blocks: leave this rule out"
                raise PolicyError(problem, field="placement_rules", value="published")


def pretrain(
    model: MaskablePPO,
    chosen: TrainSettings,
    rewards: RewardSettings,
    run: RunFolder,
    callbacks: TrainingCallbacks,
    begun: dict[str, Any] | None,
    *,
    is_resumed: bool,
) -> None:
    """Prepare the network as the config says; it is then the best one of all validations.

    Args:
        model: fresh, or as a checkpoint within the pretraining left it.
        chosen: the config, with a pretraining.
        rewards: weights of the reward's terms where a linear scorer is tuned.
        run: the run folder.
        callbacks: with the model.
        begun: what that checkpoint holds of the pretraining.
        is_resumed: whether the run was begun before, with or without a checkpoint.
    """
    shown_steps = 0 if begun is None else begun["shown"]
    first_step = (0 if begun is None else shown_steps + 1) if is_resumed else None
    board = TensorBoardWriter(run.tensorboard / "pretraining" if "tensorboard" in chosen.log else None, first_step)
    stages = _Stages(model, chosen, run, callbacks, board, shown_steps)
    learned, searched = (None, None) if begun is None else (begun["values"], begun["linear"])
    try:
        if searched is None:
            stages.prepare_network(learned)
        if isinstance(chosen.pretraining, ValuePretraining) and chosen.pretraining.linear is not None:
            stages.tune_prior(rewards, None if searched is None else json.loads(searched))
    finally:
        board.close()
    stages.take_best()
    start_ppo(stages.network, stages.env, stages.features, chosen)
    callbacks.validation.next_steps = callbacks.checkpoints.next_steps = 0


def tuned_prior(
    network: CandidateNetwork,
    scenario: Scenario,
    rewards: RewardSettings,
    chosen: TrainSettings,
    after: Callable[[LinearSearch], None],
    begun: dict[str, Any] | None = None,
) -> LinearWeights:
    """A linear scorer to add to values.

    Args:
        network: with learned values.
        scenario: in which it plays.
        rewards: weights of the reward's terms.
        chosen: the config, with such a tuning.
        after: called with the search after every generation.
        begun: the state of a search that is resumed.
    """
    assert isinstance(chosen.pretraining, ValuePretraining)
    assert chosen.pretraining.linear is not None
    search = LinearSearch(chosen.pretraining.linear, CorrectedTrial(network, scenario, rewards), chosen.seed, start={})
    if begun is not None:
        search.restore(begun)
    search.run(lambda: after(search))
    return search.weights({"config": chosen.name, "benchmark": chosen.benchmark})


def start_ppo(network: CandidateNetwork, env: CentredReward, features: AfterstateFeatures, chosen: TrainSettings) -> None:
    """Set the temperature of PPO's first policy and the scale of its rewards, and put values into the observations."""
    features.set_value_network(network)
    if isinstance(chosen.pretraining, ValuePretraining):
        env.reward_scale = chosen.pretraining.reward_scale
        with torch.no_grad():
            network.log_sharpness.sub_(math.log(chosen.pretraining.temperature))
            if network.settings.prior:
                network.prior_sharpness.div_(chosen.pretraining.temperature)
            network.value_scale.fill_(chosen.pretraining.reward_scale)


class _Stages:
    """What the stages share: the model's parts, where they validate and save, and what they have shown.

    Attributes:
        shown_steps: decisions up to which TensorBoard shows the pretraining.
    """

    def __init__(
        self,
        model: MaskablePPO,
        chosen: TrainSettings,
        run: RunFolder,
        callbacks: TrainingCallbacks,
        board: TensorBoardWriter,
        shown_steps: int,
    ) -> None:
        self.network = network_of(model)
        self.env, self.features = wrapper_of(model, CentredReward), wrapper_of(model, AfterstateFeatures)
        self.shown_steps = shown_steps
        self._chosen, self._run, self._board = chosen, run, board
        self._validation, self._checkpoints, self._progress = callbacks.validation, callbacks.checkpoints, callbacks.progress
        self._reporter = callbacks.reporter

    def prepare_network(self, learned: dict[str, Any] | None) -> None:
        """Learn values, and keep the best network by itself.

        Args:
            learned: the state of a `ValueLearning` that is resumed; network and environment are restored already.
        """
        pretraining = self._chosen.pretraining
        if self.network.settings.prior:
            self.features.set_linear_prior(zero_prior(self.env.episodes.scenario))
        if isinstance(pretraining, ValuePretraining):
            self._learn_values(pretraining, learned)
        self._validate("pretraining", self._chosen.steps_before_ppo)
        best = self.take_best()
        self.env.reward_centre = self._validation.best_centre.copy()  # by which the values of these weights are centred
        best.save(self._run.pretrained)

    def tune_prior(self, rewards: RewardSettings, searched: dict[str, Any] | None) -> None:
        """Tune the linear scorer that is added to values, and set it in network and observations.

        Args:
            rewards: weights of the reward's terms.
            searched: the state of a search that is resumed.
        """
        scenario = self.env.episodes.scenario
        self.features.set_linear_prior(
            tuned_prior(self.network, scenario, rewards, self._chosen, self._after_generation, searched)
        )
        with torch.no_grad():
            self.network.prior_sharpness.fill_(1.0)
        self._validate("tuned", self._chosen.steps_before_ppo)

    def take_best(self) -> SavedNetwork:
        """Give the network the weights of the best validation."""
        best = self._validation.best
        assert best is not None
        self.network.load_state_dict(best.weights)
        return best

    def _learn_values(self, chosen: ValuePretraining, learned: dict[str, Any] | None) -> None:
        learning = ValueLearning(self.network, self.env, chosen, self._chosen.ppo.discount, self._chosen.seed)
        if learned is not None:
            learning.restore(learned)
        learning.run(lambda steps: self._after_update(steps, learning))

    def _validate(self, phase: str, steps: int) -> None:
        row = self._validation.validate(phase, steps)
        self._board.write({"blocking_rate/validation": row["validation_blocking_rate"]}, {}, self.shown_steps)

    def _save(self, values: dict[str, Any] | None, linear: str | None) -> None:
        self._board.flush()
        self._checkpoints.save({"values": values, "linear": linear, "shown": self.shown_steps})

    def _after_update(self, steps: int, learning: ValueLearning | None = None) -> None:
        before_ppo = self._chosen.steps_before_ppo
        self.shown_steps = steps = min(steps, before_ppo)
        if steps < before_ppo and self._validation.is_due(steps):
            self._validate("pretraining", steps)
        if learning is not None:
            self._board.write({"worth/loss": learning.loss}, {}, steps)
            if steps < before_ppo and self._checkpoints.is_due(steps):
                self._save(learning.state(), None)
        self._progress.show(steps)
        self._stop_if_asked(steps, learning)

    def _stop_if_asked(self, steps: int, learning: ValueLearning | None) -> None:
        """Leave the run where a callback has stopped it."""
        if self._reporter.is_stopping and learning is not None and steps < self._chosen.steps_before_ppo:
            self._save(learning.state(), None)
            self._reporter.stop_if_asked()
        if learning is None:
            self._reporter.stop_if_asked()

    def _after_generation(self, search: LinearSearch) -> None:
        files.write_json(self._run.tuning_curve, search.curve)
        before_ppo, generations, latest = self._chosen.steps_before_ppo, search.chosen.generations, search.curve[-1]
        self.shown_steps = before_ppo + search.steps
        if latest["generation"] == search.generation:
            rates = {f"tuned_blocking_rate/{kind}": latest[f"{kind}_blocking_rate"] for kind in ("validation", "training")}
            self._board.write(rates, {}, self.shown_steps)
        if search.generation < generations:  # PPO, whose first checkpoint is its beginning, comes right after it
            self._save(None, json.dumps(search.state()))
        best = search.best["validation_blocking_rate"]
        self._progress.show_rates(before_ppo, latest["validation_blocking_rate"], best, search.generation / generations)
        if search.generation < generations:
            self._reporter.stop_if_asked()
