"""A run of ``meshwright train``, whatever its method: its config, its progress and its table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import files
from ....errors import CheckpointError, ConfigError
from ....models.policy_files import LINE_TO_BEAT
from ....packaged import config_path
from ....training import methods
from ....training.hooks.callback import RunEnd, StageRecord, TrainingCallback, UpdateRecord, ValidationRecord
from ....training.hooks.names import WITHOUT_EFFECT
from ....training.methods import Method, SeedSettings, load_config, method_named, method_of
from ... import interrupts, output
from .own_benchmark import config_of, is_benchmark

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ....evaluation.line_to_beat import LineToBeat
    from ....training.hooks.callback import RunStart


MUCH = 0.1
"""A last validation that is worse than the kept one by more than this share of it is called worse; less may be chance."""

COLLAPSED = 1.0
"""By this share worse, a training has collapsed."""

_WHERE = {"steps": "at {:,} decisions", "generation": "after {:,} generations", "update": "after {:,} updates"}
"""At which point of a training a row of its curve was written, by the key of its steps."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TrainRequest:
    """The options of the command.

    Attributes:
        resume, out: run folder that is continued, or that of a new run; of several seeds, the common beginning of their names.
        minutes: in place of the config's; None for the config's, of a benchmark without a config ten.
        begun: the run folder, once it is known, and when its config was written before; None where there was none.
    """

    config: str | None
    changes: tuple[str, ...]
    resume: Path | None
    out: Path | None
    overwrite: bool
    graphs: Path | None
    json_file: str | None
    minutes: float | None = None
    begun: dict[Path, int | None] = field(default_factory=dict)

    def settings(self, begun: Path | None, further: Sequence[str] = ()) -> SeedSettings:
        """Return the config, or that of a run folder that is resumed.

        Args:
            begun: the run folder that is resumed; None for a new run.
            further: changes of any config.

        Raises:
            ConfigError: the config is wrong, or profiles are given, which its method does not take.
            CheckpointError: there is no run folder, it is of another method, or its run is to be changed.
        """
        if begun is not None and not (begun / "config.yaml").is_file():
            raise CheckpointError("is no run folder (it has no config.yaml)", file=begun)
        changes = [*self.changes, *further, *([] if self.minutes is None else [f"minutes={self.minutes!r}"])]
        fixed = [change for change in self.changes if change.partition("=")[0].strip() not in WITHOUT_EFFECT]
        if self.config is None and fixed:
            raise CheckpointError("a run is resumed as it was begun; leave out --set", file=begun, value=fixed[0])
        if self.is_benchmark:
            if begun is not None:
                raise CheckpointError("a run is resumed as it was begun; leave out the benchmark", file=begun)
            result = config_of(str(self.config), changes)
        else:
            path = config_path(self.config) if self.config else (begun or Path()) / "config.yaml"
            name = method_named(path, self.changes)
            if begun is not None and method_named(begun / "config.yaml") != name:
                problem = "differs from the config that the run was begun with"
                raise CheckpointError(problem, file=begun, field="method")
            result = load_config(path, changes)
        if self.graphs is not None and (of := method_of(result).benchmarks) is not None:
            raise ConfigError(f"does not go with a benchmark of {of}", field="--graphs", value=str(self.graphs))
        return result

    @property
    def is_benchmark(self) -> bool:
        """Whether a benchmark is named in place of a config."""
        return self.config is not None and is_benchmark(self.config)

    def folder(self, name: str) -> Path:
        """Return the run folder of a run of this name.

        Raises:
            MeshwrightError: a new run may not be written there.
        """
        folder = self.resume or self.out or Path("runs") / name
        if self.resume is None:
            output.check_folder("--out", folder, is_replaced=True)
        self.begun[folder] = _written_ns(folder)
        return folder

    def interrupt(self) -> interrupts.InterruptedRunError:
        """Return an interrupt that says how to resume the run, where it had begun."""
        begun = [folder for folder, before in self.begun.items() if self.resume is not None or _written_ns(folder) != before]
        profiles = [] if self.graphs is None else ["--graphs", str(self.graphs)]
        return interrupts.to_resume(begun, "--resume", *map(str, begun), *profiles)


@dataclass
class RunBars(TrainingCallback):
    """Bars of a run and of its stages, with the latest validation, the best one and the line to beat.

    Args:
        bars: of `output.progress`.
        check_interrupt: raises where Ctrl-C was swallowed.
        method: of the run.
        beaten: the line to beat, which is called before this.
    """

    bars: Progress
    check_interrupt: Callable[[], None]
    method: Method
    beaten: LineToBeat
    tasks: dict[str, TaskID] = field(default_factory=dict)
    note: str = ""

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        self.start, self.measure = start, self.method.measure or start.measure

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        self.end = end

    def on_stage(self, record: StageRecord) -> None:
        """See `TrainingCallback.on_stage`."""
        self.show(record.stage, 100 * record.share, 100, record.value, record.best)

    def on_update(self, record: UpdateRecord) -> None:
        """See `TrainingCallback.on_update`."""
        self.show(self.start.unit, record.step, record.total_steps)

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        self.show(record.unit, record.step, record.total_steps, record.value, record.best)

    def show(self, stage: str, done: float, total: float, value: float | None = None, best: float | None = None) -> None:
        """Show how far a stage is, and its validation where there is a new one."""
        self.check_interrupt()
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(stage, total=total, note="", visible=total > 0)
        if value is not None:
            latest, least, line = map(self.method.text, (value, value if best is None else best, self.beaten.value))
            self.note = f"{self.measure} {latest} (best {least}, to beat: {self.beaten.rule} {line})"
        self.bars.update(self.tasks[stage], completed=min(done, total), note=self.note)


