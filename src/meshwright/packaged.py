"""YAML files that come with the package, each by its name, and files of the user's own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from pathlib import Path

from . import files
from .errors import ConfigError, InputFileError, Names

SUFFIXES = (".yaml", ".yml", ".json")
"""A spec that ends so, or holds a slash, means a file."""


@dataclass(frozen=True)
class Shipped:
    """One folder of such files.

    Attributes:
        folder: below ``configs``.
        what: description of a name, for errors.
        field: that is in error; None where the value says enough.
    """

    folder: str
    what: str
    field: str | None = None

    def names(self) -> tuple[str, ...]:
        """Return the names of the files that come with the package."""
        return _names(self.folder)

    def path(self, spec: str) -> Path:
        """Return the file of a name, or the user's own, which need not be there.

        Raises:
            InputFileError: neither; the message names the nearest.
        """
        if spec in self.names():
            return shipped_path(self.folder) / f"{spec}.yaml"
        path = Path(spec)
        if not os.path.exists(spec) and "/" not in spec and path.suffix not in SUFFIXES:
            raise InputFileError(f"neither a file nor {self.what}", field=self.field, value=spec, choices=self.names())
        return path

    def text(self, spec: str) -> str:
        """Return text of the shipped file of a name, or of a file of the user's own.

        Raises:
            InputFileError: neither, or it cannot be read.
        """
        return files.read_text(self.path(spec))


def path_in_folder(spec: str, folder: Path, *, is_folder_too: bool = False) -> str:
    """Return a path that a file of a folder names: from that folder where a file is there, any other text as it is.

    A YAML or JSON file that is nowhere is named in that folder, so that its refusal says where it was looked for.

    Args:
        spec: a path, or a name.
        folder: of the file that names it.
        is_folder_too: whether a folder will do, as for a job.
    """
    inside = folder / spec
    is_there = os.path.isfile(inside) or (is_folder_too and os.path.isdir(inside))
    is_missing = inside.suffix in SUFFIXES and not os.path.exists(spec)
    return str(inside) if is_there or is_missing else spec


def shipped_path(name: str) -> Path:
    """Return a file or folder of ``configs``."""
    return Path(str(resources("meshwright.configs"))) / name


@cache
def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in shipped_path(folder).iterdir() if path.suffix == ".yaml"))


def train_presets() -> list[str]:
    """Return the training configs that ship with the package."""
    return Names("train", [f"preset:{name}" for name in _names("train")])


def config_path(spec: str) -> Path:
    """Return the YAML of a training config by its spelling.

    Raises:
        ConfigError: the preset is unknown, or a bare name is neither one nor a file.
    """
    name, path = spec.removeprefix("preset:"), Path(spec)
    if name != spec and name in _names("train"):
        return shipped_path("train") / f"{name}.yaml"
    if name != spec or (path.name == spec and path.suffix not in (".yaml", ".yml") and not path.exists()):
        problem = "no such training config" + (" and no such file" if name == spec else "")
        raise ConfigError(problem, field="CONFIG", value=spec, choices=train_presets())
    return path
