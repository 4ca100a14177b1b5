"""The work of a study as tasks: each is one command of meshwright, with what it needs and a digest of its settings.

A training leaves its run folder in ``training/RUN`` below the study's folder, with a copy of the network before PPO where there
is one, ``td-RUN.pt`` or of a fleet ``imitated-RUN.pt``, so that it has a name of its own in tables. An evaluation leaves
``evaluations/NAME/results.json``, or ``evaluations/NAME/VARIANT/results.json`` for each variant of a family.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from meshwright import files
from meshwright.errors import MeshwrightError
from meshwright.planning.policies import ROLLOUT, policy_file

from .measures import Measure
from .places import SHOWN, Places
from .study import EvaluationSettings, Run
from .worlds.every import AnyBenchmark
from .worlds.world import World

TRAINING, EVALUATIONS, RESULTS, CURVE = "training", "evaluations", "results.json", "learning_curve.json"
TRACE_CHANGE = "scenario.workload_changes.arrivals.file="

Load = Callable[[str, Sequence[str]], BaseModel]
"""Reads a training config, of any method, with changes."""


@dataclass(frozen=True)
class TrainingTask:
    """One training run.

    Attributes:
        run: what is trained.
        world: of the benchmarks that it is trained on.
        measure: what the first of them is about.
        trace_changes: the benchmark's changes where it follows a trace, that of the file left out; else None.
        pretrains: whether it leaves a network before PPO.
        total: what the last row of its learning curve has reached when it ends, under `progress_key`; None: not known.
        progress_key: ``steps``, ``generation`` or ``update``.
        load: reads training configs.
        needs: nothing.
    """

    run: Run
    world: World
    measure: Measure
    trace_changes: tuple[str, ...] | None
    pretrains: bool
    total: int | None
    progress_key: str
    load: Load
    needs: tuple[str, ...] = ()

    @property
    def is_linear(self) -> bool:
        """Whether it tunes a linear scorer."""
        return self.progress_key == "generation"

    @property
    def name(self) -> str:
        """The run's."""
        return self.run.name

    @property
    def groups(self) -> tuple[str, ...]:
        """Names that stand for it and others."""
        return (self.run.training, self.run.parent)

    def folder(self, places: Places) -> Path:
        """The run folder."""
        return places.out / TRAINING / self.name

    def lacks(self, places: Places) -> str | None:
        """What the user has to give before it can run."""
        return "needs --trace FILE" if self.trace_changes is not None and places.trace is None else None

    def command(self, places: Places) -> list[str]:
        """The command after ``meshwright``."""
        changes = list(self.run.changes)
        if self.trace_changes is not None:
            changes.append(f"changes={json.dumps([*self.trace_changes, f'{TRACE_CHANGE}{_absolute(places)}'])}")
        sets = [part for change in changes for part in ("--set", change)]
        return ["train", self.run.config, *sets, *_graphs(self.world, places), "--out", str(self.folder(places))]

    def resuming(self, places: Places) -> list[str]:
        """The same where a run folder is there already."""
        return ["train", "--resume", str(self.folder(places)), *_graphs(self.world, places)]

    def digest(self, places: Places) -> str:
        """A hash of everything that the trained policy depends on, but for the program."""
        return self._digest_of(self.load(self.run.config, self.run.changes), places)

    def digest_found(self, places: Places) -> str | None:
        """The same of the run that lies in the folder; None where there is none that can be read."""
        config = self.folder(places) / "config.yaml"
        try:
            return self._digest_of(self.load(str(config), ()), places) if config.is_file() else None
        except MeshwrightError:
            return None

    def product(self, places: Places) -> Path | None:
        """The policy; None where there is none yet."""
        try:
            return policy_file(str(self.folder(places)))
        except MeshwrightError:
            return None

    def share_done(self, places: Places) -> float | None:
        """How much of it is done, as far as its last look at validation episodes tells; None before the first."""
        curve = self.folder(places) / CURVE
        try:
            rows = self.world.curve(curve) if curve.is_file() else []
        except MeshwrightError:
            return None
        return min(1.0, (rows[-1].get(self.progress_key) or 0) / self.total) if rows and self.total else None

    def keep_pretrained(self, places: Places) -> None:
        """Copy the network before PPO, where there is one, to where it has a name of its own."""
        source = self.folder(places) / self.world.kept_as
        if source.is_file():
            with files.atomic_file(pretrained_file(places, self.world, self.name)) as copy:
                copy.write(source.read_bytes())

    def _digest_of(self, chosen: BaseModel, places: Places) -> str:
        # What is as by default is left out, so that a setting that a later version adds changes nothing.
        apart = {"name", "num_threads", "benchmark", "mixed", "changes", "curriculum"}
        kept = chosen.model_dump(mode="json", exclude=apart, exclude_defaults=True)
        changes = [change for change in getattr(chosen, "changes", ()) if not change.startswith(TRACE_CHANGE)]
        trace = places.trace if self.trace_changes is not None else None

        def digests(specs: Iterable[str]) -> list[object]:
            played = [self.world.load(spec, changes, trace) for spec in specs]
            found: list[object] = [self.world.digest(benchmark) for benchmark in played]
            # What is only tuned is not paid, and sees neither that nor when blocks become free.
            return found + (self.world.observed(played) if hasattr(chosen, "network") else [])

        lessons = [[lesson.share, digests(lesson.benchmarks)] for lesson in getattr(chosen, "curriculum", ())]
        return files.digest(kept, digests(specs_of(chosen)), lessons)


