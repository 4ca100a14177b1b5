"""The published PAC-ML figures and decision logs, computed again and compared.

Every figure comes from simulating the job graphs; none is looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeGuard

import numpy as np

from ....errors import ConfigError, GraphError, MeshwrightError, PolicyError
from ....jobs.graph import JobGraph
from ....jobs.readers.pipedream import load_profile
from ....planners.policy import Policy
from ....planners.rules import RuleOfThumb, rule_of_thumb
from ....simulation.cluster.scenario import Scenario
from ....simulation.decision_space.space import decision_space
from ....simulation.pacml.demands import Demand, draw_demands
from ....simulation.pacml.lookahead import LookaheadResult, lookahead, problem, ties
from ....simulation.pacml.semantics import Defects
from ....simulation.pacml.simulator import PlacedSplitJob, Simulator
from ...progress import Progress, reported
from ..comparison import ComparedFigure, Comparison, Value
from .episodes import MAX_DEGREE, play, published_scenario
from .reference import EpisodeFigures, Log, Reference, SingleJob, load_reference

NUM_SEEDS = 10
NUM_DECISIONS = 1000
# Two means agree if they are no farther apart than this many standard errors of their difference.
STANDARD_ERRORS = 3.0

# The published agents as rules of ours, which choose among candidates of the published first fit.
AGENTS = {
    "random": "random",
    "no_parallelism": "fixed-1",
    "max_parallelism": "max",
    "sip_ml": "max",
    "acceptable_jct": "acceptable-jct",
    "oracle_min": "ladder-{up}",
    "best_feasible": "ladder-{down}",
}
FIGURES = {"blocking_rate": "blocking_rate", "mean_jct": "mean_completion_s", "demand_thr": "demand_bytes_per_s"}

TOLERANCE = 1e-9
# A tie in the original, between flows of equal run time, falls by Python's hash seed; AlexNet cut two ways shows it.
HASH_DEPENDENT = ("alexnet", 2)
HASH_TOLERANCE = 1e-6
# Shuffled orders of tied flows under which each single job runs again: which of its figures hang on ties, and how far.
NUM_TIE_ORDERS = 20
# A figure moves if it does so by more than rounding, relatively.
ROUNDING = 1e-12
# Partly occupied clusters on which placements are looked for, for each job and degree.
NUM_OCCUPANCIES = 400

Figures = Mapping[str, Value]


def validate(
    path: str | Path,
    graphs_dir: str | Path,
    *,
    with_statistics: bool = False,
    num_seeds: int = NUM_SEEDS,
    progress: Progress | None = None,
) -> Comparison:
    """Compute every figure of a file again and replay its decision logs.

    Rows of single jobs have the figures that change with the order of flows of equal run time, and how far. In the original they
    depend on the hash seed of its process, which the file does not name.

    Args:
        path: a file of the form of `reference.Reference`.
        graphs_dir: folder of profiles, ``NAME/graph.txt``.
        with_statistics: also play the policies of the file's statistics on episodes of our own.
        num_seeds: episodes for each of them.
        progress: called with a family, how much of it is done and how much there is.

    Raises:
        InputFileError: a file is missing or malformed.
        GraphError: the file names a graph that the folder lacks, or a graph is malformed.
        PolicyError: the file names an unknown policy.
        ConfigError: an impossible topology, or fewer than two episodes for a standard error.
    """
    reference = load_reference(path)
    if with_statistics and num_seeds < 2:
        raise ConfigError("a standard error takes at least 2 episodes", field="num_seeds", value=num_seeds)
    try:
        cluster = reference.cluster()
        graphs = _graphs(reference, Path(graphs_dir), with_statistics=with_statistics)
        simulator = Simulator(cluster, graphs, Defects(), num_steps=reference.num_steps)
    except (ConfigError, MeshwrightError) as error:
        raise error.at(file=path) from None
    in_milliseconds = Defects(milliseconds_as_seconds=False)
    converted = Simulator(cluster, graphs, in_milliseconds, num_steps=reference.num_steps)
    valid = decision_space(cluster, MAX_DEGREE).degrees

    @cache
    def scenario(num_jobs: int) -> Scenario:
        return published_scenario(simulator, graphs, num_jobs)

    families: dict[str, list[Iterable[ComparedFigure]]] = {
        "single job": [
            _single_job(simulator, valid, name, degree, figures)
            for name, degrees in reference.single_job_empty_cluster.items()
            for degree, figures in degrees.items()
        ],
        "converted": [_converted(converted, reference, name) for name in reference.single_job_if_ms_were_converted_to_s],
        "placement": [_placements(simulator, reference, name) for name in reference.placement_dependence],
        "log": [_log(scenario, number, episode) for number, episode in enumerate(reference.episode_logs)],
    }
    if with_statistics:
        families["statistics"] = [
            statistics_rows(scenario(NUM_DECISIONS), distribution, agents, num_seeds)
            for distribution, agents in reference.ten_seed_statistics.items()
        ]
    rows: list[ComparedFigure] = []
    for family, parts in families.items():
        for part in reported(parts, family, progress):
            rows += part
    return Comparison(tuple(rows))


def _graphs(reference: Reference, folder: Path, *, with_statistics: bool) -> list[JobGraph]:
    """Return the graphs that the file names; where it has nothing but statistics, all that there are."""
    if not folder.is_dir():
        raise GraphError("no such folder of graphs", file=folder)
    profiles = {path.parent.name: path for path in sorted(folder.glob("*/graph.txt"))}
    fields = reference.graph_fields()
    for name, field in fields.items():
        if name not in profiles:
            raise GraphError(f"no such graph in {folder}", field=field, value=name, choices=profiles or None)
    if not fields and not (with_statistics and profiles):
        raise GraphError("the file names no graph and the folder holds none", value=str(folder))
    return [load_profile(profiles[name]) for name in fields or profiles]


def _single_job(
    simulator: Simulator, degrees: Sequence[int], name: str, degree: int, published: SingleJob
) -> list[ComparedFigure]:
    group = f"{name} at degree {degree}"
    valid = ComparedFigure("single job", group, "valid", degree in degrees, published.valid, 0.0)
    target = {
        figure: " ".join(value) if isinstance(value, list) else value
        for figure, value in published.model_dump(exclude={"valid"}, exclude_none=True).items()
    }
    if not target:
        return [valid]
    placed = simulator.place(name, degree, np.ones(simulator.num_servers, np.bool_))
    if placed is None:
        return [valid, *_rows("single job", group, {"placed": False}, target, 0.0)]
    in_time = simulator.completion_s(simulator.step(placed)) <= simulator.sequential_s(name)
    at_fraction_1 = {"placed": True, "reward_at_frac_1": 1 if in_time else -1}
    ours, *others = [_figures(simulator, name, placed, step) for step in _steps(simulator, placed)]
    return [valid, *_rows("single job", group, {**ours, **at_fraction_1}, target, _tolerance(name, degree), others)]


def _steps(simulator: Simulator, placed: PlacedSplitJob) -> list[LookaheadResult]:
    """Return a step of a placed job, then those that differ from it under other orders of tied flows."""
    step = simulator.step(placed)
    inputs = problem(placed.split, placed.server, simulator.times(placed), simulator.defects)
    orders = [ties(placed.split, seed) for seed in range(NUM_TIE_ORDERS + 1)]
    others = dict.fromkeys(lookahead(inputs._replace(tie=order)) for order in orders)
    return [step, *(other for other in others if other != step)]


def _figures(simulator: Simulator, name: str, placed: PlacedSplitJob, step: LookaheadResult) -> Figures:
    """Return the figures of a placed job, by their names in the file."""
    times, cut = simulator.times(placed), placed.split
    flows = times.is_flow
    names = ["-".join(map(str, simulator.network.coordinates[server])) for server in placed.servers]
    utilisation = step.busy_worker_s / (step.step_s * len(names)) if step.step_s else 0.0
    return {
        "jct": simulator.completion_s(step),
        "step_time": step.step_s,
        "communication_overhead_time": simulator.num_steps * step.communication_s,
        "computation_overhead_time": simulator.num_steps * step.computation_s,
        "busy_worker_time": simulator.num_steps * step.busy_worker_s,
        "sequential_jct": simulator.sequential_s(name),
        "num_ops": cut.num_sub_ops,
        "num_deps": cut.num_deps,
        "num_sync_deps": cut.num_sync,
        "num_flow_deps": int(flows.sum()),
        "total_dep_size": float(cut.size_bytes.sum()),
        "total_flow_size": float(cut.size_bytes[flows].sum()),
        "total_op_memory": float((cut.job.memory_bytes / cut.splits)[cut.op].sum()),
        "num_workers": len(names),
        "num_channels": len(np.unique((times.source * simulator.num_servers + times.target)[flows])),
        "servers": " ".join(names),
        "lookahead_ticks": step.num_ticks,
        "max_dep_run_time": float(times.run_s.max(initial=0.0)),
        "mean_mounted_worker_utilisation_frac_ref": utilisation / simulator.num_steps,
    }


def _converted(simulator: Simulator, published: Reference, name: str) -> Iterator[ComparedFigure]:
    sequential_s = simulator.sequential_s(name)
    for degree, target in published.single_job_if_ms_were_converted_to_s[name].items():
        group = f"{name} in milliseconds"
        if isinstance(degree, str) or isinstance(target, float):
            reference = target if isinstance(target, float) else None
            yield ComparedFigure("converted", group, str(degree), sequential_s, reference, TOLERANCE)
            continue
        rows = partial(_rows, "converted", f"{group} at degree {degree}", values=target.model_dump())
        placed = simulator.place(name, degree, np.ones(simulator.num_servers, np.bool_))
        if placed is None:
            yield from rows({}, tolerance=TOLERANCE)
            continue
        ours, *others = [
            {
                "jct": simulator.completion_s(step),
                "comm": simulator.num_steps * step.communication_s,
                "comp": simulator.num_steps * step.computation_s,
                "speedup": sequential_s / simulator.completion_s(step),
                "workers": len(placed.servers),
            }
            for step in _steps(simulator, placed)
        ]
        yield from rows(ours, tolerance=_tolerance(name, degree), others=others)


def _rows(
    family: str,
    group: str,
    figures: Figures,
    values: Mapping[str, Value],
    tolerance: float,
    others: Iterable[Figures] = (),
) -> list[ComparedFigure]:
    """Return a row for each figure of the file; ``others`` are ours under other orders of tied flows."""
    rows = []
    for figure, value in values.items():
        ours = figures.get(figure)
        moved = {other for other in (each.get(figure) for each in others) if _is_moved(other, ours)}
        rows.append(ComparedFigure(family, group, figure, ours, value, tolerance, tuple(sorted(moved))))
    return rows


def _is_moved(other: Value, ours: Value) -> TypeGuard[float]:
    return isinstance(other, int | float) and isinstance(ours, int | float) and abs(other - ours) > ROUNDING * abs(ours)


def _placements(simulator: Simulator, reference: Reference, name: str) -> Iterator[ComparedFigure]:
    """Compare each extreme over the original's placements with the nearest one over ours.

    The file does not name the original's placements; ours are those on clusters that other jobs hold in part.
    """
    for degree, extremes in reference.placement_dependence[name].items():
        rng = np.random.default_rng(degree)
        result: set[float] = set()
        target = {"jct_min": extremes.jct_min, "jct_max": extremes.jct_max}
        tolerance = _tolerance(name, degree)
        for _ in range(NUM_OCCUPANCIES):
            placed = simulator.place(name, degree, _occupancy(simulator, rng))
            if placed is not None:
                result.add(simulator.completion_s(simulator.step(placed)))
            if result and all(min(abs(f - w) for f in result) <= tolerance * w for w in target.values()):
                break
        for figure, value in target.items():
            nearest = min(result, key=lambda f, value=value: abs(f - value), default=None)  # type: ignore[misc]
            yield ComparedFigure("placement", f"{name} at degree {degree}, placements", figure, nearest, value, tolerance)


def _occupancy(simulator: Simulator, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which servers are free: all but a few random blocks, or any."""
    is_free = np.ones(simulator.num_servers, np.bool_)
    if rng.random() < 0.5:
        is_free[:] = rng.random(simulator.num_servers) < rng.random()
        return is_free
    for size in rng.choice([1, 2, 4, 6, 8, 16], rng.integers(0, 8)).tolist():
        blocks = simulator.blocks.of_size(size)
        if len(blocks):
            is_free[blocks[rng.integers(len(blocks))]] = False
    return is_free


