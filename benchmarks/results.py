"""Results of the documentation as tasks of doit over public commands (``make results``).

Tasks are ``train:RUN``, ``evaluate:NAME``, ``table:NAME`` and ``page``; `configs/results.yaml` lists them. Each training and
each evaluation is a process of its own with a folder of its own. A finished task is repeated only if its settings changed, and a
training that was killed resumes from its last checkpoint. Without a doit command everything is made, then the page is written.

python -m benchmarks.results run -n 2 table:published    # one table with all that it needs; `list --all` lists every task
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from doit.cmd_base import ModuleTaskLoader
from doit.doit_cmd import DoitMain
from pydantic import Field

from meshwright import files, settings
from meshwright.cli import guarded
from meshwright.errors import ConfigError
from meshwright.packaged import config_path
from meshwright.training.methods import SeedSettings, load_config
from meshwright.worlds.benchmark_files import SCENARIO, find_benchmark, kind_of

from .results_tables import StudyTable, fill_page

PROGRAM = (sys.executable, "-c", "from meshwright.cli import main; main()")
STUDY, PAGE = Path("configs/results.yaml"), Path("docs/results.md")
MADE = "made.json"
"""The record of a finished task in its folder: its digest and command."""
FIRST_STAGES = ("searched.pt", "imitated.pt")
"""Files of a run folder that hold the network before PPO; where a run has both, the second one does."""
_OF_TRAINING = re.compile(r"(?P<stage>trained|pretrained)\((?P<name>[^()]+)\)")


class StudyEntry(settings.Settings):
    """Common parts of trainings and evaluations.

    Attributes:
        name: of the entry; ``<each>`` in any text is replaced by each label of ``each``, ``<trace>`` by the path of the trace.
        each: labels, or further changes of each label.
        changes: ``key=value`` texts, applied in order.
        quick: further changes of a quick run.
    """

    name: str = Field(pattern=r"^([A-Za-z0-9]|<each>)([A-Za-z0-9_/-]|<each>){0,62}$")
    each: tuple[str, ...] | dict[str, tuple[str, ...]] = ()
    changes: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


class StudyTraining(StudyEntry):
    """Training runs ``NAME-seed-SEED`` of one config: ``preset:NAME`` or a path; ``start=trained(NAME)``: its first seed."""

    config: str
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)


class StudyEvaluation(StudyEntry):
    """An evaluation.

    Attributes:
        benchmark: ``preset:NAME`` or ``preset:FAMILY/VARIANT``.
        policies: compared in addition to those that the benchmark names. ``trained(NAME)`` in a policy is replaced by each run
            of the trainings of this name, in which ``*`` is any text. ``pretrained(NAME)`` is replaced by the network of each
            before PPO.
    """

    benchmark: str
    policies: tuple[str, ...] = ()


class Study(settings.Settings):
    """All of it; tables by the name of their place on the page."""

    training: tuple[StudyTraining, ...]
    evaluations: tuple[StudyEvaluation, ...]
    tables: dict[str, StudyTable]


@dataclass(frozen=True)
class Run:
    """One training run: its folder, entry, all changes, the config with them, and the run that it starts from."""

    folder: Path
    entry: StudyTraining
    changes: tuple[str, ...]
    settings: SeedSettings
    start: Run | None

    @property
    def first(self) -> Path:
        """Return the file of the network before PPO, whose name results carry."""
        return self.folder / f"{'imitated' if hasattr(self.settings, 'imitation') else 'searched'}-{self.folder.name}.pt"


@dataclass
class Tasks:
    """The tasks of a study, as doit reads them: each method ``task_*`` yields mappings.

    Attributes:
        study: what is made.
        out: the folder of the results.
        graphs: the folder of profiles.
        trace: CSV of the Philly trace.
        is_quick: whether everything is made short.

    Raises:
        ConfigError: an evaluation names a training that is not there.
    """

    study: Study
    out: Path
    graphs: Path | None = None
    trace: Path = Path("TRACE")
    is_quick: bool = False

    def __post_init__(self) -> None:
        self.runs: list[Run] = []
        for written in self._written_out(self.study.training):
            self.runs += list(self._runs(written))  # which may start from those before
        self.evaluations = list(self._written_out(self.study.evaluations))
        for entry in self.evaluations:
            for policy in entry.policies:
                if not self.policies(policy):
                    field, choices = f"evaluations.{entry.name}.policies", sorted({run.entry.name for run in self.runs})
                    raise ConfigError("no training has this name", field=field, value=policy, choices=choices)

    def policies(self, policy: str) -> list[str]:
        """Return a policy of the study as commands spell it; of a training, each of its runs."""
        return [spelled for spelled, _ in self._spelled(policy)]

    def task_train(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each training run."""
        for run in self.runs:
            first = [] if run.start is None else [run.start.folder]
            task = _task(
                run.folder.name, run.folder, _plain(run.settings), [one / MADE for one in first], partial(self._train, run)
            )
            yield task | {"task_dep": [f"train:{one.name}" for one in first]}

    def task_evaluate(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each evaluation."""
        for entry in self.evaluations:
            folder = self.out / "evaluations" / entry.name
            spelled = [one for policy in entry.policies for one in self._spelled(policy)]
            command = ["evaluate", *(policy for policy, _ in spelled), "--benchmark", entry.benchmark]
            command += [*(f"--set={change}" for change in entry.changes), *(["--seeds=2"] if self.is_quick else [])]
            command += [*self._graphs_of(entry.benchmark), "--json", str(folder / "results.json")]
            runs = [run for _, run in spelled if run]
            read = [find_benchmark(entry.benchmark.partition("/")[0])[0], *(run.folder / MADE for run in runs)]
            task = _task(entry.name, folder, command, read, partial(_run, command))
            yield task | {"task_dep": [f"train:{run.folder.name}" for run in runs]}

    def task_table(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each table: the page, once all that the table shows is made."""
        for name, table in self.study.tables.items():
            yield {"name": name, **self.task_page(), "task_dep": [f"evaluate:{one}" for one in table.needed()]}

    def task_page(self) -> dict[str, Any]:
        """Write the page of the documentation, filled by what was made; places of a table that lacks a result keep their text."""

        def write() -> None:
            page = self.out / PAGE.name
            absent = fill_page(PAGE, page, self.study.tables, self.out, self.policies, quick=self.is_quick)
            sys.stdout.write(f"written: {page}\n" + (f"not made yet: {', '.join(absent)}\n" if absent else ""))

        return {"actions": [write], "uptodate": [False], "verbosity": 2}

    def _written_out(self, entries: Sequence[Any]) -> Iterator[Any]:
        """Yield a copy of each entry for each of its labels, with all its changes."""
        for entry in entries:
            labels = entry.each if isinstance(entry.each, dict) else dict.fromkeys(entry.each or ("",), ())
            for label, further in labels.items():
                changes = (*entry.changes, *(entry.quick if self.is_quick else ()), *further)
                text = json.dumps(entry.model_dump(mode="json", exclude={"each"}) | {"changes": changes})
                text = text.replace("<each>", label).replace("<trace>", str(self.trace.absolute()))
                yield type(entry).model_validate(json.loads(text))

    def _runs(self, entry: StudyTraining) -> Iterator[Run]:
        for seed in entry.seeds[:1] if self.is_quick else entry.seeds:
            name = f"{entry.name}-seed-{seed}"
            spelled = [self._spelled(change)[:1] for change in entry.changes]
            if [] in spelled:
                problem, value = "no training before it has this name", entry.changes[spelled.index([])]
                raise ConfigError(problem, field=f"training.{entry.name}.changes", value=value)
            changes = (*(change for ((change, _),) in spelled), f"name={name}", f"seed={seed}")
            config, start = load_config(config_path(entry.config), changes), next((run for ((_, run),) in spelled if run), None)
            yield Run(self.out / "training" / name, entry, changes, config, start)

    def _spelled(self, policy: str) -> list[tuple[str, Run | None]]:
        """Return a policy as commands spell it, without a run; of a training each of its runs, with it."""
        match = _OF_TRAINING.search(policy)
        if match is None:
            return [(policy, None)]
        runs = [run for run in self.runs if fnmatchcase(run.entry.name, match["name"])]
        paths = [run.folder if match["stage"] == "trained" else run.first for run in runs]
        return [(policy.replace(match[0], str(path)), run) for path, run in zip(paths, runs, strict=True)]

    def _train(self, run: Run) -> list[str]:
        """Train, or continue what was begun with the same config; returns the command."""
        config = run.folder / "config.yaml"
        is_begun = config.is_file() and _plain(load_config(config)) == _plain(run.settings)
        new = [run.entry.config, *(f"--set={change}" for change in run.changes), "--out", str(run.folder), "--overwrite"]
        command = ["train", *(["--resume", str(run.folder)] if is_begun else new), *self._graphs_of(run.settings.benchmark)]
        _run(command)
        for stage in FIRST_STAGES:
            if (run.folder / stage).is_file():
                run.first.write_bytes((run.folder / stage).read_bytes())
        return command

    def _graphs_of(self, benchmark: str) -> list[str]:
        is_scenario = kind_of(benchmark.partition("/")[0]) == SCENARIO
        return ["--graphs", str(self.graphs)] if is_scenario and self.graphs is not None else []


def _task(name: str, folder: Path, inputs: Any, read: Sequence[Path], make: Callable[[], Sequence[str]]) -> dict[str, Any]:
    """Return a task that is finished once its folder has a record with the digest of today's inputs.

    Args:
        name: of the task.
        folder: of it.
        inputs: plain data on which it depends.
        read: files on which it depends; some are written by other tasks.
        make: runs a command, and returns it for the record.
    """
    record = folder / MADE

    def digest() -> str:
        return files.digest(json.dumps([inputs, [path.read_text() for path in read]], sort_keys=True))

    def is_today(*_: Any) -> bool:
        try:
            return bool(json.loads(record.read_text())["digest"] == digest())
        except (OSError, KeyError, ValueError):
            return False  # it was never finished, a run that it needs was not, or the record has another form

    def finish() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        command = ["meshwright", *make()]
        files.write_text(record, json.dumps({"digest": digest(), "command": command}))

    return {"name": name, "actions": [finish], "uptodate": [is_today], "targets": [str(record)]}


def _run(command: Sequence[str]) -> Sequence[str]:
    subprocess.run([*PROGRAM, *command], stdin=subprocess.DEVNULL, check=True)
    return command


def _plain(seed_settings: SeedSettings) -> dict[str, Any]:
    """Return what a trained policy depends on of its config."""
    return seed_settings.model_dump(mode="json", exclude={"name", "num_threads"}, exclude_defaults=True)


def main(arguments: list[str] | None = None) -> int:
    """Run doit on the tasks; returns its exit status."""
    reference = Path(os.environ.get("MESHWRIGHT_REFERENCE", ".absent"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__.partition("\n")[0])
    parser.add_argument("--study", type=Path, default=STUDY, metavar="FILE", help="YAML of the tasks")
    parser.add_argument("--quick", action="store_true", help="a few training steps, two episodes")
    parser.add_argument("--out", type=Path, metavar="DIR", help="runs/results, or runs/results-quick")
    parser.add_argument("--graphs", type=Path, default=reference / "pipedream", metavar="DIR", help="profiles DIR/NAME/graph.txt")
    parser.add_argument("--trace", type=Path, default=reference / "traces/philly.csv", metavar="FILE", help="the Philly trace")
    choice, rest = parser.parse_known_args(arguments)
    return guarded(lambda: _make(choice, rest))


def _make(options: argparse.Namespace, rest: list[str]) -> int:
    out = options.out or Path("runs/results-quick" if options.quick else "runs/results")
    study, graphs = settings.load(Study, options.study), options.graphs if options.graphs.exists() else None
    tasks = Tasks(study, out, graphs, options.trace, options.quick)
    out.mkdir(parents=True, exist_ok=True)
    made = {name: getattr(tasks, name) for name in dir(tasks) if name.startswith("task_")}
    made["DOIT_CONFIG"] = {"dep_file": str(out / ".doit"), "backend": "json", "continue": True, "verbosity": 1}
    doit = DoitMain(ModuleTaskLoader(made))
    everything = ["run", "-n", str(len(os.sched_getaffinity(0))), "-P", "thread", "train", "evaluate"]
    return max(int(doit.run(command)) for command in ([rest] if rest else [everything, ["run", "page"]]))


if __name__ == "__main__":
    sys.exit(main())
