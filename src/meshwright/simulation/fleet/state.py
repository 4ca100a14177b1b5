"""A fleet (`FleetProblem`) and the state of many episodes of it (`FleetState`), as flat arrays.

Legend: ``e`` episodes, ``k`` jobs of an episode, ``m`` hosts, ``n`` devices, ``L`` links, ``q`` places in the queue. ``d``
degrees, ``p`` placement rules, ``a`` actions, ``R`` places of running jobs, ``M`` most hosts of a job. ``v``: jobs on offer
(waiting ones, then running ones). ``s``: sets of placements (of waiting jobs, then of each running job on offer).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numba_records import by_reference
from ..ragged import arrays_of
from .actions import first_pause, first_refusal
from .menu_table import FleetBlocks, MenuTable
from .network import FleetNetwork


class PlacementRule(IntEnum):
    """Rules that find hosts for a job of ``n`` devices.

    ``PACKED``: as many devices a host as there are, on the fewest hosts, groups and sites. ``SPREAD``: the same hosts'
    parts in the groups whose trunks carry least. ``NEAREST``: smaller parts of hosts where whole ones are not free, in the fewest
    groups. ``CONSTRUCT``: hosts picked one by one. `placing` has their order. ``BLOCKS``: for waiting jobs, the first block of
    `blocks` whose devices are all free and on which the job meets its deadline.
    """

    PACKED = 0
    SPREAD = 1
    NEAREST = 2
    CONSTRUCT = 3
    BLOCKS = 4


class JobState(IntEnum):
    """The state of a job of an episode."""

    TO_COME = 0
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    REFUSED = 4
    EXPIRED = 5


class Total(IntEnum):
    """Columns of `FleetState.totals`: ``WAITING_S`` is before first starts, ``OUT_DEVICE_S`` of hosts that are out."""

    IN_SYSTEM_S = 0
    WAITING_S = 1
    HELD_DEVICE_S = 2
    BLOCKED = 3
    LATE = 4
    MET = 5
    OUT_DEVICE_S = 6


class Resource(IntEnum):
    """Resources of a cluster that all jobs share.

    ``TREES``: aggregation trees of its switches. ``SERVERS``: parameter servers outside the cluster.
    """

    TREES = 0
    SERVERS = 1


class SharingMode(IntEnum):
    """How jobs share links."""

    NONE = 0
    FAIR = 1
    INTERLEAVED = 2


@by_reference
class FleetProblem(NamedTuple):
    """A cluster, a menu and the rules of the game.

    Attributes:
        network: links, hosts and groups.
        menu: what each entry takes and sends.
        degrees: distinct degrees of the menu, rising, ``(d,)``.
        entry_degree: index into ``degrees`` of each entry, ``(E,)``.
        rule: `PlacementRule` of each placement choice, ``(p,)``.
        rule_type: device type on which it looks for hosts, ``(p,)``.
        sharing: `SharingMode`.
        sharing_constants: of the sharing model.
        queue_capacity: jobs that may wait between decisions.
        visible_waiting, visible_running: offered jobs of each kind.
        entries_per_job: most entries of a job type.
        every_s: seconds between two rounds in which running jobs are offered, 0 where they never are.
        at_events: whether each arrival and each end of a job is such a round too.
        restart_s: fixed seconds of a restart, which also writes and reads the state of the job.
        storage_bytes_per_s: at which it does, each once.
        stores_by_host: whether each of its hosts does at that rate (see `runs.again_s`).
        min_degree, max_degree: of what a job that has run may get.
        max_running, max_hosts: ``R`` and ``M``; no more jobs run at once, and none on more hosts.
        mean_failure_s: mean time until a host that is up fails, infinite where none does.
        repair_s: how long a host that failed is out.
        blocks: for `PlacementRule.BLOCKS`.
        resource_capacity: what the cluster keeps for all jobs together, by `Resource`, ``(2,)``.
        entry_demand: what of it a job holds while it runs by an entry, ``(E, 2)``.
        may_refuse: whether a waiting job on offer that has never run may be refused.
    """

    network: FleetNetwork
    menu: MenuTable
    degrees: NDArray[np.int64]
    entry_degree: NDArray[np.int64]
    rule: NDArray[np.int64]
    rule_type: NDArray[np.int64]
    sharing: int
    sharing_constants: NDArray[np.float64]
    queue_capacity: int
    visible_waiting: int
    visible_running: int
    entries_per_job: int
    every_s: float
    at_events: bool
    restart_s: float
    storage_bytes_per_s: float
    stores_by_host: bool
    min_degree: int
    max_degree: int
    max_running: int
    max_hosts: int
    mean_failure_s: float
    repair_s: float
    blocks: FleetBlocks
    resource_capacity: NDArray[np.int64]
    entry_demand: NDArray[np.int64]
    may_refuse: bool

    @property
    def num_hosts(self) -> int:
        """Number of hosts, ``m``."""
        return len(self.network.host_group)

    @property
    def num_devices(self) -> int:
        """Number of devices, ``n``."""
        return self.num_hosts * self.network.devices_per_host

    @property
    def has_restarts(self) -> bool:
        """Whether jobs may be stopped before their end."""
        return self.every_s > 0 or self.mean_failure_s < np.inf

    @property
    def num_offers(self) -> int:
        """Jobs that are offered at most, ``v``."""
        return self.visible_waiting + self.visible_running

    @property
    def first_pause(self) -> int:
        """The action that pauses the first running job on offer."""
        return int(first_pause(self))

    @property
    def first_refusal(self) -> int:
        """The action that refuses the first waiting job on offer, where jobs may be refused."""
        return int(first_refusal(self))

    @property
    def num_actions(self) -> int:
        """Actions, ``a``: to pass, then offer x entry x placement, pauses, refusals; hosts where a job is being placed."""
        return max(self.first_refusal + self.may_refuse * self.visible_waiting, self.num_hosts)


@by_reference
class FleetState(NamedTuple):
    """The state of ``e`` episodes.

    Attributes:
        now_s: ``(e,)``.
        num_arrived: ``(e,)``.
        is_over: ``(e,)``.
        next_round_s: when running jobs are offered next, ``(e,)``; infinite without rounds.
        in_round: whether they are offered now, ``(e,)``.
        waiting, num_waiting: job numbers by arrival, those that were stopped among them, ``(e, q)`` and ``(e,)``.
        running, num_running: job numbers by start, ``(e, R)`` and ``(e,)``.
        free: free devices of each host, ``(e, m)``; none where it is out.
        owner: job that holds each device, -1 for none, ``(e, n)``.
        arrival_s, job_type, num_steps, deadline_s: of each job, ``(e, k)``.
        requested: devices that its user asks for, ``(e, k)``.
        status: `JobState`, ``(e, k)``.
        entry: that a job runs by, or ran by last, ``(e, k)``; -1 before.
        start_s: first start, nan before, ``(e, k)``.
        finish_s: end as foreseen now, or as it was, ``(e, k)``.
        done_steps: ``(e, k)``.
        since_s: time of ``done_steps``, ``(e, k)``; later than now while a job restarts.
        alone_s, hidden_s, step_s: of a step alone, hidden network time, and of a step among the others, ``(e, k)``.
        place: place in ``hosts``, ``(e, k)``.
        hosts, num_hosts, part: hosts of each running job, how many and devices on each, ``(e, R, M)``, ``(e, R)``, ``(e, R)``.
        is_taken: places in use, ``(e, R)``.
        num_restarts: how often a job was taken off its devices, ``(e, k)``.
        held_device_s: device-seconds that each job has held, ``(e, k)``.
        shared_s: seconds by which sharing has stretched a job's steps so far, ``(e, k)``.
        load: share of each link that is busy, zero without sharing, ``(e, L)``.
        trunk_share: share of the time for which each running job keeps each trunk busy, by place, ``(e, R, t)``. Zero without
            sharing; one column of zeros without trunks.
        totals: see `Total`, ``(e, 7)``.
        offered: job on each place of offer, -1 for none, ``(e, v)``.
        was_offered: running jobs that were decided in this round, ``(e, k)``.
        part_index: ``log2`` of the devices a host by which a degree fits, -1 where it does not, ``(e, s, d, p)``.
        spread_index: class of the hosts of a group then, ``(e, s, d, p)``.
        can_act: ``(e, a)``.
        building: offer whose hosts are being picked, -1 for none, ``(e,)``.
        building_entry: ``(e,)``.
        built, num_built: hosts so far, ``(e, M)`` and ``(e,)``.
        seed: of all failures of an episode, ``(e,)``.
        is_out: hosts that have failed and are not repaired yet, ``(e, m)``. This and the next two are empty where none fails.
        turns_at_s: when each host fails, or is repaired if it is out, ``(e, m)``.
        host_failures: failures of each host so far, ``(e, m)``.
        num_failures: how often a failure stopped a job, ``(e, k)``.
        lost_device_s: device-seconds of the unfinished steps that failures undid, at their step times then, ``(e, k)``.
        last_hosts: hosts that a job runs on, or ran on last, 0 before, ``(e, k)``.
    """

    now_s: NDArray[np.float64]
    num_arrived: NDArray[np.int64]
    is_over: NDArray[np.bool_]
    next_round_s: NDArray[np.float64]
    in_round: NDArray[np.bool_]
    waiting: NDArray[np.int64]
    num_waiting: NDArray[np.int64]
    running: NDArray[np.int64]
    num_running: NDArray[np.int64]
    free: NDArray[np.int64]
    owner: NDArray[np.int64]
    arrival_s: NDArray[np.float64]
    job_type: NDArray[np.int64]
    num_steps: NDArray[np.float64]
    deadline_s: NDArray[np.float64]
    requested: NDArray[np.int64]
    status: NDArray[np.int64]
    entry: NDArray[np.int64]
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    done_steps: NDArray[np.float64]
    since_s: NDArray[np.float64]
    alone_s: NDArray[np.float64]
    hidden_s: NDArray[np.float64]
    step_s: NDArray[np.float64]
    place: NDArray[np.int64]
    hosts: NDArray[np.int64]
    num_hosts: NDArray[np.int64]
    part: NDArray[np.int64]
    is_taken: NDArray[np.bool_]
    num_restarts: NDArray[np.int64]
    held_device_s: NDArray[np.float64]
    shared_s: NDArray[np.float64]
    load: NDArray[np.float64]
    trunk_share: NDArray[np.float64]
    totals: NDArray[np.float64]
    offered: NDArray[np.int64]
    was_offered: NDArray[np.bool_]
    part_index: NDArray[np.int64]
    spread_index: NDArray[np.int64]
    can_act: NDArray[np.bool_]
    building: NDArray[np.int64]
    building_entry: NDArray[np.int64]
    built: NDArray[np.int64]
    num_built: NDArray[np.int64]
    seed: NDArray[np.int64]
    is_out: NDArray[np.bool_]
    turns_at_s: NDArray[np.float64]
    host_failures: NDArray[np.int64]
    num_failures: NDArray[np.int64]
    lost_device_s: NDArray[np.float64]
    last_hosts: NDArray[np.int64]


def new_state(problem: FleetProblem, num_episodes: int, num_jobs: int) -> FleetState:
    """Return arrays for episodes that `dynamics.start` fills."""
    e, k, n, m = num_episodes, num_jobs, problem.num_devices, problem.num_hosts
    capacity = problem.max_running
    return arrays_of(
        FleetState,
        {
            "now_s num_arrived is_over next_round_s in_round num_waiting num_running building building_entry num_built seed": e,
            "waiting": (e, k if problem.has_restarts else min(k, problem.queue_capacity + 1)),
            "running num_hosts part is_taken": (e, capacity),
            "free": (e, m),
            "owner": (e, n),
            "arrival_s job_type num_steps deadline_s requested status entry start_s finish_s done_steps since_s alone_s": (e, k),
            "hidden_s step_s place num_restarts held_device_s shared_s was_offered num_failures lost_device_s last_hosts": (e, k),
            "hosts": (e, capacity, problem.max_hosts),
            "load": (e, len(problem.network.capacity_bytes_per_s)),
            "trunk_share": (e, capacity, max(1, problem.network.num_trunks)),
            "totals": (e, len(Total)),
            "offered": (e, problem.num_offers),
            "part_index spread_index": (e, 1 + problem.visible_running, len(problem.degrees), len(problem.rule)),
            "can_act": (e, problem.num_actions),
            "built": (e, problem.max_hosts),
            "is_out turns_at_s host_failures": (e, m if problem.mean_failure_s < np.inf else 0),
        },
        {"is_over num_steps requested": 1, "deadline_s turns_at_s": np.inf, "building": -1},
    )
