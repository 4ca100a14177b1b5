"""`evaluate_operators`: who places ops best on the test instances, paired, with 95 % intervals and times of decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import budgets_by, clock_s, clock_words
from ...envs.operators.benchmark import PlacementBenchmark
from ...errors import ConfigError, PlanError
from ...models.policy_files import how_made
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.policy_names import parsed
from ...simulation.operators.forms import FORMS, WORDS, ValueForm, form_value_s
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement, lower_bound
from ...simulation.operators.schedules import upward_order
from ..statistics import CHALLENGERS, interval, paired
from ..tables import against_words, with_ends
from .budgets import BudgetCurves
from .classes import by_class, classes, facts
from .differences import shown_instance
from .policies import OperatorPolicySpec, operator_policy

OPERATORS_FORMAT_VERSION = 1

Data = dict[str, Any]


def evaluate_operators(
    benchmark: PlacementBenchmark,
    policies: Sequence[str],
    *,
    num_seeds: int | None = None,
    shown: Sequence[int] = (),
    keep: Callable[[int, OperatorInstance, Mapping[str, OperatorPlacement]], None] = lambda number, instance, placements: None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Data:
    """Place every test instance by every policy.

    Args:
        benchmark: instances and policies.
        policies: beside those of the benchmark.
        num_seeds: test instances, by default as the benchmark says.
        shown: numbers of instances of which schedules and differences from HEFT's placement are told, as the first policy placed
            them.
        keep: is given each instance with the placements of all policies that found one, and its number.
        progress: told what is done, how much of it and of how much.

    Returns:
        What ``results.json`` holds: rows by policy with value over the lower bound, over the best known and over the best rule of
        each instance, differences paired over instances, and times. A policy without a legal placement on an instance, or with
        one that has no value of the benchmark's form, counts there as the worst value that anybody reached, and is told. All but
        `pipedream` and `piper` place for the default form of the objective; all are valued by that of the benchmark.

    Raises:
        ConfigError: more seeds than there are, an instance is to be shown that is not among them, or any under a form that is not
            the default.
        PolicyError: a policy is unknown or of another objective.
        PlanError: an instance that nobody places, or of which no placement has a value of the form.
    """
    with budgets_by(benchmark.clock):
        return _evaluate(benchmark, policies, num_seeds, shown, keep, progress)


def _evaluate(
    benchmark: PlacementBenchmark,
    policies: Sequence[str],
    num_seeds: int | None,
    shown: Sequence[int],
    keep: Callable[[int, OperatorInstance, Mapping[str, OperatorPlacement]], None],
    progress: Callable[[str, int, int], None],
) -> Data:
    names = list(dict.fromkeys([*policies, *benchmark.policies]))
    objective, form = benchmark.placement.objective, benchmark.placement.valued_form
    chosen = [operator_policy(name, objective) for name in names]
    total = benchmark.num_seeds if num_seeds is None else num_seeds
    most = benchmark.placement.most_instances
    if num_seeds is None:
        total = min(total, most)
    if not 2 <= total <= min(1000, most):
        raise ConfigError(f"from 2 to {min(1000, most)} instances", field="--seeds", value=total)
    for number in shown:
        if not 0 <= number < total:
            raise ConfigError(f"no such instance; from 0 to {total - 1}", field="--show", value=number)
    if shown:
        benchmark.placement.check_default_form("schedules are shown")
    instances = [benchmark.placement.instance("test", seed) for seed in range(total)]
    curves, details = BudgetCurves.of(benchmark.budgets_s, names, objective, total), []
    values, seconds = np.full((len(chosen), total), np.nan), np.zeros((len(chosen), total))
    bounds, known, without_form = np.zeros(total), np.zeros(total), np.zeros(len(chosen), np.int64)
    noted: Counter[tuple[str, str]] = Counter()
    for each in chosen:  # what has to be compiled is compiled before anything is timed
        _placed(each, instances[0], 0)
    for number, instance in enumerate(instances):
        progress("instances", number, total)
        bounds[number] = max(lower_bound(instance, objective), 1e-30)
        upward_order(instance)  # what every policy asks of an instance is worked out before anything is timed
        placements: dict[str, OperatorPlacement] = {}
        reasons: dict[str, str] = {}
        for row, each in enumerate(chosen):
            begun_s = clock_s()
            made = _tried(each, instance, number)
            seconds[row, number] = clock_s() - begun_s
            if isinstance(made, PlanError):
                reasons[each.name] = made.problem
                continue
            placements[each.name] = made
            if each.kind == "learned" and made.note:
                noted[each.name, made.note] += 1
            try:
                values[row, number] = form_value_s(instance, made, form)
            except PlanError as error:
                reasons[each.name] = error.problem
                without_form[row] += 1
        if np.isnan(values[:, number]).all():
            name, why = next(iter(reasons.items()))
            lacks = f"places this instance so that it has a value by {form}" if placements else "places this instance"
            raise PlanError(f"no policy that is compared {lacks}; {name}: {why}", field="policies", value=instance.name)
        keep(number, instance, placements)
        if number in shown and placements:
            name, made = next(iter(placements.items()))
            details.append(shown_instance(instance, number, name, made, _by_heft(instance, objective, placements)))
        best_s = min(
            curves.place(number, instance, _placed, partial(_value_s, form=form)), np.nanmin(values[:, number], initial=np.inf)
        )
        request = PlacementRequest(objective=objective, budget_s=benchmark.best_known_s, seed=number)
        known[number] = np.fmin(_searched(instance, request, form), best_s)
    progress("instances", total, total)
    found = _results(benchmark, chosen, instances, values, without_form / total, seconds, bounds, known)
    found["remarks"] += [
        f"{name} on {_percent(count / total)} of the instances: {note}." for (name, note), count in noted.items()
    ]
    return {**found, "budgets": curves.told(known, np.nanmax(values, axis=0)), "shown": details}


def _tried(policy: OperatorPolicySpec, instance: OperatorInstance, seed: int) -> OperatorPlacement | PlanError:
    """A policy's placement, or why there is none."""
    try:
        return policy.place(instance, seed)
    except PlanError as error:
        return error


