"""A span played in the fleet world: its jobs wait in a queue, and a policy of fleets gives them layouts and devices.

Step times are the real ones (`durations`), so jobs slow each other down only as much as they did. Shared links are not played
once more. Devices that others held are withheld. Where a policy has given such a device to a job of the span, the other gets it
once it is free. The report has the missing time. Hosts that went down send their jobs back to the queue at their last whole
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import settings
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet, Jobs, fleet_of_menu
from ...envs.fleet.record import FleetRecord
from ...envs.fleet.settings import FleetSettings
from ...errors import ConfigError, PlanError, PolicyError
from ...evaluation.fleet.bounds import BOUND
from ...evaluation.fleet.policies import ROLLOUT, FleetPlayer, fleet_player, is_best_fixed_entry, is_rule
from ...planners.menu.build import Menu, build_menu
from ...planners.menu.settings import JobTypeSettings, MenuSettings
from ...planning.policies import MENU_RULE, fleet_policy_file
from ...simulation.fleet import dynamics
from ...simulation.fleet.menu_table import MenuTable
from ...simulation.fleet.offers import has_choice, offer
from ...simulation.fleet.runs import leave_queue, send_back
from ...simulation.fleet.shared_steps import share_links
from ...simulation.fleet.state import JobState
from ...simulation.ragged import row_starts
from ..decisions import JobRequest
from .durations import RealDurations, job_of
from .playback import Outcomes
from .span import Mark, PastSpan

SEED = 0
"""Of policies that draw."""

MOST_WAITING = 10_000
"""Jobs that may wait unless it is said."""

SELDOM_S = 1e300
"""Mean time between failures that nobody meets: hosts fail when they did, and room for jobs that come back is there."""


@dataclass(frozen=True, eq=False)
class FleetWorld:
    """A span, ready to be played by policies of fleets; made by `of`.

    Attributes:
        span: what is played.
        durations: of its jobs.
        fleet: of the span's job types, a job on each place after as many marks.
        kind: number of the type of each job, ``(k,)``.
    """

    span: PastSpan
    durations: RealDurations
    fleet: Fleet
    kind: NDArray[np.int64]

    @classmethod
    def from_span(
        cls,
        span: PastSpan,
        durations: RealDurations,
        spell: Callable[[JobRequest], str],
        *,
        queue: int = MOST_WAITING,
        cache: Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> FleetWorld:
        """Price the menu of the span's jobs.

        Args:
            span, durations: what is played.
            spell: gives the path or name of a request's job.
            queue: jobs that may wait.
            cache: folder of priced menus.
            progress: called while they are priced.

        Raises:
            PlanError: a job without a batch has no menu.
            MeshwrightError: a job is missing or wrong.
        """
        numbers: dict[tuple[str | int | None, ...], int] = {}
        requests: list[JobRequest] = []
        kind = np.empty(len(span.arrivals), np.int64)
        for k, one in enumerate(span.arrivals):
            request = one.request
            if request.batch is None:
                message = "has no batch, so that no menu of layouts can be made of it; replay it under policies that cut op by op"
                raise PlanError(f"the job of {one.decision} {message}", field="--policy")
            key = job_of(request), request.devices, request.max_devices, request.framework
            if key not in numbers:
                numbers[key] = len(requests)
                requests.append(request)
            kind[k] = numbers[key]
        types = tuple(_type(request, number, spell(request)) for number, request in enumerate(requests))
        num_devices = span.cluster.num_devices
        degrees = tuple(1 << power for power in range(num_devices.bit_length()))
        tried = MenuSettings(degrees=degrees, is_whole=True)
        build = partial(build_menu, cache=cache, is_strict=False, progress=progress)
        priced = build(types, span.cluster, tried, frameworks=[request.framework for request in requests])
        menu = real_menu(priced, requests, durations)
        took_s = [durations.seconds(arrival.run) for arrival in span.arrivals if arrival.run is not None] or [3600.0]
        held_s = sum(durations.seconds(one.run) * len(one.run.hosts) for one in span.arrivals if one.run is not None)
        arrived = held_s / (max(1.0, span.arrivals[-1].asked_s) * num_devices)  # of work in a second, over the devices
        duration = {"median_s": np.median(took_s), "sigma": min(4.0, np.log(took_s).std()), "most_s": max(took_s)}
        options = {
            "cluster": span.cluster.name,
            "job_types": types,
            "menu": tried,
            "requested": dict.fromkeys(np.unique(menu.table.degree).tolist(), 1.0),
            "load": float(np.clip(arrived, 1e-3, 10.0)),  # as settings of a fleet allow it
            "duration": {name: float(value) for name, value in duration.items()},
            "num_jobs": len(kind) + len(span.marks),
            "queue_capacity": queue,
            "sharing": "none",
        }
        return cls(span, durations, _fleet(settings.build_settings(FleetSettings, options), span, menu), kind)

    def before(self, spec: str) -> tuple[FleetWorld, FleetPlayer]:
        """Return a policy by its spelling, and the world as it sees it: a trained one sees as many jobs as in training.

        Raises:
            PolicyError: it is none of a fleet, or looks at what is to come.
            CheckpointError: the file of a trained policy is damaged.
        """
        name = spec.removeprefix(MENU_RULE)
        if looks_ahead(name):
            raise PolicyError("cannot be replayed: it looks at what is to come, or is tuned on other episodes", value=spec)
        if is_rule(name):
            return self, fleet_player(name, self.fleet)
        if spec.startswith(MENU_RULE):
            raise PolicyError(f"{MENU_RULE}RULE names a rule of fleets", value=spec)
        from ...models.fleet.saved import SavedFleetNetwork  # loads torch
        from ...planning.fleet_of_job import trained_on

        trained = trained_on(SavedFleetNetwork.load(fleet_policy_file(spec))).fleet
        seen = {key: getattr(trained, key) for key in ("candidate_features", "visible_jobs", "placements")}
        choice = self.fleet.settings.model_copy(update=seen)
        world = replace(self, fleet=_fleet(choice, self.span, self.fleet.menu))
        return world, fleet_player(spec, world.fleet)

    def play(self, player: FleetPlayer) -> tuple[Outcomes, float]:
        """Play the span by a policy; what became of its jobs, and the device-hours that others had less than they really had."""
        span, num_marks = self.span, len(self.span.marks)
        batch = FleetBatch(self.fleet, 1, observes=player.observes)
        times, of_job, of_mark = self._order
        jobs = Jobs(
            arrival_s=times,
            job_type=np.zeros(len(times), np.int64),
            requested=np.full(len(times), self.fleet.problem.degrees[0]),
            num_steps=np.ones(len(times)),
            deadline_s=np.full(len(times), np.inf),
        )
        jobs.job_type[of_job], jobs.requested[of_job] = self.kind, self._requested
        jobs.num_steps[of_job] = [arrival.request.steps for arrival in span.arrivals]
        allowed_s = [np.inf if arrival.request.deadline_s is None else arrival.request.deadline_s for arrival in span.arrivals]
        jobs.deadline_s[of_job] = times[of_job] + allowed_s
        mark_at = dict(zip(of_mark.tolist(), span.marks, strict=True))
        assert len(mark_at) == num_marks, "each mark has its place"
        missed_device_s = _Play(batch, jobs, mark_at, player.chooser(batch, SEED)).play()
        record = FleetRecord.from_state(batch.state, 0)
        entry = record.entry[of_job]
        degree = self.fleet.problem.menu.degree[entry]
        ran = entry >= 0
        played = zip(span.arrivals, ran, degree, strict=True)
        is_unknown = np.array([has and not self.durations.is_known(one.request, int(d)) for one, has, d in played])
        finish_s = record.finish_s[of_job]
        done = np.isfinite(finish_s)
        outcomes = Outcomes(
            is_blocked=record.is_blocked[of_job],
            completion_s=finish_s - times[of_job],
            waiting_s=np.where(done, record.start_s[of_job] - times[of_job], np.nan),
            device_s=record.held_device_s[of_job],
            is_unknown=is_unknown,
        )
        return outcomes, missed_device_s / 3600.0

    @cached_property
    def _order(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Times of jobs and marks together, rising, and the places of both; marks come first of what is at one time."""
        marks_s = np.array([mark.at_s for mark in self.span.marks])
        jobs_s = np.array([arrival.asked_s for arrival in self.span.arrivals])
        order = np.argsort(np.concatenate([marks_s, jobs_s]), kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return np.concatenate([marks_s, jobs_s])[order], place[len(marks_s) :], place[: len(marks_s)]

    @cached_property
    def _requested(self) -> NDArray[np.int64]:
        """Devices that each job asks for: as it says, else as it got, else as most of its kind got, else the cheapest."""
        got: dict[int, list[int]] = {}
        for number, one in zip(self.kind.tolist(), self.span.arrivals, strict=True):
            if one.run is not None:
                got.setdefault(number, []).append(len(one.run.hosts))
        degrees = self.fleet.problem.degrees
        cheapest = degrees[np.argmin(np.where(np.isfinite(self.fleet.best_step_s), degrees * self.fleet.best_step_s, np.inf), 1)]
        results = []
        for number, one in zip(self.kind.tolist(), self.span.arrivals, strict=True):
            own = one.request.devices or (None if one.run is None else len(one.run.hosts))
            usual = max(got[number], key=got[number].count) if number in got else int(cheapest[number])
            larger = int(np.searchsorted(degrees, usual if own is None else own))
            results.append(int(degrees[min(larger, len(degrees) - 1)]))
        return np.array(results, np.int64)


def _fleet(fleet_settings: FleetSettings, span: PastSpan, menu: Menu) -> Fleet:
    """Return a fleet in which hosts fail when they did, and never else."""
    fleet = fleet_of_menu(fleet_settings, span.cluster, menu)
    return replace(fleet, problem=fleet.problem._replace(mean_failure_s=SELDOM_S))


def looks_ahead(spec: str) -> bool:
    """Return whether a policy of fleets knows what is to come, or is tuned on other episodes."""
    return is_best_fixed_entry(spec) or spec == BOUND or spec.startswith(ROLLOUT)


class _Play:
    """Plays an episode with marks between its events; see the module.

    Marks come as jobs do: the simulation stops where one arrives, and it is taken out of the queue again.
    """

    def __init__(self, batch: FleetBatch, jobs: Jobs, marks: dict[int, Mark], choose: Callable[[], int]) -> None:
        self._problem, self._state = batch.fleet.problem, batch.state
        self._batch, self._jobs, self._marks, self._choose = batch, jobs, marks, choose
        self._size = self._problem.network.devices_per_host
        self._held = np.zeros(self._problem.num_hosts, np.int64)
        self._is_closed = np.zeros(self._problem.num_hosts, np.bool_)
        self._missed, self._since_s, self.missed_device_s = 0, 0.0, 0.0

    def play(self) -> float:
        """Play to the end; device-seconds that others had less than they really had."""
        problem, state = self._problem, self._state
        self._batch.begin_with(0, self._jobs, SEED)  # stops at the first mark, as any job can start on an empty cluster
        while not state.is_over[0]:
            self._settle()
            should_continue = False
            while not should_continue and has_choice(problem, state, 0):
                should_continue = dynamics.decide(problem, state, 0, self._choose())
            if not should_continue:
                dynamics.decide(problem, state, 0, 0)
            dynamics.next_event(problem, state, 0)
        return self.missed_device_s

    def _settle(self) -> None:
        """Take up a mark that has come, and give others what they hold."""
        problem, state = self._problem, self._state
        newest = int(state.num_arrived[0]) - 1
        mark = self._marks.pop(newest, None)
        if mark is not None:
            if state.status[0, newest] == JobState.WAITING:
                leave_queue(state, 0, newest)
            self._held, self._is_closed = mark.is_held.reshape(-1, self._size).sum(axis=1), mark.is_closed
            self._stop(mark.is_down)
        elif not self._held.any() and not self._is_closed.any():
            return
        now_s = float(state.now_s[0])
        self.missed_device_s += self._missed * (now_s - self._since_s)
        ours = (state.owner[0].reshape(-1, self._size) >= 0).sum(axis=1)
        withheld = np.minimum(self._held, self._size - ours)
        state.free[0] = np.where(self._is_closed, 0, self._size - ours - withheld)
        self._missed, self._since_s = int((self._held - withheld).sum()), now_s
        offer(problem, state, 0)

    def _stop(self, is_down: NDArray[np.bool_]) -> None:
        """Let jobs on hosts that are gone wait again."""
        owners = self._state.owner[0].reshape(-1, self._size)[is_down]
        lost = np.unique(owners[owners >= 0]).tolist()
        for job in lost:
            send_back(self._problem, self._state, 0, job)
        if lost:
            share_links(self._problem, self._state, 0)


def _type(request: JobRequest, number: int, job: str) -> JobTypeSettings:
    """Return a request's job as a type of jobs."""
    name = request.job.removeprefix("zoo:") if isinstance(request.job, str) else Path(job).parent.name
    data = {
        "name": f"{name}#{number}",
        "job": job,
        "global_batch": request.batch,
        "sequence_length": request.sequence_length,
    }
    return settings.build_settings(JobTypeSettings, data)


def real_menu(menu: Menu, requests: Sequence[JobRequest], durations: RealDurations) -> Menu:
    """Return the menu of some jobs as their runs show it.

    Args:
        menu: as it is predicted, a type for each request.
        requests: which numbers of devices are wanted of each.
        durations: what the runs show.

    Raises:
        ConfigError: a request wants numbers of devices for which there is no layout.
    """
    table = menu.table
    step_s, is_wanted = table.step_s.copy(), np.ones(len(table.degree), np.bool_)
    for number, request in enumerate(requests):
        entries = range(int(table.first_entry[number]), int(table.first_entry[number + 1]))
        for entry in entries:
            degree = int(table.degree[entry])
            is_wanted[entry] = degree <= (request.max_devices or degree) and degree == (request.devices or degree)
            for part in range(step_s.shape[2]):
                step_s[entry, :, part] *= durations.ratio(request, degree, 1 << part == degree)
        if not is_wanted[entries].any():
            num_wanted = request.devices or request.max_devices
            raise ConfigError("no layout has so many devices", field=menu.job_types[number].name, value=num_wanted)
    entry_numbers = np.flatnonzero(is_wanted)
    real = _with_entries(table._replace(step_s=step_s), entry_numbers)
    exposed = None if menu.exposed is None else menu.exposed[entry_numbers]
    return Menu(real, menu.job_types, tuple(menu.entries[entry] for entry in entry_numbers), exposed)


def _with_entries(table: MenuTable, entries: NDArray[np.int64]) -> MenuTable:
    """Return some entries of a table."""
    count = np.searchsorted(entries, table.first_entry)
    step_s = table.step_s[entries]
    cost = table.degree[entries] * step_s.min(axis=(1, 2, 3))
    parts = step_s.shape[2]
    rows = (entries[:, None] * parts + np.arange(parts)).ravel()
    lengths = np.diff(table.flow_first)[rows]
    flows = np.concatenate([np.arange(table.flow_first[row], table.flow_first[row + 1]) for row in rows]).astype(np.int64)
    return table._replace(
        first_entry=count.astype(np.int64),
        degree=table.degree[entries],
        memory_bytes=table.memory_bytes[entries],
        step_s=step_s,
        hidden_s=table.hidden_s[entries],
        flow_first=row_starts(lengths),
        flow_from=table.flow_from[flows],
        flow_to=table.flow_to[flows],
        flow_bytes=table.flow_bytes[flows],
        flow_streams=table.flow_streams[flows],
        work_device_s=np.minimum.reduceat(cost, count[:-1]),
    )
