"""What the tasks of a study have left: results joined by benchmark, means over training runs, learning curves.

Only files are read; nothing is played again. What is not there yet, or was made with other settings than those of today,
is told by name, so that a table can say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.errors import InputFileError
from meshwright.evaluation.statistics import Interval, interval, paired
from meshwright.planning.policies import ROLLOUT, is_rollout

from .contents import COLUMN, TableSettings
from .measures import BLOCKING, Measure, measure_of
from .places import Places
from .runner import record, standing
from .study import Run, Study
from .tasks import CURVE, EvaluationTask, Task, TrainingTask, before_ppo

Data = Mapping[str, Any]


@dataclass(frozen=True)
class PolicyResult:
    """One policy, or the mean of several training runs, on one benchmark.

    Attributes:
        label: what to call it.
        values: of each test episode.
        measure: what they are.
    """

    label: str
    values: tuple[float, ...]
    measure: Measure = BLOCKING

    @property
    def interval(self) -> Interval:
        """Mean over the episodes with its interval."""
        found = interval(self.values)
        assert found is not None
        return found

    def against(self, other: PolicyResult) -> Interval:
        """Paired difference."""
        return paired(self.values, other.values)

    def shown(self) -> str:
        """Its figure as tables write it."""
        return self.measure.value(self.interval)

    def shown_against(self, other: PolicyResult) -> str:
        """A paired difference as tables write it."""
        return self.measure.difference(self.against(other), other.interval["mean"])


@dataclass(frozen=True)
class BenchmarkResults:
    """The results of one benchmark, of several evaluations.

    Attributes:
        scenario: as results tell it.
        rows: by policy; of one that was evaluated twice, the first.
        chosen: by tuned baseline, what was chosen for it.
        latency_s: by policy, ``p50`` and ``p99``.
        measure: what the benchmark is about.
    """

    scenario: Data
    rows: Mapping[str, Data]
    chosen: Mapping[str, str]
    latency_s: Mapping[str, Data]
    measure: Measure = BLOCKING

    def entry(self, policy: str, label: str | None = None) -> PolicyResult | None:
        """A policy's; None where it was not evaluated, or has no figure in one of the episodes."""
        row = self.rows.get(policy)
        values = None if row is None else row["per_seed"][self.measure.metric]
        return None if values is None or None in values else PolicyResult(label or policy, tuple(values), self.measure)

    def mean(self, policies: Sequence[str], label: str) -> PolicyResult | None:
        """The mean of several policies, episode by episode; None unless all of them were evaluated."""
        found = [self.entry(policy) for policy in policies]
        if not found or None in found:
            return None
        values = np.mean([one.values for one in found if one is not None], axis=0)
        return PolicyResult(label, tuple(map(float, values)), self.measure)


