"""`train`: PPO on the batched environment, from a config to a run folder.

The same seed gives the same numbers, bit for bit: on a CPU, and on a GPU of one type with one version of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.logger import Logger

from .. import files
from ..envs.static_features import static_features
from ..jobs.seeds import validation_seeds
from ..models.masked_policy import CandidatePolicy
from ..simulation.cluster.scenario import Scenario
from . import checkpoint
from .averaging import network_of
from .callbacks import Progress, TrainingCallbacks, TrainProgress
from .device import in_fixed_order, pick_device
from .hooks.callback import TrainingCallback
from .hooks.names import WITHOUT_EFFECT
from .hooks.reporter import ReportedMeasure, RunReporter
from .hooks.tensorboard import TensorBoardWriter
from .played import PlayedBenchmarks, played_in
from .ppo import make_ppo
from .pretraining.stages import check_pretraining, pretrain
from .run_folder import RunFolder
from .settings import TrainSettings
from .ties import check_something_to_learn
from .vec_env_wrappers import AfterstateFeatures, wrapper_of

__all__ = ["Progress", "TrainProgress", "train"]

REPORTED = ReportedMeasure("ppo", "blocking_rate", "validation_blocking_rate", "steps", "decisions")


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
    callbacks: Sequence[TrainingCallback] = (),
) -> RunFolder:
    """Train a policy and leave a run folder.

    Args:
        chosen, folder, resume, overwrite, command, graphs_dir, scenario, callbacks: as of `training.methods.train`.
        progress: called after every update.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        MeshwrightError: the config, benchmark or checkpoint is wrong; the folder exists already. Nothing is written then.
    """
    run = RunFolder.of(folder, chosen, resume=resume, overwrite=overwrite)
    reporter = RunReporter(chosen, folder, REPORTED, chosen.steps_before_ppo + chosen.total_steps, callbacks)
    played = played_in(chosen, graphs_dir=graphs_dir, scenario=scenario)
    check_pretraining(chosen, played.scenarios)
    validated = {benchmark.name: scenario for benchmark, scenario in zip(played.benchmarks, played.scenarios, strict=True)}
    check_something_to_learn(validated, validation_seeds(chosen.num_validation_seeds))
    torch.set_num_threads(chosen.num_threads)
    model, key, restored = _model(chosen, played), _key(chosen, played), None
    if resume and run.checkpoint.exists():
        restored = checkpoint.restore(checkpoint.load(run.checkpoint), run.checkpoint, model, key)
    if not resume:
        RunFolder.create(folder, chosen, command, overwrite=overwrite)
    is_before_ppo = restored is None or restored.pretraining is not None
    first_step = None if not resume else 0 if is_before_ppo else model.num_timesteps + 1
    board = TensorBoardWriter(run.tensorboard if "tensorboard" in chosen.log else None, first_step)
    model.set_logger(Logger(None, [board]))
    between = TrainingCallbacks(chosen, run, played, key, board, progress, reporter)
    between.init_callback(model)
    try:
        if restored is not None:
            between.restore(restored)
        begun_at = between.steps if restored is not None else 0
        with in_fixed_order(model.device), reporter.running(between.validation.curve, begun_at, is_resumed=resume):
            if chosen.pretraining is not None and is_before_ppo:
                rewards, begun = played.benchmarks[0].reward, restored and restored.pretraining
                pretrain(model, chosen, rewards, run, between, begun, is_resumed=resume)
            _learn_by_ppo(model, chosen, between)
            between.finish()
    finally:
        board.close()
    return run


def _key(chosen: TrainSettings, played: PlayedBenchmarks) -> str:
    """A hash of all that a run's numbers depend on."""
    scenarios = [[one.digest, one.settings.observed()] for one in played.scenarios]
    rewards = [benchmark.reward.model_dump() for benchmark in played.benchmarks]
    return files.digest(chosen.model_dump(exclude=set(WITHOUT_EFFECT)), rewards, scenarios)


def _learn_by_ppo(model: MaskablePPO, chosen: TrainSettings, callbacks: TrainingCallbacks) -> None:
    """Learn from where the model is."""
    if model.num_timesteps >= chosen.total_steps:
        return
    wrapper_of(model, AfterstateFeatures).set_value_network(network_of(model))
    # The mask travels in the observation, so PPO need not fetch and keep it again.
    model.learn(chosen.total_steps - model.num_timesteps, callback=callbacks, reset_num_timesteps=False, use_masking=False)


def _model(chosen: TrainSettings, played: PlayedBenchmarks) -> MaskablePPO:
    return make_ppo(
        CandidatePolicy,
        played.env(chosen),
        chosen.ppo,
        {"network": chosen.network, "static": static_features(played.scenarios[0])},
        total_steps=chosen.total_steps,
        seed=chosen.seed,
        device=pick_device(chosen.device),
    )
