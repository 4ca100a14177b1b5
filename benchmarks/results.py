"""StudyResults of the documentation as tasks of doit over public commands (``make results``).

Tasks are ``train:RUN``, ``evaluate:NAME``, ``table:NAME`` and ``page``; `configs/results.yaml` lists them. Each training and
each evaluation is a process of its own with a folder of its own. What was made by today's settings is not made again, and a
training that was killed resumes from its last checkpoint. Without a doit command everything is made, then the page is written.

python -m benchmarks.results run -n 2 table:published    # one table with all that it needs; `list --all` lists every task
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Annotated, Any

from doit.cmd_base import ModuleTaskLoader
from doit.doit_cmd import DoitMain
from pydantic import Field, StringConstraints

from meshwright import files, settings
from meshwright.cli import guarded
from meshwright.envs.benchmark import load_variants
from meshwright.errors import ConfigError
from meshwright.packaged import config_path
from meshwright.training.methods import load_config
from meshwright.worlds.benchmark_files import SCENARIO, find_benchmark, kind_of

from .results_tables import StudyResults, StudyTable, fill_page, lines_of

PROGRAM = (sys.executable, "-c", "from meshwright.cli import main; main()")
PAGE = Path("docs/results.md")
EACH = "<each>"
TRACE_KEY = "scenario.workload_changes.arrivals.file="
FIRST_STAGES = {"pretrained.pt": "td", "imitated.pt": "imitated"}
"""Files of a run folder that hold the network before PPO, and how such a network is called in results."""

Name = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]|<each>)([A-Za-z0-9_-]|<each>){0,62}$")]


class StudyEntry(settings.Settings):
    """What trainings and evaluations have in common.

    Attributes:
        name: of the entry; ``<each>`` in any text is replaced by each label of ``each``.
        each: labels.
        changes: ``key=value`` texts, applied in order.
        quick: further changes of a quick run.
    """

    name: Name
    each: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


class StudyTraining(StudyEntry):
    """Training runs ``NAME[-VARIANT]-seed-SEED`` of one config.

    Attributes:
        config: ``preset:NAME`` or a path.
        variants: further changes of each variant, by its label.
        seeds: a run for each.
    """

    config: str
    variants: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)


class StudyEvaluation(StudyEntry):
    """An evaluation; of a family of benchmarks, one of each variant.

    Attributes:
        benchmark: ``preset:NAME`` or a path.
        policies: compared in addition to those that the benchmark names.
        trained: trainings whose policies are compared.
        asked: modes of these, as ``sample-64``; ``greedy`` is the plain name.
        pretrained: trainings whose networks before PPO are compared.
        planned: trainings of linear scorers, each the base policy of a rollout planner.
        references: clairvoyant ones.
    """

    benchmark: str
    policies: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    asked: tuple[str, ...] = ("greedy",)
    pretrained: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


class Study(settings.Settings):
    """All of it.

    Attributes:
        training: in any order.
        evaluations: in any order.
        tables: by the name of their place on the page.
        traced: presets whose jobs arrive as the trace of ``--trace`` records them.
    """

    training: tuple[StudyTraining, ...]
    evaluations: tuple[StudyEvaluation, ...]
    tables: dict[str, StudyTable]
    traced: tuple[str, ...] = ()


@dataclass(frozen=True)
class Places:
    """Inputs and outputs, and whether a run is quick."""

    out: Path
    graphs: Path | None
    trace: Path | None
    quick: bool


@dataclass(frozen=True)
class Run:
    """One training run: its name, the trainings that it belongs to, and its entry with all changes."""

    name: str
    trainings: tuple[str, ...]
    entry: StudyTraining
    changes: tuple[str, ...]


def written_out(entries: Sequence[Any]) -> Iterator[Any]:
    """Yield each entry, or a copy for each of its labels."""
    for entry in entries:
        for label in entry.each or ("",):
            text = json.dumps(entry.model_dump(mode="json", exclude={"each"})).replace(EACH, label)
            yield type(entry).model_validate(json.loads(text)) if entry.each else entry


def runs(study: Study, quick: bool) -> dict[str, Run]:
    """Return every training run by name.

    Raises:
        ConfigError: two runs have one name.
    """
    made: dict[str, Run] = {}
    for entry in written_out(study.training):
        for variant, further in (entry.variants or {"": ()}).items():
            training = f"{entry.name}-{variant}" if variant else entry.name
            for seed in entry.seeds[:1] if quick else entry.seeds:
                name = f"{training}-seed-{seed}"
                if name in made:
                    raise ConfigError("two runs have this name", field="training", value=name)
                changes = (*entry.changes, *(entry.quick if quick else ()), *further, f"name={name}", f"seed={seed}")
                made[name] = Run(name, (training, entry.name), entry, changes)
    return made


class Tasks:
    """The tasks of a study, as doit reads them: each method ``task_*`` yields mappings.

    Args:
        study: what is made.
        places: inputs and outputs.
    """

    def __init__(self, study: Study, places: Places) -> None:
        self.study, self.places = study, places
        self.runs = runs(study, places.quick)
        self.evaluations = list(written_out(study.evaluations))
        self._check()

    def folder(self, run: str) -> Path:
        """Return a run's folder."""
        return self.places.out / "training" / run

    def runs_of(self, trainings: Sequence[str]) -> list[str]:
        """Return the names of all runs of some trainings, in the order of the trainings."""
        return [name for one in trainings for name, run in self.runs.items() if one in run.trainings]

    def first_stage(self, run: str) -> Path:
        """Return the file of a run's network before PPO, named as results call it.

        Raises:
            ConfigError: the run has none.
        """
        found = [path for prefix in FIRST_STAGES.values() if (path := self.folder(run) / f"{prefix}-{run}.pt").is_file()]
        if not found:
            raise ConfigError("has no network before PPO", field="pretrained", value=run)
        return found[0]

    def task_train(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each training run."""
        for run in self.runs.values():
            command = ["train", run.entry.config, *_sets(self._train_changes(run)), *self._graphs(run)]
            done = Made(self.folder(run.name), [self._config(run)])
            made = (self._train, [run, command, done])
            yield {"name": run.name, "actions": [made], "uptodate": [done.is_today], "targets": [str(done.record)]}

    def task_evaluate(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each evaluation, of a family for each variant."""
        for entry in self.evaluations:
            changes = (*entry.changes, *(entry.quick if self.places.quick else ()))
            found = load_variants(entry.benchmark, changes=changes) if kind_of(entry.benchmark) == SCENARIO else [None]
            for variant in found:
                label = variant.name.partition("/")[2] if variant is not None and len(found) > 1 else ""
                yield self._evaluation(entry, changes, label)

    def task_table(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each table, written as Markdown into ``tables/NAME.md``."""
        for name, table in self.study.tables.items():
            file = self.places.out / "tables" / f"{name}.md"

            def write(table: StudyTable = table, file: Path = file) -> None:
                files.write_text(file, "\n".join(lines_of(table, StudyResults(self.places.out, self.runs_of))) + "\n")

            needs = [f"evaluate:{one}" for one in table.needed()]
            yield {"name": name, "actions": [write], "task_dep": needs, "targets": [str(file)], "uptodate": [False]}

    def task_page(self) -> dict[str, Any]:
        """Fill the page by what was made; places of a table that lacks a result keep their text."""

        def write() -> None:
            page = self.places.out / PAGE.name if self.places.quick else PAGE
            absent = fill_page(
                PAGE, page, self.study.tables, StudyResults(self.places.out, self.runs_of), quick=self.places.quick
            )
            sys.stdout.write(f"written: {page}\n" + (f"not made yet: {', '.join(absent)}\n" if absent else ""))

        return {"actions": [write], "uptodate": [False], "verbosity": 2}

    def _evaluation(self, entry: StudyEvaluation, changes: Sequence[str], label: str) -> dict[str, Any]:
        name = f"{entry.name}/{label}" if label else entry.name
        needs = self.runs_of((*entry.trained, *entry.pretrained, *entry.planned))

        def command() -> list[str]:
            modes = ("" if how == "greedy" else f"@{how}" for how in entry.asked)
            trained = [f"{self.folder(run)}{mode}" for mode in modes for run in self.runs_of(entry.trained)]
            first = [str(self.first_stage(run)) for run in self.runs_of(entry.pretrained)]
            planned = [f"rollout({self.folder(run)})" for run in self.runs_of(entry.planned)]
            spec = f"{entry.benchmark}/{label}" if label else entry.benchmark
            more = ["--references", ",".join(entry.references)] if entry.references else []
            more += ["--seeds", "2"] if self.places.quick else []
            more += ["--trace", str(self._trace())] if self._is_traced(entry.benchmark) else []
            policies = [*entry.policies, *trained, *first, *planned]
            return ["evaluate", *policies, "--benchmark", spec, *_sets(changes), *more, *self._graphs_of(entry.benchmark)]

        def inputs() -> list[Any]:
            records = [json.loads((self.folder(run) / Made.NAME).read_text())["digest"] for run in needs]
            return [command(), find_benchmark(entry.benchmark)[0].read_text(), records]

        done = Made(self.places.out / "evaluations" / name, inputs)

        def evaluate() -> None:
            done.folder.mkdir(parents=True, exist_ok=True)
            done.run([*command(), "--json", str(done.folder / "results.json")])

        task = {"name": name, "actions": [evaluate], "uptodate": [done.is_today], "targets": [str(done.record)]}
        return task | {"task_dep": [f"train:{run}" for run in needs]}

    def _train(self, run: Run, command: Sequence[str], done: Made) -> None:
        folder, again = self.folder(run.name), self._graphs(run)
        config = folder / "config.yaml"
        is_begun = config.is_file() and _plain(config, ()) == self._config(run)
        done.run(["train", "--resume", str(folder), *again] if is_begun else [*command, "--out", str(folder), "--overwrite"])
        for kept, prefix in FIRST_STAGES.items():
            if (folder / kept).is_file():
                (folder / f"{prefix}-{run.name}.pt").write_bytes((folder / kept).read_bytes())

    def _train_changes(self, run: Run) -> list[str]:
        chosen = load_config(config_path(run.entry.config), run.changes)
        if not self._is_traced(str(getattr(chosen, "benchmark", ""))):
            return list(run.changes)
        changes = json.dumps([*getattr(chosen, "changes", ()), f"{TRACE_KEY}{self._trace()}"])
        return [*run.changes, f"changes={changes}"]

    def _config(self, run: Run) -> dict[str, Any]:
        return _plain(config_path(run.entry.config), self._train_changes(run))

    def _is_traced(self, benchmark: str) -> bool:
        return benchmark.removeprefix("preset:") in self.study.traced

    def _trace(self) -> Path:
        return Path("TRACE") if self.places.trace is None else self.places.trace.absolute()

    def _graphs(self, run: Run) -> list[str]:
        return self._graphs_of(str(getattr(load_config(config_path(run.entry.config), run.changes), "benchmark", "")))

    def _graphs_of(self, benchmark: str) -> list[str]:
        is_scenario = kind_of(benchmark.partition("/")[0]) == SCENARIO
        return ["--graphs", str(self.places.graphs)] if is_scenario and self.places.graphs is not None else []

    def _check(self) -> None:
        known = {name for run in self.runs.values() for name in run.trainings}
        for entry in self.evaluations:
            for field in ("trained", "pretrained", "planned"):
                for name in getattr(entry, field):
                    if name not in known:
                        where = f"evaluations.{entry.name}.{field}"
                        raise ConfigError("no training has this name", field=where, value=name, choices=sorted(known))


class Made:
    """The record of a finished task, ``made.json``: its digest, command, and wall and CPU seconds.

    Args:
        folder: of the task.
        inputs: plain data that it depends on, or a function that returns it.
    """

    NAME = "made.json"

    def __init__(self, folder: Path, inputs: list[Any] | Callable[[], list[Any]]) -> None:
        self.folder, self.inputs = folder, inputs
        self.record = folder / self.NAME

    def digest(self) -> str:
        """Return a hash of the task's inputs."""
        return files.digest(json.dumps(self.inputs() if callable(self.inputs) else self.inputs, sort_keys=True, default=str))

    def is_today(self, task: Any = None, values: Any = None) -> bool:
        """Return whether the task was finished with today's inputs."""
        if not self.record.is_file():
            return False
        try:
            return bool(json.loads(self.record.read_text())["digest"] == self.digest())
        except (ConfigError, OSError, KeyError, ValueError):
            return False  # a run that it needs is not there, or a record of another form

    def run(self, command: Sequence[str]) -> None:
        """Run a command of meshwright and write the record.

        Raises:
            subprocess.CalledProcessError: the command fails.
        """
        self.record.unlink(missing_ok=True)
        begin = time.monotonic()
        process = subprocess.Popen([*PROGRAM, *command], stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, ["meshwright", *command])
        spent = {"wall_s": time.monotonic() - begin, "cpu_s": usage.ru_utime + usage.ru_stime}
        files.write_text(self.record, json.dumps({"digest": self.digest(), "command": ["meshwright", *command], **spent}))


def _plain(config: Path, changes: Sequence[str]) -> dict[str, Any]:
    """Return what a trained policy depends on of its config."""
    chosen = load_config(config, changes)
    return chosen.model_dump(mode="json", exclude={"name", "num_threads"}, exclude_defaults=True)


def _sets(changes: Sequence[str]) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


def _reference(option: Path | None, below: str) -> Path | None:
    found = option or Path(os.environ.get("MESHWRIGHT_REFERENCE", ".absent")) / below
    return found if found.exists() else None


def main(arguments: list[str] | None = None) -> int:
    """Run doit on the tasks; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__.partition("\n")[0])
    parser.add_argument("--study", type=Path, metavar="FILE", help="YAML of the tasks; configs/results.yaml")
    parser.add_argument("--quick", action="store_true", help="a few training steps, two episodes")
    parser.add_argument("--out", type=Path, metavar="DIR", help="runs/results, or runs/results-quick")
    parser.add_argument("--graphs", type=Path, metavar="DIR", help="profiles DIR/NAME/graph.txt")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="CSV of the Philly trace")
    chosen, rest = parser.parse_known_args(arguments)
    return guarded(lambda: _run(chosen, rest))


def _run(chosen: argparse.Namespace, rest: list[str]) -> int:
    study = settings.load(Study, chosen.study or Path(str(resources("meshwright.configs"))) / "results.yaml")
    out = chosen.out or Path("runs/results-quick" if chosen.quick else "runs/results")
    graphs, trace = _reference(chosen.graphs, "pipedream"), _reference(chosen.trace, "traces/philly.csv")
    tasks = Tasks(study, Places(out, graphs, trace, chosen.quick))
    out.mkdir(parents=True, exist_ok=True)
    made = {name: getattr(tasks, name) for name in dir(tasks) if name.startswith("task_")}
    made["DOIT_CONFIG"] = {"dep_file": str(out / ".doit"), "backend": "json", "continue": True, "verbosity": 1}
    doit = DoitMain(ModuleTaskLoader(made))
    if rest:
        return int(doit.run(rest))
    status = int(doit.run(["run", "-n", str(len(os.sched_getaffinity(0))), "-P", "thread", "train", "evaluate"]))
    return int(doit.run(["run", "page"])) or status


if __name__ == "__main__":
    sys.exit(main())
