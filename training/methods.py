"""Training by the method that a config names: one function that reads a config, and one that trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import settings
from ..simulation.cluster.scenario import Scenario
from .elastic.settings import ElasticTrainSettings
from .fleet.settings import FleetTrainSettings
from .hooks.callback import TrainingCallback
from .linear.settings import LinearSettings
from .operators.settings import OperatorTrainSettings
from .run_folder import AnyRunFolder
from .settings import TrainSettings, load_with_paths
from .tasklets.settings import TaskletTrainSettings

SeedSettings = (
    TrainSettings | LinearSettings | FleetTrainSettings | ElasticTrainSettings | OperatorTrainSettings | TaskletTrainSettings
)
"""Configs of all methods."""

_KINDS: dict[Any, type[SeedSettings]] = {
    "linear": LinearSettings,
    "fleet": FleetTrainSettings,
    "elastic": ElasticTrainSettings,
    "operators": OperatorTrainSettings,
    "tasklets": TaskletTrainSettings,
}


def load_config(path: str | Path, changes: Sequence[str] = ()) -> SeedSettings:
    """Read a training config of any method, by its key ``method``; without one it is PPO's.

    Args:
        path: the YAML file.
        changes: ``key=value`` texts, applied in order.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, a key twice, an unknown key or method, or an impossible value.
    """
    data, _ = settings.read_yaml(path)
    for change in changes:
        data = settings.override(data, change)
    method = data.get("method") if isinstance(data, dict) else None
    return load_with_paths(_KINDS.get(method, TrainSettings), path, changes)


def is_less_better(chosen: SeedSettings) -> bool:
    """Whether less of what a config's validation measures is better."""
    if not isinstance(chosen, FleetTrainSettings):
        return True
    from ..envs.fleet.benchmark import load_fleet_benchmark
    from ..envs.fleet.objective import is_better

    return is_better(load_fleet_benchmark(chosen.benchmark, changes=chosen.changes).fleet, 0.0, 1.0)


def train(
    chosen: SeedSettings | str | Path,
    folder: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    graphs_dir: Path | None = None,
    scenario: Scenario | None = None,
    progress: Callable[[Any], None] | None = None,
    callbacks: Sequence[TrainingCallback] = (),
) -> AnyRunFolder[Any]:
    """Train a policy by the method of a config and leave a run folder.

    Args:
        chosen: the config, or the path of its YAML.
        folder: the run folder; new unless ``resume`` or ``overwrite``.
        resume: go on from the folder's checkpoint (from the start where it has none yet), to the same numbers that an
            uninterrupted run reaches.
        overwrite: replace an existing run folder.
        command: the command line, for the record.
        graphs_dir: profiles by folder name (see `jobs.load_graph`); for PPO and linear scorers.
        scenario: of the benchmark, already built, to save its set-up; for PPO and linear scorers.
        progress: called after every update with the method's own progress.
        callbacks: called at the start, after every update and validation, and at the end (see `training.hooks.callback`);
            they may stop the run.

    Returns:
        The run folder.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        MeshwrightError: the config, benchmark or checkpoint is wrong; the folder exists already. Nothing is written then.
    """
    config = load_config(chosen) if isinstance(chosen, str | Path) else chosen
    path, told = Path(folder), progress or (lambda now: None)
    if isinstance(config, TrainSettings | LinearSettings):
        options: dict[str, Any] = {"graphs_dir": graphs_dir, "scenario": scenario, "progress": told, "callbacks": callbacks}
        options |= {"resume": resume, "overwrite": overwrite, "command": command}
        if isinstance(config, LinearSettings):
            from .linear.tune import tune

            return tune(config, path, **options)
        from .train import train as train_network

        return train_network(config, path, **options)
    if isinstance(config, FleetTrainSettings):
        from ..envs.fleet.benchmark import load_fleet_benchmark
        from .fleet.train import train_fleet

        fleet = load_fleet_benchmark(config.benchmark, changes=config.changes).build()
        return train_fleet(
            config, path, fleet, resume=resume, overwrite=overwrite, command=command, progress=told, callbacks=callbacks
        )
    if isinstance(config, OperatorTrainSettings):
        from .operators.train import train_operators

        return train_operators(
            config, path, resume=resume, overwrite=overwrite, command=command, progress=told, callbacks=callbacks
        )
    if isinstance(config, TaskletTrainSettings):
        from .tasklets.train import train_tasklets

        return train_tasklets(
            config, path, resume=resume, overwrite=overwrite, command=command, progress=told, callbacks=callbacks
        )
    from .elastic.train import train_elastic

    return train_elastic(config, path, resume=resume, overwrite=overwrite, command=command, progress=told, callbacks=callbacks)
