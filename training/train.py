"""`train`: PPO on the batched environment, from a config to a run folder.

On a CPU the same seed gives the same numbers, bit for bit; a GPU adds numbers up in no fixed order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger

from .. import files
from ..envs.benchmark import load_benchmark
from ..envs.static import static_features
from ..errors import CheckpointError, ConfigError
from ..models.masked_policy import CandidatePolicy
from ..models.network import CandidateNetwork
from ..models.saved import SavedNetwork
from ..simulation.scenario import Scenario
from . import checkpoint
from .run_folder import RunFolder
from .settings import TrainSettings
from .validation import blocking_rate
from .vec_env import JobPartitioningVecEnv

Progress = Callable[["TrainProgress"], None]

# Stable-Baselines3's choice for PPO; torch's own is 1e-8.
ADAM_EPSILON = 1e-5


@dataclass(frozen=True)
class TrainProgress:
    """What a progress display may show.

    Attributes:
        steps: decisions so far.
        total_steps: decisions in all.
        blocking_rate: of the latest look at the validation episodes; None before the first.
        best: the least so far.
    """

    steps: int
    total_steps: int
    blocking_rate: float | None
    best: float | None


def train(
    chosen: TrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    graphs_dir: Path | None = None,
    scenario: Scenario | None = None,
    progress: Progress | None = None,
) -> RunFolder:
    """Train a policy and leave a run folder.

    Args:
        chosen: the config.
        folder: the run folder; new unless ``resume`` or ``overwrite``.
        resume: go on from the folder's checkpoint (from the start where it has none yet), to the same numbers that
            an uninterrupted run reaches.
        overwrite: replace an existing run folder.
        command: the command line, for the record.
        graphs_dir: profiles by folder name (see `jobs.load_graph`).
        scenario: already built, to save its set-up.
        progress: called after every update.

    Raises:
        MeshwrightError: the config, benchmark or checkpoint is wrong; the folder exists already. Nothing is written then.
    """
    run = _begun_with(chosen, folder) if resume else RunFolder.check_new(folder, overwrite=overwrite)
    benchmark = load_benchmark(chosen.benchmark)
    scenario = scenario or benchmark.build(graphs_dir=graphs_dir)
    torch.set_num_threads(chosen.num_threads)
    env = JobPartitioningVecEnv(scenario, chosen.ppo.num_envs, benchmark.reward, chosen.seed)
    model = _model(chosen, env, scenario)
    kept = chosen.model_dump(exclude={"name", "num_threads", "device"})
    key = files.digest(kept, benchmark.reward.model_dump(), scenario.digest)
    restored = checkpoint.restore(run.checkpoint, model, key) if resume and run.checkpoint.exists() else None
    if not resume:
        RunFolder.create(folder, chosen, command, overwrite=overwrite)
    first_step = None if not resume else 0 if restored is None else model.num_timesteps + 1
    board = _Board(run.tensorboard, first_step)
    callback = _Callback(chosen, run, scenario, key, board, progress)
    if restored is not None:
        callback.take_up(*restored)
    model.set_logger(Logger(None, [board]))
    remaining = chosen.total_steps - model.num_timesteps
    try:
        if remaining > 0:
            # The mask travels in the observation, so PPO need not fetch and keep it again.
            model.learn(remaining, callback=callback, reset_num_timesteps=False, use_masking=False)
        callback.finish(model)
    finally:
        board.close()
    return run


def pick_device(name: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` takes a GPU where there is one.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("torch sees no CUDA device here", field="device", value=name, choices=["cpu", "auto"])
    return name


def _begun_with(chosen: TrainSettings, folder: Path) -> RunFolder:
    """The run folder, if it was begun with this config."""
    run = RunFolder.open(folder)
    begun = run.settings().model_dump()
    for field, value in chosen.model_dump().items():
        if begun[field] != value:
            raise CheckpointError("differs from the config that the run was begun with", file=folder, field=field)
    return run


def _model(chosen: TrainSettings, env: JobPartitioningVecEnv, scenario: Scenario) -> MaskablePPO:
    ppo = chosen.ppo
    return MaskablePPO(
        CandidatePolicy,
        env,
        learning_rate=lambda left: ppo.final_learning_rate + (ppo.learning_rate - ppo.final_learning_rate) * left,
        n_steps=ppo.rollout_steps,
        batch_size=ppo.minibatch,
        n_epochs=ppo.epochs,
        gamma=ppo.discount,
        gae_lambda=ppo.gae_lambda,
        clip_range=ppo.clip,
        ent_coef=ppo.entropy,
        vf_coef=ppo.value,
        max_grad_norm=ppo.max_grad_norm,
        target_kl=ppo.target_kl,
        policy_kwargs={
            "network": chosen.network,
            "static": static_features(scenario),
            "optimizer_kwargs": {"eps": ADAM_EPSILON, "fused": True},
        },
        seed=chosen.seed,
        device=pick_device(chosen.device),
    )


class _Callback(BaseCallback):
    """Looks at the validation episodes, keeps the best policy, and takes checkpoints, between two updates."""

    def __init__(
        self, chosen: TrainSettings, run: RunFolder, scenario: Scenario, key: str, board: _Board, progress: Progress | None
    ) -> None:
        super().__init__()
        self.chosen, self.run, self.scenario, self.key, self.board, self.report = chosen, run, scenario, key, board, progress
        self.curve: list[dict[str, Any]] = []
        self.best: SavedNetwork | None = None
        self.ended: list[float] = []
        self.before_s = 0.0
        self.since = time.perf_counter()
        self.next_validation = 0
        self.next_checkpoint = chosen.checkpoint_every_steps

    def take_up(self, saved: dict[str, Any], best: SavedNetwork | None) -> None:
        """Continue from a checkpoint's progress."""
        self.best = best
        self.curve, self.ended, self.before_s = saved["curve"], saved["ended"], saved["elapsed_s"]
        self.next_validation, self.next_checkpoint = saved["next_validation"], saved["next_checkpoint"]

    def _on_rollout_start(self) -> None:
        steps = self.model.num_timesteps
        if steps >= self.next_validation:
            self.next_validation = steps + self.chosen.validate_every_steps
            self._validate()
        # PPO's figures of the update that has just ended would be lost with a process that dies before the next one.
        self.logger.dump(steps)
        if steps >= self.next_checkpoint:
            self.next_checkpoint = steps + self.chosen.checkpoint_every_steps
            self._save()
        self._tell()

    def _on_step(self) -> bool:
        self.ended += [info["blocking_rate"] for info in self.locals["infos"] if "blocking_rate" in info]
        return True

    def finish(self, model: MaskablePPO) -> None:
        """The last look and the last checkpoint."""
        self.model = model
        model.policy.set_training_mode(False)
        if not self.curve or self.curve[-1]["steps"] < model.num_timesteps:
            self._validate()
        self.logger.dump(model.num_timesteps)
        self._save()
        self._tell()

    def _validate(self) -> None:
        network = self.model.policy.get_submodule("network")
        assert isinstance(network, CandidateNetwork)
        steps = self.model.num_timesteps
        rate = blocking_rate(network, self.scenario, self.chosen.num_validation_seeds)
        row = {
            "steps": steps,
            "validation_blocking_rate": rate,
            "training_blocking_rate": float(np.mean(self.ended)) if self.ended else None,
            "elapsed_s": self._elapsed_s(),
        }
        self.curve.append(row)
        self.ended = []
        self.logger.record("blocking_rate/validation", rate)
        if row["training_blocking_rate"] is not None:
            self.logger.record("blocking_rate/training", row["training_blocking_rate"])
        if self.best is None or rate < self.best.trained["validation_blocking_rate"]:
            trained = {
                "config": self.chosen.name,
                "benchmark": self.chosen.benchmark,
                "seed": self.chosen.seed,
                "steps": steps,
                "validation_blocking_rate": rate,
            }
            self.best = SavedNetwork.of(network, trained)

    def _save(self) -> None:
        progress = {
            "curve": self.curve,
            "ended": self.ended,
            "elapsed_s": self._elapsed_s(),
            "next_validation": self.next_validation,
            "next_checkpoint": self.next_checkpoint,
        }
        assert isinstance(self.model, MaskablePPO)
        self.board.flush()  # what is shown up to here is not shown again by a run that goes on from here
        checkpoint.save(self.run.checkpoint, self.model, progress, self.best, self.key)
        files.write_json(self.run.learning_curve, self.curve)
        if self.best is not None:
            self.best.save(self.run.policy)

    def _tell(self) -> None:
        if self.report is not None:
            latest = self.curve[-1]["validation_blocking_rate"] if self.curve else None
            best = self.best.trained["validation_blocking_rate"] if self.best else None
            self.report(TrainProgress(self.model.num_timesteps, self.chosen.total_steps, latest, best))

    def _elapsed_s(self) -> float:
        return self.before_s + time.perf_counter() - self.since


class _Board(KVWriter):
    """Scalars for TensorBoard.

    Args:
        folder: of the event files.
        first_step: of a resumed run; what a killed one wrote from this step on is dropped from the display.
    """

    def __init__(self, folder: Path, first_step: int | None) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        for key, value in sorted(key_values.items()):
            if isinstance(value, int | float | np.floating | np.integer):
                self._writer.add_scalar(key, float(value), step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
