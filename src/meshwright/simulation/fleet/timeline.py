"""The timeline of one episode of a fleet, between any two events: queue, devices, links, and mutual slowdowns of jobs.

A job that runs at ``step_s`` a step in place of ``alone_s`` loses the difference with each step. `sharing.slowdown_parts` divides
its loss in an interval among the other jobs.

Legend: ``i`` intervals, ``k`` jobs, ``m`` hosts, ``L`` links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from . import dynamics
from .network import add_loads
from .placing import log2
from .sharing import slowdown_parts
from .state import FleetProblem, FleetState

JobLoad = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
"""Links, and seconds in a step and streams of a job on each."""


@dataclass
class Stay:
    """A job on its devices, from one start to the next stop.

    Attributes:
        job, entry: by number.
        devices: that it holds, rising.
        begin_s: from here.
        steps_from_s: when the restart is over; ``begin_s`` at a first start.
        end_s: until here.
        is_restart: whether the job had run before.
    """

    job: int
    entry: int
    devices: NDArray[np.int64]
    begin_s: float
    steps_from_s: float
    end_s: float
    is_restart: bool


@dataclass
class Outage:
    """A host that is out of order.

    Attributes:
        host: by number.
        begin_s, end_s: from its failure until its repair, or the end of the episode.
    """

    host: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class FleetTimeline:
    """An episode from its first decision on.

    Attributes:
        time_s: ends of the intervals, rising, ``(i + 1,)``.
        num_waiting, num_running, num_held: jobs in the queue, jobs on devices, devices held, in each interval, ``(i,)``.
        load: share of each link that is busy, ``(i, L)``; zero without sharing.
        stays: by their begin.
        outages: likewise.
        lost_s: seconds by which sharing stretched the steps of a job because of another one: ``lost_s[job, other]``. Over all
            others they sum to the record's ``shared_s``.
    """

    time_s: NDArray[np.float64]
    num_waiting: NDArray[np.int64]
    num_running: NDArray[np.int64]
    num_held: NDArray[np.int64]
    load: NDArray[np.float64]
    stays: tuple[Stay, ...]
    outages: tuple[Outage, ...]
    lost_s: dict[tuple[int, int], float]

    def mean_in(self, values: NDArray[np.float64] | NDArray[np.int64], bounds_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the means over stretches of time of what holds in each interval; zero before the first one and after the last.

        Args:
            values: ``(i,)`` or ``(i, ...)``.
            bounds_s: of the stretches, rising, ``(b + 1,)``.
        """
        passed_s = np.diff(self.time_s).reshape(-1, *[1] * (values.ndim - 1))
        total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(passed_s * values, axis=0)])
        columns = [np.interp(bounds_s, self.time_s, column) for column in total.reshape(len(total), -1).T]
        reached = np.stack(columns, axis=-1).reshape(-1, *values.shape[1:]) if columns else np.zeros((len(bounds_s), 0))
        means: NDArray[np.float64] = np.diff(reached, axis=0) / np.diff(bounds_s).reshape(-1, *[1] * (values.ndim - 1))
        return means


def watch(problem: FleetProblem, state: FleetState, choose: Callable[[], int]) -> FleetTimeline:
    """Play the only episode of a state, which has begun, to its end, and see what happens.

    Args:
        problem: the fleet.
        state: of one episode, at its first decision.
        choose: gives the next action, one of those that are possible in the state.
    """
    seen = _Watch(problem, state)
    while not state.is_over[0]:
        should_continue = dynamics.decide(problem, state, 0, choose())
        while should_continue:
            seen.begin()
            should_continue = not dynamics.next_event(problem, state, 0)
            seen.end()
    return seen.timeline()


