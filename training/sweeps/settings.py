"""The config of a sweep: a training config, and ranges of some of its keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ... import settings
from ...errors import ConfigError, MeshwrightError, nearest
from ..methods import SeedSettings, load_config

PRESET = "preset:"


class SweepRange(settings.Settings):
    """What a key may be.

    Attributes:
        low, high: ends of a range of numbers, both possible.
        log: whether numbers are drawn evenly by their logarithm.
        whole: whether numbers are whole.
        choices: the possible values, in place of a range; numbers, texts, lists, true, false or null.
    """

    low: float | None = None
    high: float | None = None
    log: settings.Switch = False
    whole: settings.Switch = False
    choices: tuple[Any, ...] = ()

    @model_validator(mode="after")
    def _is_a_range_or_choices(self) -> Self:
        is_range = self.low is not None or self.high is not None
        if is_range == bool(self.choices):
            raise ValueError("needs low and high, or choices")
        if self.choices:
            if len({json.dumps(value, sort_keys=True) for value in self.choices}) < len(self.choices):
                raise ValueError("holds a choice twice")
            if self.log or self.whole:
                raise ValueError("log and whole go with low and high, not with choices")
            return self
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("low must be less than high")
        if self.log and self.low <= 0:
            raise ValueError("low must be above 0 where log is true")
        if self.whole and (self.low % 1 or self.high % 1):
            raise ValueError("low and high must be whole numbers where whole is true")
        return self

    def ends(self) -> list[Any]:
        """Values that show whether the key takes what the range holds."""
        if self.choices:
            return list(self.choices)
        return [int(x) if self.whole else x for x in (self.low, self.high) if x is not None]


class SweepSettings(settings.Settings):
    """Settings of a sweep.

    Attributes:
        name: for tables and the folder.
        config: the training config: ``preset:NAME``, or a path against the folder of this file.
        changes: ``key=value`` texts that change it in every trial.
        parameters: what is tried: the range of each key, by its dotted name.
        trials: how many runs are trained, those that are pruned among them.
        seed: of what is drawn; the seed of each run is the config's.
        sampler: ``tpe`` learns which values do well, ``random`` does not.
        pruner: ``median`` stops a run whose best validation is worse than the median of the others' at as many validations;
            ``none`` stops none.
        num_startup_trials: drawn at random, and never pruned, before anything is learned of them.
        num_warmup_validations: of each run before it may be pruned.

    Source:
        Bergstra et al., "Algorithms for hyper-parameter optimization", 2011 (``tpe``); Akiba et al., "Optuna: a
        next-generation hyperparameter optimization framework", 2019.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    config: str
    changes: tuple[str, ...] = ()
    parameters: dict[str, SweepRange] = Field(min_length=1)
    trials: int = Field(default=20, ge=1, le=100_000)
    seed: int = Field(default=0, ge=0, le=1_000_000)
    sampler: Literal["tpe", "random"] = "tpe"
    pruner: Literal["median", "none"] = "median"
    num_startup_trials: int = Field(default=5, ge=1, le=10_000)
    num_warmup_validations: int = Field(default=1, ge=0, le=10_000)


def load_sweep(path: str | Path, changes: tuple[str, ...] = ()) -> SweepSettings:
    """Read a sweep, and try the ends of its ranges on the training config.

    Args:
        path: the YAML file.
        changes: ``key=value`` texts that change the sweep, applied in order.

    Raises:
        InputFileError: a file is missing or unreadable.
        ConfigError: bad YAML, an unknown key, here or of the training config, or an impossible value.
    """
    chosen = settings.load(SweepSettings, path, changes=changes)
    chosen = chosen.model_copy(update={"config": _named(chosen.config, Path(path))})
    load_config(config_path(chosen), chosen.changes)
    for key, values in chosen.parameters.items():
        if key in ("name", "log", "method"):
            raise ConfigError("is no key that a sweep may change", file=path, field=f"parameters.{key}")
        _check_key(chosen, key, path)
        problems = []
        for value in values.ends():
            try:
                load_config(config_path(chosen), [*chosen.changes, *as_changes({key: value})])
            except MeshwrightError as error:
                problems.append(error)
        if problems and (not values.choices or len(problems) == len(values.choices)):
            first = problems[0]
            value = None if first.value is None else first.value
            raise ConfigError(first.problem, file=path, field=f"parameters.{key}", value=value) from None
    return chosen


def as_changes(values: Mapping[str, Any]) -> list[str]:
    """The ``key=value`` texts that set keys to values."""
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]


def config_of(chosen: SweepSettings, values: Mapping[str, Any], name: str, *, logs: bool = False) -> SeedSettings:
    """The training config with values of the keys that are tried; unless ``logs``, nothing is logged by it.

    Raises:
        ConfigError: these values do not go together.
    """
    made = load_config(config_path(chosen), [*chosen.changes, *as_changes(values)])
    return made.model_copy(update={"name": name} if logs else {"name": name, "log": ()})


def _check_key(chosen: SweepSettings, key: str, path: str | Path) -> None:
    """Refuse a key that the training config has not, with the nearest that it has."""
    known = _keys(load_config(config_path(chosen), chosen.changes).model_dump(mode="json"))
    if key not in known and not any(key.startswith(f"{one}.") for one in known):
        near = nearest(key, known)
        raise ConfigError(
            "the training config has no such key", file=path, field="parameters", value=key, choices=[near] if near else known
        )


def _keys(data: Mapping[str, Any], before: str = "") -> list[str]:
    found = []
    for key, value in data.items():
        found.append(before + key)
        if isinstance(value, Mapping):
            found += _keys(value, f"{before}{key}.")
    return found


def config_path(chosen: SweepSettings) -> Path:
    """The YAML of the training config."""
    if not chosen.config.startswith(PRESET):
        return Path(chosen.config)
    return _presets() / f"{chosen.config.removeprefix(PRESET)}.yaml"


def _named(spec: str, sweep: Path) -> str:
    """A preset as it is spelled, or an absolute path, so that the sweep goes on from anywhere."""
    if spec.startswith(PRESET):
        names = sorted(f"{PRESET}{path.stem}" for path in _presets().glob("*.yaml"))
        if spec not in names:
            raise ConfigError("no such training config", file=sweep, field="config", value=spec, choices=names)
        return spec
    beside = sweep.parent / spec
    return str((beside if beside.exists() else Path(spec)).resolve())


def _presets() -> Path:
    return Path(str(resources("meshwright.configs"))) / "train"
