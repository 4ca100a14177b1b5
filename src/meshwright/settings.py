"""YAML to frozen pydantic models: every key is known, every error names file, line, key and the nearest key.

`Settings` is the base of each configuration model. `load` reads a file into one; `override` applies ``--set``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from . import files, quantities, yaml12
from .errors import ConfigError, InputFileError, MeshwrightError, Names, in_our_words, nearest
from .yaml12 import Lines, Location, dotted

Count = Annotated[int, Field(strict=True, ge=1)]
Index = Annotated[int, Field(strict=True, ge=0)]
Switch = Annotated[bool, Field(strict=True)]


_PLAIN = (int, float)


class Settings(BaseModel):
    """Base of all configuration models: frozen, unknown keys refused, and every number one that can be.

    NaN and infinity are refused, and what `quantities` says that nothing with a key of this name can be.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, data: Any) -> Any:
        """Refuse ``true`` where a number is wanted; pydantic would take it for 1."""
        for key, value in data.items() if isinstance(data, dict) else ():
            if isinstance(value, bool) and key in _ranges(cls)[1]:
                raise _complaint(cls, "must be a number", (key,), value)
        return data

    @model_validator(mode="after")
    def _every_number_can_be(self) -> Self:
        for key, (least, most) in _ranges(type(self))[0]:
            value = self.__dict__[key]
            if not value or (type(value) in _PLAIN and least <= value <= most):
                continue  # at once, for searches make thousands
            for i, number in enumerate(value if isinstance(value, tuple) else (value,)):
                if isinstance(number, int | float) and number != 0 and not least <= abs(number) <= most:
                    place = (key, i) if isinstance(value, tuple) else (key,)
                    raise _complaint(type(self), str(quantities.problem(key, number)), place, number)
        return self


def _complaint(model: type[BaseModel], problem: str, place: Location, value: object) -> ValidationError:
    said = PydanticCustomError("impossible_number", "{problem}", {"problem": problem})
    return ValidationError.from_exception_data(model.__name__, [InitErrorDetails(type=said, loc=place, input=value)])


AnySettings = TypeVar("AnySettings", bound=BaseModel)
AnyError = TypeVar("AnyError", bound=MeshwrightError)

KINDS: dict[frozenset[str], str] = {
    frozenset({"scenario"}): "a benchmark, which `meshwright evaluate --benchmark` takes",
    frozenset({"fleet"}): "a benchmark of a fleet, which `meshwright evaluate --benchmark` takes",
    frozenset({"elastic"}): "a benchmark of elastic jobs, which `meshwright evaluate --benchmark` takes",
    frozenset({"benchmark", "name"}): "a training config, which `meshwright train` takes",
    frozenset({"device", "topology"}): "a cluster, which `--cluster` takes and a benchmark names",
    frozenset({"graphs", "arrivals"}): "a workload, which a benchmark names",
    frozenset({"evaluations", "tables"}): "a study, which `make results` takes",
    frozenset({"product_efficiency"}): "constants of kernels, which `--set kernels=FILE` takes",
    frozenset({"model_type"}): "a model's configuration, which `--job` takes",
    frozenset({"schema_version", "ranks"}): "a plan, which `meshwright export` takes",
    frozenset({"schema_version", "jobs"}): "a state of a cluster, which `--state` takes",
}
"""Kinds of files by keys that only they have, for whoever names one in place of another."""


def load(model: type[AnySettings], path: str | Path, *, changes: Sequence[str] | None = None) -> AnySettings:
    """Read a YAML file into a configuration model.

    Args:
        model: the pydantic model of the file's root.
        path: the YAML file.
        changes: ``key=value`` texts, applied in order before the model is built.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, a key twice, an unknown key or an impossible value.
    """
    result, lines = read_yaml(path)
    changes = changes or ()
    data = reduce(override, changes, result)
    try:
        return build_settings(model, data, file=path, lines=lines)
    except ConfigError as error:
        other = _other_kind(model, result)
        if other is not None:
            raise ConfigError(f"is {other}", file=path) from None
        if any(_is_under(error.field, _key(change)) for change in changes) or (changes and _is_valid(model, result)):
            raise ConfigError(error.problem, file="--set", field=error.field, value=error.value, choices=error.choices) from None
        raise


def located(error: AnyError, path: str | Path, changes: Sequence[str] = (), *, below: str = "") -> AnyError:
    """Return an error that came up when what a file says was used, with the file and line that its key has there, or ``--set``.

    Args:
        error: it is left as it is where it names a file already, or a key that the file does not have.
        path: the YAML file.
        changes: ``key=value`` texts that changed what it says.
        below: the key below which the error's may lie, where it does not begin with it itself.
    """
    if error.file is not None or error.field is None:
        return error
    field = error.field if error.field.startswith(f"{below}.") or not below else f"{below}.{error.field}"
    if any(_is_under(field, _key(change)) for change in changes):
        file, line = "--set", None
    else:
        file, line = str(path), read_yaml(path)[1].get(tuple(field.split(".")))
        if line is None:
            return error
    return type(error)(error.problem, file=file, line=line, field=field, value=error.value, choices=error.choices)


