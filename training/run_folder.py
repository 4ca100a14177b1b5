"""The run folder: everything that one training run leaves behind, under fixed names.

::

    config.yaml           the resolved config, every default written out
    command.txt           the command line
    versions.json         versions of Python and of the packages that figures depend on
    checkpoint.pt         the newest checkpoint (see `training.checkpoint`)
    pretrained.pt         the network before PPO, if it was pretrained; worth alone, where a linear scorer is added to it
    policy.pt             the best policy on the validation episodes so far (see `models.saved`)
    learning_curve.json   a row per look at the validation episodes
    tuning_curve.json     the same while a linear scorer was tuned, for networks that hear one
    tensorboard/          the same and PPO's own figures, for TensorBoard; those of the pretraining in a folder within
"""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .. import files, settings
from ..errors import CheckpointError
from .settings import TrainSettings

PACKAGES = (
    "meshwright",
    "numpy",
    "numba",
    "torch",
    "torch-geometric",
    "gymnasium",
    "stable-baselines3",
    "sb3-contrib",
    "cma",
    "scipy",
    "networkx",
)


@dataclass(frozen=True)
class RunFolder:
    """Paths inside one run folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def checkpoint(self) -> Path:
        """The newest checkpoint."""
        return self.path / "checkpoint.pt"

    @property
    def pretrained(self) -> Path:
        """The network before PPO."""
        return self.path / "pretrained.pt"

    @property
    def policy(self) -> Path:
        """The best policy so far."""
        return self.path / "policy.pt"

    @property
    def learning_curve(self) -> Path:
        """Rows of validation."""
        return self.path / "learning_curve.json"

    @property
    def tuning_curve(self) -> Path:
        """Rows of validation while a linear scorer was tuned."""
        return self.path / "tuning_curve.json"

    @property
    def tensorboard(self) -> Path:
        """Event files."""
        return self.path / "tensorboard"

    @classmethod
    def create(cls, path: Path, chosen: TrainSettings, command: Sequence[str], *, overwrite: bool = False) -> RunFolder:
        """Make a new run folder with its config, command and versions; an old one is replaced as a whole.

        Raises:
            CheckpointError: something is there already, unless it is a run folder and ``overwrite`` is set.
        """
        run = cls.check_new(path, overwrite=overwrite)
        with files.atomic_folder(path, marker=run.config.name if overwrite else None) as fresh:
            made = cls(fresh)
            files.write_text(made.config, to_yaml(chosen))
            files.write_text(fresh / "command.txt", shlex.join(command) + "\n")
            files.write_json(fresh / "versions.json", versions())
        return run

    @classmethod
    def check_new(cls, path: Path, *, overwrite: bool = False) -> RunFolder:
        """A run folder that `create` may make.

        Raises:
            CheckpointError: something is there already, unless it is a run folder and ``overwrite`` is set.
        """
        run = cls(path)
        is_run = all((path / name).is_file() for name in (run.config.name, "command.txt", "versions.json"))
        is_empty = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        if not is_empty and not (overwrite and is_run):
            advice = "give another folder, --resume it or --overwrite it" if is_run else "give another folder"
            raise CheckpointError(f"exists already; {advice}", file=path)
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder.

        Raises:
            CheckpointError: there is none.
        """
        run = cls(path)
        if not run.config.is_file():
            raise CheckpointError("is no run folder (it has no config.yaml)", file=path)
        return run

    def settings(self) -> TrainSettings:
        """The resolved config."""
        return settings.load(TrainSettings, self.config)


def to_yaml(chosen: TrainSettings) -> str:
    """A config as YAML with every default written out."""
    return yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False)


def versions() -> dict[str, str]:
    """Versions of Python, of the packages that figures depend on, and the kind of machine."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "machine": platform.machine(), **found}
