"""The plain reference of the dynamics as published: jobs arrive at a fixed pace and start at once or are blocked; nothing waits.

A decision is made at each arrival. A job is blocked if it is turned away, if an op finds no block, or if its predicted completion
time exceeds its allowed one. By a defect, a job that still runs when the episode ends is blocked too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from meshwright.simulation.cluster.arrays import DEADLINE_TOLERANCE
from meshwright.simulation.pacml.demands import Demand
from meshwright.simulation.pacml.lookahead import LookaheadResult
from meshwright.simulation.pacml.simulator import PlacedSplitJob, Simulator

INTERARRIVAL_S = 1000.0
# The largest degree of the published action space.
MAX_DEGREE = 16
# Of the decisions, those before the steady-state window that the defect-free rate is taken over.
WARM_UP_SHARE = 0.1


class JobOutcome(StrEnum):
    """The outcome of a job."""

    COMPLETED = "completed"
    RUNNING = "running at the end"
    REJECTED = "turned away"
    NO_BLOCK = "no block for some op"
    TOO_SLOW = "too slow for its deadline"


@dataclass
class DecidedJob:
    """A decided job.

    Attributes:
        demand: what arrived.
        arrival_s: when.
        degree: what was chosen, 0 to turn the job away.
        fate: what became of it.
        completion_s: its completion time where it was accepted.
        num_servers: that it holds.
        reward: +1 accepted, -1 not; 0 until the next event.
    """

    demand: Demand
    arrival_s: float
    degree: int
    fate: JobOutcome
    completion_s: float = float("nan")
    num_servers: int = 0
    reward: int = 0

    @property
    def is_accepted(self) -> bool:
        """Whether it started."""
        return self.fate in (JobOutcome.COMPLETED, JobOutcome.RUNNING)


@dataclass(frozen=True)
class Totals:
    """The figures of an episode that has ended.

    Attributes:
        arrived: jobs, one of them at the very end, which nobody decides.
        blocked: jobs.
        completed: jobs.
        blocking_rate: blocked over arrived; see `Episode.totals`.
        mean_completion_s: of completed jobs; None where there is none.
        demand_bytes_per_s: memory and edge bytes of the jobs, by the share of them that was completed, over the time.
    """

    arrived: int
    blocked: int
    completed: int
    blocking_rate: float
    mean_completion_s: float | None
    demand_bytes_per_s: float


@dataclass
class _Running:
    until_s: float
    servers: NDArray[np.int64]
    decision: DecidedJob


@dataclass
class Episode:
    """One episode, decided arrival by arrival.

    Args:
        simulator: cluster and jobs; what it has simulated serves later episodes too.
        demands: the jobs in the order of their arrival, at least one for each decision.
        num_decisions: decisions until the episode ends; one job more arrives at its end.
        interarrival_s: seconds between arrivals.
    """

    simulator: Simulator
    demands: Sequence[Demand]
    num_decisions: int
    interarrival_s: float = INTERARRIVAL_S
    decisions: list[DecidedJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_free = np.ones(self.simulator.num_servers, np.bool_)
        self._running: list[_Running] = []
        self._by_degree: dict[tuple[str, int], LookaheadResult] = {}

    @property
    def now_s(self) -> float:
        """The arrival of the current job."""
        return len(self.decisions) * self.interarrival_s

    @property
    def end_s(self) -> float:
        """Time at which the episode ends, in seconds."""
        return self.num_decisions * self.interarrival_s

    @property
    def is_over(self) -> bool:
        """Whether every job has been decided."""
        return len(self.decisions) == self.num_decisions

    @property
    def demand(self) -> Demand:
        """The current job."""
        return self.demands[len(self.decisions)]

    def mask(self) -> NDArray[np.bool_]:
        """Whether each degree, 0 to `MAX_DEGREE`, may be chosen for the current job.

        As published: 1 if a worker is free; even degrees if as many are free and an empty cluster has a block of
        that size. Without the defect `mask_ignores_occupancy`: if the job really fits now.
        """
        valid = np.zeros(MAX_DEGREE + 1, np.bool_)
        valid[0] = True
        num_free = int(self.is_free.sum())
        for degree in (1, *range(2, MAX_DEGREE + 1, 2)):
            if degree > num_free or len(self.simulator.blocks.of_size(degree)) == 0:
                continue
            valid[degree] = self.simulator.defects.mask_ignores_occupancy or self._place(degree) is not None
        return valid

    def would_be_accepted(self, degree: int) -> bool:
        """Whether the current job fits now if it is cut at most ``degree`` ways, and meets its deadline."""
        placed = self._place(degree)
        return placed is not None and self._meets_deadline(self.simulator.completion_s(self._step(degree, placed)))

    def decide(self, degree: int) -> DecidedJob:
        """Cut the current job at most ``degree`` ways and place it, or turn it away with 0; go to the next arrival.

        Its reward is known after the next event.
        """
        assert not self.is_over
        decision = self._decided(degree)
        self.decisions.append(decision)
        ended = self._release(min(self.now_s, self.end_s))
        decision.reward = 1 if decision.is_accepted else -1
        is_last = len(self.decisions) == self.num_decisions
        if is_last and self.simulator.defects.last_reward_is_lost and not ended:
            decision.reward = -1
        return decision

    def totals(self) -> Totals:
        """The figures of the episode.

        As published, jobs that run at the end count as blocked and the rate is taken over all arrivals. Without the
        defect `running_jobs_are_blocked` they count as accepted, and the rate is that of the jobs behind the
        first `WARM_UP_SHARE` of them.
        """
        assert self.is_over
        defects = self.simulator.defects
        completed = [d for d in self.decisions if d.fate == JobOutcome.COMPLETED]
        accepted = [d for d in self.decisions if d.is_accepted]
        arrived = self.num_decisions + 1
        blocked = self.num_decisions - len(completed if defects.running_jobs_are_blocked else accepted)
        rate = blocked / arrived
        if not defects.running_jobs_are_blocked:
            window = self.decisions[int(WARM_UP_SHARE * self.num_decisions) :]
            rate = sum(not d.is_accepted for d in window) / len(window)
        return Totals(
            arrived=arrived,
            blocked=blocked,
            completed=len(completed),
            blocking_rate=rate,
            mean_completion_s=_mean([d.completion_s for d in completed]),
            demand_bytes_per_s=sum(self._done_bytes(d) for d in accepted) / self.end_s,
        )

    def _decided(self, degree: int) -> DecidedJob:
        decision = DecidedJob(self.demand, self.now_s, degree, JobOutcome.REJECTED)
        if degree == 0 or not self.is_free.any():
            return decision
        placed = self._place(degree)
        if placed is None:
            decision.fate = JobOutcome.NO_BLOCK
            return decision
        step = self._step(degree, placed)
        if self.simulator.defects.times_keyed_by_degree:
            self._by_degree[self.demand.graph, degree] = step
        completion_s = self.simulator.completion_s(step)
        if not self._meets_deadline(completion_s):
            decision.fate = JobOutcome.TOO_SLOW
            return decision
        decision.fate = JobOutcome.RUNNING
        decision.completion_s, decision.num_servers = completion_s, len(placed.servers)
        self.is_free[placed.servers] = False
        self._running.append(_Running(self.now_s + completion_s, placed.servers, decision))
        return decision

    def _place(self, degree: int) -> PlacedSplitJob | None:
        return self.simulator.place(self.demand.graph, degree, self.is_free)

    def _step(self, degree: int, placed: PlacedSplitJob) -> LookaheadResult:
        return self._by_degree.get((self.demand.graph, degree)) or self.simulator.step(placed)

    def _meets_deadline(self, completion_s: float) -> bool:
        allowed_s = self.demand.fraction * self.simulator.sequential_s(self.demand.graph)
        tolerance = 0.0 if self.simulator.defects.strict_deadline else DEADLINE_TOLERANCE
        return completion_s <= allowed_s * (1 + tolerance)

    def _release(self, until_s: float) -> int:
        """Let the jobs leave that have ended by then; how many did before that moment."""
        gone = [job for job in self._running if job.until_s <= until_s]
        for job in gone:
            self.is_free[job.servers] = True
            job.decision.fate = JobOutcome.COMPLETED
        self._running = [job for job in self._running if job.until_s > until_s]
        return sum(job.until_s < until_s for job in gone)

    def _done_bytes(self, decision: DecidedJob) -> float:
        share = min(1.0, (self.end_s - decision.arrival_s) / decision.completion_s)
        return share * self.simulator.demand_bytes(decision.demand.graph)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def valid_degrees(episode: Episode) -> list[int]:
    """The degrees, from 1 on, that the mask shows."""
    return [int(degree) for degree in np.flatnonzero(episode.mask())[1:]]


def agent(name: str) -> Callable[[Episode, np.random.Generator], int]:
    """A published agent: ``random``, ``max_parallelism``, ``acceptable_jct``, ``fixedD`` or ``ladderD_D_...``."""
    kind, degrees = name.rstrip("_0123456789"), [int(degree) for degree in re.findall("[0-9]+", name)]

    def choose(episode: Episode, rng: np.random.Generator) -> int:
        valid = valid_degrees(episode)
        if kind == "random":
            return int(rng.choice(valid)) if valid else 0
        if kind == "ladder":
            return next((degree for degree in degrees if degree in valid and episode.would_be_accepted(degree)), 0)
        if kind == "fixed":
            return degrees[0] if degrees[0] in valid else 0
        least = math.ceil(1 / episode.demand.fraction) if kind == "acceptable_jct" else math.inf
        return next((degree for degree in valid if degree >= least), max(valid, default=0))

    return choose
