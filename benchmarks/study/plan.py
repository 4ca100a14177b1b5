"""From a study to its tasks, all read and checked before anything runs, and from a name to the tasks that it stands for."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.errors import ConfigError, MeshwrightError

from .places import Places
from .study import EvaluationSettings, Run, Study
from .tasks import EvaluationTask, Load, Task, TrainingTask, specs_of
from .worlds.every import Worlds


def tasks(study: Study, places: Places, load: Load) -> list[Task]:
    """Everything that a study does, trainings first.

    Args:
        study: what is wanted.
        places: of profiles and trace.
        load: reads training configs.

    Raises:
        MeshwrightError: a config, benchmark or change is wrong.
    """
    worlds = Worlds(places)
    trainings = {run.name: _training(run, load, worlds) for run in study.runs}
    evaluations = [task for entry in study.evaluations for task in _evaluations(study, entry, places, worlds)]
    for task in evaluations:
        for run in task.needs:
            if trainings[run].world is not task.world:
                problem = f"was trained on a {trainings[run].world.key}, and this is a benchmark of a {task.world.key}"
                raise ConfigError(problem, field=f"evaluations.{task.entry.name}", value=run)
        for run in task.pretrained:
            if not trainings[run].pretrains:
                problem = "is not pretrained, so there is no network before PPO"
                raise ConfigError(problem, field=f"evaluations.{task.entry.name}.pretrained", value=run)
        for run in task.planned:
            if not trainings[run].is_linear:
                problem = "is no linear scorer, so no rollout planner can play on with it"
                raise ConfigError(problem, field=f"evaluations.{task.entry.name}.planned", value=run)
    every: list[Task] = [*trainings.values(), *evaluations]
    for name, table in study.tables.items():
        for one in every:
            if table.world not in (None, one.world.key) and table.named & {one.name, *one.groups}:
                problem = f"is of a {one.world.key}; such a table shows a {table.world}"
                raise ConfigError(problem, field=f"tables.{name}", value=one.name)
    return every


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
        known[name] = {task for one in table.named for task in known[one]} or trainings
    wanted: set[str] = set() if only else {task.name for task in every}
    for name in only:
        if name not in known:
            raise ConfigError("nothing in the study has this name", field="--only", value=name, choices=known)
        wanted |= known[name]
    wanted |= {need for task in every if task.name in wanted for need in task.needs}
    return [task for task in every if task.name in wanted]


def _training(run: Run, load: Load, worlds: Worlds) -> TrainingTask:
    chosen = load(run.config, run.changes)
    changes = tuple(getattr(chosen, "changes", ()))
    world = worlds.of(specs_of(chosen)[0])
    played = [world.load(spec, changes) for spec in specs_of(chosen)]
    trace_changes = changes if any(map(world.follows_trace, played)) else None
    first_stage = getattr(chosen, world.first_stage, None)
    total, key = getattr(chosen, "generations", None), "generation"
    if hasattr(chosen, "total_updates"):
        total, key = chosen.total_updates, "update"
    if hasattr(chosen, "total_steps"):
        total, key = chosen.total_steps + getattr(first_stage, "steps", 0), "steps"
    return TrainingTask(run, world, world.measure(played[0]), trace_changes, first_stage is not None, total, key, load)


def _evaluations(study: Study, entry: EvaluationSettings, places: Places, worlds: Worlds) -> list[EvaluationTask]:
    world = worlds.of(entry.benchmark)
    for how in entry.asked:
        try:
            world.asked(entry.name, how)
        except MeshwrightError as error:
            field = f"evaluations.{entry.name}.asked"
            raise ConfigError(error.problem, field=field, value=how, choices=error.choices) from None
    found = world.variants(entry.benchmark, entry.changes)
    trained, pretrained, planned = (
        tuple(run.name for name in names for run in study.runs_of(name))
        for names in (entry.trained, entry.pretrained, entry.planned)
    )
    num_seeds = None if study.quick is None else study.quick.num_seeds
    made = []
    for benchmark in found:
        variant = benchmark.name.partition("/")[2] if len(found) > 1 else ""
        traced = world.follows_trace(benchmark)
        if traced and places.trace is not None:
            spec = f"{entry.benchmark}/{variant}" if variant else entry.benchmark
            benchmark = world.load(spec, entry.changes, places.trace)
        made.append(EvaluationTask(entry, world, variant, benchmark, traced, num_seeds, trained, pretrained, planned))
    return made