def _log(scenario_of: Callable[[int], Scenario], number: int, log: Log) -> Iterator[ComparedFigure]:
    scenario = scenario_of(len(log.log))
    demands = [Demand(name, fraction) for name, fraction, _, _ in log.log]
    candidate = {degree: number for number, degree in enumerate(scenario.candidate_degree)}
    choice = iter([candidate.get(degree, 0) for _, _, degree, _ in log.log])
    played = play(scenario, [*demands, demands[-1]], lambda _: next(choice))
    group = f"log {number}, {log.agent} on {log.dist}" + ("" if log.seed is None else f" with seed {log.seed}")
    same = sum(ours == theirs for ours, (_, _, _, theirs) in zip(played.rewards, log.log, strict=True))
    hash_dependent = any((name, degree) == HASH_DEPENDENT for name, _, degree, _ in log.log)
    tolerance = HASH_TOLERANCE if hash_dependent else TOLERANCE
    yield ComparedFigure("log", group, "rewards", same, len(log.log), 0.0)
    for figure in ("arrived", "blocked", "completed", "lookaheads"):
        if getattr(log, figure) is not None:
            yield ComparedFigure("log", group, figure, getattr(played, figure), getattr(log, figure), 0.0)
    yield ComparedFigure("log", group, "mean_jct", played.mean_completion_s, log.mean_jct, tolerance)
    throughput = log.mean_demand_total_throughput
    yield ComparedFigure("log", group, "mean_demand_total_throughput", played.demand_bytes_per_s, throughput, tolerance)


