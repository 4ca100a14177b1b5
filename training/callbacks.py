"""What is looked at while a policy is trained: validation episodes, the best policy so far, checkpoints, TensorBoard."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

from .. import files
from ..envs.ground import KEY, Ground
from ..models.linear_prior import zero_prior
from ..models.network import CandidateNetwork
from ..models.saved import SavedNetwork, scenario_metadata
from . import checkpoint
from .curriculum import TrainingPhase
from .linear.search import LinearSearch
from .pretraining.stages import finish_pretraining, pretrain, tune_prior
from .pretraining.temporal_difference import ValueLearning
from .run_folder import RunFolder
from .settings import TrainSettings
from .validation import blocking_rate
from .vec_env import JobPartitioningVecEnv

Progress = Callable[["TrainProgress"], None]


@dataclass(frozen=True)
class TrainProgress:
    """What a progress display may show.

    Attributes:
        steps: decisions so far, those of the pretraining among them.
        total_steps: decisions in all.
        blocking_rate: of the latest look at the validation episodes; None before the first.
        best: the least so far.
        tuned: share of the tuning of a linear scorer that is done; 1 once it is over, or where there is none.
    """

    steps: int
    total_steps: int
    blocking_rate: float | None
    best: float | None
    tuned: float = 1.0


class ValidationCallback(BaseCallback):
    """Plays the validation episodes, keeps the best policy, and takes checkpoints, between two updates."""

    def __init__(
        self,
        chosen: TrainSettings,
        run: RunFolder,
        played: Sequence[TrainingPhase],
        key: str,
        board: TensorBoardWriter,
        progress: Progress | None,
    ) -> None:
        super().__init__()
        self.chosen, self.run, self.phase, self.key, self.board, self.report = chosen, run, played[-1], key, board, progress
        self.grounds = _grounds(played)
        self.curve: list[dict[str, Any]] = []
        self.best: SavedNetwork | None = None
        self.best_centre = np.zeros(1)
        self.centres: dict[str, float] = {}
        self.ended: list[float] = []
        self.before_s = 0.0
        self.since = time.perf_counter()
        self.next_validation = 0
        self.next_checkpoint = chosen.checkpoint_every_steps
        self.before_ppo = 0
        self.averaged: CandidateNetwork | None = None
        self.averaged_at = 0
        self.averaged_weights: dict[str, torch.Tensor] | None = None
        self.before: TensorBoardWriter | None = None
        self.before_shown = 0

    @property
    def is_done(self) -> bool:
        """Whether so many looks went by without a better one that PPO stops."""
        validations = [row["validation_blocking_rate"] for row in self.curve if row["phase"] == "ppo"]
        patience = self.chosen.patience
        return patience is not None and len(validations) - 1 - int(np.argmin(validations or [0.0])) >= patience

    def pretrain(self, model: MaskablePPO, begun: dict[str, Any] | None, *, is_resumed: bool) -> None:
        """Prepare the network before PPO, which begins with what was best at a look.

        Args:
            model: fresh, or as a checkpoint within the pretraining left it.
            begun: what that checkpoint tells of the pretraining; `restore` comes before.
            is_resumed: whether the run has been here before, with or without a checkpoint.
        """
        self.model = model
        assert self.chosen.pretraining is not None
        self.before_ppo = self.chosen.pretraining.steps
        learned, searched = (begun["values"], begun["linear"]) if begun is not None else (None, None)
        self.before_shown = begun["shown"] if begun is not None else 0
        first_step = (begun["shown"] + 1 if begun is not None else 0) if is_resumed else None
        self.before = TensorBoardWriter(self.run.tensorboard / "pretraining", first_step)
        try:
            if searched is None:
                self._pretrain_network(learned)
            rewards = self.phase.benchmarks[0].reward
            tune_prior(self._network, self._env, rewards, self.chosen, self._on_tuned, searched and json.loads(searched))
            if self._network.settings.prior:
                self._validate("tuned", self.before_ppo)
        finally:
            self.before.close()
            self.before = None
        assert self.best is not None
        self._network.load_state_dict(self.best.weights)
        finish_pretraining(self._network, self._env, self.chosen)
        self.centres = self._env.centres
        self.next_validation = self.next_checkpoint = 0

    def _pretrain_network(self, begun: dict[str, Any] | None) -> None:
        """All of the pretraining but the tuning of a linear scorer."""
        env = self._env
        if self._network.settings.prior:
            env.set_linear_prior(zero_prior(env.scenario))
        pretrain(self._network, env, self.chosen, self._on_pretrained, begun)
        self._validate("pretraining", self.before_ppo)
        assert self.best is not None
        self._network.load_state_dict(self.best.weights)
        env.reward_centre = self.best_centre.copy()  # what these weights hold worth to be is centred by it
        self.best.save(self.run.pretrained)

    def use_value_network(self, model: MaskablePPO) -> None:
        """Let the model's environments tell what states are worth by its weights, which PPO does not change."""
        self.model = model
        self._env.set_value_network(self._network)

    def _on_tuned(self, search: LinearSearch) -> None:
        files.write_json(self.run.tuning_curve, search.curve)
        latest = search.curve[-1]
        self.before_shown = self.before_ppo + search.steps
        if self.before is not None and latest["generation"] == search.generation:
            rates = {f"tuned_blocking_rate/{kind}": latest[f"{kind}_blocking_rate"] for kind in ("validation", "training")}
            self.before.write(rates, {}, self.before_shown)
        if search.generation < search.chosen.generations:  # PPO, whose first checkpoint is its beginning, comes right after it
            self._save({"values": None, "linear": json.dumps(search.state()), "shown": self.before_shown})
        if self.report is not None:
            steps, tuned = self.before_ppo, search.generation / search.chosen.generations
            best = search.best["validation_blocking_rate"]
            self.report(TrainProgress(steps, steps + self.chosen.total_steps, latest["validation_blocking_rate"], best, tuned))

    def _on_pretrained(self, steps: int, learning: ValueLearning | None) -> None:
        self.before_shown = steps = min(steps, self.before_ppo)
        if steps >= self.next_validation and steps < self.before_ppo:
            self.next_validation = steps + self.chosen.validate_every_steps
            self._validate("pretraining", steps)
        if learning is not None:
            if self.before is not None:
                self.before.write({"worth/loss": learning.loss}, {}, steps)
            if steps >= self.next_checkpoint and steps < self.before_ppo:
                self.next_checkpoint = steps + self.chosen.checkpoint_every_steps
                self._save({"values": learning.state(), "linear": None, "shown": steps})
        self._tell(steps)

    @property
    def _env(self) -> JobPartitioningVecEnv:
        env = self.model.get_env()
        assert isinstance(env, JobPartitioningVecEnv)
        return env

    @property
    def _network(self) -> CandidateNetwork:
        network = self.model.policy.get_submodule("network")
        assert isinstance(network, CandidateNetwork)
        return network

    def restore(self, saved: dict[str, Any], best: SavedNetwork | None) -> None:
        """Continue from a checkpoint's progress."""
        self.best = best
        self.curve, self.ended, self.before_s = saved["curve"], saved["ended"], saved["elapsed_s"]
        self.next_validation, self.next_checkpoint = saved["next_validation"], saved["next_checkpoint"]
        self.before_ppo, self.best_centre = saved["before_ppo"], np.array(saved["best_centre"])
        self.centres = saved["centres"]
        self.averaged_at = saved["averaged_at"]
        if saved["averaged"] is not None:
            self.averaged_weights = saved["averaged"]

    def _on_training_start(self) -> None:
        if self.averaged is None and self.chosen.ppo.averaging < 1.0:
            self.averaged = copy.deepcopy(self._network)
            if self.averaged_weights is not None:
                self.averaged.load_state_dict(self.averaged_weights)

    def _average(self) -> None:
        """Take the newest weights into the average, once per update."""
        if self.averaged is None or self.model.num_timesteps <= self.averaged_at:
            return
        self.averaged_at = self.model.num_timesteps
        with torch.no_grad():
            newest = [weight.detach() for weight in self._network.parameters()]
            torch._foreach_lerp_([*self.averaged.parameters()], newest, self.chosen.ppo.averaging)

    def _on_rollout_start(self) -> None:
        steps = self.model.num_timesteps
        self._average()
        if steps >= self.next_validation:
            self.next_validation = steps + self.chosen.validate_every_steps
            self._validate("ppo", self.before_ppo + steps)
        # PPO's figures of the update that has just ended would be lost with a process that dies before the next one.
        self.logger.dump(steps)
        if steps >= self.next_checkpoint:
            self.next_checkpoint = steps + self.chosen.checkpoint_every_steps
            self._save()
        self._tell(self.before_ppo + steps)

    def _on_step(self) -> bool:
        self.ended += [info["blocking_rate"] for info in self.locals["infos"] if "blocking_rate" in info]
        return not self.is_done

    def finish(self, model: MaskablePPO) -> None:
        """The last look and the last checkpoint."""
        self.model = model
        model.policy.set_training_mode(False)
        steps = self.before_ppo + model.num_timesteps
        self._average()
        if not self.is_done and (not self.curve or self.curve[-1]["steps"] < steps):
            self._validate("ppo", steps)
        self.logger.dump(model.num_timesteps)
        self._save()
        self._tell(steps)

    def _validate(self, phase: str, steps: int) -> None:
        network = self.averaged or self._network
        rate = blocking_rate(network, self.phase.scenarios, self.chosen.num_validation_seeds, self._env.prior)
        row = {
            "phase": phase,
            "steps": steps,
            "validation_blocking_rate": rate,
            "training_blocking_rate": float(np.mean(self.ended)) if self.ended else None,
            "elapsed_s": self._elapsed_s(),
        }
        self.curve.append(row)
        files.write_json(self.run.learning_curve, self.curve)
        self.ended = []
        if self.before is not None:
            self.before.write({"blocking_rate/validation": rate}, {}, self.before_shown)
        else:
            self.logger.record("blocking_rate/validation", rate)
            if row["training_blocking_rate"] is not None:
                self.logger.record("blocking_rate/training", row["training_blocking_rate"])
        if self.best is None or rate < self.best.trained["validation_blocking_rate"]:
            trained = {
                "config": self.chosen.name,
                "benchmark": self.chosen.benchmark,
                "seed": self.chosen.seed,
                "phase": phase,
                "steps": steps,
                "validation_blocking_rate": rate,
                **scenario_metadata(self.phase.scenarios[0].settings),
                KEY: self.grounds,
            }
            self.best = SavedNetwork.of(network, trained, self._env.prior)
            self.best_centre = self._env.reward_centre.copy()

    def _save(self, pretraining: dict[str, Any] | None = None) -> None:
        """A checkpoint; within the pretraining, with what it needs to go on."""
        progress = {
            "curve": self.curve,
            "ended": self.ended,
            "elapsed_s": self._elapsed_s(),
            "next_validation": self.next_validation,
            "next_checkpoint": self.next_checkpoint,
            "before_ppo": self.before_ppo,
            "best_centre": self.best_centre.tolist(),
            "centres": self.centres,
            "averaged_at": self.averaged_at,
            "averaged": self.averaged_weights if self.averaged is None else self.averaged.state_dict(),
        }
        assert isinstance(self.model, MaskablePPO)
        # What is shown up to here is not shown again by a run that goes on from here.
        (self.before or self.board).flush()
        checkpoint.save(self.run.checkpoint, self.model, progress, self.best, self.key, pretraining)
        files.write_json(self.run.learning_curve, self.curve)
        if self.best is not None:
            self.best.save(self.run.policy)

    def _tell(self, steps: int) -> None:
        if self.report is not None:
            latest = self.curve[-1]["validation_blocking_rate"] if self.curve else None
            best = self.best.trained["validation_blocking_rate"] if self.best else None
            self.report(TrainProgress(steps, self.before_ppo + self.chosen.total_steps, latest, best))

    def _elapsed_s(self) -> float:
        return self.before_s + time.perf_counter() - self.since


