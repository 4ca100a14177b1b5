"""`train_fleet`: search for weights, imitation of a rule, then PPO, from a config to a run folder.

The same seed gives the same numbers, on a GPU those of one type with one version of torch. Stages, each with a name of its own:
`weight_search.search_weights` and `imitation.imitate`, where the config has them, and PPO. The network after each of the first is
kept (``searched.pt``, ``imitated.pt``), so that what each stage is good for can be measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

from ... import files
from ...envs.fleet.benchmark import load_fleet_benchmark
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.objective import is_better
from ...errors import ConfigError
from ...models.fleet.network import FleetActor
from ...models.fleet.policy import FleetPolicy
from ...models.fleet.saved import SavedFleetNetwork, player
from ...models.policy_files import STAGES, stage
from ...planners.fleet.linear_scores import FIRST_WEIGHTS, START, linear_scorer
from ...planners.fleet.rules import fleet_rule
from ..device import in_fixed_order, pick_device
from ..hooks.callback import StageRecord, TrainingCallback, TrainingStopped
from ..hooks.names import WITHOUT_EFFECT
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..linear.tune import restore, write_checkpoint
from ..ppo import figures_of, make_ppo
from . import fleet_checkpoint
from .imitation import imitate
from .rules_played import check_something_to_learn, mean_objective, play_all, validation_seeds_of
from .run_folder import FleetRunFolder
from .settings import FleetTrainSettings
from .timed_buffer import TimedRolloutBuffer
from .vec_env import FleetVecEnv
from .weight_search import WeightSearch, prices_of, scores_of

PPO = "PPO"
"""Stage after those with names of their own."""


def train_fleet(
    chosen: FleetTrainSettings,
    folder: Path,
    fleet: Fleet | None = None,
    *,
    mixed: Sequence[Fleet] = (),
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[StageRecord], None] = lambda now: None,
    callbacks: Sequence[TrainingCallback] = (),
) -> FleetRunFolder:
    """Train a policy and leave a run folder.

    Args:
        chosen, folder, resume, overwrite, command, callbacks: as of `training.methods.train`.
        fleet: of the benchmark; built, with the further ones, where it is None.
        mixed: of the further ones.
        progress: called now and then, with the latest value known; its stages are `PPO`, too.

    Raises:
        NothingToLearnError: all rules do equally well on the validation episodes of a benchmark.
        ConfigError: benchmarks that are played together differ in objective or in what is observed.
        MeshwrightError: the config is wrong, or the folder exists already. Nothing is written then.
    """
    run = FleetRunFolder.of(folder, chosen, resume=resume, overwrite=overwrite)
    if fleet is None:
        fleet, *mixed = (load_fleet_benchmark(one, changes=chosen.changes).build() for one in chosen.benchmarks)
    less = is_better(fleet.settings, 0.0, 1.0)
    reported = ReportedMeasure("fleet", fleet.settings.objective, "validation", "steps", "decisions", less)
    reporter = RunReporter(chosen, folder, reported, chosen.total_steps, callbacks)
    torch.set_num_threads(chosen.num_threads)
    torch.manual_seed(chosen.seed)
    fleets = (fleet, *mixed)
    _check_same_kind(fleets)
    for one in fleets:
        check_something_to_learn(chosen, one)
    env = FleetVecEnv(
        fleet,
        chosen.ppo.num_envs,
        chosen.seed,
        scale=chosen.reward_scale,
        most=chosen.reward_most,
        by_time=chosen.discounted_by == "time",
        spreads=chosen.spread_starts,
        group=chosen.group,
    )
    model = _model(chosen, env, fleet)
    key = files.digest(chosen.model_dump(exclude=set(WITHOUT_EFFECT)), *(one.digest for one in fleets))
    restored = fleet_checkpoint.load(run.checkpoint, key) if resume and run.checkpoint.exists() else None
    search = _search(chosen, fleets) if restored is None else None
    if not resume:
        FleetRunFolder.create(folder, chosen, command, overwrite=overwrite)
    callback = _Validation(chosen, run, fleets, key, progress, reporter)
    if restored is not None:
        callback.restore(fleet_checkpoint.restore(restored, model, env))
    with in_fixed_order(model.device), reporter.running(callback.curve, model.num_timesteps, is_resumed=resume):
        if restored is None:
            _before_ppo(model, env, chosen, callback, run, search)
        left = chosen.total_steps - model.num_timesteps
        if left > 0:
            model.learn(left, callback=callback, reset_num_timesteps=False, use_masking=False)
            if callback.looked_at != model.num_timesteps:
                callback.look(model, {})
    return run


def _before_ppo(
    model: MaskablePPO,
    env: FleetVecEnv,
    chosen: FleetTrainSettings,
    callback: _Validation,
    run: FleetRunFolder,
    search: WeightSearch | None,
) -> None:
    """Search for weights, then imitate a rule, where the config has these stages, and validate after each.

    A stage that a callback stops is validated as far as it has come, so that the run folder holds its policy.

    Raises:
        TrainingStopped: a callback has stopped the run.
    """
    callback.model = model
    fleet, network, scorer = env.batch.fleet, _network(model), None
    if chosen.search is not None:
        assert search is not None, "it was made for this stage"
        with suppress(TrainingStopped):
            _run(search, callback, run)
        head = network.prices or network.linear
        assert head is not None, "the settings refuse a search of a network without"
        head.set_direct(search.best)
        if network.linear is not None:
            picks = fleet_rule(chosen.search.hosts, fleet.problem, fleet.work_device_s)
            scorer = linear_scorer(fleet.problem, picks, search.best, fleet.mean_duration_s)
        callback.look(model, {"before_search": search.values[0], "searched": search.best_value}, "search")
        SavedFleetNetwork.of(_network(model), callback.about(model)).save(run.searched)
        callback.reporter.stop_if_asked()
    if chosen.imitation is None:
        if chosen.search is None:
            callback.look(model, {})
        return
    found = dict[str, float]()
    with suppress(TrainingStopped):
        found = imitate(
            network, env, chosen.imitation, chosen.ppo.discount, lambda share: callback.report("imitation", share), scorer
        )
        callback.done["imitation"] = 1.0
    callback.look(model, found, "imitation")
    SavedFleetNetwork.of(_network(model), callback.about(model)).save(run.imitated)
    callback.reporter.stop_if_asked()


def _search(chosen: FleetTrainSettings, fleets: Sequence[Fleet]) -> WeightSearch | None:
    """The search of a config before its first generation; None where it has none.

    Raises:
        MeshwrightError: as `WeightSearch` says, or there is no rule ``search.hosts``.
    """
    if chosen.search is None:
        return None
    if chosen.network.linear:
        searched = [scores_of(fleet, chosen.search.hosts) for fleet in fleets]
    else:
        searched = [prices_of(fleet, relative=chosen.network.relative) for fleet in fleets]
    return WeightSearch(searched, chosen.search, chosen.seed, validation_seeds_of(chosen))


def _run(search: WeightSearch, callback: _Validation, run: FleetRunFolder) -> None:
    """Search, from where the run was interrupted.

    Raises:
        TrainingStopped: a callback has stopped the run.
    """
    if run.searching.exists():
        restore(search, run.searching, callback.key)
        callback.before_s = search.before_s

    def after(value: float | None) -> None:
        write_checkpoint(search, run.searching, callback.key)
        callback.report("search", search.share, value, search.best_value)

    search.run(after)


def _network(model: MaskablePPO) -> FleetActor:
    network = model.policy.get_submodule("network")
    assert isinstance(network, FleetActor)
    return network


def _model(chosen: FleetTrainSettings, env: FleetVecEnv, fleet: Fleet) -> MaskablePPO:
    made_of = {"network": chosen.network, "fleet": fleet}
    buffer = (TimedRolloutBuffer, {"env": env}) if chosen.discounted_by == "time" or chosen.group > 1 else None
    device, total = pick_device(chosen.device), chosen.total_steps
    model = make_ppo(FleetPolicy, env, chosen.ppo, made_of, total_steps=total, seed=chosen.seed, device=device, buffer=buffer)
    model.set_logger(Logger(None, []))
    return model


def _check_same_kind(fleets: Sequence[Fleet]) -> None:
    """Refuse fleets that no one policy plays, or whose objectives have no mean.

    Raises:
        ConfigError: so it is.
    """
    first = fleets[0].settings
    for fleet in fleets[1:]:
        for key in ("objective", "candidate_features", "may_refuse"):
            here, there = getattr(first, key), getattr(fleet.settings, key)
            if here != there:
                problem = f"benchmarks that are played together must have the same {key}; the first has {here}"
                raise ConfigError(problem, field="mixed", value=there)
        if fleet.has_strategies != fleets[0].has_strategies:
            raise ConfigError("benchmarks that are played together must all have entries with names, or none", field="mixed")


class _Validation(BaseCallback):
    """Plays the validation episodes, keeps the best policy, and writes learning curve and checkpoints."""

    def __init__(
        self,
        chosen: FleetTrainSettings,
        run: FleetRunFolder,
        fleets: Sequence[Fleet],
        key: str,
        progress: Callable[[StageRecord], None],
        reporter: RunReporter,
    ) -> None:
        super().__init__()
        self._chosen, self._run, self.fleets, self.key, self._progress = chosen, run, fleets, key, progress
        self._fleet = fleets[0]
        self.reporter = reporter
        self.curve: list[dict[str, Any]] = []
        self.best: float | None = None
        self.looked_at = -1
        self.done: dict[str, float] = {}  # share of each stage before PPO that a stop left undone, by name
        self._began, self.before_s = time.perf_counter(), 0.0
        self._cpu_before_s = time.process_time()

    def restore(self, curve: list[dict[str, Any]]) -> None:
        """Continue a learning curve."""
        self.curve = curve
        self.before_s = curve[-1]["elapsed_s"] if curve else 0.0
        for row in curve:
            if self.best is None or is_better(self._fleet.settings, row["validation"], self.best):
                self.best = row["validation"]
        self.looked_at = curve[-1]["steps"] if curve else -1

    def report(self, stage: str, share: float, value: float | None = None, best: float | None = None) -> None:
        """Report how far a stage is, and what was validated of it; leave the run where a callback stopped it.

        Raises:
            TrainingStopped: one has, before the first update.
        """
        self.done[stage] = share
        known = self.curve[-1]["validation"] if self.curve else None
        known, least = known if value is None else value, self.best if best is None else best
        self._progress(StageRecord(stage, share, self._fleet.settings.objective, known, least, self.elapsed_s()))
        if stage != PPO:
            self.reporter.staged(stage, share, self.elapsed_s(), value, best)
            self.reporter.stop_if_asked()

    def elapsed_s(self) -> float:
        """Since the run began, interruptions left out."""
        return self.before_s + time.perf_counter() - self._began

    def about(self, model: MaskablePPO) -> dict[str, Any]:
        """How a policy was trained."""
        mixed = [fleet.ground for fleet in self.fleets[1:]]
        return {
            "name": self._chosen.name,
            "benchmark": self._chosen.benchmark,
            "changes": list(self._chosen.changes),
            "seed": self._chosen.seed,
            "steps": model.num_timesteps,
            "ground": {**self._fleet.ground, **({"mixed": mixed} if mixed else {})},
            "candidate_features": self._fleet.settings.candidate_features,
            "validation": self.curve[-1]["validation"] if self.curve else None,
            STAGES: self._stages(model),
        }

    def _stages(self, model: MaskablePPO) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        chosen, found = self._chosen, []
        after = {row.get("stage"): row["validation"] for row in self.curve}  # the last of each
        if chosen.search is not None and "search" in after:
            network = _network(model)
            count = 0 if network.prices is None else network.prices.direct.weight.numel()
            if network.linear is not None:
                count = len(FIRST_WEIGHTS if self._fleet.problem.may_refuse else START)
            generations = round(self.done.get("search", 1.0) * chosen.search.generations)
            found.append(stage("search", generations, "generations", after["search"], of=f"{count} weights"))
        if chosen.imitation is not None and "imitation" in after:
            of = " and ".join(chosen.imitation.rules)
            decisions = round(self.done.get("imitation", 1.0) * chosen.imitation.decisions * (1 + chosen.imitation.corrections))
            found.append(stage("imitation", decisions, "decisions", after["imitation"], of=of))
        if model.num_timesteps > 0:
            found.append(stage("ppo", model.num_timesteps, "decisions", after.get("ppo")))
        return found

    def look(self, model: MaskablePPO, more: dict[str, float], stage_name: str = "ppo") -> None:
        """One validation."""
        value = float(np.mean([self._value_on(fleet, _network(model)) for fleet in self.fleets]))
        row = {
            "steps": model.num_timesteps,
            "stage": stage_name,
            "validation": value,
            "elapsed_s": self.elapsed_s(),
            "cpu_s": time.process_time() - self._cpu_before_s,
            **more,
        }
        self.curve.append(row)
        self.looked_at = model.num_timesteps
        if self.best is None or is_better(self._fleet.settings, value, self.best):
            self.best = value
            SavedFleetNetwork.of(_network(model), self.about(model)).save(self._run.policy)
        files.write_json(self._run.learning_curve, self.curve)
        self.reporter.validated(row, stage_name)

    def _value_on(self, fleet: Fleet, network: FleetActor) -> float:
        """The objective on the validation episodes of a fleet, which the network plays for once."""
        if fleet is not self._fleet:
            network.use(fleet)
        value = mean_objective(fleet, play_all(fleet, player(network), validation_seeds_of(self._chosen)))
        if fleet is not self._fleet:
            network.use(self._fleet)
        return value

    def _save(self) -> None:
        assert isinstance(self.model, MaskablePPO)
        fleet_checkpoint.save(self._run.checkpoint, self.model, self.training_env_of(), self.curve, self.key)

    def _on_rollout_start(self) -> None:
        if self.num_timesteps - self.looked_at >= self._chosen.validate_every_steps:
            assert isinstance(self.model, MaskablePPO)
            self.look(self.model, {})
            self._save()
        self.reporter.updated("ppo", self.num_timesteps, figures_of(self.logger))
        if self.reporter.is_stopping:
            self._save()
            self.reporter.stop_if_asked()
        env = self.training_env_of()
        if env.group > 1:
            self.model._last_obs, self.model._last_episode_starts = env.regroup()
        self.report(PPO, self.num_timesteps / max(1, self._chosen.total_steps))

    def training_env_of(self) -> FleetVecEnv:
        """The environment that is played."""
        env = self.model.get_env()
        assert isinstance(env, FleetVecEnv)
        return env

    def _on_step(self) -> bool:
        return True