def _other_kind(model: type[BaseModel], data: Any) -> str | None:
    """Return the kind of a file that is not of this model, by its keys; None where most of them are the model's."""
    keys = set(data) if isinstance(data, dict) else set()
    own = keys & set(model.model_fields)
    if not keys or len(own) > len(keys) / 2:
        return None
    return next((reported for marks, reported in KINDS.items() if marks <= keys and not marks <= own), None)


def build_settings(
    model: type[AnySettings], data: Any, *, file: str | Path | None = None, lines: Lines | None = None
) -> AnySettings:
    """Make a model from plain data, turning the first of pydantic's complaints into a `ConfigError`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise as_config_error(error.errors(), model, data, file, lines or {}) from None


def build_read(model: type[AnySettings], data: Any, file: str | Path) -> AnySettings:
    """Make a model from the content of a file that is no configuration, with an `InputFileError` for what is wrong."""
    try:
        return build_settings(model, data, file=file)
    except ConfigError as error:
        raise InputFileError(error.problem, file=file, field=error.field, value=error.value, choices=error.choices) from None


def read_yaml(path: str | Path) -> tuple[Any, Lines]:
    """Return the content of a YAML file and the line of each of its keys; an empty file is an empty mapping.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, a key appears twice in one mapping, or an alias contains itself.
    """
    data, lines = yaml12.parse(files.read_text(path), file=path)
    return ({} if data is None else data), lines


def override(data: Any, change: str) -> Any:
    """Apply one ``key.subkey=value`` to plain data and return the changed copy; the value is read as YAML.

    Raises:
        ConfigError: the text holds no ``=``, its value is not YAML, or a key on the way is not a mapping.
    """
    if "=" not in change or not all(_key(change).split(".")):
        raise ConfigError("must read key=value", field="--set", value=change)
    try:
        value, _ = yaml12.parse(change.partition("=")[2])
    except ConfigError:
        raise ConfigError("the value is not valid YAML", field="--set", value=change) from None
    if not isinstance(data, dict | None):
        raise ConfigError("the value to change holds no keys", field="--set", value=change)
    root: dict[Any, Any] = dict(data or {})
    here = root
    *parents, last = _key(change).split(".")
    for name in parents:
        below = here.get(name) if here.get(name) is not None else {}
        if not isinstance(below, dict):
            raise ConfigError(f"{name!r} holds a value, not keys", field="--set", value=change)
        here[name] = dict(below)
        here = here[name]
    here[last] = value
    return root


def as_changes(keys: Mapping[str, Any]) -> list[str]:
    """Return the ``key.subkey=value`` texts by which `override` sets nested keys, one for each value.

    A mapping that names a ``kind`` is set as a whole, since keys of another kind would not fit.
    """
    changes = []
    for key, value in keys.items():
        if isinstance(value, Mapping) and value and "kind" not in value:
            changes += [f"{key}.{change}" for change in as_changes(value)]
        else:
            changes.append(f"{key}={json.dumps(value)}")
    return changes


def as_config_error(
    complaints: Sequence[Mapping[str, Any]],
    annotation: Any,
    data: Any,
    file: str | Path | None = None,
    lines: Lines | None = None,
) -> ConfigError:
    """Return the most telling of pydantic's complaints as our error.

    Args:
        complaints: as ``ValidationError.errors()`` lists them.
        annotation: what the data were to be: a model, or a type with models in it.
        data: the data with the mistakes.
        file: of the data.
        lines: of its keys.
    """
    # A misspelt key is complained of twice, as a missing one and as an unknown one; the second says more.
    first = next((c for c in complaints if c["type"] == "extra_forbidden"), complaints[0])
    kind, location, about = first["type"], first["loc"], first.get("ctx", {})
    place = _in_data(location, data, names_absent_key=kind == "missing")
    value: Any = first.get("input")
    problem = _PROBLEMS.get(kind) or in_our_words(first["msg"])
    choices: list[str] | None = None
    says_value = kind in ("missing", "union_tag_not_found")
    line = next((lines[place[:i]] for i in range(len(place), -1, -1) if place[:i] in lines), None) if lines else None
    match kind:
        case "extra_forbidden":
            models = _models_at(_models_in(annotation), location[:-1])
            value, choices = str(location[-1]), Names(None, {name for model in models for name in model.model_fields})
            if not nearest(value, choices) and (below := _below(models, location[:-1], value)):
                problem, says_value, choices = f"unknown key; did you mean {' or '.join(map(repr, below))}?", True, None
        case "literal_error":  # pydantic lists 'a', 'b' or 3
            choices = [text or number for text, number in re.findall(r"'([^']*)'|(-?[0-9]+)", about["expected"])]
        case "union_tag_invalid":
            value, choices = about["tag"], re.findall(r"'([^']*)'", about["expected_tags"])
        case "tuple_type" | "list_type" if isinstance(value, str) and value and value.isprintable():
            problem += f", as [{value}]"
        case "string_type" if isinstance(value, list) and [*map(type, value)] == [str] and value[0].isprintable():
            problem += f", as {value[0]}"
        case "int_parsing" | "int_type" | "int_from_float" | "float_parsing" | "float_type" if isinstance(value, str):
            problem, says_value = quantities.not_plain(value, str(location[-1]), is_whole=kind.startswith("int"))
    if "discriminator" in about:
        place = (*place, about["discriminator"].strip("'"))
    if value is None and not says_value:
        problem = f"{problem}, not null"
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    if says_value or not (isinstance(value, str | int | float) or (isinstance(value, list | dict) and kind.endswith("_type"))):
        value = None
    return ConfigError(problem, file=file, line=line, field=dotted(place) or None, value=value, choices=choices)


_PROBLEMS = {
    "extra_forbidden": "unknown key",
    "missing": "the key is missing",
    "literal_error": "not a valid choice",
    "union_tag_invalid": "not a valid kind",
    "union_tag_not_found": "the key is missing",
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "must be a mapping of keys"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    "string_type": "must be one name, path or text",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
}
"""Kinds of pydantic's complaints, as everything else is said here."""