def _placed(policy: OperatorPolicySpec, instance: OperatorInstance, seed: int) -> OperatorPlacement | None:
    made = _tried(policy, instance, seed)
    return None if isinstance(made, PlanError) else made


def _value_s(instance: OperatorInstance, made: OperatorPlacement | None, form: ValueForm) -> float:
    """What a placement is valued by; not a number where there is none, or it has no value of this form."""
    with suppress(PlanError):
        return float("nan") if made is None else form_value_s(instance, made, form)
    return float("nan")


def _by_heft(
    instance: OperatorInstance, objective: OperatorObjective, placements: Mapping[str, OperatorPlacement]
) -> OperatorPlacement:
    return placements.get("heft") or place(instance, "heft", PlacementRequest(objective=objective))


def _searched(instance: OperatorInstance, request: PlacementRequest, form: ValueForm) -> float:
    try:
        return _value_s(instance, place(instance, "annealing", request), form)
    except PlanError:
        return float("nan")


def _results(
    benchmark: PlacementBenchmark,
    chosen: Sequence[OperatorPolicySpec],
    instances: Sequence[OperatorInstance],
    values: NDArray[np.float64],
    without_form: NDArray[np.float64],
    seconds: NDArray[np.float64],
    bounds: NDArray[np.float64],
    known: NDArray[np.float64],
) -> Data:
    infeasible, form = np.isnan(values), benchmark.placement.valued_form
    best = np.nanmin(values, axis=0)
    is_rule = [each.kind not in CHALLENGERS and not _searches(each) for each in chosen]
    ruled = values[np.array(is_rule)]
    has_rule = bool(len(ruled)) and not np.isnan(ruled).all(axis=0).any()
    best_rule = np.nanmin(ruled, axis=0) if has_rule else np.ones(len(instances))
    values = np.where(infeasible, np.nanmax(values, axis=0), values)
    told = [facts(each) for each in instances]
    of_class = classes(told)
    sizes = sorted({(each.num_ops, each.num_devices) for each in instances})
    rows = []
    for row, each in enumerate(chosen):
        beyond = values[row] / best_rule - 1.0
        rows.append(
            {
                "policy": each.name,
                "kind": each.kind,
                "is_rule": is_rule[row],
                "over_bound": interval((values[row] / bounds).tolist()),
                "over_best_known": interval((values[row] / known).tolist()),
                "against_best_rule": interval(beyond.tolist()) if has_rule else None,
                "won": float(np.mean(~infeasible[row] & (values[row] <= best * (1 + 1e-9)))),
                "infeasible": float(infeasible[row].mean()),
                "without_form": float(without_form[row]),
                "seconds": {"median": float(np.median(seconds[row])), "p99": float(np.quantile(seconds[row], 0.99))},
                "against": {
                    other.name: paired((values[row] / known).tolist(), (values[at] / known).tolist())
                    for at, other in enumerate(chosen)
                    if at != row and not infeasible[[row, at]].all(axis=1).any()
                },
                "by_size": {
                    f"{n} ops, {m} devices": interval(
                        [
                            float(value / best)
                            for value, best, instance in zip(values[row], known, instances, strict=True)
                            if (instance.num_ops, instance.num_devices) == (n, m)
                        ]
                    )
                    for n, m in (sizes if len(sizes) <= 12 else [])
                },
                "by_class": by_class(values[row] / known, of_class),
                "trained": each.trained,
                "values_s": values[row].tolist(),
            }
        )
    made = [f"{each.name}: {how_made(each.trained)}." for each in chosen if each.kind == "learned"]
    found: Data = {
        "format_version": OPERATORS_FORMAT_VERSION,
        "benchmark": benchmark.name,
        "placement": benchmark.placement.model_dump(mode="json"),
        "objective": benchmark.placement.objective,
        "form": form,
        "num_instances": len(instances),
        "best_known_s": benchmark.best_known_s,
        "clock": benchmark.clock,
        "bounds_s": bounds.tolist(),
        "known_s": known.tolist(),
        "instances": told,
        "classes": [
            {"dimension": dimension, "class": name, "instances": rows_of}
            for dimension, of in of_class.items()
            for name, rows_of in of.items()
        ],
        "rows": rows,
        "made": made,
        "remarks": [
            *clock_words(benchmark.clock),
            *form_words(benchmark.placement.objective, form, [each.name for each in chosen]),
            *_remarks(rows, form),
            *made,
        ],
    }
    return {**found, "verdict": _verdict(rows)}


