"""Results of each world as `evaluate` makes them, of a few figures that are known."""

from meshwright.evaluation.evaluate import FORMAT, FORMAT_VERSION
from meshwright.evaluation.metrics import METRICS, metrics_of
from meshwright.evaluation.statistics import interval
from meshwright.evaluation.verdict import standings
from meshwright.evaluation.worlds.evaluated_world import TIME
from meshwright.evaluation.worlds.registry import WORLDS

OBJECTIVES = {
    "cluster": "blocking_rate",
    "fleet": "mean_completion_s",
    "elastic": "mean_completion_s",
    "operators": "over_best_known",
    "tasklets": "over_best_known",
}


def row(world, policy, values, kind="baseline", details=None, **others):
    """A policy by its values of the objective, and of some other metrics, in each case."""
    per_case = dict.fromkeys(metrics_of(world), [None] * len(values)) | {OBJECTIVES[world]: values} | others
    metrics = {name: interval(each) for name, each in per_case.items()}
    return {
        "policy": policy, "kind": kind, "metrics": metrics, "per_case": per_case, "against": {}, "details": details or {},
    }  # fmt: skip


def results(world, *rows, **changes):
    """Results with these rows."""
    objective, case = METRICS[OBJECTIVES[world]], WORLDS[world].case
    num_cases = len(rows[0]["per_case"][objective.name])
    made = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "world": world,
        "benchmark": f"mine-{world}",
        "title": f"mine-{world}: {num_cases} {case}s",
        "about": {"cluster": "host-8"},
        "case": case,
        "cases": list(range(num_cases)),
        "classes": [],
        "objective": objective.name,
        **standings(rows, objective, case),
        "tuned": {},
        "made": [],
        "remarks": [],
        "more": {},
        "timing": {"elapsed_s": 1.0, "decision_s": {}},
    }
    return made | changes


def three(world, **changes):
    """Results of a learned policy that is better than two baselines."""
    rows = [
        row(world, name, [x, x + 0.02, x + 0.04], kind, **{other: [1 - x] * 3 for other in _others(world)})
        for name, kind, x in (("mine", "learned", 0.1), ("rule", "baseline", 0.5), ("poor", "baseline", 0.8))
    ]
    return results(world, *rows, **changes)


def _others(world):
    return {name for pair in WORLDS[world].trade_offs for name in pair} - {OBJECTIVES[world], TIME}
