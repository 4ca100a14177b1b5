"""What ``meshwright train`` is asked, and what is done with it whatever is trained."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import files
from ....errors import CheckpointError, ConfigError
from ... import interrupts, output

if TYPE_CHECKING:
    from ....evaluation.line_to_beat import LineToBeat
    from ....settings import AnySettings
    from ....training.hooks.callback import TrainingCallback
    from ....training.run_folder import AnyRunFolder


@dataclass(frozen=True)
class TrainRequest:
    """The options of the command.

    Attributes:
        config: YAML of the run; None where one is resumed as it was begun.
        changes: ``key=value`` texts that change it.
        resume: run folder that goes on.
        out: run folder of a new run; None for ``runs/NAME``.
        overwrite: whether an existing one is replaced.
        graphs: folder of profiles.
        json_file: where the learning curve is written.
        log: writers in place of the config's, as ``csv,tensorboard``; None for the config's.
        begun: the run folder, once it is known, and when its config was written before; None where there was none.
        beaten: the line to beat of each run that was begun.
    """

    config: Path | None
    changes: tuple[str, ...]
    resume: Path | None
    out: Path | None
    overwrite: bool
    graphs: Path | None
    json_file: str | None
    log: str | None = None
    begun: dict[Path, int | None] = field(default_factory=dict)
    beaten: list[LineToBeat] = field(default_factory=list)

    def arguments(self, built: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what every method is given besides its config and folder, the command line for the record among it.

        Args:
            built: scenarios or fleets by the spelling of their benchmark.
        """
        command, resume = ["meshwright", *sys.argv[1:]], self.resume is not None
        return {"resume": resume, "overwrite": self.overwrite, "command": command, "callbacks": self.callbacks(built or {})}

    def folder(self, name: str) -> Path:
        """The run folder of a run of this name.

        Raises:
            MeshwrightError: a new run may not be written there.
        """
        folder = self.resume or self.out or Path("runs") / name
        if self.resume is None:
            output.check_folder("--out", folder, is_replaced=True)
        self.begun[folder] = _written_ns(folder)
        return folder

    def interrupt(self) -> interrupts.InterruptedRunError:
        """An interrupt that says how the run goes on, where it had begun."""
        begun = [folder for folder, before in self.begun.items() if self.resume is not None or _written_ns(folder) != before]
        profiles = [] if self.graphs is None else ["--graphs", str(self.graphs)]
        return interrupts.to_resume(begun, "--resume", *map(str, begun), *profiles)

    def settings_without_profiles(self, kind: type[AnySettings], of: str) -> AnySettings:
        """The config, or that of the run folder that is resumed, of a method whose benchmarks take no profiles.

        Args:
            kind: of the config.
            of: what its benchmarks are of, for the message.

        Raises:
            ConfigError: it is wrong, or profiles are given.
            CheckpointError: a run that is resumed is to be changed.
        """
        from ....training.settings import load_with_paths  # brings pydantic, which help does without

        if self.graphs is not None:
            raise ConfigError(f"does not go with a benchmark of {of}", field="--graphs", value=str(self.graphs))
        if self.resume is not None and self.changes and self.config is None:
            raise CheckpointError("a run is resumed as it was begun; leave out --set", file=self.resume, value=self.changes[0])
        path = self.resume / "config.yaml" if self.config is None and self.resume is not None else self.config
        assert path is not None, "one of the two was given"
        return self.logged(load_with_paths(kind, path, self.changes))

    def callbacks(self, built: Mapping[str, Any]) -> list[TrainingCallback]:
        """Return the line to beat and, where no terminal shows the progress, a line for each validation.

        They go to standard error beside JSON on standard output.
        """
        to_stderr = self.json_file == "-"
        stream = sys.stderr if to_stderr else sys.stdout
        from ....evaluation.line_to_beat import LineToBeat

        beaten = LineToBeat(stream, self.graphs, built)
        self.beaten.append(beaten)
        if sys.stderr.isatty() and (to_stderr or sys.stdout.isatty()):
            return [beaten]
        from ....training.hooks.lines import LineWriter

        return [beaten, LineWriter(stream, lambda: f"{beaten.rule} {beaten.value:.4g}")]

    def note(self, value: float, best: float | None, shown: Callable[[float], str], measure: str = "validation") -> str:
        """Return a validation as the note of a bar, with the best so far and the best rule's value."""
        beaten, best = self.beaten[-1], value if best is None else best
        return f"{measure} {shown(value)} (best {shown(best)}, to beat: {beaten.rule} {shown(beaten.value)})"

    def logged(self, chosen: AnySettings) -> AnySettings:
        """A config with the writers of the command line, where it names some.

        Raises:
            ConfigError: one of them is unknown.
        """
        if self.log is None:
            return chosen
        from ....training.hooks.names import log_names

        return chosen.model_copy(update={"log": log_names(self.log)})

    def curve(self, made: AnyRunFolder[Any]) -> list[dict[str, Any]]:
        """Rows of the learning curve of a run that ended, which are written as JSON where that was asked for."""
        from ....models.policy_files import LINE_TO_BEAT

        curve: list[dict[str, Any]] = files.read_json(made.learning_curve)
        line = made.path / LINE_TO_BEAT
        told = {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve}
        output.write_json(self.json_file, {**told, "line_to_beat": files.read_json(line) if line.is_file() else None})
        return curve

    def show(self, made: AnyRunFolder[Any], title: str, curve: Sequence[dict[str, Any]], rows: Sequence[Sequence[str]]) -> None:
        """Print where the run folder is, what the rows say, and the time."""
        told = [["run folder", str(made.path)], *rows, ["time", f"{curve[-1]['elapsed_s']:.0f} s"]]
        output.table(output.console(self.json_file), title, ["", ""], told, numbers_from=2)


def _written_ns(folder: Path) -> int | None:
    """When the config of a run folder was written; None where there is none."""
    config = folder / "config.yaml"
    return config.stat().st_mtime_ns if config.is_file() else None