def _in_data(location: Location, data: Any, *, names_absent_key: bool) -> Location:
    """Return the part of pydantic's location that is keys and indices of the data; the tags of unions are not."""
    place: list[str | int] = []
    here, is_tagged = data, False
    for part in location:
        if not is_tagged and isinstance(here, dict) and here.get("kind") == part:
            is_tagged = True  # a tag may be the name of another key, too
            continue
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            continue
        place.append(part)
        is_tagged = False
    return (*place, location[-1]) if names_absent_key else tuple(place)


def _below(models: list[type[BaseModel]], location: Location, key: str) -> list[str]:
    """Return places of a key of this name below models, spelled from their own place; at most three."""
    fields = [(name, field) for model in models for name, field in model.model_fields.items()]
    result = {name for name, field in fields if any(key in below.model_fields for below in _models_in(field.annotation))}
    return [dotted((*location, name, key)) for name in sorted(result)[:3]]


def _models_at(models: list[type[BaseModel]], location: Location) -> list[type[BaseModel]]:
    """Return the models that may describe a place in the data of some models."""
    for part in location:
        fields = [field for model in models if (field := model.model_fields.get(str(part)))]
        tagged = [m for m in models if any(str(part) in get_args(f.annotation) for f in m.model_fields.values())]
        # An index leaves the models as they are, the tag of a union chooses among them.
        models = [one for field in fields for one in _models_in(field.annotation)] or tagged or models
    return models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in get_args(annotation) for m in _models_in(part)]


def _types_in(annotation: Any, *, origins: tuple[Any, ...] = (Union, UnionType, Annotated)) -> set[Any]:
    """Return the members of a union; the items of containers do not count."""
    if get_origin(annotation) in origins:
        return {kind for part in get_args(annotation) for kind in _types_in(part, origins=origins)}
    return {annotation} if isinstance(annotation, type) else set()


@cache
def _ranges(model: type[BaseModel]) -> tuple[tuple[tuple[str, quantities.Range], ...], frozenset[str]]:
    """Return the ranges of a model's numbers, in tuples too, and the keys of numbers that may not be true or false."""
    fields = {key: field.annotation for key, field in model.model_fields.items()}
    with_tuples = {key: _types_in(kind, origins=(Union, UnionType, Annotated, tuple)) for key, kind in fields.items()}
    ranges = tuple((key, quantities.range_of(key)) for key, kinds in with_tuples.items() if kinds & {int, float})
    plain = {key: _types_in(kind) for key, kind in fields.items()}
    return ranges, frozenset(key for key, kinds in plain.items() if kinds & {int, float} and bool not in kinds)


def _is_valid(model: type[BaseModel], data: Any) -> bool:
    try:
        model.model_validate(data)
    except ValidationError:
        return False
    return True


def _key(change: str) -> str:
    return change.partition("=")[0].strip()


def _is_under(field: str | None, key: str) -> bool:
    return field is not None and (field == key or field.startswith(key + "."))
