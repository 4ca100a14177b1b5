"""`evaluate_elastic`: schedulers x published workloads, to plain results.

The results are a function of benchmark, policies and data: a second run, or one with more processes, gives the same bytes apart
from the key ``timing``. Stored completion times of published schedulers are rows of the kind ``published``; every row holds its
paired difference to one of them beside that to the best baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ...envs.elastic.benchmark import ElasticBenchmark
from ...errors import ConfigError, PolicyError
from ...models.policy_files import made_sentences
from ..evaluate import check_names
from ..fleet.objectives import Objective
from ..fleet.verdict import against, standings
from ..statistics import interval
from ..workers import Workers
from .episodes import ELASTIC_METRICS, Figures, completion_figures, play_all
from .policies import elastic_scheduler, policy_kind, policy_name, trained_file

ELASTIC_FORMAT_VERSION = 1
PUBLISHED_ROW = "published:"
OBJECTIVE = Objective("mean_completion_s", "mean completion time", "s", 1.0, 0)

Progress = Callable[[str, int, int], None]


def evaluate_elastic(
    benchmark: ElasticBenchmark,
    specs: Sequence[str] = (),
    *,
    num_workloads: int | None = None,
    num_processes: int = 1,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compare schedulers on a benchmark of elastic jobs.

    Args:
        benchmark: data, cluster and the policies that are always compared.
        specs: policies beside those (see `evaluation.elastic.policies`).
        num_workloads: the first so many of the load; all by default.
        num_processes: at work at a time.
        workers: who plays instead of processes of this machine.
        progress: called with a phase, workloads played and workloads in all.

    Returns:
        Results as ``results.json`` holds them.

    Raises:
        MeshwrightError: the data are not there or malformed; a policy is unknown, twice or damaged; nothing to compare; bad
            numbers.
    """
    began = time.perf_counter()
    workers = workers or Workers(num_processes)
    wanted = list(dict.fromkeys([*specs, *benchmark.policies]))
    if not wanted:
        raise PolicyError("nothing to compare: name a policy, or give the benchmark a list of them")
    check_names([policy_name(spec) for spec in wanted])
    for spec in wanted:
        try:
            elastic_scheduler(spec)
        except PolicyError as error:
            raise error if spec in specs else error.at(field=f"policies of benchmark {benchmark.name}") from None
    published = benchmark.build()
    of = len(published.workloads)
    if num_workloads is not None:
        if not 1 <= num_workloads <= of:
            raise ConfigError(f"must be 1 to {of}, the workloads of {benchmark.elastic.load}", field="seeds", value=num_workloads)
        published = published.first(num_workloads)
    report = None if progress is None else lambda done, of: progress("workloads", done, of)
    played = play_all(published, wanted, workers, report)
    rows = [_row(policy_name(spec), policy_kind(spec), played[spec].per_workload) for spec in wanted]
    for name, spans in published.published.items():
        figures = [completion_figures(*each) for each in zip(published.workloads, spans, strict=True)]
        rows.append(_row(PUBLISHED_ROW + name, "published", figures))
    first = next(row for row in rows if row["policy"] == PUBLISHED_ROW + benchmark.elastic.against)
    for row in rows:
        row["against_published"] = against(row, first, OBJECTIVE)
        row["worst_against_published"] = None if row is first else _worst(row, first)
    made = made_sentences({policy_name(spec): trained_file(spec) for spec in wanted})
    return {
        "format_version": ELASTIC_FORMAT_VERSION,
        "benchmark": benchmark.name,
        "objective": OBJECTIVE.metric,
        "elastic": {
            "load": benchmark.elastic.load,
            "against": benchmark.elastic.against,
            "num_jobs": [len(each.job_names) for each in published.workloads],
            "num_devices": benchmark.elastic.cluster.num_devices,
            "cluster": benchmark.elastic.cluster.model_dump(),
        },
        "workloads": [each.name for each in published.workloads],
        **standings(rows, OBJECTIVE),
        "made": made,
        "remarks": made,
        "timing": {
            "elapsed_s": time.perf_counter() - began,
            "decision_s": {policy_name(spec): each.decisions_s / max(1, each.num_decisions) for spec, each in played.items()},
        },
    }


def _row(name: str, kind: str, per_workload: Sequence[Figures]) -> dict[str, Any]:
    per_seed = {metric: [figures[metric] for figures in per_workload] for metric in ELASTIC_METRICS}
    means = {metric: interval(values) for metric, values in per_seed.items()}
    return {"policy": name, "kind": kind, "num_seeds": len(per_workload), **means, "per_seed": per_seed}


def _worst(row: dict[str, Any], first: dict[str, Any]) -> float:
    """By which share the workload that does worst beside the published one takes longer; below zero where none does."""
    pairs = zip(row["per_seed"][OBJECTIVE.metric], first["per_seed"][OBJECTIVE.metric], strict=True)
    return float(max(one / other for one, other in pairs)) - 1.0
