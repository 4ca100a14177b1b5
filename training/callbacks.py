"""What happens between two updates of PPO: averaging, validation, checkpoints and progress, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList

from .. import files
from ..envs.ground import KEY, Ground
from ..models.policy_files import STAGES, stage
from ..models.saved import SavedNetwork, scenario_metadata
from ..planners.linear import LinearWeights
from . import checkpoint
from .averaging import WeightAverage
from .hooks.reporter import RunReporter
from .hooks.tensorboard import TensorBoardWriter
from .played import PlayedBenchmarks
from .ppo import figures_of
from .run_folder import RunFolder
from .settings import TrainSettings
from .validation import blocking_rate
from .vec_env_wrappers import AfterstateFeatures, CentredReward, wrapper_of

Progress = Callable[["TrainProgress"], None]


@dataclass(frozen=True)
class TrainProgress:
    """What a progress display may show.

    Attributes:
        steps: decisions so far, those of the pretraining among them.
        total_steps: decisions in all.
        blocking_rate: of the latest validation; None before the first.
        best: the least so far.
        tuned: share of the tuning of a linear scorer that is done; 1 once it is over, or where there is none.
    """

    steps: int
    total_steps: int
    blocking_rate: float | None
    best: float | None
    tuned: float = 1.0


class ValidationCallback(BaseCallback):
    """Plays the validation episodes, writes the learning curve and keeps the best policy.

    Args:
        chosen: the config.
        run: where the learning curve goes.
        played: what is validated on.
        average: the weights that are validated.
        reporter: is called with each validation.

    Attributes:
        curve: a row per validation.
        best: the best policy so far.
        best_centre: what was subtracted from rewards when it was found, of each scenario.
        next_steps: decisions, of this stage of the run, from which the next validation is due.
    """

    def __init__(
        self,
        chosen: TrainSettings,
        run: RunFolder,
        played: PlayedBenchmarks,
        average: WeightAverage,
        reporter: RunReporter,
    ) -> None:
        super().__init__()
        self._reporter = reporter
        self.curve: list[dict[str, Any]] = []
        self.best: SavedNetwork | None = None
        self.best_centre = np.zeros(1)
        self.next_steps = 0
        self._chosen, self._run, self._scenarios, self._average = chosen, run, played.scenarios, average
        self._grounds = grounds(played)
        self._ended: list[float] = []
        self._before_s = 0.0
        self._since = time.perf_counter()

    @property
    def steps(self) -> int:
        """Decisions so far, those before PPO among them; the latter must be over."""
        return self._chosen.steps_before_ppo + self.model.num_timesteps

    def is_due(self, steps: int) -> bool:
        """Whether to validate after a number of decisions of this stage; the next is ``validate_every_steps`` later."""
        if steps < self.next_steps:
            return False
        self.next_steps = steps + self._chosen.validate_every_steps
        return True

    def validate(self, phase: str, steps: int) -> dict[str, Any]:
        """Play the validation episodes and add a row to the learning curve.

        Args:
            phase: the row's name for the stage of the run.
            steps: decisions so far, those before PPO among them.

        Returns:
            The row.
        """
        network, prior = self._average.network, wrapper_of(self.model, AfterstateFeatures).prior
        rate = blocking_rate(network, self._scenarios, self._chosen.num_validation_seeds, prior)
        row = {
            "phase": phase,
            "steps": steps,
            "validation_blocking_rate": rate,
            "training_blocking_rate": float(np.mean(self._ended)) if self._ended else None,
            "elapsed_s": self._elapsed_s(),
        }
        self.curve.append(row)
        self.write_curve()
        self._ended = []
        if self.best is None or rate < self.best.trained["validation_blocking_rate"]:
            trained = {
                "config": self._chosen.name,
                "benchmark": self._chosen.benchmark,
                "seed": self._chosen.seed,
                "phase": phase,
                "steps": steps,
                "validation_blocking_rate": rate,
                STAGES: self._stages(steps, prior),
                **scenario_metadata(self._scenarios[0].settings),
                KEY: self._grounds,
            }
            self.best = SavedNetwork.of(network, trained, prior)
            self.best_centre = wrapper_of(self.model, CentredReward).reward_centre.copy()
        self._reporter.validated(row, phase, figures_of(self.logger))
        return row

    def _stages(self, steps: int, prior: LinearWeights | None) -> list[dict[str, Any]]:
        """Return the stages that the weights went through after so many decisions, as policy files hold them."""
        chosen, before, found = self._chosen.pretraining, self._chosen.steps_before_ppo, []

        def best(phase: str) -> float | None:
            return min((row["validation_blocking_rate"] for row in self.curve if row["phase"] == phase), default=None)

        if chosen is not None and steps > 0:
            found.append(stage("td", min(steps, before), "decisions", best("pretraining")))
        if prior is not None and "generation" in prior.trained:
            of = f"{len(prior.weights)} weights"
            found.append(stage("search", prior.trained["generation"], "generations", best("tuned"), of=of))
        if steps > before:
            found.append(stage("ppo", steps - before, "decisions", best("ppo")))
        return found

    def write_curve(self) -> None:
        """Write the learning curve."""
        files.write_json(self._run.learning_curve, self.curve)

    def finish(self) -> None:
        """Validate once more, unless that was done after the last update."""
        if not self.curve or self.curve[-1]["steps"] < self.steps:
            self._validate_ppo()

    def state(self) -> dict[str, Any]:
        """What `restore` continues from."""
        return {
            "curve": self.curve,
            "ended": self._ended,
            "elapsed_s": self._elapsed_s(),
            "next_validation": self.next_steps,
            "best_centre": self.best_centre.tolist(),
        }

    def restore(self, state: dict[str, Any], best: SavedNetwork | None) -> None:
        """Continue from a state and the best policy then."""
        self.best = best
        self.curve, self._ended, self._before_s = state["curve"], state["ended"], state["elapsed_s"]
        self.next_steps, self.best_centre = state["next_validation"], np.array(state["best_centre"])

    def _validate_ppo(self) -> None:
        row = self.validate("ppo", self.steps)
        for kind in ("validation", "training"):
            if row[f"{kind}_blocking_rate"] is not None:
                self.logger.record(f"blocking_rate/{kind}", row[f"{kind}_blocking_rate"])

    def _on_rollout_start(self) -> None:
        if self.is_due(self.model.num_timesteps):
            self._validate_ppo()

    def _on_step(self) -> bool:
        self._ended += [info["blocking_rate"] for info in self.locals["infos"] if "blocking_rate" in info]
        return True

    def _elapsed_s(self) -> float:
        return self._before_s + time.perf_counter() - self._since


class CheckpointCallback(BaseCallback):
    """Writes checkpoints, and with each of them the best policy so far.

    Args:
        chosen: the config.
        run: where they go.
        key: a hash of config and scenario, by which a checkpoint is recognised.
        board: the scalars of PPO.
        validation, average: saved too.

    Attributes:
        next_steps: decisions, of this stage of the run, from which the next checkpoint is due.
        figures: of PPO, of the latest update.
    """

    def __init__(
        self,
        chosen: TrainSettings,
        run: RunFolder,
        key: str,
        board: TensorBoardWriter,
        validation: ValidationCallback,
        average: WeightAverage,
    ) -> None:
        super().__init__()
        self.figures: dict[str, float] = {}
        self.next_steps = chosen.checkpoint_every_steps
        self._chosen, self._run, self._key, self._board = chosen, run, key, board
        self._validation, self._average = validation, average

    def is_due(self, steps: int) -> bool:
        """Whether to save after a number of decisions of this stage; the next is ``checkpoint_every_steps`` later."""
        if steps < self.next_steps:
            return False
        self.next_steps = steps + self._chosen.checkpoint_every_steps
        return True

    def save(self, pretraining: dict[str, Any] | None = None) -> None:
        """Write a checkpoint; within the pretraining, with what that continues from."""
        progress = {
            **self._validation.state(),
            "next_checkpoint": self.next_steps,
            "before_ppo": self._chosen.steps_before_ppo,
            **self._average.state(),
        }
        assert isinstance(self.model, MaskablePPO)
        # What is shown up to here is not shown again by a run that continues from here.
        self._board.flush()
        best = self._validation.best
        checkpoint.save(self._run.checkpoint, self.model, progress, best, self._key, pretraining)
        self._validation.write_curve()
        if best is not None:
            best.save(self._run.policy)

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the progress of a checkpoint."""
        self.next_steps = state["next_checkpoint"]

    def _on_rollout_start(self) -> None:
        # PPO's figures of the update that has just ended would be lost with a process that dies before the next one.
        self.figures = figures_of(self.logger)
        self.logger.dump(self.model.num_timesteps)
        if self.is_due(self.model.num_timesteps):
            self.save()

    def _on_step(self) -> bool:
        return True


