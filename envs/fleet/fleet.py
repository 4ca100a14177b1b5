"""A fleet that is ready to play: cluster, menu and rules as arrays, and the jobs of an episode drawn from a generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...clusters import load_cluster
from ...clusters.cluster import Cluster
from ...errors import ConfigError
from ...jobs.graph import JobGraph
from ...jobs.workload import Workload
from ...planners.menu.build import Menu, build_menu
from ...planners.menu.settings import load_job_types
from ...simulation.cluster.arrays import DEADLINE_TOLERANCE
from ...simulation.cluster.interruptions import RESTART_S
from ...simulation.cluster.scenario_settings import MAX_INTERRUPTIONS_PER_CHECKPOINT
from ...simulation.fleet.menu_table import NO_BLOCKS, FleetBlocks
from ...simulation.fleet.network import NamedNetwork, fleet_network
from ...simulation.fleet.sharing import CONSTANTS
from ...simulation.fleet.state import FleetProblem, FleetState, PlacementRule, SharingMode, new_state
from .resources import check_servers, resource_capacity, resource_demand
from .settings import FleetSettings
from .splits import split_jobs

NUM_DRAWS = 20_000
"""Jobs that are drawn to know the mean work of one."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """The jobs of one episode, ``k`` of them.

    Attributes:
        arrival_s: rising, the first at 0, ``(k,)``.
        job_type, requested: type, and devices that the user asks for, ``(k,)``.
        num_steps: ``(k,)``.
        deadline_s: infinite without one, ``(k,)``.
    """

    arrival_s: NDArray[np.float64]
    job_type: NDArray[np.int64]
    requested: NDArray[np.int64]
    num_steps: NDArray[np.float64]
    deadline_s: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fleet:
    """A benchmark ready to play; made by `build_fleet`.

    Attributes:
        settings: its YAML.
        cluster: where jobs run.
        menu: what each job type may choose.
        network: links and groups with their names.
        problem: all of it as compiled code reads it.
        workload: draws the jobs where they are cut by splits.
    """

    settings: FleetSettings
    cluster: Cluster
    menu: Menu
    network: NamedNetwork
    problem: FleetProblem
    workload: Workload | None = None

    @property
    def num_types(self) -> int:
        """Number of job types."""
        return len(self.problem.menu.state_bytes)

    @cached_property
    def graphs(self) -> tuple[JobGraph, ...]:
        """A step of each type as a graph of ops, in the order of the types."""
        return tuple(job_type.job_graph() for job_type in self.menu.job_types)

    @cached_property
    def best_step_s(self) -> NDArray[np.float64]:
        """Seconds of a step of each type by its fastest entry of each degree, packed, infinite where none fits, ``(t, d)``."""
        return self._least_step_s(self.problem.menu.step_s)

    @cached_property
    def requested_step_s(self) -> NDArray[np.float64]:
        """Least step time of exact entries by type and degree, for durations, deadlines and arrivals, in seconds, ``(t, d)``."""
        return self._least_step_s(np.where(self.menu.is_exact[:, None, None, None], self.menu.table.step_s, np.inf))

    def _least_step_s(self, step_s: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.full((self.num_types, len(self.problem.degrees)), np.inf)
        kind = np.repeat(np.arange(self.num_types), np.diff(self.problem.menu.first_entry))
        np.minimum.at(result, (kind, self.problem.entry_degree), step_s.min(axis=(1, 2, 3)))
        return result

    @cached_property
    def requested_work_device_s(self) -> NDArray[np.float64]:
        """Device-seconds of a step of each type in the exact entry that wastes least, ``(t,)``."""
        if self.menu.is_exact.all():
            return self.problem.menu.work_device_s
        result: NDArray[np.float64] = (self.problem.degrees * self.requested_step_s).min(axis=1)
        return result

    @property
    def has_strategies(self) -> bool:
        """Whether the menu has entries with names; observations show more of these."""
        return self.menu.exposed is not None

    @cached_property
    def mean_interarrival_s(self) -> float:
        """Seconds between two arrivals: of the workload, or those by which the load is as asked for."""
        if self.settings.load is None:
            assert self.workload is not None, "there is a load or a workload"
            return self.workload.mean_interarrival_s
        return self.mean_work_device_s / (self.settings.load * self.cluster.num_devices)

    @cached_property
    def load(self) -> float:
        """Work that arrives in a second, in the entry that wastes least, over the devices of the cluster."""
        if self.settings.load is not None:
            return self.settings.load
        return self.mean_work_device_s / (self.mean_interarrival_s * self.cluster.num_devices)

    @cached_property
    def mean_work_device_s(self) -> float:
        """Work of a job in the exact entry that wastes least, in the mean."""
        kind, _, num_steps, _ = self._draw(np.random.default_rng(0), NUM_DRAWS)
        return float((num_steps * self.requested_work_device_s[kind]).mean())

    @cached_property
    def work_device_s(self) -> NDArray[np.float64]:
        """Work of the jobs that come, in the entry that wastes least, by rising percentage of jobs with less, ``(101,)``."""
        kind, _, num_steps, _ = self._draw(np.random.default_rng(0), NUM_DRAWS)
        result: NDArray[np.float64] = np.quantile(num_steps * self.problem.menu.work_device_s[kind], np.arange(101) / 100)
        return result

    @cached_property
    def mean_duration_s(self) -> float:
        """Seconds that a job takes on the devices that its user asks for, in the mean."""
        return float(self._draw(np.random.default_rng(0), NUM_DRAWS)[3].mean())

    @cached_property
    def usual_devices(self) -> float:
        """Return the most devices that a job uses at an efficiency of one half or more, as geometric mean over jobs."""
        efficiency = self.problem.menu.work_device_s[:, None] / (self.best_step_s * self.problem.degrees)
        most = np.where(efficiency >= 0.5, self.problem.degrees, 1).max(axis=1)
        return float(np.exp(np.log(most[self._draw(np.random.default_rng(0), NUM_DRAWS)[0]]).mean()))

    @cached_property
    def load_at_fastest(self) -> float:
        """The load if every job took the fastest of its entries."""
        kind, _, num_steps, _ = self._draw(np.random.default_rng(0), NUM_DRAWS)
        held = (self.best_step_s.min(axis=1) * self.problem.degrees[self.best_step_s.argmin(axis=1)])[kind] * num_steps
        return self.load * float(held.mean()) / self.mean_work_device_s

    @cached_property
    def digest(self) -> str:
        """A hash of everything that an episode depends on."""
        config = self.settings
        data = config.model_dump(mode="json", exclude={"cluster", "job_types", "candidate_features", "observes_links", "splits"})
        if not config.has_failures:
            del data["failures"]
        if self.workload is None or config.splits is None:
            return files.digest(data, self.cluster.digest, *self.problem.menu)
        splits = config.splits.model_dump(exclude={"workload"})
        return files.digest(data, self.cluster.digest, *self.problem.menu, splits, self.workload.digest)

    @cached_property
    def conditions(self) -> dict[str, str]:
        """Return the conditions of training by name: cluster, menu, objective, and a digest of all of them."""
        return {
            "cluster": self.cluster.name,
            "cluster_digest": self.cluster.digest,
            "job_types": ", ".join(job_type.name for job_type in self.menu.job_types),
            "menu_digest": files.digest(*self.problem.menu),
            "objective": self.settings.objective,
            "digest": self.digest,
        }

    def condition_changes(self, trained: Mapping[str, object]) -> str | None:
        """Return how this fleet differs from the one that a policy was trained on, in words; None where it does not.

        Args:
            trained: the ``ground`` there; under ``mixed`` those of other fleets that it was trained on, too.
        """
        here = self.conditions
        others = trained.get("mixed", [])
        assert isinstance(others, list)
        if here["digest"] in [one.get("digest") for one in (trained, *others)]:
            return None
        if not trained:
            return "one that its file does not name"
        if others:
            clusters = dict.fromkeys(str(one.get("cluster")) for one in (trained, *others))
            return f"{len(others) + 1} others (on {', '.join(clusters)})"
        results = []
        if trained.get("cluster_digest") != here["cluster_digest"]:
            results.append(f"another cluster ({trained.get('cluster')}, here {here['cluster']})")
        elif trained.get("menu_digest") != here["menu_digest"]:
            were, are = trained.get("job_types"), here["job_types"]
            results.append(
                f"other entries or prices of the same jobs ({are})" if were == are else f"another menu ({were}, here {are})"
            )
        if trained.get("objective") != here["objective"]:
            results.append(f"another objective ({trained.get('objective')}, here {here['objective']})")
        return " and ".join(results) or "other arrivals or rules"

    def sample(self, rng: np.random.Generator) -> Jobs:
        """Return the jobs of an episode: a Poisson process, types by weight, durations and deadlines as the settings say.

        A workload draws them as in a scenario of the first world, from the same generator the same ones.
        """
        num = self.settings.num_jobs
        if self.workload is not None:
            arrivals = self.workload.sample(rng, num + 1)  # the first world knows one job more than it decides
            kind, arrival_s = arrivals.graph_id[:num], arrivals.arrival_s[:num]
            num_steps = arrivals.num_steps[:num].astype(np.float64)
            allowed_s = arrivals.deadline_fraction[:num] * (num_steps * self._sequential_step_s[kind]) * (1 + DEADLINE_TOLERANCE)
            requested = self.problem.degrees[self._degrees(rng, kind, arrivals.requested_gpus)]
            return Jobs(arrival_s, kind, requested, num_steps, arrival_s + allowed_s)
        gaps = rng.exponential(self.mean_interarrival_s, num)
        gaps[0] = 0.0
        arrival_s = np.cumsum(gaps)
        kind, degree, num_steps, duration_s = self._draw(rng, num)
        deadline_s = np.full(num, np.inf)
        if self.settings.deadline is not None:
            slack = rng.uniform(self.settings.deadline.low, self.settings.deadline.high, num)
            deadline_s = arrival_s + slack * duration_s
        return Jobs(arrival_s, kind, self.problem.degrees[degree], num_steps, deadline_s)

    def new_state(self, num_episodes: int) -> FleetState:
        """Return arrays for some episodes."""
        return new_state(self.problem, num_episodes, self.settings.num_jobs)

    def _draw(
        self, rng: np.random.Generator, num: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Draw type, index of the requested degree, steps, and seconds on that degree of some jobs."""
        settings = self.settings
        if self.workload is not None:
            drawn = self.workload.rows(rng, num)
            degree = self._degrees(rng, drawn.graph_id, drawn.requested_gpus)
            steps = drawn.num_steps.astype(np.float64)
            return drawn.graph_id, degree, steps, steps * self.requested_step_s[drawn.graph_id, degree]
        weights = np.array(settings.weights or [1.0] * self.num_types)
        kind = rng.choice(self.num_types, num, p=weights / weights.sum())
        degree = self._requested(rng, kind)
        assert settings.duration is not None, "without a workload there are durations"
        duration_s = np.minimum(
            settings.duration.median_s * np.exp(settings.duration.sigma * rng.standard_normal(num)), settings.duration.most_s
        )
        step_s = self.requested_step_s[kind, degree]
        num_steps = np.maximum(1.0, np.round(duration_s / step_s))
        return kind, degree, num_steps, num_steps * step_s

    @cached_property
    def _sequential_step_s(self) -> NDArray[np.float64]:
        """Seconds of a step of each graph of the workload on one reference device, ``(t,)``."""
        return np.array([] if self.workload is None else [graph.step_s for graph in self.workload.graphs])

    def _degrees(self, rng: np.random.Generator, kind: NDArray[np.int64], gpus: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Return degrees as `_requested`; with a trace's GPUs the least of as many on which the job runs, or the greatest."""
        if gpus is None:
            return self._requested(rng, kind)
        runs = np.isfinite(self.requested_step_s)[kind]
        enough = runs & (self.problem.degrees >= gpus[: len(kind), None])
        most = len(self.problem.degrees) - 1 - runs[:, ::-1].argmax(axis=1)
        degree: NDArray[np.int64] = np.where(enough.any(axis=1), enough.argmax(axis=1), most)
        return degree

    def _requested(self, rng: np.random.Generator, kind: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the degree that the user of each of some jobs asks for, of those on which it runs."""
        shares = np.array([self.settings.requested.get(int(degree), 0.0) for degree in self.problem.degrees])
        chance = np.where(np.isfinite(self.requested_step_s), shares, 0.0)
        for row in np.flatnonzero(chance.sum(axis=1) == 0):  # none of them fits: the least that does
            chance[row, np.flatnonzero(np.isfinite(self.requested_step_s[row]))[0]] = 1.0
        below = np.cumsum(chance / chance.sum(axis=1, keepdims=True), axis=1)[kind]
        degree: NDArray[np.int64] = (rng.random(len(kind))[:, None] > below).sum(axis=1).astype(np.int64)
        return np.minimum(degree, len(self.problem.degrees) - 1)


def synchronous_only(fleet: Fleet) -> Fleet:
    """Return the fleet with the same jobs and every inexact entry of its menu masked."""
    if fleet.settings.synchronous_only or fleet.menu.is_exact.all():
        return fleet
    choice = fleet.settings.model_copy(update={"synchronous_only": True})
    return fleet_of_menu(choice, fleet.cluster, fleet.menu, fleet.problem.blocks, fleet.workload)


def build_fleet(
    settings: FleetSettings,
    *,
    cluster: Cluster | None = None,
    cache: Path | None = None,
    is_strict: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> Fleet:
    """Load the cluster, price the menu and put the rules together.

    Args:
        settings: the fleet's YAML.
        cluster: in place of that of the settings.
        cache: folder of priced menus; the user's cache by default.
        is_strict: whether numbers of devices that no job type can use are refused; otherwise they are left out.
        progress: called with a phase, what is done of it and what there is.

    Raises:
        MeshwrightError: cluster or job types are missing or wrong, a type fits nowhere, or settings do not go together.
    """
    cluster = load_cluster(settings.cluster) if cluster is None else cluster
    if settings.splits is not None:
        jobs = split_jobs(settings.splits, cluster, settings.costs, cache=cache, progress=progress)
        return fleet_of_menu(settings, cluster, jobs.menu, jobs.blocks, jobs.workload)
    types = load_job_types(settings.job_types) if isinstance(settings.job_types, str) else settings.job_types
    if settings.weights is not None and len(settings.weights) != len(types):
        raise ConfigError(f"{len(settings.weights)} for {len(types)} job types", field="fleet.weights")
    check_servers(settings, types)
    menu = build_menu(types, cluster, settings.menu, settings.costs, cache=cache, is_strict=is_strict, progress=progress)
    if not is_strict:
        usable = {int(degree) for degree in menu.table.degree}
        shares = {degree: often for degree, often in settings.requested.items() if degree in usable}
        settings = settings.model_copy(update={"requested": shares or {min(usable): 1.0}})
    return fleet_of_menu(settings, cluster, menu)


def fleet_of_menu(
    settings: FleetSettings, cluster: Cluster, menu: Menu, blocks: FleetBlocks = NO_BLOCKS, workload: Workload | None = None
) -> Fleet:
    """Build a fleet from a cluster and a menu, as `build_fleet` does; ``workload`` draws the jobs of ``blocks``.

    Raises:
        ConfigError: users ask for a number of devices that no entry has, or hosts fail too often.
    """
    network = fleet_network(cluster)
    table, elastic, failures = menu.table, settings.elastic, settings.failures
    if settings.synchronous_only:
        table = table._replace(step_s=np.where(menu.is_exact[:, None, None, None], table.step_s, np.inf))
    mean_h = failures.mean_time_between_failures_h
    degrees = np.unique(table.degree)
    for degree in settings.requested:
        if degree not in degrees:
            raise ConfigError(
                "no entry of the menu has so many devices", field="fleet.requested", value=degree, choices=map(str, degrees)
            )
    rules = [(PlacementRule[name.upper()], kind) for name in settings.placements for kind in range(len(cluster.device_types))]
    rules = [(rule, kind) for rule, kind in rules if rule != PlacementRule.CONSTRUCT or kind == 0]
    problem = FleetProblem(
        network=network.arrays,
        menu=table,
        degrees=degrees,
        entry_degree=np.searchsorted(degrees, table.degree),
        rule=np.array([rule for rule, _ in rules], np.int64),
        rule_type=np.array([kind for _, kind in rules], np.int64),
        sharing=int(SharingMode[settings.sharing.upper()]),
        sharing_constants=CONSTANTS,
        queue_capacity=settings.queue_capacity,
        visible_waiting=settings.visible_jobs,
        visible_running=elastic.visible_jobs if elastic else 0,
        entries_per_job=int(np.diff(table.first_entry).max()),
        every_s=0.0 if elastic is None else elastic.every_s or np.inf,
        at_events=elastic is not None and elastic.at_events,
        restart_s=elastic.restart_s if elastic else RESTART_S if failures.restart_s is None else failures.restart_s,
        storage_bytes_per_s=elastic.storage_gbytes_per_s * 1e9 if elastic else np.inf,
        stores_by_host=elastic is not None and elastic.storage_of == "hosts",
        min_degree=elastic.min_degree if elastic else 1,
        max_degree=elastic.max_degree if elastic else int(degrees[-1]),
        max_running=min(cluster.num_devices, 1024),
        max_hosts=int(min(degrees[-1], cluster.num_hosts)),
        mean_failure_s=3600.0 * mean_h / network.arrays.devices_per_host if mean_h else np.inf,
        repair_s=failures.repair_s,
        blocks=blocks,
        may_refuse=settings.may_refuse,
        resource_capacity=resource_capacity(settings),
        entry_demand=np.array([resource_demand(entry, network.arrays.devices_per_host) for entry in menu.entries], np.int64),
    )
    _check_failures(settings, problem)
    return Fleet(settings, cluster, menu, network, problem, workload)


def _check_failures(settings: FleetSettings, problem: FleetProblem) -> None:
    """Refuse hosts that fail too often for a job on all of them to make steps.

    Raises:
        ConfigError: they do not.
    """
    menu = problem.menu
    again_s = problem.restart_s + 2.0 * float(menu.state_bytes.max()) / problem.storage_bytes_per_s
    longest_s = problem.repair_s + again_s + float(menu.step_s[np.isfinite(menu.step_s)].max())
    least_s = longest_s * problem.num_hosts / MAX_INTERRUPTIONS_PER_CHECKPOINT
    if problem.mean_failure_s < least_s:
        raise ConfigError(
            f"hosts would fail so often that a job on all {problem.num_hosts} hardly ends: a repair, a restart and a step take "
            f"{longest_s:.4g} s; give at least {least_s * problem.network.devices_per_host / 3600:.3g}",
            field="fleet.failures.mean_time_between_failures_h",
            value=settings.failures.mean_time_between_failures_h,
        )
