"""`tune`: a linear scorer by trying weights, from a config to a run folder.

The same seed gives the same numbers, bit for bit, also across an interruption (see `training.linear.search`).
In the run folder (see `training.run_folder`) ``checkpoint.json`` is the newest generation, ``policy.json`` the best mean on the
validation episodes so far (see `planners.linear`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ... import files
from ...envs.benchmark import load_benchmark
from ...envs.ground import KEY, Ground
from ...errors import CheckpointError, InputFileError
from ...jobs.seeds import validation_seeds
from ...planners.episode_player import LinearTrial
from ...planners.linear import DIGEST
from ...simulation.cluster.scenario import Scenario
from ..hooks.callback import TrainingCallback
from ..hooks.names import WITHOUT_EFFECT
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..run_folder import AnyRunFolder
from ..ties import check_something_to_learn
from .search import LinearSearch
from .settings import LinearSettings

FORMAT_VERSION = 2
REPORTED = ReportedMeasure("linear", "blocking_rate", "validation_blocking_rate", "generation", "generations")
WITHOUT_DIGEST = 1
"""The version before, which is read too."""


class LinearRun(AnyRunFolder[LinearSettings]):
    """The run folder of a linear scorer, without network or TensorBoard; ``policy`` is the best mean so far."""

    kind = LinearSettings
    ending = ".json"


def tune(
    chosen: LinearSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    graphs_dir: Path | None = None,
    scenario: Scenario | None = None,
    progress: Callable[[LinearSearch], None] | None = None,
    callbacks: Sequence[TrainingCallback] = (),
) -> LinearRun:
    """Tune a linear scorer and leave a run folder.

    Args:
        chosen, folder, resume, overwrite, command, graphs_dir, scenario, callbacks: as of `training.methods.train`.
        progress: called after every generation.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        MeshwrightError: the config, benchmark or checkpoint is wrong; the folder exists already. Nothing is written then.
    """
    run = LinearRun.of(folder, chosen, resume=resume, overwrite=overwrite)
    reporter = RunReporter(chosen, folder, REPORTED, chosen.generations, callbacks)
    benchmark = load_benchmark(chosen.benchmark, changes=chosen.changes)
    scenario = scenario or benchmark.build(graphs_dir=graphs_dir)
    trial = LinearTrial.only(scenario, chosen.placement_rules)
    check_something_to_learn({benchmark.name: trial.scenario}, validation_seeds(chosen.num_validation_seeds))
    search, key = LinearSearch(chosen, trial, chosen.seed), _key(chosen, trial.scenario)
    if resume and run.checkpoint.exists():
        restore(search, run.checkpoint, key)
    if not resume:
        LinearRun.create(folder, chosen, command, overwrite=overwrite)

    grounds = [Ground.of(benchmark.name, scenario).model_dump(mode="json")]

    def after() -> None:
        _save(search, chosen, run, key, grounds)
        if progress is not None and search.generation:
            progress(search)
        reporter.searched(search.curve, search.generation)

    with reporter.running(search.curve, search.generation, is_resumed=resume):
        search.run(after)
    return run


def _key(chosen: LinearSettings, scenario: Scenario) -> str:
    kept = chosen.model_dump(mode="json", exclude={"benchmark", "changes", *WITHOUT_EFFECT})
    return files.digest(kept, scenario.digest, DIGEST)


def _save(search: LinearSearch, chosen: LinearSettings, run: LinearRun, key: str, grounds: list[dict[str, Any]]) -> None:
    """Write learning curve, policy and, last, the checkpoint."""
    files.write_json(run.learning_curve, search.curve)
    search.weights({"config": chosen.name, "benchmark": chosen.benchmark, KEY: grounds}).save(run.policy)
    write_checkpoint(search, run.checkpoint, key)


class Search(Protocol):
    """What is between two generations of a search by trial."""

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` continues from."""

    def restore(self, data: dict[str, Any]) -> None:
        """Continue from a state; any error of arithmetic, look-up, type or value says that it is none of this search."""


def write_checkpoint(search: Search, path: Path, key: str) -> None:
    """Write the state of a search, with the digest of all that it depends on."""
    data = {"format_version": FORMAT_VERSION, "key": key, **search.state()}
    files.write_json(path, {**data, "digest": files.digest(data)})


def restore(search: Search, path: Path, key: str) -> None:
    """Continue from a checkpoint that `write_checkpoint` wrote.

    Raises:
        CheckpointError: truncated, not as it was written, of another version, or of another config or scenario.
    """
    try:
        data = files.read_json(path)
    except InputFileError as error:
        raise CheckpointError(error.problem, file=path, line=error.line) from None
    version = data.get("format_version") if isinstance(data, dict) else None
    if version not in (FORMAT_VERSION, WITHOUT_DIGEST):
        raise CheckpointError(f"is no checkpoint of version {FORMAT_VERSION}", file=path)
    if version == FORMAT_VERSION and data.pop("digest", None) != files.digest(data):
        raise CheckpointError("is damaged: it is not as it was written", file=path)
    if data.get("key") != key:
        raise CheckpointError("belongs to another config, workload or cluster than this run's", file=path)
    try:
        search.restore(data)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        raise CheckpointError("is damaged: it does not fit this run", file=path) from None
