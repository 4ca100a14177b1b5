"""`train_graph`: imitation of a search and PPO on any world, from a config to a run folder.

PPO is sb3-contrib's MaskablePPO with groups of episodes that meet the same instances (`grouped_buffer`). On a CPU the same seed
gives the same numbers, also when the run was stopped and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ... import files
from ...worlds.registry import load_world
from ..hooks.callback import TrainingCallback
from ..hooks.names import WITHOUT_EFFECT
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..run_folder import AnyRunFolder
from .settings import GraphTrainSettings
from .trainer import GraphTrainer


class GraphRunFolder(AnyRunFolder[GraphTrainSettings]):
    """The run folder of a graph policy."""

    kind = GraphTrainSettings
    ending = ".pt"

    @property
    def solutions(self) -> Path:
        """The file of solutions of the search that is imitated."""
        return self.path / "placements.pt"


def train_graph(
    chosen: GraphTrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[GraphTrainer], None] = lambda now: None,
    callbacks: Sequence[TrainingCallback] = (),
) -> GraphRunFolder:
    """Train a policy and leave a run folder.

    Args:
        chosen, folder, resume, overwrite, command, callbacks: as of `training.methods.train`.
        progress: called after each update.

    Raises:
        NothingToLearnError: random play and the reference come to the same on all validation instances.
        MeshwrightError: the config is wrong, or the folder exists already. Nothing is written then.
    """
    run = GraphRunFolder.of(folder, chosen, resume=resume, overwrite=overwrite)
    torch.set_num_threads(chosen.num_threads)
    world = load_world(chosen.benchmark, chosen.changes)
    reported = ReportedMeasure("graph", f"over_{world.reference_name}", "validation", "update", "updates")
    reporter = RunReporter(chosen, folder, reported, chosen.total_updates, callbacks)
    key = files.digest(chosen.model_dump(exclude=set(WITHOUT_EFFECT)), world.benchmark.model_dump())
    restored = GraphTrainer.checkpoint(run.checkpoint, key) if resume and run.checkpoint.exists() else None
    trainer = GraphTrainer(chosen, world, is_resumed=restored is not None)
    if not resume:
        GraphRunFolder.create(folder, chosen, command, overwrite=overwrite)
    if restored is not None:
        trainer.restore(restored)

    def found(done: int, total: int) -> None:
        reporter.staged("search", done / total, trainer.elapsed_s)
        reporter.stop_if_asked()

    with reporter.running(trainer.curve, trainer.update, is_resumed=resume):
        while True:
            if trainer.is_validation_due:
                trainer.validate(run)
                trainer.save(run.checkpoint, key)
                reporter.validated(trainer.curve[-1], trainer.stage)
            progress(trainer)
            reporter.updated(trainer.stage, trainer.update, trainer.figures)
            if reporter.is_stopping:
                trainer.save(run.checkpoint, key)
                reporter.stop_if_asked()
            if trainer.update >= chosen.total_updates:
                break
            trainer.search(run.solutions, found)
            trainer.learn()
    return run
