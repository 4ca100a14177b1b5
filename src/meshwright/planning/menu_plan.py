"""`plan --policy` with a policy of a fleet: the job comes alone to what is free, and the policy picks layout, devices and hosts.

The menu is made of the benchmark that the policy was trained on; where the job is one of its types it is the same menu, and
otherwise one of this job alone, which the plan says. As in `planning.plan`, a choice that another entry beats in time and in
devices is replaced by it, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..envs.fleet.batch import FleetBatch
from ..envs.fleet.benchmark import load_fleet_benchmark
from ..envs.fleet.fleet import Fleet, Jobs, build_fleet
from ..envs.fleet.menu_lines import layout_name
from ..errors import PlanError
from ..jobs.load import JobSource
from ..models.fleet_saved import SavedFleetNetwork, player
from ..planners.free_devices import first_free, free_of_hosts
from ..planners.menu.entries import MenuEntry
from ..planners.menu.job_types import job_type
from ..planners.menu.settings import JobTypeSettings, load_job_types
from ..plans import PlacementPlan
from ..plans.document import Figure
from ..simulation.fleet.offers import offer
from ..simulation.fleet.placing import find_hosts, step_on
from ..simulation.fleet.state import JobState, PlacementRule
from .job_work import work_of
from .policies import fleet_policy_file


@dataclass(frozen=True)
class MenuRow:
    """An entry of the job's menu on the hosts of a device type that a packed placement finds.

    Attributes:
        entry: its number in the menu.
        degree: devices.
        name: of its layout, short.
        device: name of the device type.
        step_s: alone on these hosts.
        memory_bytes: of the fullest rank.
        hosts: in rank order.
        is_chosen: whether it is the plan.
    """

    entry: int
    degree: int
    name: str
    device: str
    step_s: float
    memory_bytes: float
    hosts: tuple[int, ...]
    is_chosen: bool = False


@dataclass(frozen=True)
class PlannedFromMenu:
    """A chosen plan beside what it was chosen from.

    Attributes:
        plan: the plan.
        rows: of each number of devices and device type the fastest entry, and the one that was chosen.
        remarks: what of job and cluster the policy was not trained for, for people.
    """

    plan: PlacementPlan
    rows: tuple[MenuRow, ...]
    remarks: tuple[str, ...]


def plan_from_menu(
    job: str,
    cluster: str | Cluster,
    policy: str | Path,
    *,
    num_steps: int,
    deadline_s: float | None = None,
    is_free: NDArray[np.bool_] | None = None,
    batch: int | None = None,
    sequence_length: int | None = None,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> PlannedFromMenu:
    """Choose a plan for one job by a policy of a fleet.

    Args:
        job: ``zoo:NAME``, the path of a ``config.json`` or of another job graph.
        cluster: ``preset:NAME``, a path, or a cluster.
        policy: run folder, its ``policy.pt``, or ``shipped:NAME``.
        num_steps: training steps of the job.
        deadline_s: allowed completion time.
        is_free: which devices the job may have, ``(n,)``; by default all.
        batch: sequences, or samples, of a step; that of the benchmark's job where it has this one.
        sequence_length: tokens of a sequence; by default the model's own.
        cache: folder of priced menus.
        progress: called while the menu is priced.

    Raises:
        PlanError: no batch, or no entry of the menu fits or meets the deadline.
        MeshwrightError: job, cluster or policy are missing or wrong.
    """
    file = fleet_policy_file(str(policy))
    saved = SavedFleetNetwork.load(file)
    fleet, kind, given = _fleet(saved, job, cluster, batch, sequence_length, cache, progress)
    best = player(saved.network(fleet, file))
    free = np.ones(fleet.cluster.num_devices, np.bool_) if is_free is None else is_free
    entry, hosts, part = _chosen(fleet, best, kind, num_steps, deadline_s, free)
    rows = list(_rows(fleet, kind, num_steps, deadline_s, free))
    step_s, _ = step_on(fleet.problem, entry, hosts, len(hosts), part)
    chosen = _row(fleet, entry, hosts, float(step_s))
    beating = [row for row in rows if _beats(row, chosen)]
    taken = min(beating, key=lambda row: row.step_s, default=chosen)
    other = fleet.off_ground(saved.trained.get("ground", {}))
    remarks = () if other is None else (f"the policy was not trained for this fleet, but for {other}",)
    replaced = "" if taken is chosen else f"; it chose {_named(chosen)}, which {_named(taken)} beats in time and in devices"
    why = f"{Path(policy).name} chose from a menu of {len(_entries(fleet, kind))} layouts on {_where(free)}{replaced}"
    plan = _plan(fleet, given, taken, num_steps, why + "".join(f"; {remark}" for remark in remarks), free)
    front = [row for row in rows if not any(_beats(row_too, row) for row_too in rows)]
    shown = {(row.degree, row.device): row for row in sorted(front, key=lambda row: -row.step_s)}
    shown.pop((taken.degree, taken.device), None)
    kept = [*shown.values(), MenuRow(**{**taken.__dict__, "is_chosen": True})]
    return PlannedFromMenu(plan, tuple(sorted(kept, key=lambda row: (row.degree, row.step_s))), remarks)


def _fleet(
    saved: SavedFleetNetwork,
    job: str,
    cluster: str | Cluster,
    batch: int | None,
    sequence_length: int | None,
    cache: Path | None,
    progress: Callable[[str, int, int], None] | None,
) -> tuple[Fleet, int, JobTypeSettings]:
    """The benchmark's fleet on the cluster, the job's type in it, and its settings."""
    benchmark = load_fleet_benchmark(str(saved.trained["benchmark"]), changes=list(saved.trained.get("changes", ())))
    chosen = benchmark.fleet
    if chosen.splits is not None:
        raise PlanError("a policy of a fleet of splits has no menu of layouts for a job", field="--policy")
    types = load_job_types(chosen.job_types) if isinstance(chosen.job_types, str) else chosen.job_types
    wanted = batch or next((one.global_batch for one in types if one.job == job), None)
    if wanted is None:
        problem = f"say how many samples a step has; the policy's benchmark {benchmark.name} has no such job"
        raise PlanError(problem, field="--batch")
    JobSource(job).shape()  # one that is missing is told by its own name
    name = job.removeprefix("zoo:") if job.startswith("zoo:") else Path(job).parent.name or Path(job).stem
    given = JobTypeSettings(name=name, job=job, global_batch=wanted, sequence_length=sequence_length)
    digests = [job_type(one).digest for one in types]
    own = job_type(given).digest
    kind = digests.index(own) if own in digests else 0
    where = load_cluster(cluster) if isinstance(cluster, str) else cluster
    degrees = tuple(degree for degree in chosen.menu.degrees if degree <= where.num_devices)
    changes = {
        "cluster": cluster,
        "job_types": types if own in digests else (given,),
        "weights": None,
        "menu": chosen.menu.model_copy(update={"degrees": degrees}),
        "requested": {degree: often for degree, often in chosen.requested.items() if degree in degrees} or {degrees[0]: 1.0},
    }
    return build_fleet(chosen.model_copy(update=changes), cache=cache, progress=progress), kind, given


def _chosen(
    fleet: Fleet,
    best: Callable[[FleetBatch], NDArray[np.int64]],
    kind: int,
    num_steps: int,
    deadline_s: float | None,
    is_free: NDArray[np.bool_],
) -> tuple[int, NDArray[np.int64], int]:
    """Entry, hosts and devices a host that a policy gives a job that comes alone to a cluster with so many free devices."""
    never_fails = fleet.problem._replace(mean_failure_s=np.inf)  # a plan is not stopped before it is made
    batch = FleetBatch(replace(fleet, problem=never_fails), 1)
    num_jobs = fleet.settings.num_jobs
    never = np.full(num_jobs, np.inf)
    arrival_s, deadlines_s = never.copy(), never.copy()
    arrival_s[0] = 0.0
    deadlines_s[0] = np.inf if deadline_s is None else deadline_s
    asked = np.full(num_jobs, fleet.problem.degrees[len(fleet.problem.degrees) // 2])
    batch.begin_with(0, Jobs(arrival_s, np.full(num_jobs, kind), asked, np.full(num_jobs, float(num_steps)), deadlines_s))
    state = batch.state
    if not is_free.all():
        state.free[0] = free_of_hosts(fleet.cluster, is_free)
        offer(fleet.problem, state, 0)
        batch.observe()
    can_start = bool(state.can_act[0, 1:].any())
    while can_start and not state.is_over[0] and state.status[0, 0] == JobState.WAITING:
        batch.step(best(batch))
    if not can_start or state.entry[0, 0] < 0:
        fits = "the cluster" if is_free.all() else f"what is free of it ({int(is_free.sum())} of {len(is_free)} devices)"
        problem = f"no layout of the menu fits {fits}" + ("" if deadline_s is None else " and meets the deadline")
        raise PlanError(problem, field=fleet.menu.job_types[kind].name)
    # The first job to start has the first place; where nothing else is to come, time has gone on and it may have ended.
    return int(state.entry[0, 0]), state.hosts[0, 0, : state.num_hosts[0, 0]].copy(), int(state.part[0, 0])


def _entries(fleet: Fleet, kind: int) -> range:
    first = fleet.problem.menu.first_entry
    return range(int(first[kind]), int(first[kind + 1]))


def _rows(fleet: Fleet, kind: int, num_steps: int, deadline_s: float | None, is_free: NDArray[np.bool_]) -> Iterator[MenuRow]:
    """Every entry on the packed free hosts of every device type, of those that meet the deadline."""
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
    return MenuRow(entry, int(menu.degree[entry]), name, "+".join(kinds), step_s, memory, tuple(hosts.tolist()))


def _beats(one: MenuRow, other: MenuRow) -> bool:
    """Whether a row takes no more time and no more devices than another, and less of one of them."""
    return (
        one.degree <= other.degree
        and one.step_s <= other.step_s
        and (one.degree < other.degree or one.step_s < other.step_s * (1 - 1e-9))
    )


def _named(row: MenuRow) -> str:
    return f"{row.name} on {row.degree} {row.device} ({row.step_s:.4g} s a step)"


def _where(is_free: NDArray[np.bool_]) -> str:
    return "the empty cluster" if is_free.all() else f"the {int(is_free.sum())} free devices of {len(is_free)}"


def _plan(
    fleet: Fleet, given: JobTypeSettings, row: MenuRow, num_steps: int, why: str, is_free: NDArray[np.bool_]
) -> PlacementPlan:
    entry, cluster = fleet.menu.entries[row.entry], fleet.cluster
    part = row.degree // len(row.hosts)
    devices = first_free(cluster, is_free, row.hosts, part)
    assert given.job is not None, "a job that is planned is named"
    assert isinstance(entry, MenuEntry), "a fleet of splits was refused"
    maker = work_of(
        JobSource(given.job),
        cluster,
        fleet.settings.costs.of_layouts,
        sequence_length=given.sequence_length,
        batch_size=given.global_batch,
    )
    figures: list[tuple[str, Any, str]] = [
        ("step_s", row.step_s, "s"),
        ("completion_s", num_steps * row.step_s, "s"),
        ("samples_per_s", entry.layout.global_batch / row.step_s, "1/s"),
        ("memory_bytes", row.memory_bytes, "bytes"),
    ]
    predicted = [Figure.predicted(*figure) for figure in figures]
    return maker.plan(maker.work(entry.layout), entry.order, num_steps, predicted, why, devices)
