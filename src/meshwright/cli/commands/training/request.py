"""What ``meshwright train`` is asked, and what is done with it whatever is trained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import files
from ....errors import CheckpointError, ConfigError
from ... import output

if TYPE_CHECKING:
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
        log: writers in place of the config's, as ``csv,wandb``; None for the config's.
    """

    config: Path | None
    changes: tuple[str, ...]
    resume: Path | None
    out: Path | None
    overwrite: bool
    graphs: Path | None
    json_file: str | None
    log: str | None = None

    def arguments(self) -> dict[str, Any]:
        """What every method is given besides its config and folder, the command line for the record among it."""
        command, resume = ["meshwright", *sys.argv[1:]], self.resume is not None
        return {"resume": resume, "overwrite": self.overwrite, "command": command, "callbacks": self.callbacks()}

    def folder(self, name: str) -> Path:
        """The run folder of a run of this name.

        Raises:
            MeshwrightError: a new run may not be written there.
        """
        folder = self.resume or self.out or Path("runs") / name
        if self.resume is None:
            output.check_folder("--out", folder, is_replaced=True)
        return folder

    def settings_without_profiles(self, kind: type[AnySettings], of: str) -> AnySettings:
        """The config, or that of the run folder that is resumed, of a method whose benchmarks take no profiles.

        Args:
            kind: of the config.
            of: what its benchmarks are of, for the message.

        Raises:
            ConfigError: it is wrong, or profiles are given.
            CheckpointError: a run that is resumed is to be changed.
        """
        from .... import settings  # brings pydantic, which help does without

        if self.graphs is not None:
            raise ConfigError(f"does not go with a benchmark of {of}", field="--graphs", value=str(self.graphs))
        if self.resume is not None and self.changes and self.config is None:
            raise CheckpointError("a run is resumed as it was begun; leave out --set", file=self.resume, value=self.changes[0])
        path = self.resume / "config.yaml" if self.config is None and self.resume is not None else self.config
        assert path is not None, "one of the two was given"
        return self.logged(settings.load(kind, path, changes=self.changes))

    def callbacks(self) -> list[TrainingCallback]:
        """A line for each validation where no terminal shows the progress; to standard error beside JSON on standard output."""
        to_stderr = self.json_file == "-"
        stream = sys.stderr if to_stderr else sys.stdout
        if sys.stderr.isatty() and (to_stderr or sys.stdout.isatty()):
            return []
        from ....training.hooks.lines import LineWriter

        return [LineWriter(stream)]

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
        curve: list[dict[str, Any]] = files.read_json(made.learning_curve)
        output.write_json(self.json_file, {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve})
        return curve

    def show(self, made: AnyRunFolder[Any], title: str, curve: Sequence[dict[str, Any]], rows: Sequence[Sequence[str]]) -> None:
        """Print where the run folder is, what the rows say, and the time."""
        told = [["run folder", str(made.path)], *rows, ["time", f"{curve[-1]['elapsed_s']:.0f} s"]]
        output.table(output.console(self.json_file), title, ["", ""], told, numbers_from=2)
