"""From a study to its tasks, all read and checked before anything runs, and from a name to the tasks that it stands for."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.envs.benchmark import load_benchmark, load_variants
from meshwright.errors import ConfigError

from .contents import COLUMN
from .runs import Benchmarks, Places
from .study import EvaluationSettings, Run, Study
from .tasks import EvaluationTask, Load, Task, TrainingTask, specs_of


def tasks(study: Study, places: Places, load: Load) -> list[Task]:
    """Everything that a study does, trainings first.

    Args:
        study: what is wanted.
        places: of profiles and trace.
        load: reads training configs.

    Raises:
        MeshwrightError: a config, benchmark or change is wrong.
    """
    benchmarks = Benchmarks(places)
    trainings = {run.name: _training(run, places, load, benchmarks) for run in study.runs}
    evaluations = [task for entry in study.evaluations for task in _evaluations(study, entry, places, benchmarks)]
    for task in evaluations:
        for run in task.pretrained:
            if not trainings[run].pretrains:
                problem = "is not pretrained, so there is no network before PPO"
                raise ConfigError(problem, field=f"evaluations.{task.entry.name}.pretrained", value=run)
        for run in task.planned:
            if not trainings[run].is_linear:
                problem = "is no linear scorer, so no rollout planner can play on with it"
                raise ConfigError(problem, field=f"evaluations.{task.entry.name}.planned", value=run)
    return [*trainings.values(), *evaluations]


def selected(every: Sequence[Task], study: Study, only: Sequence[str]) -> list[Task]:
    """The tasks that some names stand for, with all that they need.

    Args:
        every: tasks of the study.
        study: it.
        only: names of tasks, trainings, evaluations or tables; empty: all tasks.

    Raises:
        ConfigError: a name stands for nothing; the nearest one that does is named.
    """
    known: dict[str, set[str]] = {}
    for task in every:
        for name in (task.name, *task.groups):
            known.setdefault(name, set()).add(task.name)
    trainings = {task.name for task in every if isinstance(task, TrainingTask)}
    for name, table in study.tables.items():
        named = [
            one.replace(COLUMN, column) for column in table.columns or ("",) for one in (*table.evaluations, *table.trainings)
        ]
        known[name] = {task for one in named for task in known[one]} or trainings
    wanted: set[str] = set() if only else {task.name for task in every}
    for name in only:
        if name not in known:
            raise ConfigError("nothing in the study has this name", field="--only", value=name, choices=known)
        wanted |= known[name]
    wanted |= {need for task in every if task.name in wanted for need in task.needs}
    return [task for task in every if task.name in wanted]


def _training(run: Run, places: Places, load: Load, benchmarks: Benchmarks) -> TrainingTask:
    chosen = load(run.config, run.changes)
    changes = tuple(getattr(chosen, "changes", ()))
    traced = [spec for spec in specs_of(chosen) if benchmarks.follows_trace(load_benchmark(spec, changes=changes))]
    pretraining = getattr(chosen, "pretraining", None)
    total, key = getattr(chosen, "generations", None), "generation"
    if hasattr(chosen, "total_steps"):
        total, key = chosen.total_steps + (0 if pretraining is None else pretraining.steps), "steps"
    return TrainingTask(run, changes if traced else None, pretraining is not None, total, key, load, benchmarks)


def _evaluations(study: Study, entry: EvaluationSettings, places: Places, benchmarks: Benchmarks) -> list[EvaluationTask]:
    found = load_variants(entry.benchmark, changes=entry.changes)
    trained, pretrained, planned = (
        tuple(run.name for name in names for run in study.runs_of(name))
        for names in (entry.trained, entry.pretrained, entry.planned)
    )
    num_seeds = None if study.quick is None else study.quick.num_seeds
    made = []
    for benchmark in found:
        variant = benchmark.name.partition("/")[2] if len(found) > 1 else ""
        traced = benchmarks.follows_trace(benchmark)
        if traced and places.trace is not None:
            spec = f"{entry.benchmark}/{variant}" if variant else entry.benchmark
            benchmark = load_benchmark(spec, changes=entry.changes, trace=places.trace)
        made.append(EvaluationTask(entry, variant, benchmark, traced, num_seeds, trained, pretrained, planned, benchmarks))
    return made