@dataclass(frozen=True)
class StudyResults:
    """What there is.

    Attributes:
        study: what was wanted.
        places: where it lies.
        tasks: of the study, by name.
        results: of each evaluation task that was done, by its name.
        stale: tasks that were done with other settings than those of today.
    """

    study: Study
    places: Places
    tasks: Mapping[str, Task]
    results: Mapping[str, Data]
    stale: frozenset[str]

    def played(self, table: TableSettings, column: str = "") -> dict[str, BenchmarkResults]:
        """What is known of the evaluations of a table's column, by variant; a benchmark without variants is ``""``.

        Raises:
            InputFileError: evaluations of one column played different benchmarks or episodes.
        """
        found: dict[str, list[Data]] = {}
        for task in self._evaluations(table, column):
            if task.name in self.results:
                found.setdefault(task.variant, []).append(self.results[task.name])
        return {variant: joined(results) for variant, results in found.items()}

    def has_baselines(self, table: TableSettings, column: str) -> bool:
        """Whether all evaluations of a column are done that may hold its best baseline: not references, not rollout planners."""
        wanted = [task for task in self._evaluations(table, column) if not task.entry.references and not _plans_only(task)]
        return all(task.name in self.results for task in wanted)

    def runs(self, training: str | None, column: str = "") -> list[Run]:
        """The runs of a training."""
        return [] if training is None else self.study.runs_of(training.replace(COLUMN, column))

    def curve(self, run: Run) -> list[Data]:
        """Rows of a run's learning curve; none where there is none."""
        task = self.tasks[run.name]
        path = task.folder(self.places) / CURVE
        return list(task.world.curve(path)) if path.is_file() else []

    def measure(self, run: Run) -> Measure:
        """What a run was trained for."""
        task = self.tasks[run.name]
        assert isinstance(task, TrainingTask)
        return task.measure

    def validated(self, run: Run) -> float:
        """The best that a run reached on validation episodes; it has a learning curve."""
        measure = self.measure(run)
        return min((float(row[measure.validated]) for row in self.curve(run)), key=lambda value: measure.sign * value)

    def asked(self, run: Run, how: str) -> str:
        """What the policy of a run is called in results where it is asked in some way."""
        return self.tasks[run.name].world.asked(run.name, how)

    def before_ppo(self, run: Run) -> str:
        """What the network of a run as it was before PPO is called in results."""
        return before_ppo(self.tasks[run.name].world, run.name)

    def is_done(self, run: Run) -> bool:
        """Whether a run was trained to its end."""
        return record(self.tasks[run.name], self.places).get("state") == "done"

    def tasks_of(self, table: TableSettings) -> list[Task]:
        """Everything that a table shows and what that needs, in the order of the study."""
        named = {task.name for column in table.columns or ("",) for task in self._evaluations(table, column)}
        named |= {need for name in named for need in self.tasks[name].needs}
        for column in table.columns or ("",):
            named |= {run.name for training in table.trainings_of(column) for run in self.runs(training)}
        if not named:
            named = {name for name, task in self.tasks.items() if isinstance(task, TrainingTask)}
        return [task for name, task in self.tasks.items() if name in named]

    def absent(self, tasks: Iterable[Task]) -> list[str]:
        """Tasks that are not done."""
        return [task.name for task in tasks if record(task, self.places).get("state") != "done"]

    def _evaluations(self, table: TableSettings, column: str) -> list[EvaluationTask]:
        names = table.evaluations_of(column)
        by_entry = [task for task in self.tasks.values() if isinstance(task, EvaluationTask) and task.entry.name in names]
        return sorted(by_entry, key=lambda task: names.index(task.entry.name))


def read(study: Study, tasks: Sequence[Task], places: Places) -> StudyResults:
    """Read what is there.

    Raises:
        InputFileError: a file is not what its name says.
    """
    results, stale = {}, set()
    for task in tasks:
        if standing(task, places) == "stale":
            stale.add(task.name)
        path = task.product(places)
        if isinstance(task, EvaluationTask) and path is not None and record(task, places).get("state") == "done":
            results[task.name] = task.world.results(path)
    return StudyResults(study, places, {task.name: task for task in tasks}, results, frozenset(stale))


def planned_over(run: Run) -> str:
    """What the rollout planner over the linear scorer of a run is called in results."""
    return f"{ROLLOUT}({run.name})"


def joined(results: Sequence[Data]) -> BenchmarkResults:
    """Results of several evaluations of one benchmark as one.

    Raises:
        InputFileError: they are of different benchmarks or episodes.
    """
    first = results[0]
    rows: dict[str, Data] = {}
    chosen: dict[str, str] = {}
    latency_s: dict[str, Data] = {}
    for result in results:
        for key in ("benchmark", "objective", "seeds", "instances"):
            if result.get(key) != first.get(key):
                raise InputFileError(f"two evaluations of one column differ in their {key}", field=key, value=result.get(key))
        for row in result["rows"]:
            rows.setdefault(str(row["policy"]), row)
        for name, tuned in result["best_fixed"].items():
            chosen.setdefault(name, tuned["chosen"])
        for name, taken in result.get("timing", {}).get("decision_latency_s", {}).items():
            latency_s.setdefault(name, taken)
    return BenchmarkResults(first["scenario"], rows, chosen, latency_s, measure_of(first))


def _plans_only(task: EvaluationTask) -> bool:
    specs = (*task.entry.policies, *task.benchmark.policies)
    return not (task.trained or task.pretrained) and all(is_rollout(spec) for spec in specs)
