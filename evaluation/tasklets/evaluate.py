"""`evaluate_tasklets`: who groups the devices of the test networks best, paired, with 95 % intervals and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import budgets_by, clock_s, clock_words
from ...envs.tasklets.benchmark import MOST_TESTED, TaskletBenchmark
from ...errors import ConfigError
from ...models.policy_files import how_made
from ...planners.arrangement.arrange import ArrangementRequest, arrange
from ..statistics import CHALLENGERS, interval, paired
from ..tables import against_words, with_ends
from .policies import TaskletPolicySpec, tasklet_policy

TASKLETS_FORMAT_VERSION = 1

Data = dict[str, Any]

_OWN_SEED = 1_000_003
"""Seeds of the search for the best known begin here, so that it repeats no search that is compared."""


def evaluate_tasklets(
    benchmark: TaskletBenchmark,
    policies: Sequence[str],
    *,
    num_seeds: int | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Data:
    """Group the devices of every test network by every policy.

    Args:
        benchmark: networks and policies.
        policies: beside those of the benchmark.
        num_seeds: test networks, by default as the benchmark says.
        progress: told what is done, how much of it and of how much.

    Returns:
        What ``results.json`` holds: rows by policy with the value over the best known of each network, for all and for each kind
        of network, differences paired over networks, and times.

    Raises:
        ConfigError: more seeds than there are, or nobody to compare.
        PolicyError: a policy is unknown.
    """
    with budgets_by(benchmark.clock):
        return _evaluate(benchmark, policies, num_seeds, progress)


def _evaluate(
    benchmark: TaskletBenchmark,
    policies: Sequence[str],
    num_seeds: int | None,
    progress: Callable[[str, int, int], None],
) -> Data:
    names = list(dict.fromkeys([*policies, *benchmark.policies]))
    if not names:
        raise ConfigError("names nobody to compare", field="policies")
    chosen = [tasklet_policy(name) for name in names]
    total = benchmark.num_seeds if num_seeds is None else num_seeds
    if not 2 <= total <= MOST_TESTED:
        raise ConfigError(f"from 2 to {MOST_TESTED} networks", field="--seeds", value=total)
    instances = [benchmark.instance("test", seed) for seed in range(total)]
    values, seconds, known = np.zeros((len(chosen), total)), np.zeros((len(chosen), total)), np.zeros(total)
    for each in chosen:  # what has to be compiled is compiled before anything is timed
        each.place(instances[0], 0)
    for number, instance in enumerate(instances):
        progress("networks", number, total)
        for row, each in enumerate(chosen):
            begun_s = clock_s()
            values[row, number] = each.place(instance, number).value_s
            seconds[row, number] = clock_s() - begun_s
        longer = arrange(instance, ArrangementRequest(benchmark.best_known_s, _OWN_SEED + number))
        known[number] = min(longer.value_s, values[:, number].min())
    progress("networks", total, total)
    kinds = [benchmark.tasklets.kinds[number % len(benchmark.tasklets.kinds)] for number in range(total)]
    rows = _rows(chosen, values, seconds, known, np.array(kinds))
    made = [f"{each.name}: {how_made(each.trained)}." for each in chosen if each.kind == "learned"]
    return {
        "format_version": TASKLETS_FORMAT_VERSION,
        "benchmark": benchmark.name,
        "tasklets": benchmark.tasklets.model_dump(mode="json"),
        "num_instances": total,
        "best_known_s": benchmark.best_known_s,
        "clock": benchmark.clock,
        "known_s": known.tolist(),
        "kinds": kinds,
        "rows": rows,
        "verdict": _verdict(rows),
        "made": made,
        "remarks": [
            *clock_words(benchmark.clock),
            *made,
        ],
    }


def _rows(
    chosen: Sequence[TaskletPolicySpec],
    values: NDArray[np.float64],
    seconds: NDArray[np.float64],
    known: NDArray[np.float64],
    kinds: NDArray[np.str_],
) -> list[Data]:
    beyond = values / known
    least = values.min(axis=0)
    subsets = {kind: kinds == kind for kind in dict.fromkeys(kinds.tolist())}
    return [
        {
            "policy": each.name,
            "kind": each.kind,
            "over_best_known": interval(beyond[row].tolist()),
            "by_kind": {kind: interval(beyond[row, is_it].tolist()) for kind, is_it in subsets.items()},
            "won": float(np.mean(values[row] <= least * (1 + 1e-9))),
            "seconds": {"median": float(np.median(seconds[row])), "p99": float(np.quantile(seconds[row], 0.99))},
            "against": {
                other.name: {
                    "all": paired(beyond[row].tolist(), beyond[at].tolist()),
                    **{kind: paired(beyond[row, is_it].tolist(), beyond[at, is_it].tolist()) for kind, is_it in subsets.items()},
                }
                for at, other in enumerate(chosen)
                if at != row
            },
            "values_s": values[row].tolist(),
        }
        for row, each in enumerate(chosen)
    ]


def best_search(rows: Sequence[Data]) -> Data | None:
    """The row of the best of those that do not learn, in the mean; None where all learn."""
    searches = [row for row in rows if row["kind"] not in CHALLENGERS]
    return min(searches, key=lambda row: float(row["over_best_known"]["mean"])) if searches else None


def _verdict(rows: Sequence[Data]) -> str:
    learned, best = [row for row in rows if row["kind"] in CHALLENGERS], best_search(rows)
    if best is None or not learned:
        found = min(rows, key=lambda row: float(row["over_best_known"]["mean"]))
        return f"Best is {found['policy']}; nobody else is compared with learned policies."
    sentences = []
    for row in learned:
        told = row["against"][best["policy"]]["all"]
        mean, _, ends = with_ends(told, 100.0, 1, sign="+").partition(" ")
        difference = f"{mean} points of the best known {ends}".rstrip()
        sentences.append(f"{row['policy']} is {against_words(told)} {best['policy']}, the best search: {difference}.")
    return " ".join(sentences)
