"""`tune`: a linear scorer by the cross-entropy method, from a config to a run folder.

Every generation draws a population of weights around a mean, plays all of them on the same new training episodes and
moves the mean to the best ones. The same seed gives the same numbers, bit for bit, also across an interruption.

The run folder, under fixed names::

    config.yaml           the resolved config, every default written out
    command.txt           the command line
    versions.json         versions of Python and of the packages that figures depend on
    checkpoint.json       the newest generation
    policy.json           the best mean on the validation episodes so far (see `planners.linear`)
    learning_curve.json   a row per look at the validation episodes
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from .. import files, settings
from ..envs.benchmark import load_benchmark
from ..errors import CheckpointError, InputFileError
from ..planners.linear import DIGEST, FEATURES, LinearWeights
from ..planners.linear_trial import LinearTrial
from ..simulation.scenario import Scenario
from .linear_settings import LinearSettings
from .run_folder import RunFolder, versions

Progress = Callable[["TuneProgress"], None]

FORMAT_VERSION = 1
FIRST_TRAINING_SEED = 1000
FIRST_VALIDATION_SEED = 100
# Where the search begins: every job is placed, anywhere.
START = {"reject": -1.0}


@dataclass(frozen=True)
class TuneProgress:
    """What a progress display may show.

    Attributes:
        generation: how many have been played.
        generations: in all.
        blocking_rate: of the latest look at the validation episodes.
        best: the least so far.
    """

    generation: int
    generations: int
    blocking_rate: float
    best: float


@dataclass(frozen=True)
class LinearRun:
    """Paths inside the run folder of a linear scorer."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def checkpoint(self) -> Path:
        """The newest generation."""
        return self.path / "checkpoint.json"

    @property
    def policy(self) -> Path:
        """The best mean so far."""
        return self.path / "policy.json"

    @property
    def learning_curve(self) -> Path:
        """Rows of validation."""
        return self.path / "learning_curve.json"

    def settings(self) -> LinearSettings:
        """The resolved config.

        Raises:
            CheckpointError: the folder holds none.
        """
        if not self.config.is_file():
            raise CheckpointError("is no run folder (it has no config.yaml)", file=self.path)
        return settings.load(LinearSettings, self.config)


def tune(
    chosen: LinearSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    graphs_dir: Path | None = None,
    scenario: Scenario | None = None,
    progress: Progress | None = None,
) -> LinearRun:
    """Tune a linear scorer and leave a run folder.

    Args:
        chosen: the config.
        folder: the run folder; new unless ``resume`` or ``overwrite``.
        resume: go on from the folder's newest generation, to the same numbers that an uninterrupted run reaches.
        overwrite: replace an existing run folder.
        command: the command line, for the record.
        graphs_dir: profiles by folder name (see `jobs.load_graph`).
        scenario: already built, to save its set-up.
        progress: called after every generation.

    Raises:
        MeshwrightError: the config, benchmark or checkpoint is wrong; the folder exists already. Nothing is written then.
    """
    run = _begun_with(chosen, folder) if resume else LinearRun(RunFolder.check_new(folder, overwrite=overwrite).path)
    scenario = scenario or load_benchmark(chosen.benchmark, changes=chosen.changes).build(graphs_dir=graphs_dir)
    search = _Search(chosen, LinearTrial.only(scenario, chosen.placement_rules))
    if resume and run.checkpoint.exists():
        search.take_up(run.checkpoint)
    if not resume:
        with files.atomic_folder(folder, marker=run.config.name if overwrite else None) as fresh:
            files.write_text(fresh / run.config.name, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False))
            files.write_text(fresh / "command.txt", shlex.join(command) + "\n")
            files.write_json(fresh / "versions.json", versions())
    if not search.curve:
        search.validate()
        search.save(run)
    while search.generation < chosen.generations:
        search.play_generation()
        if search.generation % chosen.validate_every_generations == 0 or search.generation == chosen.generations:
            search.validate()
        search.save(run)
        if progress is not None:
            latest = search.curve[-1]["validation_blocking_rate"]
            progress(TuneProgress(search.generation, chosen.generations, latest, search.best["validation_blocking_rate"]))
    return run


