"""`evaluate`: policies x seeds on one benchmark, to plain results that tables, figures and the report read.

The results are a function of benchmark, policies and seeds: a second run, or one with more processes, gives the
same bytes apart from the key ``timing``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..costs.training_step.foreign_figures import foreign_figures
from ..envs.benchmark import BenchmarkSettings
from ..envs.ground import Ground
from ..errors import ConfigError, PolicyError
from ..jobs.seeds import FIRST_VALIDATION_SEED, validation_seeds
from ..models.policy_files import made_sentences
from ..planning.policies import (
    base_of,
    check_best_fixed,
    display_name,
    each_fixed,
    is_best_fixed,
    is_rollout,
    is_untrained,
    kind,
    off_ground,
    policy,
    trained_file,
)
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from .bounds import check as check_references
from .bounds import is_beam, least_blocking_rate
from .decision_stats import degrees_by_state
from .episodes import Player
from .metrics import METRICS, completion_percentiles_s, degree_shares, metrics, outcome_shares, rule_shares, shape_shares
from .statistics import CHALLENGERS, excludes_zero, interval, least, paired
from .workers import Workers

FORMAT_VERSION = 2
FIRST_TEST_SEED = 0

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """Results and the records that they come from.

    Attributes:
        results: plain data, as ``results.json`` holds it.
        records: episodes of each policy by the name in the results' rows, in the order of the seeds.
        scenario: what was played.
    """

    results: dict[str, Any]
    records: dict[str, list[EpisodeRecord]]
    scenario: Scenario


def evaluate(
    benchmark: BenchmarkSettings,
    specs: Sequence[str] = (),
    *,
    references: Sequence[str] = (),
    num_seeds: int | None = None,
    num_processes: int = 1,
    workers: Workers | None = None,
    graphs_dir: Path | None = None,
    scenario: Scenario | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Compare policies on a benchmark.

    Args:
        benchmark: scenario, seeds and the policies that are always compared.
        specs: policies beside those (see `planning.policies`).
        references: clairvoyant references to show beside them (see `evaluation.bounds`).
        num_seeds: test episodes; the benchmark's own number by default.
        num_processes: episodes played at a time.
        workers: who plays instead of processes of this machine.
        graphs_dir: profiles by folder name.
        scenario: already built, to save its set-up.
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
    if not wanted:
        raise PolicyError("nothing to compare: name a policy, or give the benchmark a list of them")
    names = [display_name(spec) for spec in wanted]
    check_names(names)
    scenario = scenario or benchmark.build(graphs_dir=graphs_dir)
    scenario = check_fit(benchmark, specs, scenario, references)
    here = Ground.of(benchmark.name, scenario)
    told = {name: off_ground(spec, here) for name, spec in zip(names, wanted, strict=True)}
    foreign = foreign_figures(scenario.cluster, scenario.settings.costs, has_layers=False)
    player = Player(benchmark, scenario, workers)
    best_fixed = _best_fixed(player, [spec for spec in wanted if is_best_fixed(spec)], progress)
    seeds = list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + num_seeds))
    acting = [best_fixed[spec]["chosen"] if spec in best_fixed else spec for spec in wanted]
    tasks = [(spec, seed) for spec in dict.fromkeys(acting) for seed in seeds]
    played = player.play_all(tasks, None if progress is None else lambda done, of: progress("test episodes", done, of))
    by_spec = {spec: played[i * num_seeds : (i + 1) * num_seeds] for i, spec in enumerate(dict.fromkeys(acting))}
    records = {name: by_spec[spec] for name, spec in zip(names, acting, strict=True)}
    rows = [_row(name, kind(spec), benchmark, scenario, records[name]) for name, spec in zip(names, wanted, strict=True)]
    best = least((row for row in rows if row["kind"] == "baseline"), _blocked)
    first = None if not best or _all_tie(rows) else best[0]  # what differences are taken to
    rows += _reference_rows(player, references, seeds, records, progress)
    for row in rows:
        row["against_best_baseline"] = None
        if first is not None and row is not first:
            difference = paired(row["per_seed"]["blocking_rate"], first["per_seed"]["blocking_rate"])
            row["against_best_baseline"] = {"policy": first["policy"], **difference}
    results = {
        "format_version": FORMAT_VERSION,
        "benchmark": benchmark.name,
        "scenario": describe(scenario),
        "seeds": seeds,
        "best_fixed": best_fixed,
        "rows": sorted(rows, key=lambda row: (row["blocking_rate"]["mean"], row["policy"])),
        "best_baseline": None if first is None else first["policy"],
        "best_baselines": [row["policy"] for row in best],
        "verdict": verdict(rows, best),
        "off_ground": {name: sentence for name, sentence in told.items() if sentence is not None},
        "made": made_sentences({n: _trained(spec) for n, spec in zip(names, wanted, strict=True)}),
        "foreign_figures": list(foreign),
        "timing": {
            "elapsed_s": time.perf_counter() - began,
            "decision_latency_s": _latencies(player, dict(zip(names, acting, strict=True))),
        },
    }
    return Evaluation(results, records, scenario)


def check_fit(benchmark: BenchmarkSettings, specs: Sequence[str], scenario: Scenario, references: Sequence[str] = ()) -> Scenario:
    """Refuse, before anything is played, what does not fit a benchmark's scenario; returns what is played.

    Where nothing was trained or tuned, that is the scenario with its trace as `Workload.for_rules` has it.

    Args:
        benchmark: its policies are looked at too.
        specs: policies beside those.
        scenario: built from it.
        references: clairvoyant ones.

    Raises:
        MeshwrightError: a policy or reference is unknown or does not fit.
    """
    check_references(references, scenario)
    wanted = dict.fromkeys([*specs, *benchmark.policies])
    if all(is_untrained(spec) for spec in wanted):
        scenario = replace(scenario, workload=scenario.workload.for_rules())
    for spec in wanted:
        try:
            if is_best_fixed(spec):
                check_best_fixed(spec, scenario)
            else:
                policy(spec, scenario)
        except PolicyError as error:
            raise error if spec in specs else error.at(field=f"policies of benchmark {benchmark.name}") from None
    return scenario


def check_names(names: Sequence[str]) -> None:
    """Refuse two policies of one name.

    Raises:
        PolicyError: so it is.
    """
    for name in names:
        if names.count(name) > 1:
            raise PolicyError("two policies would carry this name in the table; rename one of them", value=name)


def describe(scenario: Scenario) -> dict[str, Any]:
    """A scenario in plain figures."""
    return {
        "cluster": scenario.cluster.name,
        "num_devices": scenario.cluster.num_devices,
        "graphs": [graph.name for graph in scenario.workload.graphs],
        "degrees": list(scenario.space.degrees),
        "placement_rules": list(scenario.settings.placement_rules),
        "mean_interarrival_s": scenario.workload.mean_interarrival_s,
        "num_jobs": scenario.settings.num_jobs,
        "num_warmup_jobs": scenario.settings.num_warmup_jobs,
        "num_cooldown_jobs": scenario.settings.num_cooldown_jobs,
        "queue_capacity": scenario.settings.queue_capacity,
        "digest": scenario.digest,
        "digest_but_arrivals": scenario.digest_but_arrivals,
    }


def verdict(rows: Sequence[dict[str, Any]], best: Sequence[dict[str, Any]]) -> str:
    """The policy that won, in one sentence that claims no more than the paired interval shows.

    Args:
        rows: of all policies and references.
        best: those of the baselines with the least mean; several of them tie.
    """
    playing = [row for row in rows if row["kind"] != "reference"]
    if _all_tie(playing):
        rate = f"{100 * _blocked(playing[0]):.3g} %"
        return f"No winner: all {len(playing)} policies tie at {rate} of jobs blocked, which tells none of them from another."
    learned = least((row for row in rows if row["kind"] in CHALLENGERS), _blocked)
    if not best:
        return f"No baseline was compared with {named(learned)}." if learned else "Nothing was compared."
    has_several = len(best) > 1
    if not learned:
        found = f"baselines are {named(best)}, which tie" if has_several else f"baseline is {named(best)}"
        return f"No learned policy was compared; the best {found}."
    theirs = f"the best baselines, {named(best)}, which tie" if has_several else f"the best baseline, {named(best)}"
    if learned[0]["num_seeds"] < 2:
        return f"No winner: one episode tells nothing about {named([*learned, *best])}; ask for more seeds."
    difference = learned[0]["against_best_baseline"]
    points = f"{100 * difference['mean']:+.1f} points [{100 * difference['low']:+.1f}, {100 * difference['high']:+.1f}]"
    block, win = ("block" if len(learned) > 1 else "blocks"), ("win" if has_several else "wins")
    signs = {excludes_zero(row["against_best_baseline"]) for row in learned}
    if signs == {-1}:
        return f"{named(learned)} {block} fewer jobs than {theirs}: {points}."
    if signs == {1}:
        these = "these baselines" if has_several else "this baseline"
        return f"{named(best)} {win}: {named(learned)} {block} more jobs than {these}: {points}."
    return f"No winner: {named(learned)} against {theirs}: {points}, which does not exclude zero."


def _trained(spec: str) -> Path | None:
    """Return the file of a trained policy, of a rollout planner that of its base; None for others."""
    return trained_file(base_of(spec) if is_rollout(spec) else spec)


def _all_tie(rows: Sequence[dict[str, Any]]) -> bool:
    return 1 < len(rows) == len(least(rows, _blocked))


def _blocked(row: dict[str, Any]) -> float:
    return float(row["blocking_rate"]["mean"])


def named(rows: Sequence[dict[str, Any]]) -> str:
    """Policies by name."""
    *others, last = [str(row["policy"]) for row in rows]
    return f"{', '.join(others)} and {last}" if others else last


def _row(name: str, kind: str, benchmark: BenchmarkSettings, scenario: Scenario, records: list[EpisodeRecord]) -> dict[str, Any]:
    per_seed = [metrics(record, scenario) for record in records]
    return {
        "policy": name,
        "kind": kind,
        "benchmark": benchmark.name,
        "num_seeds": len(records),
        **{metric: interval([figures[metric] for figures in per_seed]) for metric in METRICS},
        "outcomes": outcome_shares(records, scenario),
        "degrees": degree_shares(records, scenario),
        "shapes": shape_shares(records, scenario),
        "rules": rule_shares(records, scenario) if kind != "reference" else {},
        "states": degrees_by_state(records, scenario),
        "completion_percentiles_s": completion_percentiles_s(records, scenario),
        "per_seed": {metric: [figures[metric] for figures in per_seed] for metric in METRICS},
    }


def _reference_rows(
    player: Player, specs: Sequence[str], seeds: list[int], records: dict[str, list[EpisodeRecord]], progress: Progress | None
) -> list[dict[str, Any]]:
    """A row for each clairvoyant reference; the records of beam searches join the others."""
    rows = []
    for spec in specs:

        def report(done: int, of: int, spec: str = spec) -> None:
            if progress is not None:
                progress(spec, done, of)

        if is_beam(spec):
            records[spec] = player.play_all([(spec, seed) for seed in seeds], report)
            rows.append(_row(spec, "reference", player.benchmark, player.scenario, records[spec]))
        else:
            rates = []
            for seed in seeds:
                rates.append(least_blocking_rate(player.scenario, seed))
                report(len(rates), len(seeds))
            rows.append(_bound_row(spec, player.benchmark, rates))
    return rows


def _bound_row(name: str, benchmark: BenchmarkSettings, rates: list[float]) -> dict[str, Any]:
    """A row of which nothing but blocking rates is known."""
    per_seed: dict[str, list[Any]] = {metric: [None] * len(rates) for metric in METRICS}
    per_seed["blocking_rate"] = rates
    return {
        "policy": name,
        "kind": "reference",
        "benchmark": benchmark.name,
        "num_seeds": len(rates),
        **{metric: interval(values) for metric, values in per_seed.items()},
        **{figure: {} for figure in ("outcomes", "degrees", "shapes", "rules", "states")},
        "completion_percentiles_s": None,
        "per_seed": per_seed,
    }


def _latencies(player: Player, acting: dict[str, str]) -> dict[str, dict[str, float]]:
    """How long a decision took each policy, the observation apart: median and 99th percentile over its test episodes."""
    found = {}
    for name, spec in acting.items():
        p50, p99 = np.percentile(player.latency_s[spec], [50, 99])
        found[name] = {"p50": float(p50), "p99": float(p99)}
    return found


def _best_fixed(player: Player, specs: Sequence[str], progress: Progress | None) -> dict[str, dict[str, Any]]:
    """For each ``best-fixed`` the degree with the least blocking on the validation episodes, of several the smallest."""
    seeds = list(validation_seeds(player.benchmark.num_validation_seeds))
    fixed = {spec: each_fixed(spec, player.scenario) for spec in specs}
    names = dict.fromkeys(name for degrees in fixed.values() for name in degrees)
    tasks = [(name, seed) for name in names for seed in seeds]
    if not tasks:
        return {}
    records = player.play_all(tasks, None if progress is None else lambda done, of: progress("validation episodes", done, of))
    rates = [metrics(record, player.scenario)["blocking_rate"] or 0.0 for record in records]
    mean = {task[0]: sum(rates[i : i + len(seeds)]) / len(seeds) for i, task in enumerate(tasks) if i % len(seeds) == 0}
    found = {}
    for spec, degrees in fixed.items():
        first, *others = least(degrees, mean.__getitem__)
        found[spec] = {
            "chosen": degrees[first],
            "tied": [degrees[name] for name in others],
            "validation_seeds": seeds,
            "blocking_rate": {name: mean[name] for name in degrees},
        }
    return found