class ProgressCallback(BaseCallback):
    """Calls a progress display after every update.

    Args:
        chosen: the config.
        validation: its figures are shown.
        display: what is called; None: nothing.
        reporter: is called with each update.
        checkpoints: written where a callback stops the run.
    """

    def __init__(
        self,
        chosen: TrainSettings,
        validation: ValidationCallback,
        display: Progress | None,
        reporter: RunReporter,
        checkpoints: CheckpointCallback,
    ) -> None:
        super().__init__()
        self._reporter, self._checkpoints = reporter, checkpoints
        self._chosen, self._validation, self._display = chosen, validation, display

    def show(self, steps: int) -> None:
        """Show the number of decisions, also those before PPO, and the figures of the latest and best validation."""
        curve, best = self._validation.curve, self._validation.best
        latest = curve[-1]["validation_blocking_rate"] if curve else None
        self.show_rates(steps, latest, best.trained["validation_blocking_rate"] if best else None)

    def show_rates(self, steps: int, latest: float | None, best: float | None, tuned: float = 1.0) -> None:
        """Show these figures (see `TrainProgress`)."""
        if self._display is not None:
            total = self._chosen.steps_before_ppo + self._chosen.total_steps
            self._display(TrainProgress(steps, total, latest, best, tuned))
        self._reporter.updated(
            "ppo" if steps > self._chosen.steps_before_ppo else "pretraining", steps, self._checkpoints.figures
        )

    def _on_rollout_start(self) -> None:
        self.show(self._validation.steps)
        if self._reporter.is_stopping:
            self._checkpoints.save()
            self._reporter.stop_if_asked()

    def _on_step(self) -> bool:
        return True


