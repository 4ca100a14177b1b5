"""The record of one episode: each job, its decision and its outcome; saved, compared and drawn.

The record of a finished episode has the real end of every placed job, with all interruptions until then. Jobs that still wait in
the queue are neither placed nor turned away. Under the published PAC-ML rules, jobs that run when the episode ends count as
blocked. The arrival at its end counts as one that is not. Legend: ``k`` jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dynamics import drain
from .scenario import Scenario
from .state import OUTCOME_WORDS, Episodes, Outcome

# What interruptions did to each job; all zero where none are on.
INTERRUPTIONS = {"num_failures": np.int64, "num_preemptions": np.int64, "lost_work_s": np.float64, "delay_s": np.float64}


@dataclass(frozen=True, eq=False)
class EpisodeRecord:
    """The decisions and outcomes of all jobs of an episode.

    Attributes:
        arrival_s: ``(k,)``.
        graph_id: index into the workload's graphs, ``(k,)``.
        num_steps: training steps, ``(k,)``.
        allowed_s: completion time that meets the deadline, infinite without one, ``(k,)``.
        sequential_s: completion time on one reference device, ``(k,)``.
        degree: ranks, zero where turned away, ``(k,)``.
        candidate: the candidate chosen, ``(k,)``.
        block: block of the decision space, -1 where turned away or where the job holds several, ``(k,)``.
        completion_s: from arrival to end, NaN where turned away, ``(k,)``.
        outcome: `Outcome`, ``(k,)``.
        start_s: when the job began to hold its block, NaN where it was never placed, ``(k,)``.
        finish_s: end of the job, NaN where it was never placed, ``(k,)``.
        num_failures: failures of devices that interrupted it, ``(k,)``.
        num_preemptions: likewise, ``(k,)``.
        lost_work_s: seconds of running that it had to do again, ``(k,)``.
        delay_s: by how much it ends later than it would have if nothing had interrupted it: lost work, repairs or
            pauses, and restarts, ``(k,)``.
        several: devices of each job that holds several blocks, ascending.
        num_undecided: arrivals that nobody decided but that count as arrived.
    """

    arrival_s: NDArray[np.float64]
    graph_id: NDArray[np.int64]
    num_steps: NDArray[np.int64]
    allowed_s: NDArray[np.float64]
    sequential_s: NDArray[np.float64]
    degree: NDArray[np.int64]
    candidate: NDArray[np.int64]
    block: NDArray[np.int64]
    completion_s: NDArray[np.float64]
    outcome: NDArray[np.int64]
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    num_failures: NDArray[np.int64]
    num_preemptions: NDArray[np.int64]
    lost_work_s: NDArray[np.float64]
    delay_s: NDArray[np.float64]
    several: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    num_undecided: int = 0

    @property
    def is_accepted(self) -> NDArray[np.bool_]:
        """Whether each job was placed, ``(k,)``."""
        return np.equal(self.outcome, int(Outcome.ACCEPTED)) | np.equal(self.outcome, int(Outcome.RUNNING))

    @property
    def is_served(self) -> NDArray[np.bool_]:
        """Whether each job was placed and does not count as blocked, ``(k,)``."""
        return np.equal(self.outcome, int(Outcome.ACCEPTED))

    @property
    def is_waiting(self) -> NDArray[np.bool_]:
        """Whether each job waits in the queue, ``(k,)``; no rate counts those."""
        return np.equal(self.outcome, int(Outcome.WAITING))

    @property
    def wait_s(self) -> NDArray[np.float64]:
        """Seconds from arrival to start, NaN where the job was never placed, ``(k,)``."""
        return self.start_s - self.arrival_s

    def counts(self, jobs: slice = slice(None)) -> dict[str, int]:
        """Return how many of a range of jobs met each outcome, by the outcome's word; rare ones only where there are any."""
        result = np.bincount(self.outcome[jobs], minlength=len(Outcome))
        rare = (Outcome.UNDECIDED, Outcome.EXPIRED, Outcome.WAITING, Outcome.RUNNING)
        return {OUTCOME_WORDS[o]: int(result[o]) for o in Outcome if o not in rare or result[o]}

    def blocking_rate(self, jobs: slice = slice(None)) -> float:
        """Return the share of a range of jobs that count as blocked; those that wait do not count."""
        served = self.is_served[jobs][~self.is_waiting[jobs]]
        arrived = len(served) + self.num_undecided
        return float((len(served) - served.sum()) / arrived) if arrived else 0.0

    def devices_of(self, k: int, scenario: Scenario) -> NDArray[np.int64]:
        """Return the devices of a placed job, in rank order where it holds one block."""
        return self.several[k] if k in self.several else scenario.space.block(int(self.block[k]))

    @property
    def num_held(self) -> NDArray[np.int64]:
        """Devices that each job holds, zero where it was turned away, ``(k,)``: one for each rank, on one block."""
        held = self.degree.copy()
        for k, devices in self.several.items():
            held[k] = len(devices)
        return held

    def to_data(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Return a row per job, with names for numbers; absent values are None."""
        names = [graph.name for graph in scenario.workload.graphs]
        rows = []
        for k in range(len(self.arrival_s)):
            accepted = bool(self.is_accepted[k])
            rows.append(
                {
                    "job": k,
                    "arrival_s": float(self.arrival_s[k]),
                    "graph": names[int(self.graph_id[k])],
                    "num_steps": int(self.num_steps[k]),
                    "allowed_s": float(self.allowed_s[k]) if np.isfinite(self.allowed_s[k]) else None,
                    "outcome": OUTCOME_WORDS[Outcome(int(self.outcome[k]))],
                    "degree": int(self.degree[k]) if accepted else None,
                    "rule": scenario.candidate_rule[int(self.candidate[k])] if accepted else None,
                    "devices": self.devices_of(k, scenario).tolist() if accepted else None,
                    "completion_s": float(self.completion_s[k]) if accepted else None,
                    **(self._interruptions(k) if self.num_failures[k] or self.num_preemptions[k] else {}),
                    **({"wait_s": float(self.wait_s[k])} if self.wait_s[k] > 0 else {}),
                }
            )
        return rows

    def _interruptions(self, k: int) -> dict[str, Any]:
        return {
            "num_failures": int(self.num_failures[k]),
            "num_preemptions": int(self.num_preemptions[k]),
            "lost_work_s": float(self.lost_work_s[k]),
            "delay_s": float(self.delay_s[k]),
        }


def record(scenario: Scenario, episodes: Episodes, e: int) -> EpisodeRecord:
    """Return a copy of what happened in episode ``e`` so far."""
    jobs = slice(0, scenario.settings.num_jobs)
    if scenario.problem.interruptions.is_on and episodes.job[e] >= scenario.settings.num_jobs:
        episodes, e = Episodes(**{name: values[e : e + 1].copy() for name, values in episodes._asdict().items()}), 0
        drain(scenario.problem, episodes, e)
    graph_id, num_steps = episodes.graph_id[e, jobs].copy(), episodes.num_steps[e, jobs].copy()
    choice, block = episodes.chosen[e, jobs].copy(), episodes.block[e, jobs].copy()
    outcome, finish_s = episodes.outcome[e, jobs].copy(), episodes.finish_s[e, jobs].copy()
    num_undecided = 0
    if scenario.settings.defects.running_jobs_are_blocked and episodes.job[e] >= scenario.settings.num_jobs:
        outcome[(outcome == Outcome.ACCEPTED) & (finish_s > episodes.arrival_s[e, scenario.settings.num_jobs])] = Outcome.RUNNING
        num_undecided = 1
    several = np.flatnonzero(block >= scenario.space.num_blocks).tolist()
    return EpisodeRecord(
        arrival_s=episodes.arrival_s[e, jobs].copy(),
        graph_id=graph_id,
        num_steps=num_steps,
        allowed_s=episodes.allowed_s[e, jobs].copy(),
        sequential_s=num_steps * scenario.problem.sequential_step_s[graph_id],
        degree=scenario.degree_of(block),
        candidate=choice,
        block=np.where(block < scenario.space.num_blocks, block, -1),
        completion_s=episodes.completion_s[e, jobs].copy(),
        outcome=outcome,
        start_s=episodes.start_s[e, jobs].copy(),
        finish_s=finish_s,
        **{
            name: getattr(episodes, name)[e, jobs].copy() if scenario.problem.interruptions.is_on else np.zeros(len(choice), kind)
            for name, kind in INTERRUPTIONS.items()
        },
        several={k: scenario.devices_of(int(block[k])).copy() for k in several},
        num_undecided=num_undecided,
    )