def _tolerance(name: str, degree: int) -> float:
    return HASH_TOLERANCE if (name, degree) == HASH_DEPENDENT else TOLERANCE


def statistics_rows(
    scenario: Scenario, distribution: str, published: Mapping[str, Sequence[EpisodeFigures]], num_seeds: int = NUM_SEEDS
) -> Iterator[ComparedFigure]:
    """Play each policy on our own episodes of a distribution and compare the means.

    The tolerance is ``3 sqrt(SE1^2 + SE2^2)`` over the reference, with the standard errors of both means.

    Raises:
        PolicyError: the file names an unknown policy.
    """
    from scipy.stats import sem

    names, defects = [graph.name for graph in scenario.workload.graphs], scenario.settings.defects
    rngs = [np.random.default_rng([seed, 0]) for seed in range(num_seeds)]
    pools = [draw_demands(rng, names, distribution, NUM_DECISIONS + 1, defects) for rng in rngs]
    for name, episodes in published.items():
        policy = agent(name, scenario)
        ours = []
        for seed, pool in enumerate(pools):
            policy.reset(seed)
            ours.append(play(scenario, pool, lambda waiting: policy.choose(waiting, {})))  # noqa: B023
        for figure, field in FIGURES.items():
            mine = [value for value in (getattr(totals, field) for totals in ours) if value is not None]
            theirs = [value for value in (getattr(figures, figure) for figures in episodes) if value is not None]
            if len(mine) < 2 or len(theirs) < 2:
                continue
            reference = float(np.mean(theirs))
            allowed = STANDARD_ERRORS * math.hypot(sem(mine), sem(theirs))
            tolerance = allowed / abs(reference) if reference else 0.0
            yield ComparedFigure("statistics", f"{name} on {distribution}", figure, float(np.mean(mine)), reference, tolerance)


def agent(name: str, scenario: Scenario) -> Policy:
    """Return a published agent: ``min_parallelism``, one of `AGENTS`, ``fixedD``, or ``ladderD_D_...``.

    Raises:
        PolicyError: no such agent, or a degree without blocks.
    """
    if name == "min_parallelism":  # two ranks, or one where no two servers are free
        return RuleOfThumb(name, "published", lambda _, offered: int(offered[:2][-1]))
    match = re.fullmatch("(fixed|ladder)([0-9]{1,6}(?:_[0-9]{1,6})*)", name)
    rule = f"{match[1]}-{match[2].replace('_', '-')}" if match else AGENTS.get(name)
    if rule is None:
        raise PolicyError("no such agent", value=name, choices=["min_parallelism", *AGENTS, "fixed8", "ladder4_8_16"])
    degrees = [str(degree) for degree in scenario.space.degrees]
    rule = rule.format(up="-".join(degrees), down="-".join(reversed(degrees)))
    return rule_of_thumb(f"{rule}@published", degrees=scenario.space.degrees, placements=("published",))
