"""`evaluate_fleet`: policies x seeds on a benchmark of a fleet, to plain results.

The results are a function of benchmark, policies and seeds: a second run, or one with more processes, gives the same bytes apart
from the key ``timing``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...costs.training_step.foreign_figures import foreign_figures
from ...envs.fleet.benchmark import FleetBenchmark
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.record import FleetRecord
from ...errors import ConfigError, PolicyError
from ...jobs.seeds import FIRST_VALIDATION_SEED
from ...models.policy_files import made_sentences
from ...planners.own_policy import OWN
from ..evaluate import FIRST_TEST_SEED, check_names
from ..statistics import interval, least
from ..workers import Workers
from .bounds import BOUND, least_mean_completion_s
from .episodes import FleetEpisodes
from .menu_choices import add_ablations, break_evens, lone_entries, named_shares
from .metrics import entry_shares, fleet_metrics, metrics_of
from .objectives import OBJECTIVES, Objective
from .policies import (
    check_policy,
    each_fixed_entry,
    is_best_fixed_entry,
    is_rule,
    off_ground,
    policy_kind,
    policy_name,
    trained_file,
)
from .verdict import remarks, standings

FLEET_FORMAT_VERSION = 1

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class FleetEvaluation:
    """Results and the records that they come from.

    Attributes:
        results: plain data, as ``results.json`` holds it.
        records: episodes of each policy by the name in the results' rows, in the order of the seeds.
        played: spelling by which each of these policies played; of a tuned one what was chosen.
        fleet: what was played.
    """

    results: dict[str, Any]
    records: dict[str, list[FleetRecord]]
    played: dict[str, str]
    fleet: Fleet


def evaluate_fleet(
    benchmark: FleetBenchmark,
    specs: Sequence[str] = (),
    *,
    num_seeds: int | None = None,
    num_processes: int = 1,
    workers: Workers | None = None,
    fleet: Fleet | None = None,
    progress: Progress | None = None,
) -> FleetEvaluation:
    """Compare policies on a benchmark of a fleet.

    Args:
        benchmark: fleet, seeds and the policies that are always compared.
        specs: policies beside those (see `evaluation.fleet.policies`).
        num_seeds: test episodes; the benchmark's own number by default.
        num_processes: at work at a time.
        workers: who plays instead of processes of this machine.
        fleet: already built, to save its set-up.
        progress: called with a phase, episodes played and episodes in all.

    Raises:
        MeshwrightError: a policy is unknown, twice or does not fit; nothing to compare; bad numbers.
    """
    began = time.perf_counter()
    num_seeds = benchmark.num_seeds if num_seeds is None else num_seeds
    if not 1 <= num_seeds <= FIRST_VALIDATION_SEED:
        raise ConfigError(f"must be 1 to {FIRST_VALIDATION_SEED}", field="seeds", value=num_seeds)
    workers = workers or Workers(num_processes)
    wanted = list(dict.fromkeys([*specs, *benchmark.policies]))
    if not [spec for spec in wanted if spec != BOUND]:
        raise PolicyError("nothing to compare: name a policy, or give the benchmark a list of them")
    check_names([policy_name(spec) for spec in wanted])
    fleet = fleet or benchmark.build()
    if fleet.workload is not None and all(is_rule(spec) and not is_best_fixed_entry(spec) and OWN not in spec for spec in wanted):
        fleet = replace(fleet, workload=fleet.workload.for_rules())
    for spec in wanted:
        try:
            check_policy(spec, fleet)
        except PolicyError as error:
            raise error if spec in specs else error.at(field=f"policies of benchmark {benchmark.name}") from None
    objective = OBJECTIVES[benchmark.fleet.objective]
    episodes = FleetEpisodes(benchmark, fleet, workers)
    best_fixed = _best_fixed(episodes, [spec for spec in wanted if is_best_fixed_entry(spec)], objective, progress)
    seeds = list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + num_seeds))
    acting = {spec: best_fixed[spec]["chosen"] if spec in best_fixed else spec for spec in wanted if spec != BOUND}
    played = episodes.play_all(
        list(acting.values()), seeds, None if progress is None else lambda done, of: progress("test episodes", done, of)
    )
    records = {policy_name(spec): played[acting[spec]] for spec in acting}
    rows = [_row(policy_name(spec), policy_kind(spec), fleet, records[policy_name(spec)]) for spec in acting]
    if BOUND in wanted:
        rows.append(_bound_row(fleet, seeds))
    compared = standings(rows, objective)
    made = made_sentences({policy_name(spec): trained_file(spec) for spec in wanted})
    results = {
        "format_version": FLEET_FORMAT_VERSION,
        "benchmark": benchmark.name,
        "objective": objective.metric,
        "fleet": describe_fleet(fleet),
        "seeds": seeds,
        "best_fixed_entry": best_fixed,
        **compared,
        **({"break_evens": found} if (found := break_evens(fleet)) else {}),
        "made": made,
        "remarks": [
            *add_ablations(rows, objective),
            *lone_entries(rows),
            *remarks(rows, objective),
            *made,
            *(told for spec in wanted if (told := off_ground(spec, fleet)) is not None),
            *(f"{told}." for told in foreign_figures(fleet.cluster, fleet.settings.costs.of_layouts, has_layers=True)),
        ],
        "timing": {
            "elapsed_s": time.perf_counter() - began,
            "decision_s": {
                policy_name(spec): episodes.decisions[one][1] / max(1, episodes.decisions[one][0]) for spec, one in acting.items()
            },
        },
    }
    return FleetEvaluation(results, records, {policy_name(spec): one for spec, one in acting.items()}, fleet)


def describe_fleet(fleet: Fleet) -> dict[str, Any]:
    """A fleet in plain figures."""
    chosen = fleet.settings
    return {
        "cluster": fleet.cluster.name,
        "num_devices": fleet.cluster.num_devices,
        "job_types": [one.name for one in fleet.menu.job_types],
        "num_entries": len(fleet.menu.entries),
        "degrees": fleet.problem.degrees.tolist(),
        "placements": list(chosen.placements),
        "sharing": chosen.sharing,
        "elastic": None if chosen.elastic is None else chosen.elastic.model_dump(),
        **({"failures": chosen.failures.model_dump()} if chosen.has_failures else {}),
        "load": fleet.load,
        "mean_interarrival_s": fleet.mean_interarrival_s,
        "num_jobs": chosen.num_jobs,
        "num_warmup_jobs": chosen.num_warmup_jobs,
        "num_cooldown_jobs": chosen.num_cooldown_jobs,
        "queue_capacity": chosen.queue_capacity,
        "digest": fleet.digest,
    }


def _row(name: str, kind: str, fleet: Fleet, records: list[FleetRecord]) -> dict[str, Any]:
    per_seed = [fleet_metrics(record, fleet) for record in records]
    return {
        "policy": name,
        "kind": kind,
        "num_seeds": len(records),
        **{metric: interval([figures[metric] for figures in per_seed]) for metric in metrics_of(fleet)},
        **entry_shares(records, fleet),
        **named_shares(records, fleet),
        "per_seed": {metric: [figures[metric] for figures in per_seed] for metric in metrics_of(fleet)},
    }


def _bound_row(fleet: Fleet, seeds: Sequence[int]) -> dict[str, Any]:
    """A row of which nothing but the mean completion time is known."""
    per_seed: dict[str, list[float | None]] = {metric: [None] * len(seeds) for metric in metrics_of(fleet)}
    per_seed["mean_completion_s"] = [least_mean_completion_s(fleet, fleet.sample(np.random.default_rng(seed))) for seed in seeds]
    return {
        "policy": BOUND,
        "kind": "reference",
        "num_seeds": len(seeds),
        **{metric: interval(values) for metric, values in per_seed.items()},
        "degrees": {},
        "layouts": {},
        "per_seed": per_seed,
    }


def _best_fixed(
    episodes: FleetEpisodes, specs: Sequence[str], objective: Objective, progress: Progress | None
) -> dict[str, dict[str, Any]]:
    """For each ``best-fixed-entry`` the number of devices that does best on the validation episodes, of several the smallest."""
    fleet = episodes.fleet
    seeds = list(range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + episodes.benchmark.num_validation_seeds))
    names = {spec: each_fixed_entry(spec, fleet) for spec in specs}
    report = None if progress is None else lambda done, of: progress("validation episodes", done, of)
    played = episodes.play_all([name for spec in specs for name in names[spec]], seeds, report) if specs else {}
    values = {name: _mean([fleet_metrics(one, fleet)[objective.metric] for one in records]) for name, records in played.items()}
    found = {}
    for spec in specs:
        first, *others = least(names[spec], lambda name: objective.sign * values[name])
        found[spec] = {
            "chosen": first,
            "tied": others,
            "validation_seeds": seeds,
            objective.metric: {name: values[name] for name in names[spec]},
        }
    return found


def _mean(values: Sequence[float | None]) -> float:
    """Of what is known; where nothing is, what is worst by every objective."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("inf")
