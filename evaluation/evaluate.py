"""`evaluate`: policies on the test cases of a benchmark of any kind, to plain results that tables, figures and reports read.

The results are a function of benchmark, policies and seeds. A second run, or one with more processes, gives the same bytes apart
from the key ``timing``. Budgets of searches on a clock are the exception.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import PolicyError
from ..jobs.seeds import validation_seeds
from ..models.policy_files import NETWORK, decided, how_file_was_made
from ..planning.policies import SCORES
from .metrics import Metric, metrics_of
from .progress import Progress
from .statistics import interval, least
from .verdict import paired_rows, standings
from .workers import Workers
from .worlds.evaluated_world import REFERENCE, EvaluatedWorld, PlayedCases, Row
from .worlds.registry import world_of

FORMAT, FORMAT_VERSION = "meshwright-results", 2


@dataclass(frozen=True)
class ComparedPolicy:
    """A policy that is compared.

    Attributes:
        spec: its spelling, without ``network:``.
        plays: spelling of what plays: a rule in place of a run that was not better than it on this benchmark.
        remarks: about that rule.
    """

    spec: str
    plays: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """Results and what they come from.

    Attributes:
        results: plain data, as ``results.json`` holds it.
        played: each policy by its name in the results' rows.
        specs: spelling by which each of these policies played; of a tuned one the choice.
        world: what was played.
    """

    results: dict[str, Any]
    played: dict[str, PlayedCases]
    specs: dict[str, str]
    world: EvaluatedWorld


def evaluate(
    benchmark: Any,
    specs: Sequence[str] = (),
    *,
    num_seeds: int | None = None,
    num_processes: int = 1,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Compare policies on a benchmark.

    Args:
        benchmark: its name or path, its settings (as `load_benchmark` returns them), or an `EvaluatedWorld`.
        specs: policies besides those that it names. A run that was not better than a rule in its training on this benchmark
            plays that rule, with ``network:`` before it itself.
        num_seeds: test cases; the benchmark's own number by default.
        num_processes: cases played at a time.
        workers: who plays in place of processes of this machine.
        progress: called with a phase, cases played and cases in all.

    Raises:
        MeshwrightError: a policy is unknown, twice or does not fit; nothing to compare; bad numbers.
    """
    began = time.perf_counter()
    world = world_of(benchmark)
    world.workers = workers or Workers(num_processes)
    compared = check(world, specs)
    cases = world.cases(num_seeds)
    names = {name: one.spec for name, one in compared.items()}
    tuned = _tuned(world, list(names.values()), progress)
    acting = {name: one.plays for name, one in compared.items()}
    acting |= {name: tuned[spec]["played"] for name, spec in names.items() if spec in tuned}
    result = world.play(list(dict.fromkeys(acting.values())), cases, progress, f"test {world.case}s")
    played = {name: result[spec] for name, spec in acting.items() if spec in result}
    world.dump(cases, played)
    rows = [_row(world, name, world.kind(compared[name].plays), one) for name, one in played.items()]
    for name, (kind, one) in world.published(cases).items():
        played[name] = one
        rows.append(_row(world, name, kind, one))
    ranked = standings(rows, world.objective, world.case)
    by_name = {row["policy"]: row for row in rows}
    for heading, pairs in world.comparisons(list(by_name)).items():
        for name, other in pairs.items():
            difference = paired_rows(by_name[name], by_name[other], world.objective)
            if difference is not None:
                by_name[name]["against"][heading] = difference
    trained = {name: world.trained_file(spec) for name, spec in names.items() if not spec.startswith(SCORES)}
    made = [f"{name}: {how_file_was_made(path)}." for name, path in trained.items() if path is not None]
    results = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "world": world.name,
        "benchmark": world.benchmark.name,
        "title": world.title(len(cases)),
        "about": world.about(len(cases)),
        "case": world.case,
        "cases": world.case_names(cases),
        "classes": world.classes(cases),
        "objective": world.objective.name,
        **ranked,
        "tuned": tuned,
        "made": made,
        "remarks": [
            *world.remarks(names, rows),
            *made,
            *(f"{name}: {remark}." for name, one in compared.items() for remark in one.remarks),
        ],
        "more": world.more(rows),
        "timing": {
            "elapsed_s": time.perf_counter() - began,
            "decision_s": {name: one.decision_s for name, one in played.items() if one.decision_s},
        },
    }
    return Evaluation(results, played, acting, world)


def check(world: EvaluatedWorld, specs: Sequence[str]) -> dict[str, ComparedPolicy]:
    """Build a benchmark and refuse, before anything is played, policies that do not fit it; returns all by their names.

    Raises:
        MeshwrightError: one is unknown, does not fit or is there twice; there is none.
    """
    target = {spec: spec.removeprefix(NETWORK) for spec in (*specs, *world.options.references, *world.benchmark.policies)}
    names = [spec.removesuffix(bare) + world.display_name(bare) for spec, bare in target.items()]
    for name in names:
        if names.count(name) > 1:
            raise PolicyError("two policies would carry this name in the table; rename one of them", value=name)
    world.build()
    world.for_policies(list(target.values()))
    compared = {}
    for name, (spec, bare) in zip(names, target.items(), strict=True):
        try:
            world.check(bare)
        except PolicyError as error:
            is_own = spec not in world.benchmark.policies
            raise error if is_own else error.at(field=f"policies of benchmark {world.benchmark.name}") from None
        plays, remarks = bare, tuple[str, ...]()
        if world.trained_file(bare) is not None:  # only a run has given way: a folder may have the name of a rule
            plays, _, remarks = decided(spec, world.check, world.benchmark.name)
        compared[name] = ComparedPolicy(bare, plays, remarks)
    if all(world.kind(one.spec) == REFERENCE for one in compared.values()):
        raise PolicyError("nothing to compare: name a policy, or give the benchmark a list of them")
    return compared


def _row(world: EvaluatedWorld, name: str, kind: str, played: PlayedCases) -> Row:
    per_case = {metric: [figures[metric] for figures in played.figures] for metric in metrics_of(world.name)}
    return {
        "policy": name,
        "kind": kind,
        "metrics": {metric: interval(values) for metric, values in per_case.items()},
        "per_case": per_case,
        "against": {},
        "details": world.details(kind, played),
    }


def _tuned(world: EvaluatedWorld, specs: Sequence[str], progress: Progress | None) -> dict[str, dict[str, Any]]:
    """Return for each tuned baseline the choice that does best on the validation cases, of several the first."""
    choices = {spec: result for spec in specs if world.kind(spec) != REFERENCE and (result := world.choices(spec))}
    if not choices:
        return {}
    objective, seeds = world.objective, list(validation_seeds(world.benchmark.num_validation_seeds))
    names = list(dict.fromkeys(name for choice in choices.values() for name in choice))
    played = world.play(names, seeds, progress, f"validation {world.case}s")
    values = {name: _mean(objective, one) for name, one in played.items()}
    tuned = {}
    for spec, result in choices.items():
        first, *others = least(result, lambda name: objective.sign * values[name])
        tuned[spec] = {
            "chosen": first,
            "played": result[first],
            "tied": others,
            "cases": seeds,
            "values": {name: values[name] for name in result},
        }
    return tuned


def _mean(objective: Metric, played: PlayedCases) -> float:
    """Return the mean of the known figures; where there is none, the worst by any objective."""
    known = [value for figures in played.figures if (value := figures[objective.name]) is not None]
    return sum(known) / len(known) if known else objective.sign * float("inf")