class _Search:
    """The state between two generations."""

    def __init__(self, chosen: LinearSettings, trial: LinearTrial) -> None:
        self.chosen, self.trial = chosen, trial
        kept = chosen.model_dump(mode="json", exclude={"name", "benchmark", "changes"})
        self.key = files.digest(kept, trial.scenario.digest, DIGEST)
        self.mean: NDArray[np.float64] = np.array([START.get(name, 0.0) for name in FEATURES])
        self.spread: NDArray[np.float64] = np.full(len(FEATURES), chosen.spread)
        self.generation = 0
        self.curve: list[dict[str, Any]] = []
        self.best: dict[str, Any] = {}
        self.before_s = 0.0
        self.since = time.perf_counter()
        self.training_rate: float | None = None

    def play_generation(self) -> None:
        """Draw a population, play it, and move to the best."""
        chosen, g = self.chosen, self.generation
        drawn = np.random.default_rng([FIRST_TRAINING_SEED + chosen.seed, g]).standard_normal((chosen.population, len(FEATURES)))
        drawn[0] = 0.0  # the mean itself
        weights = self.mean + self.spread * drawn
        seeds = [[FIRST_TRAINING_SEED + chosen.seed, g, i] for i in range(chosen.num_episodes)]
        rates = self.trial.blocking_rates(weights, [np.random.default_rng(seed) for seed in seeds]).mean(axis=1)
        elite = weights[np.argsort(rates, kind="stable")[: chosen.elite]]
        self.mean = elite.mean(axis=0)
        self.spread = elite.std(axis=0) + chosen.added_spread * (1.0 - (g + 1) / chosen.generations)
        self.training_rate = float(rates.mean())
        self.generation += 1

    def validate(self) -> None:
        """A row of the learning curve."""
        rngs = [np.random.default_rng(FIRST_VALIDATION_SEED + i) for i in range(self.chosen.num_validation_seeds)]
        rate = float(self.trial.blocking_rates(self.mean[None], rngs).mean())
        per_generation = self.chosen.population * self.chosen.num_episodes * self.trial.scenario.settings.num_jobs
        row = {
            "steps": self.generation * per_generation,
            "generation": self.generation,
            "validation_blocking_rate": rate,
            "training_blocking_rate": self.training_rate,
            "elapsed_s": self._elapsed_s(),
        }
        self.curve.append(row)
        if not self.best or rate < self.best["validation_blocking_rate"]:
            self.best = {"generation": self.generation, "validation_blocking_rate": rate, "weights": self.mean.tolist()}

    def save(self, run: LinearRun) -> None:
        """Write learning curve, policy and, last, the checkpoint."""
        trained = {
            "config": self.chosen.name,
            "benchmark": self.chosen.benchmark,
            "seed": self.chosen.seed,
            "generation": self.best["generation"],
            "validation_blocking_rate": self.best["validation_blocking_rate"],
        }
        files.write_json(run.learning_curve, self.curve)
        LinearWeights(np.array(self.best["weights"]), self.trial.placement_rules, trained).save(run.policy)
        data = {
            "format_version": FORMAT_VERSION,
            "key": self.key,
            "generation": self.generation,
            "mean": self.mean.tolist(),
            "spread": self.spread.tolist(),
            "training_rate": self.training_rate,
            "curve": self.curve,
            "best": self.best,
            "elapsed_s": self._elapsed_s(),
        }
        files.write_json(run.checkpoint, data)

    def take_up(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises:
            CheckpointError: truncated, of another version, or of another config or scenario.
        """
        try:
            data = files.read_json(path)
        except InputFileError as error:
            raise CheckpointError(error.problem, file=path, line=error.line) from None
        if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(f"is no checkpoint of version {FORMAT_VERSION}", file=path)
        if data.get("key") != self.key:
            raise CheckpointError("belongs to another config, workload or cluster than this run's", file=path)
        try:
            self.generation, self.curve, self.best = int(data["generation"]), list(data["curve"]), dict(data["best"])
            self.mean, self.spread = np.array(data["mean"], np.float64), np.array(data["spread"], np.float64)
            self.training_rate, self.before_s = data["training_rate"], float(data["elapsed_s"])
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"is no checkpoint of version {FORMAT_VERSION}", file=path) from None

    def _elapsed_s(self) -> float:
        return self.before_s + time.perf_counter() - self.since


def _begun_with(chosen: LinearSettings, folder: Path) -> LinearRun:
    """The run folder, if it was begun with this config."""
    run = LinearRun(folder)
    begun = run.settings().model_dump()
    for field, value in chosen.model_dump().items():
        if begun[field] != value:
            raise CheckpointError("differs from the config that the run was begun with", file=folder, field=field)
    return run
