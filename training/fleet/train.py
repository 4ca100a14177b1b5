"""`FleetLearner`: search for weights, imitation of a rule, then PPO.

Stages, each with a name of its own: `weight_search.weight_search` and `imitation.imitate`, where the config has them, and PPO.
The network after each of the first is kept (``searched.pt``, ``imitated.pt``), so that what each is good for can be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from ... import files
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.benchmark import load_fleet_benchmark
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.reward import is_better, objective_value
from ...errors import ConfigError, NothingToLearnError
from ...jobs.seeds import validation_seeds
from ...models.fleet.network import FleetActor
from ...models.fleet.saved import SavedFleetNetwork, player
from ...models.policy_files import STAGES, stage
from ...planners.fleet.linear_scores import FIRST_WEIGHTS, START, linear_scorer
from ...planners.fleet.rules import fleet_rule
from ..device import in_fixed_order, pick_device
from ..hooks.callback import TrainingStopped
from ..hooks.names import WITHOUT_EFFECT
from ..ppo import figures_of, learn_by_ppo, make_ppo, model_state, restore_model
from ..run import Learner, ReportedMeasure, TrainingRun
from ..search import Search
from .imitation import choose_all, imitate
from .settings import FleetTrainSettings
from .vec_env import FleetVecEnv, TimedRolloutBuffer
from .weight_search import prices_of, scores_of, weight_search

Picks = Callable[[FleetBatch], Any]


class FleetLearner(Learner):
    """Learns a fleet's policy.

    Args:
        settings: the config.
        fleet: of the benchmark; built, with the further ones, where it is None.
        mixed: of the further ones.

    Raises:
        NothingToLearnError: all rules do equally well on the validation episodes of a benchmark.
        ConfigError: benchmarks that are played together differ in objective or in what is observed.
        MeshwrightError: the config is wrong.
    """

    clocks = ("elapsed_s", "cpu_s")

    def __init__(self, settings: FleetTrainSettings, *, fleet: Fleet | None = None, mixed: Sequence[Fleet] = ()) -> None:
        if fleet is None:
            fleet, *mixed = (
                load_fleet_benchmark(benchmark, changes=settings.changes).build() for benchmark in settings.benchmarks
            )
        self._settings, self._fleet, self._fleets = settings, fleet, (fleet, *mixed)
        less, self.total_steps = is_better(fleet.settings, 0.0, 1.0), settings.total_steps
        self.reported = ReportedMeasure("fleet", fleet.settings.objective, "decisions", less)
        torch.set_num_threads(settings.num_threads)
        torch.manual_seed(settings.seed)
        _check_same_kind(self._fleets)
        for one in self._fleets:
            check_something_to_learn(settings, one)
        self._env = FleetVecEnv(
            fleet,
            settings.ppo.num_envs,
            settings.seed,
            scale=settings.reward_scale,
            most=settings.reward_most,
            by_time=settings.discounted_by == "time",
            spreads=settings.spread_starts,
            group=settings.group,
        )
        self._model = make_ppo(
            partial(FleetActor, settings.network, fleet),
            self._env,
            settings.ppo,
            total_steps=settings.total_steps,
            seed=settings.seed,
            device=pick_device(settings.device),
            buffer=(TimedRolloutBuffer, {"env": self._env}) if settings.discounted_by == "time" or settings.group > 1 else None,
        )
        self._model.set_logger(Logger(None, []))
        network = self._model.policy.get_submodule("network")
        assert isinstance(network, FleetActor)
        self._network = network
        self.key = files.digest(settings.model_dump(exclude=set(WITHOUT_EFFECT)), *(one.digest for one in self._fleets))
        self._search: Search | None = None
        self._is_in_ppo = False
        self._imitated = dict[str, float]()  # by the latest stage before PPO
        self._done = dict[str, float]()  # share of each stage before PPO

    @property
    def step(self) -> int:
        """Decisions of PPO so far."""
        return self._model.num_timesteps

    def in_fixed_order(self) -> AbstractContextManager[None]:
        """See `Learner`."""
        return in_fixed_order(self._model.device)

    def begin(self) -> None:
        """Make the search of a config before its first generation.

        Raises:
            MeshwrightError: as `weight_search` says, or there is no rule ``search.hosts``.
        """
        settings = self._settings
        if settings.search is None:
            return
        if settings.network.linear:
            searched = [scores_of(fleet, settings.search.hosts) for fleet in self._fleets]
        else:
            searched = [prices_of(fleet, relative=settings.network.relative) for fleet in self._fleets]
        self._search = weight_search(searched, settings.search, settings.seed, validation_seeds(settings.num_validation_seeds))

    def learn(self, run: TrainingRun) -> None:
        """See `Learner`."""
        if not self._is_in_ppo:
            if self._search is not None:
                self._find_weights(run, self._search)
            if self._settings.imitation is not None:
                self._imitate(run)
            elif self._search is None:
                self._look(run, "ppo")
            self._is_in_ppo = True
        if self.step < self.total_steps:
            learn_by_ppo(self._model, self.total_steps, lambda is_last: self._between(run, is_last))

    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """See `Learner`."""
        value = float(np.mean([self._value_on(fleet) for fleet in self._fleets]))
        return {"steps": self.step, "stage": stage, "validation": value, **self._imitated}

    def policy(self, run: TrainingRun) -> SavedFleetNetwork:
        """See `Learner`."""
        settings, mixed = self._settings, [fleet.conditions for fleet in self._fleets[1:]]
        about = {
            "name": settings.name,
            "benchmark": settings.benchmark,
            "changes": list(settings.changes),
            "seed": settings.seed,
            "steps": self.step,
            "ground": {**self._fleet.conditions, **({"mixed": mixed} if mixed else {})},
            "candidate_features": self._fleet.settings.candidate_features,
            "validation": run.curve[-1]["validation"],
            STAGES: self._stages(run),
        }
        return SavedFleetNetwork.from_network(self._network, about)

    def state(self) -> dict[str, Any]:
        """See `Learner`."""
        if not self._is_in_ppo:  # all else is as at the start
            return {"search": None if self._search is None else self._search.state()}
        return {**model_state(self._model), "episodes": self._env.state()}

    def restore(self, state: dict[str, Any], file: Path) -> None:
        """See `Learner`."""
        self._is_in_ppo = "episodes" in state
        if self._is_in_ppo:
            self._model._last_obs = self._env.restore(state["episodes"])  # to continue episodes SB3 has no public names
            self._model._last_episode_starts = state["episodes"]["starts"].numpy()
            restore_model(state, self._model)
            return
        self.begin()
        if self._search is not None:
            self._search.restore(state["search"])

    def _find_weights(self, run: TrainingRun, search: Search) -> None:
        """Search, and give the network the best weights.

        Raises:
            TrainingStopped: a callback has stopped the run; what was found so far is validated and kept.
        """
        search.run_stage(run)
        self._done["search"] = search.share
        head = self._network.prices or self._network.linear
        assert head is not None, "the settings refuse a search of a network without"
        head.set_direct(search.best if self._network.linear else search.best.reshape(3, -1))
        self._imitated = {"before_search": search.values[0][1], "searched": search.best_of_all[1]}
        self._look(run, "search", run.folder.searched)

    def _imitate(self, run: TrainingRun) -> None:
        """Imitate a rule.

        Raises:
            TrainingStopped: a callback has stopped the run; the network is validated and kept.
        """
        settings, fleet, scorer = self._settings, self._fleet, None
        assert settings.imitation is not None
        if settings.search is not None and self._search is not None and self._network.linear is not None:
            picks = fleet_rule(settings.search.hosts, fleet.problem, fleet.work_device_s)
            scorer = linear_scorer(fleet.problem, picks, self._search.best, fleet.mean_duration_s)

        def progress(share: float) -> None:
            self._done["imitation"] = share
            run.staged("imitation", share)

        self._imitated = {}
        with suppress(TrainingStopped):
            self._imitated = imitate(self._network, self._env, settings.imitation, settings.ppo.discount, progress, scorer)
            self._done["imitation"] = 1.0
        self._look(run, "imitation", run.folder.imitated)

    def _look(self, run: TrainingRun, stage: str, path: Path | None = None) -> None:
        """Validate after a stage, and keep its network."""
        run.report(run.validate(stage, path), stage)
        self._imitated = {}
        run.stop_if_requested()

    def _between(self, run: TrainingRun, is_last: bool) -> None:
        """Validate, save and report between two updates of PPO, and bring groups of episodes to one state."""
        is_new = run.curve[-1]["steps"] != self.step
        is_due = is_new if is_last else run.is_due(self._settings.validate_every_steps)
        run.between("ppo", figures_of(self._model.logger), validates=is_due, saves=is_due)
        if self._env.group > 1 and not is_last:  # no public names, as in restore
            self._model._last_obs, self._model._last_episode_starts = self._env.regroup()

    def _stages(self, run: TrainingRun) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        settings, network, result = self._settings, self._network, []
        after = {row.get("stage"): row["validation"] for row in run.curve}  # the last of each
        if settings.search is not None and "search" in after:
            count = 0 if network.prices is None else network.prices.direct.weight.numel()
            if network.linear is not None:
                count = len(FIRST_WEIGHTS if self._fleet.problem.may_refuse else START)
            generations = round(self._done.get("search", 1.0) * settings.search.generations)
            result.append(stage("search", generations, "generations", after["search"], of=f"{count} weights"))
        if settings.imitation is not None and "imitation" in after:
            of = " and ".join(settings.imitation.rules)
            decisions = round(
                self._done.get("imitation", 1.0) * settings.imitation.decisions * (1 + settings.imitation.corrections)
            )
            result.append(stage("imitation", decisions, "decisions", after["imitation"], of=of))
        if self.step > 0:
            result.append(stage("ppo", self.step, "decisions", after.get("ppo")))
        return result

    def _value_on(self, fleet: Fleet) -> float:
        """Return the objective on the validation episodes of a fleet, which the network plays for once."""
        if fleet is not self._fleet:
            self._network.use(fleet)
        state = play_all(fleet, player(self._network), validation_seeds(self._settings.num_validation_seeds)).state
        value = float(np.mean([objective_value(fleet.settings, state, e) for e in range(self._settings.num_validation_seeds)]))
        if fleet is not self._fleet:
            self._network.use(self._fleet)
        return value


def _check_same_kind(fleets: Sequence[Fleet]) -> None:
    """Refuse fleets that no one policy plays, or whose objectives have no mean.

    Raises:
        ConfigError: so it is.
    """
    first = fleets[0].settings
    for fleet in fleets[1:]:
        for key in ("objective", "candidate_features", "may_refuse"):
            here, other = getattr(first, key), getattr(fleet.settings, key)
            if here != other:
                problem = f"benchmarks that are played together must have the same {key}; the first has {here}"
                raise ConfigError(problem, field="mixed", value=other)
        if fleet.has_strategies != fleets[0].has_strategies:
            raise ConfigError("benchmarks that are played together must all have entries with names, or none", field="mixed")


def play_all(fleet: Fleet, pick: Picks, seeds: Sequence[int]) -> FleetBatch:
    """Play an episode for each seed to its end."""
    batch = FleetBatch.begun(fleet, seeds)
    while not batch.state.is_over.all():
        batch.step(pick(batch))
    return batch


def _rule(fleet: Fleet, name: str) -> Picks:
    rule = fleet_rule(name, fleet.problem, fleet.work_device_s)

    def pick(batch: FleetBatch) -> Any:
        out = np.zeros(batch.num_episodes, np.int64)
        choose_all(fleet.problem, batch.state, rule, out, 0, 1)
        return out

    return pick


def check_something_to_learn(settings: FleetTrainSettings, fleet: Fleet) -> None:
    """Refuse a benchmark on which whatever is done comes to the same.

    Raises:
        NothingToLearnError: rules that differ most do equally well in every validation episode.
    """
    seeds = validation_seeds(settings.num_validation_seeds)
    result = set()
    for other in ("fifo", "sjf+backfill", "fastest-feasible", "least-device-seconds"):
        played = play_all(fleet, _rule(fleet, other), seeds)
        result.add(tuple(objective_value(fleet.settings, played.state, e) for e in range(len(seeds))))
    if len(result) == 1:
        problem = f"all rules reach the same {fleet.settings.objective} in every validation episode: there is nothing to learn"
        raise NothingToLearnError(problem, field="fleet.objective", value=fleet.settings.objective)
