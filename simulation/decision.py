"""The decision at hand in plain figures: what a rule of thumb, a planner or a curious user looks at.

Legend: ``a`` candidates, number 0 rejects the job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .dynamics import Episodes
from .scenario import Scenario
from .waiting import can_wait


@dataclass(frozen=True, eq=False)
class Decision:
    """A job that waits for its answer.

    Attributes:
        now_s: time of the decision: the job's arrival, or later where it has waited in the queue.
        graph_id: index into the workload's graphs.
        num_steps: training steps.
        allowed_s: time from now that meets the deadline, infinite without one.
        sequential_s: completion time on one reference device.
        degree: ranks of each candidate, ``(a,)``.
        rule: placement rule of each candidate, length ``a``.
        can_place: whether the candidate may be chosen; number 0 always may, ``(a,)``.
        completion_s: predicted time from now to the job's end if nothing interrupts it, infinite where there is no
            block, ``(a,)``.
        block: block of each candidate, -1 where there is none, ``(a,)``.
        can_wait: whether the rejection lets the job wait in the queue.
    """

    now_s: float
    graph_id: int
    num_steps: int
    allowed_s: float
    sequential_s: float
    degree: NDArray[np.int64]
    rule: tuple[str, ...]
    can_place: NDArray[np.bool_]
    completion_s: NDArray[np.float64]
    block: NDArray[np.int64]
    can_wait: bool = False

    @property
    def device_seconds(self) -> NDArray[np.float64]:
        """Devices held times seconds held, infinite where there is no block, ``(a,)``."""
        held = np.full(len(self.degree), np.inf)
        np.multiply(self.degree, self.completion_s, out=held, where=self.block >= 0)
        return held

    def offered(self, rule: str) -> NDArray[np.int64]:
        """For each degree that the rule can place now, ascending, the candidate that takes the rule's block.

        Where two rules take the same block only the first one is offered; it then stands for both.
        """
        found = []
        for candidate in range(1, len(self.degree)):
            if self.rule[candidate] == rule and self.block[candidate] >= 0:
                same = self.can_place & (self.degree == self.degree[candidate]) & (self.block == self.block[candidate])
                found.append(int(np.flatnonzero(same)[0]))
        return np.array(found, np.int64)


def decision(scenario: Scenario, episodes: Episodes, e: int) -> Decision:
    """The decision that episode ``e`` waits for."""
    k = int(episodes.job[e])
    now_s = float(episodes.now_s[e])
    graph_id, num_steps = int(episodes.graph_id[e, k]), int(episodes.num_steps[e, k])
    return Decision(
        now_s=now_s,
        graph_id=graph_id,
        num_steps=num_steps,
        allowed_s=float(episodes.allowed_s[e, k]) - (now_s - float(episodes.arrival_s[e, k])),
        sequential_s=num_steps * float(scenario.problem.sequential_step_s[graph_id]),
        degree=np.array(scenario.candidate_degree, np.int64),
        rule=scenario.candidate_rule,
        can_place=episodes.can_place[e].copy(),
        completion_s=episodes.candidate_s[e].copy(),
        block=episodes.candidate_block[e].copy(),
        can_wait=bool(can_wait(scenario.problem, episodes, e)),
    )
