"""Training seeds as tasks: a run folder each, which any worker can resume, to the same numbers.

All run folders are begun before the first task (`begin`). From then on a task (`train_seed`) continues from the last checkpoint
of its folder, or from the start where there is none. So a task may run in this process, in another one or on another machine
that shares the folders. A lost task is repeated; a run that has ended stays as it is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..errors import ConfigError
from .hooks.callback import TrainingCallback
from .methods import SeedSettings, method_of, train
from .run_folder import RunFolder

MOST_SEEDS = 1000


@dataclass(frozen=True)
class SeedRun:
    """A task: one run of several that differ in their seed. It can be pickled.

    Attributes:
        settings: the config, with its seed.
        folder: the run folder, absolute.
        graphs_dir: profiles by folder name, absolute (see `jobs.load_graph`).
        work_dir: folder against which paths in the config count.
    """

    settings: SeedSettings
    folder: Path
    graphs_dir: Path | None
    work_dir: Path


def seeds_of(text: str) -> tuple[int, ...]:
    """Return the seeds as ``0,1,2`` spells them.

    Raises:
        ConfigError: no numbers, one twice, or too many.
    """
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and len(word) <= 7 for word in words):
        raise ConfigError("are whole numbers with commas between them, as 0,1,2", field="--seeds", value=text)
    result = tuple(map(int, words))
    if len(set(result)) < len(result) or len(result) > MOST_SEEDS:
        problem = "names a seed twice" if len(set(result)) < len(result) else f"names more than {MOST_SEEDS}"
        raise ConfigError(problem, field="--seeds", value=text)
    return result


def seed_folder(prefix: Path, seed: int) -> Path:
    """Return the run folder of a seed: ``PREFIX-seed-N``."""
    return prefix.with_name(f"{prefix.name}-seed-{seed}")


def begin(runs: Sequence[SeedRun], command: Sequence[str], *, overwrite: bool = False) -> None:
    """Make the run folders of new runs; nothing is made unless all of them may be.

    Args:
        runs: of the tasks.
        command: the command line, for the record.
        overwrite: replace run folders that are there.

    Raises:
        CheckpointError: something is there already, unless it is a run folder and ``overwrite`` is set.
    """
    folders = [RunFolder(run.folder, method_of(run.settings).ending) for run in runs]
    for folder in folders:
        folder.check_new(overwrite=overwrite)
    for run, folder in zip(runs, folders, strict=True):
        folder.create(run.settings, command, overwrite=overwrite)


def train_seed(run: SeedRun, callbacks: Sequence[TrainingCallback] = ()) -> list[dict[str, Any]]:
    """Train to the end, from where the run folder is.

    Two tasks in one folder would mix their files, so one waits for the other. The other may be a process that has not ended yet,
    on a machine that was given up.

    Args:
        run: whose folder is begun.
        callbacks: of the training.

    Returns:
        Rows of the learning curve.

    Raises:
        CheckpointError: the folder is of another config.
        MeshwrightError: as the method says.
    """
    with _alone(run.folder), chdir(run.work_dir):
        trained = train(run.settings, run.folder, resume=True, graphs_dir=run.graphs_dir, callbacks=callbacks)
        rows: list[dict[str, Any]] = files.read_json(trained.learning_curve)
        return rows


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder; it ends with its holder, however that ends."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
