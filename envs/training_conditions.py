"""The conditions of a policy's training and evaluation: clusters, jobs, loads, deadlines and rules.

A policy that was trained under some conditions need not be good under others. A trained policy's file has a `TrainingConditions`
for each benchmark of its training. Files that come with the package also have those of its evaluations. `condition_changes`
describes in one line how another benchmark differs from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import files, settings
from ..errors import CheckpointError, ConfigError
from ..jobs.workload import SequentialTimeSteps
from ..simulation.cluster.scenario import Scenario, ScenarioSettings
from ..simulation.pacml.semantics import PRESETS, PacmlSemantics

KEY = "ground"
"""Of what a policy's file holds about its training."""
# Keys of a scenario that are rules of the game, and what to call their defaults, which stand in no ground.
RULES = {"semantics": "general", "queue_capacity": "0", "queue_order": "fifo"} | dict.fromkeys(
    ("failures", "preemption", "splitting", "costs", "training", "compression"), "by default"
)
# Ranges are the same where their ends differ by no more, relative to them.
ROUNDING = 0.01
MOST_NAMED = 6

Range = tuple[float, float]


class TrainingConditions(settings.Settings):
    """One benchmark as a policy knows it.

    Attributes:
        benchmark: its name; empty for a single job.
        cluster: its name.
        topology: kind of the cluster's topology.
        num_devices: of the cluster.
        device_types: their names.
        links: a hash of the topology's figures.
        jobs: names of the job graphs; of measured ones with that word.
        work_s: least and greatest time of a job on one device, seconds.
        load: time that jobs take on one device over that of all devices; None where a single job comes.
        deadline: least and greatest allowed time, as a share of that on one device; None without deadlines.
        max_degree: most ranks of a job.
        rules: those that differ from the defaults.
    """

    benchmark: str
    cluster: str
    topology: str
    num_devices: int
    device_types: tuple[str, ...]
    links: str
    jobs: tuple[str, ...]
    work_s: Range
    load: float | None
    deadline: Range | None
    max_degree: int
    rules: dict[str, Any]

    @classmethod
    def from_scenario(cls, benchmark: str, scenario: Scenario) -> TrainingConditions:
        """Return the ground of a benchmark."""
        config, cluster, workload = scenario.settings, scenario.cluster, scenario.workload
        work_s, mean_s = _work_s(scenario)
        deadline = workload.settings.deadline
        return cls(
            benchmark=benchmark,
            cluster=cluster.name,
            topology=cluster.settings.topology.kind,
            num_devices=cluster.num_devices,
            device_types=tuple(kind.name for kind in cluster.device_types),
            links=files.digest(cluster.settings.topology.model_dump(mode="json", exclude_defaults=True)),
            jobs=tuple(f"{graph.name}{' as measured' if graph.source == 'measured' else ''}" for graph in workload.graphs),
            work_s=work_s,
            load=mean_s / (workload.mean_interarrival_s * cluster.num_devices),
            deadline=None if deadline.kind == "none" else (deadline.low, deadline.high),
            max_degree=config.max_degree,
            rules=_rules_of(config),
        )

    def for_one_job(self, work_s: float, deadline: float | None) -> TrainingConditions:
        """Return the ground of the same cluster and rules on which one job comes alone.

        Args:
            work_s: its time on one device.
            deadline: its allowed time as a share of that; None without.
        """
        alone = None if deadline is None else (deadline, deadline)
        return self.model_copy(update={"benchmark": "", "work_s": (work_s, work_s), "load": None, "deadline": alone})


def read_conditions(data: Any, file: str) -> tuple[TrainingConditions, ...]:
    """Read the grounds of a policy's file, under `KEY`; none where the file has none, as those of former versions.

    Raises:
        CheckpointError: the entry is no list of grounds.
    """
    try:
        return tuple(settings.build_settings(TrainingConditions, one) for one in ([] if data is None else data))
    except (ConfigError, TypeError):
        raise CheckpointError("a part of the policy is not what it should be", file=file, field=KEY) from None


def condition_changes(name: str, known: Sequence[TrainingConditions], here: TrainingConditions) -> str | None:
    """Return how a benchmark differs from what a policy was trained and evaluated on, in one sentence; None where it does not.

    Each aspect is compared by itself: a range is known that lies within those of all known benchmarks together.

    Args:
        name: the policy's.
        known: what its file holds.
        here: where it is to act.
    """
    if not known:
        return f"{name} does not say on which clusters and jobs it was trained: its file was made by a former version"
    results = [*_cluster(known, here), *_jobs(known, here)]
    results += _range("jobs of", known, here, lambda one: one.work_s, " s on one device")
    results += _range("a load of", known, here, lambda one: None if one.load is None else (one.load, one.load), "")
    if here.deadline is None:
        results += [] if any(one.deadline is None for one in known) else ["jobs without deadlines"]
    else:
        results += _range("deadlines of", known, here, lambda one: one.deadline, " of the time on one device")
    results += _rules(known, here)
    return f"{name} was neither trained nor evaluated on {'; '.join(results)}" if results else None