class _Watch:
    """Observes a state before and after time advances."""

    def __init__(self, problem: FleetProblem, state: FleetState) -> None:
        self._problem, self._state = problem, state
        self._time_s = [float(state.now_s[0])]
        self._counts: list[tuple[int, int, int]] = []
        self._load: list[NDArray[np.float64]] = []
        self._open: dict[tuple[int, int], Stay] = {}
        self._stays: list[Stay] = []
        self._outages: dict[tuple[int, int], Outage] = {}  # by host and number of its failures
        self._lost_s: dict[tuple[int, int], float] = {}
        self._parts_of: tuple[bytes, ...] | None = None
        self._parts: list[tuple[int, int, float]] = []
        self._load_of: dict[tuple[int, int], JobLoad] = {}  # of each stay

    def begin(self) -> None:
        state = self._state
        self._running = state.running[0, : state.num_running[0]].copy()
        self._shared_s = state.shared_s[0, self._running]
        self._count = int(state.num_waiting[0]), len(self._running), int((state.owner[0] >= 0).sum())
        self._load_now = state.load[0].copy()
        self._note_stays()
        self._note_outages()
        self._find_parts()

    def end(self) -> None:
        state, now_s = self._state, float(self._state.now_s[0])
        if now_s == self._time_s[-1]:
            return
        self._time_s.append(now_s)
        self._counts.append(self._count)
        self._load.append(self._load_now)
        lost = dict(zip(self._running.tolist(), (state.shared_s[0, self._running] - self._shared_s).tolist(), strict=True))
        for job, other, part in self._parts:
            self._lost_s[job, other] = self._lost_s.get((job, other), 0.0) + part * lost[job]

    def timeline(self) -> FleetTimeline:
        self._running = self._running[:0] if self._counts else np.zeros(0, np.int64)
        self._note_stays()
        counts = np.array(self._counts, np.int64).reshape(-1, 3)
        load = np.array(self._load).reshape(len(self._load), self._state.load.shape[1])
        stays = tuple(sorted(self._stays, key=lambda stay: (stay.begin_s, stay.job)))
        outages = [replace(outage, end_s=min(outage.end_s, self._time_s[-1])) for outage in self._outages.values()]
        return FleetTimeline(
            np.array(self._time_s), counts[:, 0], counts[:, 1], counts[:, 2], load, stays, tuple(outages), self._lost_s
        )

    def _note_stays(self) -> None:
        """Open a stay for each start, close those of jobs that have gone."""
        state, now_s = self._state, float(self._state.now_s[0])
        present = {(job, int(state.num_restarts[0, job])) for job in self._running.tolist()}
        for key in self._open.keys() - present:
            self._open[key].end_s = now_s
            self._stays.append(self._open.pop(key))
        for job, starts in present - self._open.keys():
            devices = np.flatnonzero(state.owner[0] == job)
            steps_from_s = max(now_s, float(state.since_s[0, job]))
            self._open[job, starts] = Stay(job, int(state.entry[0, job]), devices, now_s, steps_from_s, now_s, starts > 0)

    def _note_outages(self) -> None:
        """Note each failure when its host is first seen out, with the time of its repair."""
        state, now_s = self._state, float(self._state.now_s[0])
        for host in np.flatnonzero(state.is_out[0]).tolist():
            key = host, int(state.host_failures[0, host])
            self._outages.setdefault(key, Outage(host, now_s, now_s)).end_s = float(state.turns_at_s[0, host])

    def _find_parts(self) -> None:
        """Find who slows whom, anew where jobs or step times have changed."""
        state = self._state
        jobs = self._running[state.since_s[0, self._running] <= state.now_s[0]]
        step_s = state.step_s[0, jobs]
        key = jobs.tobytes(), state.num_restarts[0, jobs].tobytes(), step_s.tobytes()
        if key == self._parts_of:
            return
        self._parts_of, self._parts = key, []
        alone_s, hidden_s = state.alone_s[0, jobs], state.hidden_s[0, jobs]
        if (step_s == alone_s).all():
            return
        problem, results = self._problem, []
        for job in jobs.tolist():
            stay = job, int(state.num_restarts[0, job])
            if stay not in self._load_of:
                self._load_of[stay] = job_load(problem, state, 0, job)
            results.append(self._load_of[stay])
        first = np.cumsum([0, *(len(links) for links, _, _ in results)])
        link, busy_s, streams = (np.concatenate(column) for column in zip(*results, strict=True))
        loads = first, link, busy_s, streams
        parts = slowdown_parts(alone_s, hidden_s, step_s, loads, problem.sharing_constants, problem.sharing)
        self._parts = [(int(jobs[j]), int(jobs[k]), float(parts[j, k])) for j, k in np.argwhere(parts > 0.0)]


def job_load(problem: FleetProblem, state: FleetState, e: int, job: int) -> JobLoad:
    """Return the load of a running job on links in a step, as input of `sharing.step_times`."""
    network, menu = problem.network, problem.menu
    num_links = len(network.capacity_bytes_per_s)
    place = state.place[e, job]
    row = int(state.entry[e, job]) * menu.step_s.shape[2] + log2(int(state.part[e, place]))
    busy_s, streams, touched = np.zeros(num_links), np.zeros(num_links), np.empty(num_links, np.int64)
    flows = menu.flow_from, menu.flow_to, menu.flow_bytes, menu.flow_streams, menu.flow_first[row], menu.flow_first[row + 1]
    links = touched[: add_loads(network, *flows, state.hosts[e, place], busy_s, streams, touched)]
    return links, busy_s[links], streams[links]