class TrainingCallbacks(CallbackList):
    """All callbacks of a training run; the stages before PPO call them by their names."""

    def __init__(
        self,
        chosen: TrainSettings,
        run: RunFolder,
        played: PlayedBenchmarks,
        key: str,
        board: TensorBoardWriter,
        display: Progress | None,
        reporter: RunReporter,
    ) -> None:
        self.reporter = reporter
        self.average = WeightAverage(chosen.ppo.averaging)
        self.validation = ValidationCallback(chosen, run, played, self.average, reporter)
        self.checkpoints = CheckpointCallback(chosen, run, key, board, self.validation, self.average)
        self.progress = ProgressCallback(chosen, self.validation, display, reporter, self.checkpoints)
        super().__init__([self.average, self.validation, self.checkpoints, self.progress])

    @property
    def steps(self) -> int:
        """Decisions so far, those before PPO among them, also within the pretraining."""
        curve = self.validation.curve
        return self.validation.steps if self.model.num_timesteps else curve[-1]["steps"] if curve else 0

    def restore(self, restored: checkpoint.Restored) -> None:
        """Continue from a checkpoint."""
        self.average.restore(restored.progress)
        self.validation.restore(restored.progress, restored.best)
        self.checkpoints.restore(restored.progress)

    def finish(self) -> None:
        """The last validation and the last checkpoint."""
        self.model.policy.set_training_mode(False)
        self.average.update()
        self.validation.finish()
        self.model.logger.dump(self.model.num_timesteps)
        self.checkpoints.save()
        self.progress.show(self.validation.steps)


def grounds(played: PlayedBenchmarks) -> list[dict[str, Any]]:
    """What each benchmark of a run is, once (see `envs.ground`)."""
    pairs = zip(played.benchmarks, played.scenarios, strict=True)
    found = {id(scenario): Ground.of(benchmark.name, scenario) for benchmark, scenario in pairs}
    return [ground.model_dump(mode="json") for ground in found.values()]
