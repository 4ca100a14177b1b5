"""A fleet as `evaluate` plays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ...costs.training_step.foreign_figures import foreign_figures
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.benchmark import FleetBenchmark, load_fleet_benchmark
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.record import FleetRecord
from ...envs.fleet.reward import is_better, objective_value
from ...jobs.seeds import validation_seeds
from ...planners.menu.named_entry import name_of
from ...planners.own_policy import OWN
from ...planners.policy_names import parsed
from ...worlds.benchmark_files import FLEET
from ..fleet import policies
from ..fleet.bounds import BOUND, least_mean_completion_s
from ..fleet.episodes import SEEDS_AT_A_TIME, carried, play_episodes
from ..fleet.fleet_figures import FleetFigures, entry_shares
from ..fleet.policies import EXACT
from ..metrics import METRICS, Metric
from ..statistics import interval
from .evaluated_episodes import EvaluatedEpisodes
from .evaluated_world import BASELINE, REFERENCE, EvaluatedWorld, PlayedCases, Row, ValidationEpisodes

VALIDATED_RULES = (
    "sjf+backfill",
    "sjf:best-fixed-entry",
    "sjf:best-goodput-shares",
    "sjf:best-priced",
    "edf:best-fixed-entry+backfill",
)
"""Played on the validation episodes of a training besides the rules of its benchmark."""


class EvaluatedFleet(EvaluatedEpisodes):
    """See `EvaluatedEpisodes`; what is built is a `Fleet`."""

    name, words, question = "fleet", "a fleet", "which policy runs the fleet best?"
    key, made_from = FLEET, FleetBenchmark
    trade_offs = (("mean_completion_s", "blocking_rate"), ("mean_completion_s", "mean_devices"))
    policies: ClassVar[Any] = policies
    carries, plays, views = staticmethod(carried), staticmethod(play_episodes), FleetFigures
    at_a_time, loads = SEEDS_AT_A_TIME, staticmethod(load_fleet_benchmark)
    bound = BOUND, "mean_completion_s"
    built: Fleet

    def for_policies(self, specs: Sequence[str]) -> None:
        """Play the trace as `Workload.for_rules` has it where nothing was trained or tuned."""
        if self.built.workload is None:
            return
        if all(policies.is_rule(spec) and not policies.is_best_fixed_entry(spec) and OWN not in spec for spec in specs):
            self.built = replace(self.built, workload=self.built.workload.for_rules())

    @property
    def objective(self) -> Metric:
        """See `EvaluatedWorld`."""
        return METRICS[self.benchmark.fleet.objective]

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        fleet, settings = self.built, self.built.settings
        return {
            "cluster": fleet.cluster.name,
            "num_devices": fleet.cluster.num_devices,
            "jobs": [job_type.name for job_type in fleet.menu.job_types],
            "num_entries": len(fleet.menu.entries),
            "degrees": fleet.problem.degrees.tolist(),
            "placements": list(settings.placements),
            "sharing": settings.sharing,
            "elastic": None if settings.elastic is None else settings.elastic.model_dump(),
            **({"failures": settings.failures.model_dump()} if settings.has_failures else {}),
            "load": fleet.load,
            "mean_interarrival_s": fleet.mean_interarrival_s,
            "num_jobs": settings.num_jobs,
            "num_warmup_jobs": settings.num_warmup_jobs,
            "num_cooldown_jobs": settings.num_cooldown_jobs,
            "queue_capacity": settings.queue_capacity,
            "digest": fleet.digest,
        }

    def check(self, spec: str) -> None:
        """See `EvaluatedWorld`."""
        policies.check_policy(spec, self.built)

    def choices(self, spec: str) -> dict[str, str]:
        """See `EvaluatedWorld`."""
        result = policies.each_fixed_entry(spec, self.built) if policies.is_best_fixed_entry(spec) else []
        return {one: one for one in result}

    def least(self, case: int) -> float:
        """See `EvaluatedEpisodes`."""
        return least_mean_completion_s(self.built, self.built.sample(np.random.default_rng(case)))

    def validation(self, config: Mapping[str, Any], others: Sequence[EvaluatedWorld]) -> ValidationEpisodes:
        """See `EvaluatedWorld`: episode ``n`` has the seed number ``n // len(fleets)`` and the fleet ``n % len(fleets)``."""
        for world in (self, *others):
            world.build()
        fleets: list[Fleet] = [world.built for world in (self, *others)]
        first, num_seeds = validation_seeds(config["num_validation_seeds"])[0], config["num_validation_seeds"]
        of_benchmark = [spec for spec in self.benchmark.policies if self.kind(spec) == BASELINE and spec != policies.RANDOM]
        rules = dict.fromkeys(one for spec in (*of_benchmark, *VALIDATED_RULES) for one in self.choices(spec) or [spec])

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            values: dict[int, float] = {}
            for place, fleet in enumerate(fleets):
                own = [number for number in numbers if number % len(fleets) == place]
                if own:
                    player, seeds = policies.fleet_player(spec, fleet), [first + number // len(fleets) for number in own]
                    batch = FleetBatch.begun(player.plays_on(fleet), seeds, observes=player.observes)
                    player.play(batch, seeds)
                    values |= {number: objective_value(fleet.settings, batch.state, e) for e, number in enumerate(own)}
            return [values[number] for number in numbers]

        is_less_better = is_better(self.built.settings, 0.0, 1.0)
        return ValidationEpisodes(list(rules), num_seeds * len(fleets), play, is_less_better)

    def comparisons(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `EvaluatedWorld`: each policy to itself with exact entries alone, where both play."""
        pairs = {name: policies.EXACT + name for name in names if policies.EXACT + name in names}
        return {"itself with exact entries": pairs} if pairs else {}

    def details(self, kind: str, played: PlayedCases) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        return {**entry_shares(played.records, self.built), **named_shares(played.records, self.built)} if played.records else {}

    def more(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        result = break_evens(self.built)
        return {"break_evens": result} if result else {}

    def remarks(self, specs: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
        """See `EvaluatedWorld`: jobs that times leave out, policies off the ground of their training, figures of others."""
        results = [*lone_entries(rows), *_left_out(rows, self.objective), *_same_orders(specs, self.built), *_cut(self.built)]
        results += [sentence for spec in specs.values() if (sentence := policies.condition_changes(spec, self.built)) is not None]
        foreign = foreign_figures(self.built.cluster, self.built.settings.costs.of_layouts, has_layers=True)
        return [*results, *(f"{sentence}." for sentence in foreign)]


def _same_orders(specs: Mapping[str, str], fleet: Fleet) -> list[str]:
    """Say which orders of the rules are others where no running job is ever stopped."""
    if fleet.settings.elastic is not None or fleet.settings.has_failures:
        return []
    rules = filter(policies.is_rule, specs.values())
    orders = {parsed(rule.removeprefix(EXACT).removeprefix(policies.ROLLOUT)).name for rule in rules}
    others = {"las": "fifo", "normalised-throughput": "fifo", "srtf": "sjf"}
    same = [f"{name} orders jobs as {other}" for name, other in others.items() if name in orders]
    return [f"Without elastic: no running job is stopped, so that {' and '.join(same)}."] if same else []


def _cut(fleet: Fleet) -> list[str]:
    """Say how many jobs of a trace were left out, and ask for more devices than jobs of their type can have."""
    workload, splits = fleet.workload, fleet.settings.splits
    if workload is None or splits is None or workload.trace is None or workload.trace.requested_gpus is None:
        return []
    most = np.where(np.isfinite(fleet.requested_step_s), fleet.problem.degrees, 0).max(axis=1)
    count = int((workload.trace.requested_gpus > most[workload.traced_graphs]).sum())
    text = f"{count:,} of {len(workload.traced_graphs):,} jobs of the trace ask for more devices than they can have here"
    why = f" (fleet.splits.max_degree is {splits.max_degree})" if (most == splits.max_degree).any() else ""
    few, least = workload.trace.num_smaller, workload.trace.min_gpus
    result = [f"{few:,} rows of the trace ask for less than {least} GPUs (min_gpus) and are left out."] if few else []
    return [*result, f"{text}, and count as asking for the most{why}."] if count else result


def _left_out(rows: Sequence[Row], objective: Metric) -> list[str]:
    """Say that times leave out jobs that never ran, where policies differ in how many."""
    blocked = {row["policy"]: row["metrics"]["blocking_rate"]["mean"] for row in rows if row["kind"] != REFERENCE}
    if objective.name in ("blocking_rate", "deadline_met_rate") or len(set(blocked.values())) < 2:
        return []
    most = max(blocked, key=lambda name: float(blocked[name]))
    words = objective.words.capitalize()
    return [f"{words} leaves out jobs that were turned away: of {most} {100 * blocked[most]:.1f} %."]


def named_shares(records: Sequence[FleetRecord], fleet: Fleet) -> dict[str, Any]:
    """Return the shares of the counted jobs that started, by the name of the entry by which they ran last, with 95 % intervals.

    Of all jobs, and of each type of jobs; empty where the menu has no named entries.
    """
    names = [name_of(entry.named) for entry in fleet.menu.entries] if fleet.has_strategies else []
    if len(set(names)) < 2:
        return {}
    known, counted = list(dict.fromkeys(names)), fleet.settings.counted
    number = np.array([known.index(name) for name in names])
    taken = [(record.entry[counted], record.job_type[counted]) for record in records]

    def shares(job_type: int | None) -> dict[str, Any]:
        counts = np.array(
            [
                np.bincount(number[entry[(entry >= 0) & ((kind == job_type) | (job_type is None))]], minlength=len(known))
                for entry, kind in taken
            ]
        )
        parts = counts / np.maximum(counts.sum(axis=1), 1)[:, None]
        order = np.argsort(-parts.mean(axis=0), kind="stable").tolist()
        return {known[one]: interval(parts[:, one].tolist()) for one in order if counts[:, one].any()}

    types = [job_type.name for job_type in fleet.menu.job_types]
    return {"entries": shares(None), "entries_by_type": {name: shares(kind) for kind, name in enumerate(types)}}


def break_evens(fleet: Fleet) -> list[Row]:
    """Return how many times the steps each inexact entry may need and still pay off, with what it declares."""
    return [
        {
            "job_type": fleet.menu.job_types[one.job_type].name,
            "devices": one.degree,
            "entry": one.name,
            "break_even_multiplier": one.break_even,
            "multiplier": one.multiplier,
        }
        for one in getattr(fleet.menu, "break_evens", ())
        if np.isfinite(one.step_s)
    ]


def lone_entries(rows: Sequence[Row]) -> list[str]:
    """Return learned policies that take one entry alone, in sentences."""
    return [
        f"{row['policy']} takes one entry alone, {next(iter(row['details']['entries']))}."
        for row in rows
        if row["kind"] == "learned" and not row["policy"].startswith(EXACT) and len(row["details"].get("entries", ())) == 1
    ]
