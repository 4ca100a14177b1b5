"""The record of one episode: each job, what was decided and what came of it; saved, compared and drawn.

Legend: ``k`` jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dynamics import OUTCOME_WORDS, Episodes, Outcome
from .scenario import Scenario


@dataclass(frozen=True, eq=False)
class EpisodeRecord:
    """What happened to each job of an episode.

    Attributes:
        arrival_s: ``(k,)``.
        graph_id: index into the workload's graphs, ``(k,)``.
        num_steps: training steps, ``(k,)``.
        allowed_s: completion time that meets the deadline, infinite without one, ``(k,)``.
        sequential_s: completion time on one reference device, ``(k,)``.
        degree: ranks, zero where turned away, ``(k,)``.
        candidate: the candidate chosen, ``(k,)``.
        block: block of the decision space, -1 where turned away, ``(k,)``.
        completion_s: from arrival to end, NaN where turned away, ``(k,)``.
        outcome: `Outcome`, ``(k,)``.
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

    @property
    def is_accepted(self) -> NDArray[np.bool_]:
        """Which jobs were placed, ``(k,)``."""
        return np.equal(self.outcome, int(Outcome.ACCEPTED))

    @property
    def finish_s(self) -> NDArray[np.float64]:
        """End of each job, NaN where turned away, ``(k,)``."""
        return self.arrival_s + self.completion_s

    def counts(self, first: int = 0) -> dict[str, int]:
        """How many jobs from number ``first`` on met each outcome, by the outcome's word."""
        found = np.bincount(self.outcome[first:], minlength=len(Outcome))
        return {OUTCOME_WORDS[o]: int(found[o]) for o in Outcome if o is not Outcome.UNDECIDED or found[o]}

    def to_data(self, scenario: Scenario) -> list[dict[str, Any]]:
        """A row per job, with names for numbers; absent values are None."""
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
                    "devices": scenario.space.block(int(self.block[k])).tolist() if accepted else None,
                    "completion_s": float(self.completion_s[k]) if accepted else None,
                }
            )
        return rows


def record(scenario: Scenario, episodes: Episodes, e: int) -> EpisodeRecord:
    """A copy of what happened in episode ``e`` so far."""
    jobs = slice(0, scenario.settings.num_jobs)
    graph_id, num_steps = episodes.graph_id[e, jobs].copy(), episodes.num_steps[e, jobs].copy()
    chosen = episodes.chosen[e, jobs].copy()
    return EpisodeRecord(
        arrival_s=episodes.arrival_s[e, jobs].copy(),
        graph_id=graph_id,
        num_steps=num_steps,
        allowed_s=episodes.allowed_s[e, jobs].copy(),
        sequential_s=num_steps * scenario.problem.sequential_step_s[graph_id],
        degree=np.array(scenario.candidate_degree, np.int64)[chosen],
        candidate=chosen,
        block=episodes.block[e, jobs].copy(),
        completion_s=episodes.completion_s[e, jobs].copy(),
        outcome=episodes.outcome[e, jobs].copy(),
    )