@dataclass(frozen=True)
class EvaluationTask:
    """One evaluation.

    Attributes:
        entry: of the study.
        world: of the benchmark.
        variant: of the family; empty where the benchmark is none.
        benchmark: what is played.
        follows_trace: whether its jobs arrive as a trace recorded them.
        num_seeds: test episodes; None: as the benchmark says.
        trained: runs whose policies are compared.
        pretrained: runs whose networks before PPO are.
        planned: runs over whose linear scorers rollout planners are.
    """

    entry: EvaluationSettings
    world: World
    variant: str
    benchmark: AnyBenchmark
    follows_trace: bool
    num_seeds: int | None
    trained: tuple[str, ...]
    pretrained: tuple[str, ...]
    planned: tuple[str, ...]

    @property
    def name(self) -> str:
        """The evaluation's, ``NAME/VARIANT`` for one of a family."""
        return f"{self.entry.name}/{self.variant}" if self.variant else self.entry.name

    @property
    def groups(self) -> tuple[str, ...]:
        """Names that stand for it and others."""
        return (self.entry.name,)

    @property
    def needs(self) -> tuple[str, ...]:
        """Training runs."""
        return tuple(dict.fromkeys((*self.trained, *self.pretrained, *self.planned)))

    def folder(self, places: Places) -> Path:
        """Where the results go."""
        return places.out / EVALUATIONS / self.name

    def lacks(self, places: Places) -> str | None:
        """What the user has to give before it can run."""
        return "needs --trace FILE" if self.follows_trace and places.trace is None else self.world.lacks(self.benchmark)

    def command(self, places: Places) -> list[str]:
        """The command after ``meshwright``."""
        spec = f"{self.entry.benchmark}/{self.variant}" if self.variant else self.entry.benchmark
        command = ["evaluate", *self.specs(places), "--benchmark", spec]
        command += [part for change in self.entry.changes for part in ("--set", change)]
        if self.entry.references:
            command += ["--references", ",".join(self.entry.references)]
        if self.num_seeds is not None:
            command += ["--seeds", str(self.num_seeds)]
        command += _graphs(self.world, places)
        if self.follows_trace:
            command += ["--trace", str(places.trace)]
        return [*command, "--json", str(self.folder(places) / RESULTS)]

    def specs(self, places: Places) -> list[str]:
        """Policies beside those of the benchmark, as the command line spells them."""
        folders = [str(places.out / TRAINING / run) for run in self.trained]
        trained = [self.world.asked(folder, how) for how in self.entry.asked for folder in folders]
        pretrained = [str(pretrained_file(places, self.world, run)) for run in self.pretrained]
        planned = [f"{ROLLOUT}({places.out / TRAINING / run})" for run in self.planned]
        return [*self.entry.policies, *trained, *pretrained, *planned]

    def digest(self, places: Places) -> str:
        """A hash of everything that the results depend on, but for the program; the trained policies must be there.

        Raises:
            PolicyError: one of them is not.
        """
        specs = [*self.specs(places), *self.benchmark.policies]
        return files.digest(
            self.world.format_version,
            self.world.digest(self.benchmark),
            [str(Path(spec).name) for spec in specs],
            [file.read_bytes() for file in self.world.policy_files(specs)],
            list(self.entry.references),
            self.world.episodes(self.benchmark, self.num_seeds),
        )

    def product(self, places: Places) -> Path | None:
        """The results; None where there are none yet."""
        path = self.folder(places) / RESULTS
        return path if path.is_file() else None

    def share_done(self, places: Places) -> float | None:
        """Not known before it ends."""
        return None


Task = TrainingTask | EvaluationTask


def before_ppo(world: World, run: str) -> str:
    """What the network of a run as it was before PPO is called in results."""
    return f"{world.prefix}-{run}"


def pretrained_file(places: Places, world: World, run: str) -> Path:
    """This network."""
    return places.out / TRAINING / run / f"{before_ppo(world, run)}.pt"


def shown(task: Task) -> list[str]:
    """The lines that a user types to do the same by hand, from any folder that has the profiles and the trace."""
    lines = [shlex.join(["meshwright", *task.command(SHOWN)])]
    if isinstance(task, EvaluationTask):
        return [shlex.join(["mkdir", "-p", str(task.folder(SHOWN))]), *lines]
    if task.pretrains:
        folder = task.folder(SHOWN)
        kept = pretrained_file(SHOWN, task.world, task.name)
        lines.append(shlex.join(["cp", str(folder / task.world.kept_as), str(kept)]))
    return lines


def specs_of(chosen: BaseModel) -> list[str]:
    """The benchmarks of a training config, lessons apart."""
    return [str(getattr(chosen, "benchmark", "")), *getattr(chosen, "mixed", ())]


def _absolute(places: Places) -> str:
    """The trace as a run's config names it, so that it can be resumed from anywhere."""
    return str(places.trace if places is SHOWN or places.trace is None else places.trace.absolute())


def _graphs(world: World, places: Places) -> list[str]:
    return ["--graphs", str(places.graphs)] if world.takes_profiles and places.graphs is not None else []
