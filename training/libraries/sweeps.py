"""Sweeps: training runs with other values of some keys, chosen by Optuna, in a folder with Optuna's own storage."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field, model_validator

from ... import files, settings
from ...errors import ConfigError, MeshwrightError
from ...packaged import config_path, train_presets
from ...worker_pool import WorkerPool
from ..hooks.callback import TrainingCallback, ValidationRecord
from ..methods import SeedSettings, load_config, method_of, train
from ..run_folder import to_yaml

SWEEP, STORAGE, BEST = "sweep.yaml", "sweep.db", "best.yaml"


class SweepRange(settings.Settings):
    """Values of a key: from ``low`` to ``high``, evenly by their logarithm or whole numbers, or any of ``choices``."""

    low: int | float | None = None
    high: int | float | None = None
    log: settings.Switch = False
    whole: settings.Switch = False
    choices: tuple[Any, ...] = ()

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if (self.low is None) != bool(self.choices) or (self.high is None) != bool(self.choices):
            raise ValueError("needs low and high, or choices")
        self.distribution()  # Optuna says what is wrong
        return self

    def distribution(self) -> BaseDistribution:
        """Return the same for Optuna, with choices as JSON."""
        if self.choices:
            return CategoricalDistribution([json.dumps(value) for value in self.choices])
        return (IntDistribution if self.whole else FloatDistribution)(self.low, self.high, log=self.log)  # type: ignore[arg-type]


class SweepSettings(settings.Settings):
    """A sweep over a training config with ``changes``; the first ``num_startup_trials`` are drawn at random and never stopped."""

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

    def config_with(self, values: Mapping[str, Any]) -> SeedSettings:
        """Return the training config with values of keys; a `MeshwrightError` where they do not go together."""
        return load_config(self.config, [*self.changes, *(f"{key}={json.dumps(value)}" for key, value in values.items())])

    def values_of(self, trial: FrozenTrial | optuna.Trial) -> dict[str, Any]:
        """Return the values of the keys in a trial."""
        return {key: json.loads(value) if self.parameters[key].choices else value for key, value in trial.params.items()}


def load_sweep(path: Path, changes: tuple[str, ...] = ()) -> SweepSettings:
    """Read a sweep; a range is refused whose ends the training config does not take, and choices whose first one it does not."""
    config = settings.load(SweepSettings, path, changes=changes)
    place = config_path(config.config) if config.config in train_presets() else path.parent / config.config
    if not place.is_file():
        raise ConfigError("no such training config", file=path, field="config", value=config.config, choices=train_presets())
    config = config.model_copy(update={"config": str(place.resolve())})
    config.config_with({})
    for key, of in config.parameters.items():
        for value in of.choices[:1] or (of.low, of.high):
            try:
                config.config_with({key: value})
            except MeshwrightError as error:
                raise ConfigError(f"parameters.{key}: {error.problem}", file=path, value=value, choices=error.choices) from None
    return config


class _Reported(TrainingCallback):
    """Reports validations to a trial, and stops a run that its pruner gives up; the last validation stops nothing."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial, self.best, self.is_pruned = trial, float("nan"), False

    def on_validation(self, record: ValidationRecord) -> bool:
        self.best = record.best
        self.trial.report(record.best, record.number)
        self.is_pruned = record.step < record.total_steps and self.trial.should_prune()
        return not self.is_pruned


def sweep(
    sweep_settings: SweepSettings, folder: Path, jobs: int, until_s: float, after: Callable[[optuna.Study], None]
) -> optuna.Study:
    """Train the trials that are left by ``jobs`` processes, and write the best config; ``after`` is called after each trial.

    No trial is begun after ``until_s``, a time of `time.monotonic`. Values of trials that were cut off are asked for again.
    """
    files.write_text(folder / SWEEP, to_yaml(sweep_settings))
    study = study_of(sweep_settings, folder)
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params)
    with WorkerPool(jobs) as pool:
        for is_trained in pool.map(
            partial(_run_trial, sweep_settings, folder), [until_s] * (sweep_settings.trials - _num_ended(study))
        ):
            if is_trained:
                after(study)
    if study.get_trials(states=(TrialState.COMPLETE,)):
        best = sweep_settings.config_with(sweep_settings.values_of(study.best_trial))
        files.write_text(folder / BEST, to_yaml(best.model_copy(update={"name": f"{sweep_settings.name}-best"})))
    return study


def study_of(sweep_settings: SweepSettings, folder: Path) -> optuna.Study:
    """Return the study in a folder's storage, with a sampler that is seeded by the number of trials that have ended."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url, startup = f"sqlite:///{(folder / STORAGE).absolute()}", sweep_settings.num_startup_trials
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 60}})
    first = sweep_settings.config_with({})
    direction: Literal["minimize", "maximize"] = "minimize" if method_of(first).is_less_better(first) else "maximize"
    study = optuna.create_study(storage=storage, study_name=sweep_settings.name, direction=direction, load_if_exists=True)
    seed = (sweep_settings.seed * 1_000_003 + _num_ended(study)) % 2**32
    tpe = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
    study.sampler = tpe if sweep_settings.sampler == "tpe" else optuna.samplers.RandomSampler(seed=seed)
    median = optuna.pruners.MedianPruner(n_startup_trials=startup, n_warmup_steps=sweep_settings.num_warmup_validations)
    study.pruner = median if sweep_settings.pruner == "median" else optuna.pruners.NopPruner()
    return study


def _num_ended(study: optuna.Study) -> int:
    """Return the trials so far without those that were cut off."""
    lost = TrialState.FAIL, TrialState.WAITING
    return sum(trial.state not in lost or "problem" in trial.user_attrs for trial in study.get_trials(deepcopy=False))


def _run_trial(sweep_settings: SweepSettings, folder: Path, until_s: float) -> bool:
    """Ask for a trial and train it, in any process, unless the time is over; says whether it did."""
    if time.monotonic() >= until_s:
        return False
    study = study_of(sweep_settings, folder)
    trial = study.ask({key: of.distribution() for key, of in sweep_settings.parameters.items()})
    reported = _Reported(trial)
    try:
        update = {"name": f"{sweep_settings.name}-{trial.number:04}", "log": ()}
        config = sweep_settings.config_with(sweep_settings.values_of(trial)).model_copy(update=update)
        train(config, folder / f"trials/{trial.number:04}", callbacks=[reported], overwrite=True)
    except ConfigError as error:
        trial.set_user_attr("problem", str(error))
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, *((None, TrialState.PRUNED) if reported.is_pruned else (reported.best,)))
    return True
