"""Training by the method that a config names: one function that reads a config, and one that trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import settings
from ..simulation.cluster.scenario import Scenario
from .elastic.settings import ElasticTrainSettings
from .fleet.settings import FleetTrainSettings
from .graph.settings import GraphTrainSettings
from .hooks.callback import TrainingCallback
from .linear.settings import LinearSettings
from .operators.settings import OperatorTrainSettings
from .run_folder import AnyRunFolder
from .settings import TrainSettings, load_with_paths

SeedSettings = (
    TrainSettings | LinearSettings | FleetTrainSettings | ElasticTrainSettings | OperatorTrainSettings | GraphTrainSettings
)
"""Configs of all methods."""


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        settings: its config.
        trainer: module below this package and function; loaded when it trains.
        is_of_scenario: whether it takes ``graphs_dir`` and ``scenario``.
    """

    settings: type[SeedSettings]
    trainer: tuple[str, str]
    is_of_scenario: bool = False


METHODS: dict[str | None, Method] = {
    None: Method(TrainSettings, (".train", "train"), is_of_scenario=True),
    "linear": Method(LinearSettings, (".linear.tune", "tune"), is_of_scenario=True),
    "fleet": Method(FleetTrainSettings, (".fleet.train", "train_fleet")),
    "elastic": Method(ElasticTrainSettings, (".elastic.train", "train_elastic")),
    "operators": Method(OperatorTrainSettings, (".operators.train", "train_operators")),
    "graph": Method(GraphTrainSettings, (".graph.train", "train_graph")),
}
"""By the key ``method`` of a config; None is PPO on `JobPartitioning-v0`."""


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
    return load_with_paths(METHODS.get(method, METHODS[None]).settings, path, changes)


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
    path, report = Path(folder), progress or (lambda now: None)
    method = METHODS[getattr(config, "method", None)]
    options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "command": command, "progress": report}
    options["callbacks"] = callbacks
    if method.is_of_scenario:
        options |= {"graphs_dir": graphs_dir, "scenario": scenario}
    module, name = method.trainer
    made: AnyRunFolder[Any] = getattr(import_module(module, __package__), name)(config, path, **options)
    return made
