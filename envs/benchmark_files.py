"""Where benchmarks lie: those that come with the package, of both kinds, and files of users.

A benchmark is of one kind: with the key ``scenario`` of the world of `simulation.cluster` (`envs.benchmark`), with the key
``fleet`` of that of `simulation.fleet` (`envs.fleet.benchmark`).
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files as resources
from pathlib import Path

from .. import files
from ..errors import ConfigError, InputFileError

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
PRESET = "preset:"

_FLEET = re.compile(r"""^["']?fleet["']?\s*:""", re.MULTILINE)


def preset_names(*, of_fleets: bool | None = None) -> list[str]:
    """The built-in benchmarks, or those of one kind."""
    return sorted(name for name, is_fleet in _presets().items() if of_fleets in (None, is_fleet))


def find_benchmark(spec: str) -> tuple[Path, bool]:
    """The file of ``preset:NAME``, of a built-in's bare name or of a path, and whether it is a built-in's.

    Raises:
        ConfigError: no such preset, and no file of this name.
    """
    name = spec.removeprefix(PRESET)
    if spec.startswith(PRESET) or (spec in _presets() and not Path(spec).is_file()):
        if name not in _presets():
            raise ConfigError("unknown benchmark", field="benchmark", value=name, choices=preset_names())
        return _folder() / f"{name}.yaml", True
    if not Path(spec).exists() and "/" not in spec and not spec.endswith((".yaml", ".yml")):
        choices = [f"{PRESET}{one}" for one in preset_names()]
        raise ConfigError("no such benchmark and no such file", field="benchmark", value=spec, choices=choices)
    return Path(spec), False


def is_of_fleet(spec: str) -> bool:
    """Whether a benchmark is one of a fleet; of a spelling that names none, False."""
    try:
        path, _ = find_benchmark(spec)
        return path.is_file() and _FLEET.search(files.read_text(path)) is not None
    except (ConfigError, InputFileError):
        return False


@cache
def _presets() -> dict[str, bool]:
    """Names of the built-in benchmarks, and whether each is one of a fleet."""
    found = (path for path in _folder().iterdir() if path.suffix == ".yaml")
    return {path.stem: _FLEET.search(path.read_text(encoding="utf-8")) is not None for path in found}


def _folder() -> Path:
    return Path(str(resources("meshwright.configs"))) / "benchmarks"
