"""`train_elastic`: weights of elastic shares by trying them, from a config to a run folder.

In the run folder (see `training.run_folder`) ``checkpoint.json`` is the newest generation, ``policy.json`` the best mean on the
validation workloads so far (see `planners.elastic.saved_shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from ... import files
from ...envs.elastic.benchmark import TRACE, ElasticBenchmark, load_elastic_benchmark, reference_path
from ...jobs.readers.elastic import ElasticWorkload
from ...jobs.seeds import FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED
from ...planners.elastic.saved_shares import SHARE_RULES
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.workload_draws import WorkloadDraws
from ..hooks.callback import TrainingCallback
from ..hooks.names import WITHOUT_EFFECT
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..linear.tune import restore, write_checkpoint
from ..run_folder import AnyRunFolder
from .search import ElasticSearch
from .settings import ElasticTrainSettings

REPORTED = ReportedMeasure("elastic", "mean_completion_s", "validation_mean_completion_s", "generation", "generations")


class ElasticRun(AnyRunFolder[ElasticTrainSettings]):
    """The run folder of a search for weights of elastic shares."""

    kind = ElasticTrainSettings
    ending = ".json"


def train_elastic(
    chosen: ElasticTrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[ElasticSearch], None] | None = None,
    callbacks: Sequence[TrainingCallback] = (),
) -> ElasticRun:
    """Search for weights and leave a run folder.

    Args:
        chosen, folder, resume, overwrite, command, callbacks: as of `training.methods.train`.
        progress: called after every generation.

    Raises:
        MeshwrightError: the config, benchmark, data, trace or checkpoint is wrong; the folder exists already. Nothing is written
            then.
    """
    run = ElasticRun.of(folder, chosen, resume=resume, overwrite=overwrite)
    reporter = RunReporter(chosen, folder, REPORTED, chosen.generations, callbacks)
    benchmark = load_elastic_benchmark(chosen.benchmark, changes=chosen.changes)
    search = _search(chosen, benchmark)
    kept = chosen.model_dump(mode="json", exclude={"benchmark", "changes", "trace", *WITHOUT_EFFECT})
    key = files.digest(kept, benchmark.elastic.cluster.model_dump(mode="json"), SHARE_RULES[chosen.rule].names)
    if resume and run.checkpoint.exists():
        restore(search, run.checkpoint, key)
    if not resume:
        ElasticRun.create(folder, chosen, command, overwrite=overwrite)

    def after() -> None:
        files.write_json(run.learning_curve, search.curve)
        search.saved({"config": chosen.name}).save(run.policy)
        write_checkpoint(search, run.checkpoint, key)
        if progress is not None:
            progress(search)
        reporter.searched(search.curve, search.generation)

    with reporter.running(search.curve, search.generation, is_resumed=resume):
        search.run(after)
    return run


def _search(chosen: ElasticTrainSettings, benchmark: ElasticBenchmark) -> ElasticSearch:
    simulation = benchmark.simulation()
    # Training workloads of another seed are others; the validation workloads are always the same.
    first = FIRST_TRAINING_SEED + chosen.seed * len(chosen.num_jobs)
    training = _drawn(chosen, simulation, chosen.num_jobs, first)
    return ElasticSearch(chosen, simulation, training, validation_workloads(chosen, simulation))


def validation_workloads(chosen: ElasticTrainSettings, simulation: ElasticSimulation) -> list[list[ElasticWorkload]]:
    """Return the workloads on which means are compared; those of equal size are played side by side."""
    return _drawn(chosen, simulation, chosen.validation_num_jobs, FIRST_VALIDATION_SEED)


def _drawn(
    chosen: ElasticTrainSettings, simulation: ElasticSimulation, sizes: Sequence[int], first: int
) -> list[list[ElasticWorkload]]:
    trace = chosen.trace or reference_path(TRACE, "trace")
    draws = WorkloadDraws(trace, simulation.applications, simulation.apps, simulation.cluster.devices_per_node)
    numbered = groupby(enumerate(sizes), key=lambda each: each[1])
    return [[draws.draw(first + number, size) for number, size in each] for _, each in numbered]
