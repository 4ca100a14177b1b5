"""`plan --policy` with a policy of a fleet: the job comes alone to what is free, and the policy picks layout, devices and hosts.

The menu is that of the benchmark on which the policy was trained, if the job is one of its types. Otherwise it is made of this
job alone, and the plan says so. As in `planning.plan`, a choice that another entry beats in time and in devices is replaced by
it, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.process_groups.group_network import group_network
from ..envs.fleet.batch import FleetBatch
from ..envs.fleet.fleet import Fleet, Jobs, build_fleet
from ..envs.fleet.menu_lines import layout_name
from ..errors import PlanError, PolicyError
from ..jobs.load import JobSource
from ..models.fleet.saved import SavedFleetNetwork, player
from ..models.policy_files import NETWORK, decided
from ..planners.fleet.rule import EntryRule
from ..planners.fleet.rule_kernel import choose
from ..planners.fleet.rules import fleet_rule
from ..planners.free_devices import first_free, free_of_hosts
from ..planners.menu.entries import MenuEntry
from ..planners.menu.job_types import TransformerType, Where, job_type
from ..planners.menu.menu_rows import MenuRow, bound_text
from ..planners.menu.settings import JobTypeSettings
from ..plans import PlacementPlan, moved_plan, place
from ..plans.document import Figure
from ..plans.frameworks.defaults import LauncherName
from ..plans.memory import tight_text
from ..quantities import counted
from ..simulation.fleet.offers import offer
from ..simulation.fleet.placing import find_hosts, step_on
from ..simulation.fleet.state import JobState, PlacementRule
from .fleet_of_job import fleet_of_job, job_of_fleet, trained_on
from .job_work import JobWork
from .op_graph_work import work_of
from .policies import MENU_RULE, fleet_policy_file


@dataclass(frozen=True)
class PlannedFromMenu:
    """A chosen plan and what it was chosen from.

    Attributes:
        plan: the plan.
        rows: of each number of devices and device type the fastest entry, and the one that was chosen.
        remarks: what of job and cluster the policy was not trained for, for people.
    """

    plan: PlacementPlan
    rows: tuple[MenuRow, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class MenuPlanner:
    """A job and a fleet's policy, which plans it any number of times on what is free; made by `of`.

    Attributes:
        spec: of the policy.
        fleet: the cluster and the menu.
        kind: number of the job's type in the menu.
        own_type: the job's type.
        best: the policy.
        remarks: what of job and cluster the policy was not trained for.
        policy_digest: of its weights; of a rule of its name.
    """

    spec: str
    fleet: Fleet
    kind: int
    own_type: JobTypeSettings
    best: Callable[[FleetBatch], NDArray[np.int64]]
    remarks: tuple[str, ...]
    policy_digest: str
    _bounds: dict[tuple[int, int], str] = field(default_factory=dict, init=False)
    _templates: dict[int, PlacementPlan] = field(default_factory=dict, init=False)

    @classmethod
    def from_job(
        cls,
        job: str,
        cluster: str | Cluster,
        policy: str | Path,
        *,
        batch: int | None = None,
        sequence_length: int | None = None,
        devices: int | None = None,
        max_devices: int | None = None,
        framework: LauncherName | None = None,
        cache: Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> MenuPlanner:
        """Price the menu of a job.

        Args:
            job: ``zoo:NAME``, the path of a ``config.json`` or of another job graph.
            cluster: ``preset:NAME``, a path, or a cluster.
            policy: run folder, its ``policy.pt``, ``shipped:NAME``, or ``menu:RULE`` with a rule of fleets; ``network:RUN``: also
                where a rule was better.
            batch: sequences, or samples, of a step; that of the benchmark's job where it has this one.
            sequence_length: tokens of a sequence; by default the model's own.
            devices: the only number of devices to try, a power of two; by default those of the policy.
            max_devices: most devices to try.
            framework: what is to run the layout, with ``menu:RULE`` alone; by default any.
            cache: folder of priced menus.
            progress: called while the menu is priced.

        Raises:
            PlanError: no batch, or no layout of the job fits the cluster.
            MeshwrightError: job, cluster or policy are missing or wrong.
        """
        spec, where = str(policy), load_cluster(cluster) if isinstance(cluster, str) else cluster
        is_rule = spec.startswith(MENU_RULE)
        file = None if is_rule else fleet_policy_file(spec.removeprefix(NETWORK))
        saved = None if file is None else SavedFleetNetwork.load(file)
        trained = None if saved is None else trained_on(saved)
        own_type, types = job_of_fleet(trained, job, batch, sequence_length)
        choice, kind = fleet_of_job(
            None if trained is None else trained.fleet, own_type, types, where, devices, max_devices, framework
        )
        build = partial(build_fleet, cluster=where, cache=cache, is_strict=False, progress=progress)
        try:
            fleet = build(choice)
        except PlanError:
            if len(choice.job_types) < 2:
                raise
            # Another type of the policy's benchmark may fit no device here; the job may.
            fleet, kind = build(choice.model_copy(update={"job_types": (own_type,)})), 0
        if saved is None or file is None:
            name = spec.removeprefix(MENU_RULE)
            return cls(spec, fleet, kind, own_type, _by_rule(fleet, name, devices), (), files.digest(name))
        if fleet.has_strategies:
            problem = "was trained on a menu with named entries, which give no plan; evaluate it on its benchmark"
            raise PlanError(problem, field="--policy", value=spec)
        assert trained is not None, "its benchmark was read with it"
        own = fleet
        if fleet.settings.job_types == types and where.digest in _digests_of_clusters(saved.trained):
            # What a request leaves out of the menu is no other fleet: compared is all of what the policy was trained for.
            own = build(trained.fleet.model_copy(update={"cluster": where.name, "job_types": types}))
        other = own.condition_changes(saved.trained.get("ground", {}))
        remarks = () if other is None else (f"the policy was not trained for this fleet, but for {other}",)
        weights = [part for name, tensor in sorted(saved.weights.items()) for part in (name, tensor.numpy())]

        def made(decides: str) -> tuple[Callable[[FleetBatch], NDArray[np.int64]], str]:
            if decides == spec.removeprefix(NETWORK):
                return player(saved.network(fleet, file)), files.digest(*weights)
            return _by_rule(fleet, decides, devices), files.digest(decides)

        _, (best, digest), more = decided(spec, made)
        return cls(spec, fleet, kind, own_type, best, (*remarks, *more), digest)

    @cached_property
    def digest(self) -> str:
        """A hash of all on which a plan depends besides the arguments of `plan`: job, cluster, menu and policy."""
        return files.digest(self.fleet.digest, self.kind, job_type(self.own_type).digest, self.policy_digest)

    @cached_property
    def graph_digest(self) -> str:
        """A hash of what the job computes in a step."""
        return self.fleet.menu.job_types[self.kind].digest

    @cached_property
    def _batch(self) -> FleetBatch:
        never_fails = self.fleet.problem._replace(mean_failure_s=np.inf)  # a plan is not stopped before it is made
        return FleetBatch(replace(self.fleet, problem=never_fails), 1)

    def plan(self, num_steps: int, deadline_s: float | None = None, is_free: NDArray[np.bool_] | None = None) -> PlannedFromMenu:
        """Choose a plan.

        Args:
            num_steps: training steps of the job.
            deadline_s: allowed completion time.
            is_free: which devices the job may have, ``(n,)``; by default all.

        Raises:
            PlanError: no entry of the menu fits what is free, or meets the deadline.
        """
        fleet, kind = self.fleet, self.kind
        free = np.ones(fleet.cluster.num_devices, np.bool_) if is_free is None else is_free
        entry, hosts, part = self._choose(num_steps, deadline_s, free)
        rows = list(_rows(fleet, kind, num_steps, deadline_s, free))
        step_s, _ = step_on(fleet.problem, entry, hosts, len(hosts), part)
        choice = _row(fleet, entry, hosts, float(step_s))
        beating = [row for row in rows if row.beats(choice)]
        taken = min(beating, key=lambda row: row.step_s, default=choice)
        beaten = f"; it chose {choice.text}, which {taken.text} beats in time and in devices, so that one was taken"
        replaced = "" if taken is choice else beaten
        name = self.spec if self.spec.startswith(MENU_RULE) else Path(self.spec).name
        layouts = counted(len(_entries(fleet, kind)), "layout")
        why = f"{name} chose from a menu of {layouts} on {_where(free)}; {self._bound_by(taken)}; {self._unseen}{replaced}"
        plan = self._plan(taken, num_steps, "; ".join(filter(None, (why, taken.tight, *self.remarks))), free)
        front = [row for row in rows if not any(row_too.beats(row) for row_too in rows)]
        shown = {(row.degree, row.device): row for row in sorted(front, key=lambda row: -row.step_s)}
        shown.pop((taken.degree, taken.device), None)
        others = list(shown.values()) if self.framework is None else [row for row in rows if row.entry != taken.entry]
        menu_rows = [*others, replace(taken, is_chosen=True)]
        return PlannedFromMenu(plan, tuple(sorted(menu_rows, key=lambda row: (row.degree, row.step_s))), self.remarks)

    @property
    def _unseen(self) -> str:
        """The layouts that `plan --search` tries and the menu does not, in words."""
        menu = self.fleet.settings.menu
        if not isinstance(self.fleet.menu.job_types[self.kind], TransformerType):
            return "cuts into pipeline stages were not looked at"
        if menu.framework is not None:
            return f"layouts that {menu.framework} does not run were not looked at"
        if menu.is_whole:
            return f"rank orders other than {' and '.join(menu.orders)} were not looked at"
        return "layouts that are not on the menu of the policy's benchmark were not looked at"

    def _choose(self, num_steps: int, deadline_s: float | None, is_free: NDArray[np.bool_]) -> tuple[int, NDArray[np.int64], int]:
        """Return entry, hosts and devices a host that the policy gives a job that comes alone to a cluster with so many free."""
        fleet, batch = self.fleet, self._batch
        num_jobs = fleet.settings.num_jobs
        never = np.full(num_jobs, np.inf)
        arrival_s, deadlines_s = never.copy(), never.copy()
        arrival_s[0] = 0.0
        deadlines_s[0] = np.inf if deadline_s is None else deadline_s
        requested = np.full(num_jobs, fleet.problem.degrees[len(fleet.problem.degrees) // 2])
        kinds, steps = np.full(num_jobs, self.kind), np.full(num_jobs, float(num_steps))
        batch.begin_with(0, Jobs(arrival_s, kinds, requested, steps, deadlines_s))
        state = batch.state
        if not is_free.all():
            state.free[0] = free_of_hosts(fleet.cluster, is_free)
            offer(fleet.problem, state, 0)
            batch.observe()
        can_start = bool(state.can_act[0, 1 : fleet.problem.first_refusal].any())
        while can_start and not state.is_over[0] and state.status[0, 0] == JobState.WAITING:
            batch.step(self.best(batch))
        if not can_start or state.entry[0, 0] < 0:
            fits = "the cluster" if is_free.all() else f"the free devices ({int(is_free.sum())} of {len(is_free)})"
            problem = f"no layout of the menu fits {fits}" + ("" if deadline_s is None else " and meets the deadline")
            raise PlanError(problem, field=fleet.menu.job_types[self.kind].name)
        # The first job to start has the first place; where nothing else is to come, time has gone on and it may have ended.
        return int(state.entry[0, 0]), state.hosts[0, 0, : state.num_hosts[0, 0]].copy(), int(state.part[0, 0])

    @cached_property
    def _maker(self) -> JobWork:
        own_type, fleet = self.own_type, self.fleet
        assert own_type.job is not None, "a job that is planned is named"
        length, batch = own_type.sequence_length, own_type.global_batch
        costs = fleet.settings.costs.of_layouts
        return work_of(JobSource(own_type.job), fleet.cluster, costs, sequence_length=length, batch_size=batch)

    def _bound_by(self, row: MenuRow) -> str:
        key = row.entry, len(row.hosts)
        if key not in self._bounds:
            fleet, entry, per_host = self.fleet, self.fleet.menu.entries[row.entry], row.degree // len(row.hosts)
            assert isinstance(entry, MenuEntry), "a fleet of splits was refused"
            cluster, costs = fleet.cluster, fleet.settings.costs.of_layouts
            devices = first_free(cluster, np.ones(cluster.num_devices, np.bool_), row.hosts, per_host)
            device = cluster.device_types[cluster.device_type[devices[0]]]
            where = Where(device, group_network(cluster, costs, devices), per_host, costs)
            self._bounds[key] = bound_text(fleet.menu.job_types[self.kind], entry, where, row.step_s, is_tight=bool(row.tight))
        return self._bounds[key]

    def _plan(self, row: MenuRow, num_steps: int, why: str, is_free: NDArray[np.bool_]) -> PlacementPlan:
        entry, cluster = self.fleet.menu.entries[row.entry], self.fleet.cluster
        devices = first_free(cluster, is_free, row.hosts, row.degree // len(row.hosts))
        assert isinstance(entry, MenuEntry), "a fleet of splits was refused"
        figures: list[tuple[str, Any, str]] = [
            ("step_s", row.step_s, "s"),
            ("completion_s", num_steps * row.step_s, "s"),
            ("samples_per_s", entry.layout.global_batch / row.step_s, "1/s"),
            ("memory_bytes", row.memory_bytes, "bytes"),
        ]
        predicted = [Figure.predicted(*figure) for figure in figures]
        if row.entry not in self._templates:
            work = self._maker.work(entry.layout)
            self._templates[row.entry] = self._maker.plan(work, entry.order, num_steps, predicted, why, devices)
        template, placement = self._templates[row.entry], place(cluster, devices)
        plan = moved_plan(template, cluster, placement, num_steps=num_steps, predicted=predicted, why=why)
        return plan if self.framework is None else plan.model_copy(update={"framework": self.framework})

    @property
    def framework(self) -> LauncherName | None:
        """The framework that runs the layouts; None: any."""
        return self.fleet.settings.menu.framework


def _digests_of_clusters(trained: Mapping[str, Any]) -> set[object]:
    """Return those on which a policy was trained."""
    scope = trained.get("ground", {})
    return {one.get("cluster_digest") for one in (scope, *scope.get("mixed", ()))}


def _by_rule(fleet: Fleet, name: str, devices: int | None) -> Callable[[FleetBatch], NDArray[np.int64]]:
    """Return a rule as a function from a batch of one episode to its action.

    Raises:
        PolicyError: there is none of this name, or it gives what the user asks for and nobody asks.
    """
    rule = fleet_rule(name, fleet.problem)
    if rule.entry == EntryRule.REQUESTED and devices is None:
        problem = "gives a job the devices that its user asks for; say how many, or take menu:fastest-feasible"
        raise PolicyError(problem, field="devices", value=MENU_RULE + name)

    def best(batch: FleetBatch) -> NDArray[np.int64]:
        return np.array([choose(batch.fleet.problem, batch.state, 0, rule)])

    return best


def _entries(fleet: Fleet, kind: int) -> range:
    first = fleet.problem.menu.first_entry
    return range(int(first[kind]), int(first[kind + 1]))


def _rows(fleet: Fleet, kind: int, num_steps: int, deadline_s: float | None, is_free: NDArray[np.bool_]) -> Iterator[MenuRow]:
    """Yield every entry on the packed free hosts of every device type, of those that meet the deadline."""
    problem = fleet.problem
    free = free_of_hosts(fleet.cluster, is_free)
    load, hosts = np.zeros(len(problem.network.capacity_bytes_per_s)), np.empty(problem.max_hosts, np.int64)
    for entry in _entries(fleet, kind):
        degree = int(problem.menu.degree[entry])
        for device in range(len(fleet.cluster.device_types)):
            part = find_hosts(problem, free, load, degree, int(PlacementRule.PACKED), device, hosts)
            if part == 0:
                continue
            step_s, _ = step_on(problem, entry, hosts, degree // part, part)
            if np.isfinite(step_s) and num_steps * step_s <= (np.inf if deadline_s is None else deadline_s):
                yield _row(fleet, entry, hosts[: degree // part].copy(), float(step_s))


def _row(fleet: Fleet, entry: int, hosts: NDArray[np.int64], step_s: float) -> MenuRow:
    kinds = sorted({fleet.cluster.device_types[fleet.problem.network.host_type[host]].name for host in hosts})
    menu = fleet.problem.menu
    name, memory = layout_name(fleet.menu.entries[entry].layout), float(menu.memory_bytes[entry])
    room = min(device_type.memory_bytes for device_type in fleet.cluster.device_types if device_type.name in kinds)
    tight = tight_text(memory, room)
    return MenuRow(entry, int(menu.degree[entry]), name, "+".join(kinds), step_s, memory, tuple(hosts.tolist()), tight=tight)


def _where(is_free: NDArray[np.bool_]) -> str:
    return "the empty cluster" if is_free.all() else f"the {int(is_free.sum())} free devices of {len(is_free)}"
