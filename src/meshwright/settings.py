"""YAML to frozen pydantic models: every key is known, every error names file, line, key and the nearest key.

`Settings` is the base of each configuration model. `load` reads a file into one; `override` applies ``--set``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from . import files
from .errors import ConfigError

Lines = dict[tuple[str | int, ...], int]


class Settings(BaseModel):
    """Base of all configuration models: frozen, unknown keys refused, NaN and infinity refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


AnySettings = TypeVar("AnySettings", bound=BaseModel)


def load(model: type[AnySettings], path: str | Path, *, changes: list[str] | None = None) -> AnySettings:
    """Read a YAML file into a configuration model.

    Args:
        model: the pydantic model of the file's root.
        path: the YAML file.
        changes: ``key=value`` texts, applied in order before the model is built.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, a key twice, an unknown key or an impossible value.
    """
    data, lines = read_yaml(path)
    for change in changes or []:
        data = override(data, change)
    return build(model, data, file=path, lines=lines)


def build(model: type[AnySettings], data: Any, *, file: str | Path | None = None, lines: Lines | None = None) -> AnySettings:
    """Make a model from plain data, turning pydantic's first complaint into a `ConfigError`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _config_error(error, model, file, lines or {}) from None


def read_yaml(path: str | Path) -> tuple[Any, Lines]:
    """The content of a YAML file and the line of each of its keys.

    Numbers follow YAML 1.2 (``3e-4`` is a number).

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, or a key stands twice in one mapping.
    """
    text = files.read_text(path)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"not valid YAML: {error.problem or error.context}", file=path, line=line) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}", file=path) from None
    lines: Lines = {}
    if node is None:
        return {}, lines
    _collect_lines(node, (), lines, path)
    try:
        loader = _Loader("")
        return loader.construct_document(node), lines
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}", file=path) from None


def override(data: Any, change: str) -> Any:
    """Apply one ``key.subkey=value`` to plain data and return the changed copy; the value is read as YAML.

    Raises:
        ConfigError: the text holds no ``=``, or a key on the way is not a mapping.
    """
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise ConfigError("must read key=value", field="--set", value=change)
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
    except yaml.YAMLError:
        raise ConfigError("the value is not valid YAML", field="--set", value=change) from None
    root = dict(data or {})
    here = root
    *parents, last = key.strip().split(".")
    for name in parents:
        below = here.get(name) if here.get(name) is not None else {}
        if not isinstance(below, dict):
            raise ConfigError(f"{name!r} holds a value, not keys", field="--set", value=change)
        here[name] = dict(below)
        here = here[name]
    here[last] = value
    return root


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2 floats."""


_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)
    |[-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _collect_lines(node: yaml.Node, path: tuple[str | int, ...], lines: Lines, file: str | Path) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise ConfigError("the key stands twice", file=file, line=key.start_mark.line + 1, field=_dotted((*path, name)))
            seen.add(name)
            lines[(*path, name)] = key.start_mark.line + 1
            _collect_lines(value, (*path, name), lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(item, (*path, index), lines, file)


def _config_error(error: ValidationError, model: type[BaseModel], file: str | Path | None, lines: Lines) -> ConfigError:
    first = error.errors()[0]
    location = tuple(first["loc"])
    # Tagged unions put the tag into the location; it is no key of the file.
    known = tuple(p for i, p in enumerate(location) if not lines or location[: i + 1] in lines or i == len(location) - 1)
    line = next((lines[location[:i]] for i in range(len(location), -1, -1) if location[:i] in lines), None)
    field = _dotted(known) or None
    value = first.get("input")
    if first["type"] == "extra_forbidden":
        choices = _keys(model, location[:-1])
        return ConfigError("unknown key", file=file, line=line, field=field, value=str(location[-1]), choices=choices)
    if first["type"] == "missing":
        return ConfigError("the key is missing", file=file, line=line, field=field)
    if first["type"] == "literal_error":
        valid = re.findall(r"'([^']*)'", first["ctx"]["expected"])
        return ConfigError("not a valid choice", file=file, line=line, field=field, value=value, choices=valid)
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        valid = re.findall(r"'([^']*)'", str(first["ctx"].get("expected_tags", "")))
        tag = first["ctx"].get("tag")
        return ConfigError("not a valid kind", file=file, line=line, field=field, value=tag, choices=valid)
    problem = first["msg"].removeprefix("Value error, ")
    problem = problem[:1].lower() + problem[1:]
    shown = value if isinstance(value, str | int | float | bool) and not (isinstance(value, float) and math.isnan(value)) else None
    if isinstance(value, float) and not math.isfinite(value):
        shown = str(value)
    return ConfigError(problem, file=file, line=line, field=field, value=shown)


def _keys(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The keys that are valid at a place of a model's data."""
    models = [model]
    for part in location:
        found: list[type[BaseModel]] = []
        for candidate in models:
            field = candidate.model_fields.get(str(part))
            found += _models_in(field.annotation) if field is not None else []
        if found:
            models = found
        else:  # an index, or the tag of a union
            tagged = [m for m in models if any(str(part) in get_args(f.annotation) for f in m.model_fields.values())]
            models = tagged or models
    return sorted({name for m in models for name in m.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in get_args(annotation) for m in _models_in(part)]


def _dotted(location: tuple[str | int, ...]) -> str:
    return ".".join(str(p) for p in location)