def _searches(policy: OperatorPolicySpec) -> bool:
    """Whether it searches, or proves that nothing is better: neither is a rule."""
    planner = PLACEMENT_PLANNERS.get(parsed(policy.name).whole)
    return planner is not None and (planner.is_search or planner.is_exact)


def _verdict(rows: Sequence[Data]) -> str:
    learned = [row for row in rows if row["kind"] in CHALLENGERS]
    if not learned:
        everywhere = [row for row in rows if not row["infeasible"]]
        best = min(everywhere, key=lambda row: row["over_best_known"]["mean"], default=None)
        if best is None:
            return "No policy has a value on every instance; no learned policy was compared."
        return f"Best is {best['policy']}; no learned policy was compared."
    sentences = []
    for row in learned:
        told = row["against_best_rule"]
        if row["infeasible"]:
            sentences.append(f"{row['policy']} has no value on {_percent(row['infeasible'])} of the instances.")
            continue
        if told is None:
            return " ".join([*sentences, "No rule was compared that has a value on every instance."])
        mean, _, ends = with_ends(told, 100.0, 1, sign="+").partition(" ")
        difference = f"{mean} % {ends}".rstrip()
        sentences.append(f"{row['policy']} is {against_words(told)} the best rule of each instance: {difference}.")
    return " ".join(sentences)


def form_words(objective: OperatorObjective, form: ValueForm, policies: Sequence[str]) -> list[str]:
    """Who is valued by what, in a sentence or two; nothing of the default form."""
    default = FORMS[objective][0]
    if form == default:
        return []
    own = [name for name in policies if name in PLACEMENT_PLANNERS and PLACEMENT_PLANNERS[name].is_published]
    who = f"Every policy but {' and '.join(own)}" if own else "Every policy"
    return [f"Values are by {form}: {WORDS[form]}. {who} placed for {default}, and best-of draws and searches chose by it."]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _remarks(rows: Sequence[Data], form: ValueForm) -> list[str]:
    found = []
    for row in rows:
        for share, what in (
            (row["infeasible"] - row["without_form"], "found no legal placement"),
            (row["without_form"], f"found a placement that has no value by {form}"),
        ):
            if share > 0:
                told = f"on {_percent(share)} of the instances; there it counts as the worst of the others."
                found.append(f"{row['policy']} {what} {told}")
    return found
