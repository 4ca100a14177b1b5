"""The loop of a run that imitates a search and goes on by PPO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..hooks.reporter import RunReporter
from ..run_folder import AnyRunFolder
from .settings import PlacingTrainSettings
from .trainer import PlacingTrainer


@dataclass(frozen=True)
class PlacingProgress:
    """What a progress display may show.

    Attributes:
        update: steps of the imitation and updates of PPO done so far.
        value: of greedy placements over what they are held against, mean of the latest validation.
        best: the best so far.
    """

    update: int
    value: float
    best: float


Folder = TypeVar("Folder", bound=AnyRunFolder[Any])


def run_placing(
    trainer: PlacingTrainer[Any],
    run: Folder,
    chosen: PlacingTrainSettings,
    key: str,
    reporter: RunReporter,
    progress: Callable[[PlacingProgress], None],
    *,
    resume: bool,
) -> Folder:
    """Learn to the end, with validations and checkpoints.

    Args:
        trainer: from its start, or restored.
        run: the folder, created.
        chosen: the config.
        key: of checkpoints.
        reporter: of the run.
        progress: called after each update.
        resume: whether the run goes on.
    """
    with reporter.running(trainer.curve, trainer.update, is_resumed=resume):
        while True:
            if trainer.is_validation_due:
                trainer.look(run)
                trainer.save(run.checkpoint, key)
                reporter.validated(trainer.curve[-1], trainer.stage)
            progress(PlacingProgress(trainer.update, trainer.curve[-1]["validation"], trainer.best))
            reporter.updated(trainer.stage, trainer.update, trainer.told)
            if reporter.is_stopping:
                trainer.save(run.checkpoint, key)
                reporter.stop_if_asked()
            if trainer.update >= chosen.total_updates:
                break
            trainer.search(run.path)
            trainer.learn()
    return run