def _grounds(played: Sequence[TrainingPhase]) -> list[dict[str, Any]]:
    """Of each benchmark of a run, once."""
    found = {id(scenario): Ground.of(benchmark.name, scenario) for phase in played for benchmark, scenario in phase.pairs()}
    return [ground.model_dump(mode="json") for ground in found.values()]


class TensorBoardWriter(KVWriter):
    """Scalars for TensorBoard.

    Args:
        folder: of the event files.
        first_step: of a resumed run; what a killed one wrote from this step on is dropped from the display.
    """

    def __init__(self, folder: Path, first_step: int | None) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        if first_step is not None:
            _await_next_second(folder)
        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Note numbers under their names."""
        for key, value in sorted(key_values.items()):
            if isinstance(value, int | float | np.floating | np.integer):
                self._writer.add_scalar(key, float(value), step)

    def flush(self) -> None:
        """Put on disk what was noted."""
        self._writer.flush()

    def close(self) -> None:
        """Write no more."""
        self._writer.close()


def _await_next_second(folder: Path) -> None:
    """Wait until an event file that is made now sorts behind those that are there.

    TensorBoard reads them in the order of their names, which begin with the second that they were made in; a run that goes on
    within the second in which it was begun would be read backwards.
    """
    made_s = [int(path.name.split(".")[3]) for path in folder.glob("events.out.tfevents.*")]
    while made_s and int(time.time()) == max(made_s):
        time.sleep(0.05)