def train_run(request: TrainRequest) -> None:
    """Train, or continue a training, and say where the run folder is and what the policy reached.

    Raises:
        MeshwrightError: as `TrainRequest.settings` and the method say.
    """
    choice = request.settings(request.resume)
    method, folder = method_of(choice), request.folder(choice.name)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....evaluation.line_to_beat import LineToBeat  # takes a while, and bars are there by now

        more, built = dict[str, Any](), dict[str, Any]()
        if method.build is not None:
            with output.set_up(bars) as simulated:
                more, built = method.build(choice, request.graphs, simulated)
        # They are on standard error where standard output is JSON.
        stream = sys.stderr if request.json_file == "-" else sys.stdout
        beaten = LineToBeat(stream, request.graphs, built)
        shown = RunBars(bars, check_interrupt, method, beaten)
        callbacks: list[TrainingCallback] = [beaten, shown]
        if not sys.stderr.isatty() or not (request.json_file == "-" or sys.stdout.isatty()):
            from ....training.hooks.lines import LineWriter

            callbacks.append(LineWriter(stream, lambda: f"{beaten.rule} {beaten.value:.4g}"))
        options: dict[str, Any] = {"resume": request.resume is not None, "overwrite": request.overwrite}
        options |= {"command": ["meshwright", *sys.argv[1:]], "callbacks": callbacks, "built": more or None}
        made = methods.train(choice, folder, **options)
    curve: list[dict[str, Any]] = files.read_json(made.learning_curve)
    record = {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve}
    output.write_json(request.json_file, {**record, "line_to_beat": line_of(made.path) or None})
    rows = [["run folder", str(made.path)]]
    counted = {**curve[-1], method.step_key: shown.end.step}  # a run may have been stopped between two validations
    rows += [[heading, f"{counted[key]:,}"] for heading, key in ([method.learned] if method.learned else [])]
    rows += kept_rows(curve, method, shown.measure, made.policy.name, is_less_better=shown.start.is_less_better)
    rows.append(["time", f"{curve[-1]['elapsed_s']:.0f} s"])
    rows += [["stopped", shown.end.reason]] if shown.end.reason else []
    output.table(output.console(request.json_file), f"{method.title} {choice.name}", ["", ""], rows, numbers_from=2)


def line_of(folder: Path) -> Mapping[str, Any]:
    """Return the line to beat of a run that ended; empty where there is none."""
    result: Mapping[str, Any] = files.read_json(folder / LINE_TO_BEAT) if (folder / LINE_TO_BEAT).is_file() else {}
    return result


def _written_ns(folder: Path) -> int | None:
    """Return when the config of a run folder was written; None where there is none."""
    config = folder / "config.yaml"
    return config.stat().st_mtime_ns if config.is_file() else None


def kept_rows(curve: Sequence[Row], method: Method, measure: str, file: str, *, is_less_better: bool = True) -> list[list[str]]:
    """Return rows on a learning curve: what is kept, where it was reached, the first validation, and another last one.

    Args:
        curve: a row per validation, in order.
        method: of the training.
        measure: what a person calls what is validated.
        file: in which the best policy is kept.
        is_less_better: whether less of the measure is better.
    """
    key, text = method.key, method.text
    best = (min if is_less_better else max)(curve, key=lambda row: row[key])
    is_untrained = curve[0][method.step_key] == 0 and not _is_staged(curve[0], method)
    first = method.first if is_untrained else f"of the network {_where(curve[0], method)}"
    rows = [
        [f"validation {measure}", f"{text(best[key])} {_where(best, method)} (kept as {file})"],
        [first, text(curve[0][key])],
    ]
    if curve[-1] is not best and len(curve) > 1:
        rows.append(["of the last validation", text(curve[-1][key]) + _fallen(curve[-1][key], best[key], is_less_better, file)])
    return rows


def _is_staged(row: Row, method: Method) -> bool:
    """Return whether a row was written after a stage before the first decision of PPO."""
    return method.step_key == "steps" and row.get("stage") in ("search", "imitation")


def _where(row: Row, method: Method) -> str:
    return f"after the {row['stage']}" if _is_staged(row, method) else _WHERE[method.step_key].format(row[method.step_key])


def _fallen(last: float, best: float, is_less_better: bool, file: str) -> str:
    """Return how much worse the last validation is than the kept one, in words; nothing where that is little."""
    lost = (last - best) if is_less_better else (best - last)
    if not lost > MUCH * abs(best):
        return ""
    if best == 0:
        return f": worse than {file}, which is from before"
    share = lost / abs(best)
    if share < COLLAPSED:
        return f": {100 * share:.0f} % worse than {file}, which is from before"
    return f": far worse than {file}, after which the training collapsed"
