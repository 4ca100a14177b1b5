"""Files of benchmarks: those that come with the package, of all kinds, and those of users.

The key of a benchmark says its kind:

- ``scenario``: the world of `simulation.cluster` (`envs.benchmark`);
- ``fleet``: that of `simulation.fleet` (`envs.fleet.benchmark`);
- ``elastic``: that of `simulation.elastic` (`worlds.elastic.benchmark`);
- ``placement``: operator placement (`worlds.operators.benchmark`);
- ``tasklets``: stages on distant devices (`worlds.tasklets.world`).
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files as resources
from pathlib import Path

from .. import files
from ..errors import ConfigError, InputFileError, Names

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
PRESET = "preset:"

SCENARIO, FLEET, ELASTIC, PLACEMENT, TASKLETS = "scenario", "fleet", "elastic", "placement", "tasklets"
_FLAT = "instances"
"""The key that shows a benchmark of operator placement in its flat spelling."""
_KIND = re.compile(rf"""^["']?({SCENARIO}|{FLEET}|{ELASTIC}|{PLACEMENT}|{TASKLETS}|{_FLAT})["']?\s*:""", re.MULTILINE)

_KEY = re.compile(r"""^["']?([A-Za-z_][A-Za-z0-9_-]*)["']?\s*:""", re.MULTILINE)


def each_once(policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the policies that a benchmark compares, for pydantic.

    Raises:
        ValueError: one is named twice.
    """
    if len(set(policies)) < len(policies):
        raise ValueError("must name each policy once")
    return policies


def preset_names(kind: str | None = None) -> list[str]:
    """Return the built-in benchmarks, or those of one kind."""
    return Names("benchmarks", sorted(name for name, result in _presets().items() if kind in (None, result)))


def find_benchmark(spec: str) -> tuple[Path, bool]:
    """Return the file of ``preset:NAME``, of a built-in's bare name or of a path, and whether it is a built-in's.

    Raises:
        ConfigError: no such preset, and no file of this name.
    """
    name = spec.removeprefix(PRESET)
    if spec.startswith(PRESET) or (spec in _presets() and not Path(spec).is_file()):
        if name not in _presets():
            raise ConfigError("unknown benchmark", field="benchmark", value=name, choices=preset_names())
        return _folder() / f"{name}.yaml", True
    if not Path(spec).exists() and "/" not in spec and not spec.endswith((".yaml", ".yml")):
        choices = Names("benchmarks", [f"{PRESET}{one}" for one in preset_names()])
        raise ConfigError("no such benchmark and no such file", field="benchmark", value=spec, choices=choices)
    return Path(spec), False


def kind_of(spec: str) -> str | None:
    """Return the kind of a benchmark, by its key; of a spelling that names none, None."""
    try:
        path, _ = find_benchmark(spec)
        return _kind_in(files.read_text(path)) if path.is_file() else None
    except (ConfigError, InputFileError):
        return None


def keys_of(spec: str) -> list[str]:
    """Return the keys of a benchmark file, as they are written; none of a spelling that names no file."""
    try:
        path, _ = find_benchmark(spec)
        return _KEY.findall(files.read_text(path)) if path.is_file() else []
    except (ConfigError, InputFileError):
        return []


def _kind_in(text: str) -> str | None:
    match = _KIND.search(text)
    return None if match is None else PLACEMENT if match[1] == _FLAT else match[1]


@cache
def _presets() -> dict[str, str | None]:
    """Return the names of the built-in benchmarks, and the kind of each."""
    result = (path for path in _folder().iterdir() if path.suffix == ".yaml")
    return {path.stem: _kind_in(path.read_text(encoding="utf-8")) for path in result}


def _folder() -> Path:
    return Path(str(resources("meshwright.configs"))) / "benchmarks"
