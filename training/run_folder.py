"""The run folder: everything that one training run leaves behind, under fixed names.

::

    config.yaml           the resolved config, every default written out.
    command.txt           the command line.
    versions.json         versions of Python and of the packages that figures depend on.
    checkpoint.pt         the newest checkpoint; it and the policy end in .json where they are no network.
    searched.pt           the network after a search for weights, where the config has that stage.
    placements.pt         solutions of the search that a graph policy learns first.
    imitated.pt           the network after the imitation, before PPO, where the config has that stage.
    policy.pt             the best policy on the validation episodes so far (see `models.saved`).
    learning_curve.json   a row per validation.
    line_to_beat.json     the best rule on the validation episodes, and whether the policy is better.
    log.csv               a row per validation, where the config's ``log`` has ``csv``.
    tensorboard/          the same and PPO's own figures, for TensorBoard.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files, settings, yaml12
from ..errors import CheckpointError
from .hooks.names import RunSettings

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
class _Name:
    """The name of something in a run folder; without an ending it has that of the method."""

    name: str

    def __get__(self, folder: RunFolder, kind: Any) -> Path:
        return folder.path / (self.name if set("./") & set(self.name) else self.name + folder.ending)


@dataclass(frozen=True)
class RunFolder:
    """Paths inside the run folder of any method, and how one begins.

    Attributes:
        path: the folder.
        ending: of the names of checkpoint and policy.
    """

    path: Path
    ending: str = ".pt"

    config = _Name("config.yaml")
    """The resolved config."""
    checkpoint = _Name("checkpoint")
    """The newest checkpoint."""
    policy = _Name("policy")
    """The best policy so far."""
    learning_curve = _Name("learning_curve.json")
    """Rows of validation."""
    imitated = _Name("imitated.pt")
    """The network after the imitation, before PPO, of methods that have that stage."""
    searched = _Name("searched.pt")
    """The network after a search for weights."""
    solutions = _Name("placements.pt")
    """Solutions of the search that a graph policy imitates."""
    tensorboard = _Name("tensorboard/")
    """The folder of TensorBoard's event files."""

    def create(self, run_settings: RunSettings, command: Sequence[str], *, overwrite: bool = False) -> None:
        """Make a new run folder with its config, command and versions; an old one is replaced as a whole.

        Raises:
            CheckpointError: something is there already, unless it is a run folder and ``overwrite`` is set.
        """
        self.check_new(overwrite=overwrite)
        with files.atomic_folder(self.path, marker=self.config.name if overwrite else None) as fresh:
            files.write_text(RunFolder(fresh).config, to_yaml(run_settings))
            files.write_text(fresh / "command.txt", shlex.join(command) + "\n")
            files.write_json(fresh / "versions.json", versions())

    def check_new(self, *, overwrite: bool = False) -> None:
        """Refuse a folder that `create` may not make.

        Raises:
            CheckpointError: something is there already, unless it is a run folder and ``overwrite`` is set.
        """
        path = self.path
        is_run = all((path / name).is_file() for name in (self.config.name, "command.txt", "versions.json"))
        is_empty = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        if not is_empty and not (overwrite and is_run):
            advice = "give another folder, --resume it or --overwrite it" if is_run else "give another folder"
            raise CheckpointError(f"exists already; {advice}", file=path)

    def check_begun(self, run_settings: RunSettings) -> None:
        """Refuse to continue a run that was begun with another config; only its ``log`` and ``minutes`` may be others now.

        Raises:
            CheckpointError: there is no run folder, or it was begun with another one.
        """
        begun = self.loaded(type(run_settings)).model_dump()
        for field, value in run_settings.model_dump().items():
            if field not in ("log", "minutes") and begun[field] != value:
                raise CheckpointError("differs from the config that the run was begun with", file=self.path, field=field)

    def loaded(self, kind: type[settings.AnySettings]) -> settings.AnySettings:
        """Return the resolved config, of a kind.

        Raises:
            CheckpointError: there is no run folder.
        """
        if not self.config.is_file():
            raise CheckpointError("is no run folder (it has no config.yaml)", file=self.path)
        return settings.load(kind, self.config)


def resumed_files(path: Path) -> list[Path]:
    """Return the files that a resumed run of any method reads or writes again in its folder, whether they exist or not."""
    names = ["config.yaml", "command.txt", "versions.json", "learning_curve.json"]
    names += ["line_to_beat.json", "placements.pt", "searched.pt", "imitated.pt", "log.csv"]
    names += [f"{name}{ending}" for name in ("checkpoint", "policy") for ending in (".pt", ".json")]
    events = sorted(event for event in (path / "tensorboard").rglob("*") if event.is_file())
    return [*(path / name for name in names), *events]


def to_yaml(config: settings.Settings) -> str:
    """Return a config as YAML with every default written out."""
    return yaml12.dump(config.model_dump(mode="json"))


def versions() -> dict[str, str]:
    """Return the versions of Python, of the packages that figures depend on, and the kind of machine."""
    result = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "machine": platform.machine(), **result}
