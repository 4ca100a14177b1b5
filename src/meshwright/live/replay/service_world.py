"""A span played as the service decides: each job by itself, by `deciding.Planners`, on the devices that are free then.

A job that gets none waits and is asked for again when devices become free, in order of arrival. Jobs behind it may start before
it, as with clients that ask again. Policies that cut jobs op by op are played so, since they have no queue, and all policies
where jobs hold whole hosts. Devices of others are withheld as in `fleet_world`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...simulation.cluster.interruptions import RESTART_S
from ..deciding import Planners
from ..decisions import DecisionInputs, free_runs
from ..state import of_whole_hosts
from .durations import RealDurations
from .playback import Outcomes
from .span import PastSpan


class _Stay(NamedTuple):
    """A job on its devices; ``place`` distinguishes starts of one job."""

    end_s: float
    start_s: float
    steps_from_s: float
    place: int
    job: int
    devices: NDArray[np.int64]
    step_s: float


class ServiceWorld:
    """A span before a policy of the service.

    Args:
        span: what is played.
        durations: of its jobs.
        planners: the policy.
        queue: jobs that may wait.
    """

    def __init__(self, span: PastSpan, durations: RealDurations, planners: Planners, *, queue: int) -> None:
        self._span, self._durations, self._planners, self._queue = span, durations, planners, queue
        cluster = span.cluster
        num = len(span.arrivals)
        self._host = cluster.device_host
        self._ours = np.zeros(cluster.num_devices, np.bool_)
        self._others = np.zeros(cluster.num_devices, np.bool_)
        self._closed = np.zeros(cluster.num_devices, np.bool_)
        self._steps = np.array([arrival.request.steps for arrival in span.arrivals])
        self._ends: list[_Stay] = []
        self._waiting: list[int] = []
        self._first_s, self._end_s = np.full(num, np.nan), np.full(num, np.nan)
        self._device_s, self._is_unknown = np.zeros(num), np.zeros(num, np.bool_)
        self._missed_device_s, self._now_s, self._count = 0.0, 0.0, 0

    def play(self) -> tuple[Outcomes, float]:
        """Play the span; what became of its jobs, and the device-hours that others had less than they really had.

        Raises:
            MeshwrightError: a job or the policy is missing or wrong.
        """
        arrivals = [(one.asked_s, 2, job) for job, one in enumerate(self._span.arrivals)]
        events = sorted(arrivals + [(mark.at_s, 1, number) for number, mark in enumerate(self._span.marks)])
        for at_s, kind, number in events:
            self._ended(at_s)
            self._pass(at_s)
            if kind == 1:
                mark = self._span.marks[number]
                self._others, self._closed = mark.is_held, mark.is_closed[self._host]
                self._stop(mark.is_down[self._host])
                self._retry()
            elif not self._start(number) and len(self._waiting) < self._queue:
                self._waiting.append(number)
        self._ended(np.inf)
        asked_s = np.array([arrival.asked_s for arrival in self._span.arrivals])
        allowed_s = np.array([arrival.request.deadline_s or np.inf for arrival in self._span.arrivals])
        completion_s = self._end_s - asked_s
        is_late = np.nan_to_num(completion_s, nan=np.inf) > allowed_s
        outcomes = Outcomes(
            is_blocked=np.isnan(self._end_s) | is_late,
            completion_s=completion_s,
            waiting_s=np.where(np.isnan(self._end_s), np.nan, self._first_s - asked_s),
            device_s=self._device_s,
            is_unknown=self._is_unknown,
        )
        return outcomes, self._missed_device_s / 3600.0

    def _ended(self, until_s: float) -> None:
        """End jobs up to a time, and ask again for those that wait."""
        while self._ends and self._ends[0].end_s <= until_s:
            stay = heapq.heappop(self._ends)
            self._pass(stay.end_s)
            self._end_s[stay.job] = stay.end_s
            self._device_s[stay.job] += (stay.end_s - stay.start_s) * len(stay.devices)
            self._ours[stay.devices] = False
            if not self._ends or self._ends[0].end_s > stay.end_s:
                self._retry()

    def _pass(self, at_s: float) -> None:
        self._missed_device_s += int((self._ours & self._others).sum()) * (at_s - self._now_s)
        self._now_s = at_s

    def _retry(self) -> None:
        self._waiting = [job for job in self._waiting if not self._start(job)]

    def _start(self, job: int) -> bool:
        """Decide for a job; whether it has devices now."""
        one = self._span.arrivals[job]
        left_s = None if one.request.deadline_s is None else one.request.deadline_s - (self._now_s - one.asked_s)
        if left_s is not None and left_s <= 0:
            return False
        free_s = np.where(self._ours | self._others | self._closed, np.inf, 0.0)
        if self._span.whole_hosts:
            free_s = of_whole_hosts(free_s, self._span.cluster)
        if np.isinf(free_s).all():
            return False
        request = one.request.model_copy(update={"steps": int(self._steps[job]), "deadline_s": left_s})
        free, policy = free_runs(free_s), self._planners.policy
        inputs = DecisionInputs.model_construct(
            request=request, policy=policy, digest="", seq=0, now=self._span.begin, free=free, seed=0
        )
        decided = self._planners.decide(inputs)
        if decided.plan is None:
            return False
        ranks = decided.plan.ranks
        devices = np.array([rank.device for rank in ranks], np.int64)
        hosts = np.unique(self._host[devices])
        step_s = next(figure.value for figure in decided.plan.predicted if figure.name == "step_s")
        step_s *= self._durations.ratio(one.request, len(ranks), len(hosts) == 1)
        self._is_unknown[job] = not self._durations.is_known(one.request, len(ranks))
        held = np.flatnonzero(np.isin(self._host, hosts)) if self._span.whole_hosts else devices
        self._ours[held] = True
        steps_from_s = self._now_s
        if np.isnan(self._first_s[job]):
            self._first_s[job] = self._now_s
        else:
            steps_from_s += RESTART_S
        self._count += 1
        end_s = steps_from_s + self._steps[job] * step_s
        heapq.heappush(self._ends, _Stay(end_s, self._now_s, steps_from_s, self._count, job, held, step_s))
        return True

    def _stop(self, is_down: NDArray[np.bool_]) -> None:
        """Let jobs on hosts that are gone wait again, first in line, from their last whole step."""
        lost: Sequence[_Stay] = [stay for stay in self._ends if is_down[stay.devices].any()]
        if not lost:
            return
        self._ends = [stay for stay in self._ends if not is_down[stay.devices].any()]
        heapq.heapify(self._ends)
        for stay in lost:
            done = int(max(0.0, self._now_s - stay.steps_from_s) / stay.step_s + 1e-9)
            self._steps[stay.job] = max(1, self._steps[stay.job] - done)
            self._device_s[stay.job] += (self._now_s - stay.start_s) * len(stay.devices)
            self._ours[stay.devices] = False
        self._waiting = sorted([*self._waiting, *(stay.job for stay in lost)])