def _cluster(known: Sequence[TrainingConditions], here: TrainingConditions) -> list[str]:
    def shape(one: TrainingConditions) -> tuple[object, ...]:
        return one.topology, one.num_devices, one.device_types

    similar = [one for one in known if shape(one) == shape(here)]
    if not similar:
        return [f"{_described(here)} (known: {_listed(_described(one) for one in known)})"]
    if all(one.links != here.links for one in similar):
        return [f"the links of {here.cluster} (known: those of {_listed(one.cluster for one in similar)})"]
    return []


def _described(one: TrainingConditions) -> str:
    return f"{one.cluster}, a {one.topology} of {one.num_devices:,} {'/'.join(one.device_types)}"


def _jobs(known: Sequence[TrainingConditions], here: TrainingConditions) -> list[str]:
    names = [name for one in known for name in one.jobs]
    new = [name for name in here.jobs if name not in names]
    return [f"job{'s' * (len(new) > 1)} {_listed(new)} (known: {_listed(names)})"] if new else []


def _range(
    what: str,
    known: Sequence[TrainingConditions],
    here: TrainingConditions,
    of: Callable[[TrainingConditions], Range | None],
    unit: str,
) -> list[str]:
    """Return the aspect ``of`` a ground where it is not within those known."""
    result, ranges = of(here), [one for ground in known if (one := of(ground)) is not None]
    if result is None:
        return []
    if not ranges:
        return [f"{what} {_spelled(result)}{unit} (known: none)"]
    low, high = min(one[0] for one in ranges), max(one[1] for one in ranges)
    if low * (1 - ROUNDING) <= result[0] and result[1] <= high * (1 + ROUNDING):
        return []
    return [f"{what} {_spelled(result)}{unit} (known: {_spelled((low, high))})"]


def _rules(known: Sequence[TrainingConditions], here: TrainingConditions) -> list[str]:
    result = []
    if all(one.max_degree != here.max_degree for one in known):
        known_degrees = _listed(str(one.max_degree) for one in known)
        result.append(f"jobs of up to {here.max_degree} ranks (known: {known_degrees})")
    for rule in RULES:
        if all(one.rules.get(rule) != here.rules.get(rule) for one in known):
            result.append(f"{rule} {_rule(here, rule)} (known: {_listed(_rule(one, rule) for one in known)})")
    return result


def _rule(one: TrainingConditions, rule: str) -> str:
    value = one.rules.get(rule, RULES[rule])
    return str(value.get("rule", "of its own")) if isinstance(value, dict) else str(value)


def _rules_of(scenario_settings: ScenarioSettings) -> dict[str, Any]:
    """Return rules that differ from the defaults; semantics by their preset and the switches that differ from it."""
    data: dict[str, Any] = scenario_settings.model_dump(mode="json", include=set(RULES), exclude_defaults=True)
    if isinstance(scenario_settings.semantics, PacmlSemantics):
        preset, target = scenario_settings.semantics.preset, PRESETS[scenario_settings.semantics.preset]
        switched = [name for name, value in scenario_settings.defects if value != getattr(target, name)]
        data["semantics"] = f"{preset} but for {', '.join(switched)}" if switched else preset
    return data


def _spelled(ends: Range) -> str:
    low, high = (f"{end:,.0f}" if abs(end) >= 100 else f"{end:.3g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def _listed(names: Iterable[str]) -> str:
    """Return each name once, the first few of many."""
    each = list(dict.fromkeys(names))
    rest = len(each) - MOST_NAMED
    return ", ".join(each[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _work_s(scenario: Scenario) -> tuple[Range, float]:
    """Return the least and greatest time of a job on one device, and the mean, in seconds."""
    workload = scenario.workload
    if workload.trace is not None:
        work_s = workload.traced_work_s
        return (float(work_s.min()), float(work_s.max())), float(work_s.mean())
    steps = workload.settings.steps
    if isinstance(steps, SequentialTimeSteps):
        return (steps.low_s, steps.high_s), (steps.low_s + steps.high_s) / 2
    assert steps is not None
    of_graph = [steps.num_steps * float(step_s) for step_s in scenario.sequential_step_s]
    weights = workload.settings.weights or [1.0] * len(of_graph)
    mean_s = sum(weight * time_s for weight, time_s in zip(weights, of_graph, strict=True)) / sum(weights)
    return (min(of_graph), max(of_graph)), mean_s
