"""Sets of jobs as the event path runs them: each alone, and all side by side with links shared max-min fairly.

Jobs start at random phases and repeat their steps until each has had several in full company. A step among the others is
the mean between ends of steps while all jobs run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....clusters.cluster import Cluster
from ....costs.network import RankNetwork
from ....costs.routing import Routing
from ....settings import Settings
from ....simulation.contention.concurrent_jobs import schedule
from ....simulation.contention.placed_job import PlacedJob, routed
from ....simulation.layouts.lowering import Lowered, lower
from ....simulation.layouts.steady import FEWEST, extended
from .drawn_sets import COSTS, DrawnJob, DrawnSet, cluster_of, slower_cluster, step_of

ROUTING = Routing.from_settings(COSTS)

FEWEST_STEPS = 3
"""Steps of each job in full company."""

STEPS = 5.0
"""Steps of the slowest job for which the others are given enough to do."""

MOST_TASKS = 120_000
"""Of all jobs and steps; a set with more is left out."""


class SimulatedJob(Settings):
    """A job of a set.

    Attributes:
        name, layout, devices: as it was drawn.
        alone_s: of a step by itself.
        slower_s: of a step by itself where links between hosts have half their bandwidth.
        loads: of each link that it shares, and of its busiest: number, seconds a step at full bandwidth, streams.
        together_s: of a step among the others.
        num_steps: over how many that was taken.
        shares: whether another job uses one of its links.
    """

    name: str
    layout: str
    devices: tuple[int, ...]
    alone_s: float
    slower_s: float
    loads: tuple[tuple[int, float, float], ...]
    together_s: float
    num_steps: int
    shares: bool


class SimulatedSet(Settings):
    """The results of a set.

    Attributes:
        seed, number, cluster: which.
        jobs: of the set; none where no link is shared, or where it has too many tasks to be simulated.
    """

    seed: int
    number: int
    cluster: str
    jobs: tuple[SimulatedJob, ...] = ()


@dataclass(frozen=True, eq=False)
class _Job:
    """Some steps of a job on its devices.

    Attributes:
        drawn: what it is.
        lowered: its steps.
        loads: seconds and streams on each link between hosts, of one step.
    """

    drawn: DrawnJob
    lowered: Lowered
    loads: dict[int, tuple[float, float]]

    def placed(self, start_s: float = 0.0, num_steps: int = FEWEST) -> PlacedJob:
        """Return so many steps of it from some time on."""
        execution = extended(self.lowered, num_steps).execution
        return PlacedJob(execution, np.array(self.drawn.devices), start_s, True, COSTS.overlap_slowdown, ROUTING)

    def ends_s(self, finish_s: NDArray[np.float64], num_steps: int = FEWEST) -> NDArray[np.float64]:
        """Return when each of its steps ended, by the ends of its tasks."""
        ends: NDArray[np.float64] = finish_s[extended(self.lowered, num_steps).optimizers].max(axis=1)
        return ends

    def step_s(self, cluster: Cluster) -> float:
        """Return a step by itself, from the end of the first one on."""
        ((_, finish_s),) = schedule([self.placed()], cluster)
        return _mean_s(self.ends_s(finish_s))


def simulated(drawn: DrawnSet) -> SimulatedSet:
    """Run a set."""
    result = SimulatedSet(seed=drawn.seed, number=drawn.number, cluster=drawn.cluster)
    cluster = cluster_of(drawn.cluster)
    jobs = [_job(drawn.cluster, job) for job in drawn.jobs]
    users = Counter(link for job in jobs for link in job.loads)
    if max(users.values(), default=0) < 2:
        return result
    alone_s = [job.step_s(cluster) for job in jobs]
    phases = np.random.default_rng([drawn.seed, drawn.number, 1]).random(len(jobs))
    ends_s = _in_company(jobs, cluster, alone_s, phases)
    if ends_s is None:
        return result
    results = []
    for job, one_s, ends in zip(jobs, alone_s, ends_s, strict=True):
        busiest = max(job.loads, key={link: load[0] for link, load in job.loads.items()}.__getitem__, default=-1)
        results.append(
            SimulatedJob(
                name=job.drawn.name,
                layout=job.drawn.layout.model_dump_json(exclude_defaults=True),
                devices=job.drawn.devices,
                alone_s=one_s,
                slower_s=job.step_s(slower_cluster(drawn.cluster)),
                loads=tuple((link, *load) for link, load in sorted(job.loads.items()) if users[link] > 1 or link == busiest),
                together_s=_mean_s(ends),
                num_steps=len(ends) - 1,
                shares=any(users[link] > 1 for link in job.loads),
            )
        )
    return result.model_copy(update={"jobs": tuple(results)})


def _in_company(
    jobs: Sequence[_Job], cluster: Cluster, alone_s: Sequence[float], phases: NDArray[np.float64]
) -> list[NDArray[np.float64]] | None:
    """Return the ends of the steps of each job while all of them run; None where there are too many tasks.

    Jobs that share links are slower than alone. If the slowest has not had enough steps, all run again, with a little more than
    the steps that their speeds require.
    """
    starts_s = (phases * alone_s).tolist()
    expected_s, target = np.array(alone_s), STEPS
    while True:
        counts = [FEWEST + int(np.ceil(target * expected_s.max() / one_s)) for one_s in expected_s.tolist()]
        if sum(n * job.lowered.execution.num_tasks / FEWEST for n, job in zip(counts, jobs, strict=True)) > MOST_TASKS:
            return None
        placed = [job.placed(start_s, n) for job, start_s, n in zip(jobs, starts_s, counts, strict=True)]
        times = schedule(placed, cluster)
        ends_s = [
            job.ends_s(finish_s, n) + start_s
            for job, (_, finish_s), start_s, n in zip(jobs, times, starts_s, counts, strict=True)
        ]
        first_s, last_s = max(one[0] for one in ends_s), min(one[-1] for one in ends_s)
        result = [one[(one >= first_s) & (one <= last_s)] for one in ends_s]
        if min(len(one) for one in result) > FEWEST_STEPS:
            return result
        expected_s, target = np.array([_mean_s(one) for one in ends_s]), 1.3 * target


def _mean_s(ends_s: NDArray[np.float64]) -> float:
    """Return the mean time between ends."""
    return float((ends_s[-1] - ends_s[0]) / (len(ends_s) - 1))


def _job(cluster: str, drawn: DrawnJob) -> _Job:
    devices, where = np.array(drawn.devices), cluster_of(cluster)
    network = RankNetwork(where, devices, routing=ROUTING)
    lowered = lower(step_of(cluster, drawn.name, drawn.layout).on(devices), network, COSTS, num_steps=FEWEST)
    last = lowered.execution.num_tasks - int((lowered.optimizers[-1] - lowered.optimizers[-2])[0])
    return _Job(drawn, lowered, _loads(_Job(drawn, lowered, {}).placed(), where, last))


def _loads(job: PlacedJob, cluster: Cluster, first_task: int) -> dict[int, tuple[float, float]]:
    """Return the load of the tasks from one on, on each link between hosts: seconds at its full bandwidth, and streams.

    Streams are the pairs of ranks that send in one phase of one kind of message, as an effective number for unequal bytes. The
    mean over phases and kinds is weighted by bytes.
    """
    messages, paths = routed(job, cluster)
    task, host = messages.flow_task, cluster.device_host[job.devices]
    phase = np.repeat(np.arange(len(messages.flow_start) - 1), np.diff(messages.flow_start)) - messages.phase_start[task]
    between = (task >= first_task) & (host[messages.sender] != host[messages.receiver]) & (messages.flow_bytes > 0)
    sent: dict[int, dict[tuple[int, int], dict[tuple[int, int], float]]]
    sent = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for flow in np.flatnonzero(between).tolist():
        at_once = int(job.execution.op[task[flow]]), int(phase[flow])
        pair = int(messages.sender[flow]), int(messages.receiver[flow])
        for link in paths[flow]:
            sent[link][at_once][pair] += float(messages.flow_bytes[flow])
    result = {}
    for link, by_message in sent.items():
        flows = [list(by_pair.values()) for by_pair in by_message.values()]
        sizes = [(sum(one), sum(one) ** 2 / sum(size**2 for size in one)) for one in flows]
        total = sum(size for size, _ in sizes)
        streams = sum(size * number for size, number in sizes) / total
        result[link] = total / float(cluster.links.bandwidth_bytes_per_s[link]), streams
    return result
