"""`LineToBeat`: plays rules on the validation episodes of a training run, and says whether the policy that is kept is better.

Rules are played before training; the best one is the line to beat. All play the first `FIRST` episodes, the best `KEPT` of them
the others too. At the end the kept policy plays the same episodes, and its difference to the rule is paired.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .. import files
from ..envs.benchmark import load_benchmark
from ..envs.elastic.benchmark import load_elastic_benchmark
from ..envs.fleet.batch import FleetBatch
from ..envs.fleet.benchmark import load_fleet_benchmark
from ..envs.fleet.fleet import Fleet
from ..envs.fleet.objective import is_better, objective_value
from ..envs.operators.benchmark import load_placement_benchmark
from ..envs.playing import play_episode
from ..errors import PlanError
from ..jobs.seeds import validation_seeds
from ..models.policy_files import LINE_TO_BEAT
from ..planners.elastic.scheduler import play as play_elastic
from ..planners.operators.place import PLACEMENT_PLANNERS
from ..planners.rules import NAMES
from ..planning.policies import fixed_names, policy
from ..simulation.cluster.scenario import Scenario
from ..training.elastic.settings import ElasticTrainSettings
from ..training.elastic.train import validation_workloads
from ..training.hooks.callback import RunEnd, RunStart, TrainingCallback, ValidationRecord
from ..worlds.registry import load_world
from .elastic.policies import BASELINES, elastic_scheduler
from .fleet.policies import RANDOM, each_fixed_entry, fleet_player, is_best_fixed_entry, policy_kind
from .operators.policies import CONSTANTS, operator_policy
from .statistics import excludes_zero, paired
from .world_policies import world_policy

FIRST, KEPT = 4, 6
"""Episodes that all rules play, and rules that play the others too."""
MOST_OVER = 1e3
"""Value over the reference of an instance of which no placement is found."""
FLEET_RULES = (
    "sjf+backfill",
    "sjf:best-fixed-entry",
    "sjf:best-goodput-shares",
    "sjf:best-priced",
    "edf:best-fixed-entry+backfill",
)
"""Played on every fleet besides the rules of its benchmark."""

Play = Callable[[str, Sequence[int]], list[float]]


@dataclass(frozen=True)
class ValidationEpisodes:
    """The validation episodes of a run.

    Attributes:
        rules: by name.
        num_episodes: how many there are.
        play: the values of a rule, or of the policy in a run folder, in the episodes of some numbers.
        is_less_better: whether less of it is better.
    """

    rules: Sequence[str]
    num_episodes: int
    play: Play
    is_less_better: bool = True


@dataclass
class LineToBeat(TrainingCallback):
    """Prints the line to beat before training, and the verdict at the end.

    The run folder keeps them as ``line_to_beat.json``.

    Args:
        out: where; standard output by default.
        graphs: folder of profiles.
        built: scenario or fleet of a benchmark by its spelling, to save its set-up.
    """

    out: TextIO | None = None
    graphs: Path | None = None
    built: Mapping[str, Any] = field(default_factory=dict)

    def on_start(self, start: RunStart) -> None:
        """Play the rules."""
        self._validation = _VALIDATIONS[start.method](self, start.config)
        self._folder, self._measure, self._validated = start.folder, start.measure.replace("_", " "), 0
        if start.method in ("graph", "operators"):
            self._measure = "value over the reference"
        self.rule, self.values, means = _raced(self._validation)
        self._told: dict[str, Any] = {"rule": self.rule, "value": float(np.mean(self.values)), "rules": means}
        files.write_json(self._folder / LINE_TO_BEAT, self._told)
        self._print(f"rules played on {self._validation.num_episodes} validation episodes: {', '.join(means)}")
        self._print(f"line to beat: {self._measure} {self._told['value']:.4g} by {self.rule}")

    def on_validation(self, record: ValidationRecord) -> None:
        """Count it."""
        self._validated += 1

    @property
    def value(self) -> float:
        """The value of the best rule."""
        return float(self._told["value"])

    def on_end(self, end: RunEnd) -> None:
        """Play the kept policy and print the verdict, unless the run failed or kept none."""
        if end.ending not in ("done", "stopped") or not self._validated:
            return
        found = self._validation
        values = found.play(str(self._folder), range(found.num_episodes))
        difference = paired(values, self.values)
        sign = excludes_zero(difference) * (1 if found.is_less_better else -1)
        word = "better" if sign < 0 else "not better"
        ends = "" if difference["low"] is None else f" [{difference['low']:+.3g}, {difference['high']:+.3g}]"
        sentence = f"{word} than {self.rule} on the validation episodes: {self._measure} {difference['mean']:+.3g}{ends}"
        verdict = {"policy_value": float(np.mean(values)), "difference": difference, "is_better": sign < 0, "sentence": sentence}
        files.write_json(self._folder / LINE_TO_BEAT, {**self._told, "verdict": verdict})
        self._print(sentence)

    def _print(self, text: str) -> None:
        out = self.out or sys.stdout
        out.write(text + "\n")
        out.flush()

    def of_scenarios(self, config: Mapping[str, Any]) -> ValidationEpisodes:
        """Return the episodes of the benchmarks on which jobs are decided one at a time; for networks and linear scorers."""
        names = [config["benchmark"], *config.get("mixed", ())]
        scenarios: list[Scenario] = [
            self.built[name]
            if name in self.built
            else load_benchmark(name, changes=tuple(config["changes"])).build(graphs_dir=self.graphs)
            for name in names
        ]
        seeds = validation_seeds(config["num_validation_seeds"])
        episodes = [(scenario, seed) for seed in seeds for scenario in scenarios]
        rules = [
            f"{name}@{placement}"
            for placement in scenarios[0].settings.placement_rules
            for name in (*NAMES, *fixed_names(scenarios[0], ""))
        ]

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            policies = [policy(spec, scenario) for scenario in scenarios]
            values = []
            for number in numbers:
                scenario, seed = episodes[number]
                record = play_episode(policies[number % len(scenarios)], scenario, seed)
                values.append(record.blocking_rate(scenario.settings.counted))
            return values

        return ValidationEpisodes(rules, len(episodes), play)

    def of_fleets(self, config: Mapping[str, Any]) -> ValidationEpisodes:
        """Return the episodes of fleets."""
        names, changes = [config["benchmark"], *config.get("mixed", ())], tuple(config["changes"])
        benchmarks = [load_fleet_benchmark(name, changes=changes) for name in names]
        fleets: list[Fleet] = [
            self.built[name] if name in self.built else one.build() for name, one in zip(names, benchmarks, strict=True)
        ]
        first, num_seeds = validation_seeds(config["num_validation_seeds"])[0], config["num_validation_seeds"]
        of_benchmark = [spec for spec in benchmarks[0].policies if policy_kind(spec) == "baseline" and spec != RANDOM]
        rules = dict.fromkeys(
            one
            for spec in (*of_benchmark, *FLEET_RULES)
            for one in (each_fixed_entry(spec, fleets[0]) if is_best_fixed_entry(spec) else [spec])
        )

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            """Episode ``n`` has the seed number ``n // len(fleets)`` and the fleet ``n % len(fleets)``."""
            values: dict[int, float] = {}
            for place, fleet in enumerate(fleets):
                own = [number for number in numbers if number % len(fleets) == place]
                if own:
                    player, seeds = fleet_player(spec, fleet), [first + number // len(fleets) for number in own]
                    batch = FleetBatch(player.plays_on(fleet), len(own), observes=player.observes)
                    for e, seed in enumerate(seeds):
                        batch.reset(e, np.random.default_rng(seed))
                    player.play(batch, seeds)
                    values |= {number: objective_value(fleet.settings, batch.state, e) for e, number in enumerate(own)}
            return [values[number] for number in numbers]

        return ValidationEpisodes(
            list(rules), num_seeds * len(fleets), play, is_less_better=is_better(fleets[0].settings, 0.0, 1.0)
        )

    def of_operators(self, config: Mapping[str, Any]) -> ValidationEpisodes:
        """Return the instances of operator placement, with values over those of HEFT."""
        benchmark = load_placement_benchmark(config["benchmark"], changes=tuple(config["changes"]))
        objective = benchmark.placement.objective
        instances = [benchmark.placement.instance("validation", seed) for seed in range(benchmark.num_validation_seeds)]
        able = [name for name, one in PLACEMENT_PLANNERS.items() if objective in one.objectives and not one.is_published]
        rules = [name for name in able if not PLACEMENT_PLANNERS[name].is_search and not PLACEMENT_PLANNERS[name].is_exact]
        first = operator_policy(rules[0], objective)
        over = [first.place(each, 0).value_s for each in instances]

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            chosen, values = operator_policy(spec, objective), []
            for number in numbers:
                try:
                    values.append(float(chosen.place(instances[number], 0).value_s) / over[number])
                except PlanError:
                    values.append(MOST_OVER)
            return values

        return ValidationEpisodes([*rules, *CONSTANTS], len(instances), play)

    def of_worlds(self, config: Mapping[str, Any]) -> ValidationEpisodes:
        """Return the instances of a world, with values over a short search's."""
        world = load_world(config["benchmark"], tuple(config["changes"]))
        instances = [world.instance("validation", seed) for seed in range(world.benchmark.num_validation_seeds)]
        over = [world.reference(each) for each in instances]
        rule = f"{world.reference_name} of one round"

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            if spec == rule:
                return [1.0 for _ in numbers]
            chosen = world_policy(spec, world)
            return [chosen.place(instances[number], 0).value_s / over[number] for number in numbers]

        return ValidationEpisodes([rule], len(instances), play)

    def of_elastic(self, config: Mapping[str, Any]) -> ValidationEpisodes:
        """Return the drawn workloads of elastic jobs."""
        chosen = ElasticTrainSettings.model_validate(config)
        simulation = load_elastic_benchmark(chosen.benchmark, changes=chosen.changes).simulation()
        workloads = [one for several in validation_workloads(chosen, simulation) for one in several]

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            chosen = elastic_scheduler(spec)
            return [float(play_elastic(simulation, chosen, [workloads[number]])[0].mean()) for number in numbers]

        return ValidationEpisodes(BASELINES, len(workloads), play)


_VALIDATIONS: dict[str, Callable[[LineToBeat, Mapping[str, Any]], ValidationEpisodes]] = {
    "ppo": LineToBeat.of_scenarios,
    "linear": LineToBeat.of_scenarios,
    "fleet": LineToBeat.of_fleets,
    "operators": LineToBeat.of_operators,
    "graph": LineToBeat.of_worlds,
    "elastic": LineToBeat.of_elastic,
}


def _raced(found: ValidationEpisodes) -> tuple[str, list[float], dict[str, float]]:
    """Return the best rule, its value in each episode, and the mean of each rule over the episodes that it has played."""
    sign = 1.0 if found.is_less_better else -1.0
    first = min(FIRST, found.num_episodes)
    values = {rule: found.play(rule, range(first)) for rule in found.rules}
    best = sorted(values, key=lambda rule: sign * float(np.mean(values[rule])))[:KEPT]
    for rule in best:
        values[rule] += found.play(rule, range(first, found.num_episodes))
    means = {rule: float(np.mean(of)) for rule, of in values.items()}
    rule = min(best, key=lambda one: sign * means[one])
    return rule, values[rule], means
