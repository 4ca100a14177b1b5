"""The current decision in plain figures, for rules of thumb, planners and users.

Legend: ``a`` candidates, number 0 rejects the job; ``n`` devices, ``b`` blocks, ``g`` graphs, ``d`` degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decision_space.block_scores import lost_weights
from ..decision_space.space import DecisionSpace
from .arrays import deadline_tolerance, degree_weights, horizon
from .problem import ONE_BLOCK_RULES, Rule
from .queue import can_wait
from .scenario import Scenario
from .state import Episodes

PUBLISHED = "published"


@dataclass(frozen=True, eq=False)
class Occupancy:
    """The commitments of a cluster at a decision, and the distance to the end of the episode.

    Attributes:
        free_at_s: when each device becomes free, so far as is known, ``(n,)``.
        block_free_at_s: when all devices of each block are free, ``(b,)``.
        fixed_block: block whose step time holds for a graph and degree for the rest of the episode, ``(g, d)``; -1 before there
            is one. Empty where each block has its own step time.
        num_left: arrivals to come, the one that ends the episode among them.
    """

    free_at_s: NDArray[np.float64]
    block_free_at_s: NDArray[np.float64]
    fixed_block: NDArray[np.int64]
    num_left: int


@dataclass(frozen=True, eq=False)
class Decision:
    """A job that waits for its answer.

    Attributes:
        now_s: time of the decision: the job's arrival, or later where it has waited in the queue.
        graph_id: index into the workload's graphs.
        num_steps: training steps.
        allowed_s: time from now that meets the deadline, infinite without one.
        sequential_s: completion time on one reference device.
        degree: ranks of each candidate, zero for the rejection and for listed blocks that there are not, ``(a,)``.
        rule: placement rule of each candidate, length ``a``.
        can_place: whether the candidate may be chosen; number 0 always may, ``(a,)``.
        completion_s: predicted time from now to the job's end if nothing interrupts it, infinite where there is no
            block, ``(a,)``.
        block: block of each candidate, -1 where there is none, ``(a,)``.
        can_wait: whether the rejection lets the job wait in the queue.
        num_devices: devices that each candidate holds, zero where there is no block, ``(a,)``; None where each holds as
            many as it has ranks.
        is_valid: what the published simulator's mask shows its agents, for candidates of its first fit, ``(a,)``; None
            where there are none. A valid candidate may turn out to have no place, or to be too slow.
        occupancy: the cluster; None where a decision is made up without one.
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
    num_devices: NDArray[np.int64] | None = None
    is_valid: NDArray[np.bool_] | None = None
    occupancy: Occupancy | None = None

    @property
    def device_seconds(self) -> NDArray[np.float64]:
        """Devices held times seconds held, infinite where there is no block, ``(a,)``."""
        held = np.full(len(self.degree), np.inf)
        np.multiply(self.held_devices, self.completion_s, out=held, where=self.block >= 0)
        return held

    @property
    def held_devices(self) -> NDArray[np.int64]:
        """Devices that each candidate holds, zero where there is no block, ``(a,)``."""
        return self.degree if self.num_devices is None else self.num_devices

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Whether each candidate may be chosen, ``(a,)``; the name that decisions of every world have for it."""
        return self.can_place

    @property
    def features(self) -> dict[str, NDArray[Any]]:
        """Figures of each candidate by name, ``(a,)`` each."""
        rows = {"ranks": self.degree, "devices": self.held_devices, "placement": np.array(self.rule), "block": self.block}
        return {**rows, "completion_s": self.completion_s, "device_s": self.device_seconds}

    def beating(self, candidate: int) -> NDArray[np.int64]:
        """Return the candidates that can be placed and beat one in predicted time and in devices, the fastest first.

        They are worse in neither and better in one; of equally fast ones those on fewer devices come first. So the first of them
        is itself beaten by none.
        """
        time_s, devices = self.completion_s, self.held_devices
        is_other = self.can_place & (np.arange(len(time_s)) > 0)
        is_no_worse = (time_s <= time_s[candidate]) & (devices <= devices[candidate])
        is_better = (time_s < time_s[candidate]) | (devices < devices[candidate])
        result = np.flatnonzero(is_other & is_no_worse & is_better)
        return result[np.lexsort((devices[result], time_s[result]))]

    def offered(self, rule: str) -> NDArray[np.int64]:
        """Return the candidates of a placement rule that can be chosen, by degree, then by scan order.

        Where two rules take the same block, the first candidate counts for both. The published first fit offers all candidates in
        its own mask, whether they can be placed or not.
        """
        results = []
        for candidate, name in enumerate(self.rule):
            if name != rule or (rule == PUBLISHED and self.is_valid is not None and not self.is_valid[candidate]):
                continue
            if self.can_place[candidate]:
                results.append(candidate)
                continue
            if self.block[candidate] >= 0:
                same = self.can_place & (self.degree == self.degree[candidate]) & (self.block == self.block[candidate])
                if same.any():
                    results.append(int(np.flatnonzero(same)[0]))
                    continue
            if rule == PUBLISHED and self.is_valid is not None:
                results.append(candidate)
        return np.array(results, np.int64)


def decision(scenario: Scenario, episodes: Episodes, e: int) -> Decision:
    """Return the decision that episode ``e`` waits for."""
    k = int(episodes.job[e])
    now_s = float(episodes.now_s[e])
    problem, block = scenario.problem, episodes.candidate_block[e].copy()
    graph_id, num_steps = int(episodes.graph_id[e, k]), int(episodes.num_steps[e, k])
    return Decision(
        now_s=now_s,
        graph_id=graph_id,
        num_steps=num_steps,
        allowed_s=float(episodes.allowed_s[e, k]) - (now_s - float(episodes.arrival_s[e, k])),
        sequential_s=num_steps * float(problem.sequential_step_s[graph_id]),
        degree=np.where(block >= 0, scenario.degree_of(block), scenario.ranks),
        rule=scenario.candidate_rule,
        can_place=episodes.can_place[e].copy(),
        completion_s=episodes.candidate_s[e].copy(),
        block=block,
        can_wait=bool(can_wait(problem, episodes, e)),
        num_devices=np.where(block >= 0, problem.start[block + 1] - problem.start[block], 0),
        is_valid=None if scenario.placements is None else _shown_by_published_mask(scenario, episodes, e),
        occupancy=Occupancy(
            free_at_s=episodes.free_at_s[e].copy(),
            block_free_at_s=episodes.block_free_at_s[e].copy(),
            fixed_block=episodes.fixed_block[e].copy(),
            num_left=int(episodes.arrival_s.shape[1] - episodes.num_arrived[e]),
        ),
    )


def decision_on_empty(scenario: Scenario, graph_id: int, num_steps: int, allowed_s: float) -> Decision:
    """Return the decision of a job that comes to an empty cluster at time 0, with no job after it.

    The same figures as `decision` shows of an episode that begins with this job, but found without the arrays of an
    episode: their memory grows with the pairs of blocks that share a device, and compiling the dynamics takes longer
    than one decision.

    Args:
        scenario: cluster and rules, which must be such as `can_decide_on_empty` knows.
        graph_id: index into the workload's graphs.
        num_steps: training steps.
        allowed_s: time that meets the deadline, infinite without one.
    """
    space, times, settings = scenario.space, scenario.times, scenario.settings
    num_degrees, rules = len(space.degrees), settings.placement_rules
    class_s = np.where(times.can_run[graph_id], num_steps * times.step_s[graph_id], np.inf)
    limit_s = allowed_s * (1.0 + deadline_tolerance(settings))
    block = np.full((num_degrees, len(rules)), -1, np.int64)
    first_of_degree = np.searchsorted(space.degree, np.arange(num_degrees + 1))
    lost = _lost_on_empty(space) if {"best-fit", "aligned"} & set(rules) else np.zeros(space.num_blocks)
    horizon_s = horizon(scenario.workload.mean_interarrival_s)
    for d in range(num_degrees):
        of_degree = np.arange(first_of_degree[d], first_of_degree[d + 1])
        time_s = class_s[space.placement_class[of_degree]]
        suits = np.flatnonzero((time_s <= limit_s) & (time_s < np.inf))
        if not len(suits):
            continue
        score = {
            "first-fit": np.zeros(len(suits)),
            "best-fit": lost[of_degree[suits]],
            "aligned": np.minimum(time_s[suits], horizon_s) * lost[of_degree[suits]],
            "fastest": time_s[suits],
        }
        block[d] = [of_degree[suits[np.argmin(score[rule])]] for rule in rules]
    candidate_block = np.concatenate([[-1], block.reshape(-1)])
    has_block = candidate_block >= 0
    is_new = np.array([[b >= 0 and b not in row[:i] for i, b in enumerate(row)] for row in block.tolist()], np.bool_)
    degrees = np.array(space.degrees, np.int64)
    return Decision(
        now_s=0.0,
        graph_id=graph_id,
        num_steps=num_steps,
        allowed_s=allowed_s,
        sequential_s=num_steps * scenario.workload.graphs[graph_id].step_s,
        degree=np.concatenate([[0], np.repeat(degrees, len(rules))]),
        rule=("", *(rule for _ in space.degrees for rule in rules)),
        can_place=np.concatenate([[True], is_new.reshape(-1)]),
        completion_s=np.where(has_block, class_s[space.placement_class[candidate_block]], np.inf),
        block=candidate_block,
        can_wait=settings.queue_capacity > 0 and bool(has_block.any()),
        num_devices=np.where(has_block, space.start[candidate_block + 1] - space.start[candidate_block], 0),
        occupancy=Occupancy(
            free_at_s=np.zeros(space.cluster.num_devices),
            block_free_at_s=np.zeros(space.num_blocks),
            fixed_block=np.full((0, 0), -1, np.int64),
            num_left=1,
        ),
    )


def can_decide_on_empty(scenario: Scenario) -> bool:
    """Return whether `decision_on_empty` knows the rules of a scenario: our own semantics and rules that take one block."""
    return scenario.simulator is None and set(scenario.settings.placement_rules) <= set(ONE_BLOCK_RULES)


def _lost_on_empty(space: DecisionSpace) -> NDArray[np.float64]:
    """Return the score that best fit minimises, for each block where all are free, ``(b,)``."""
    order = np.argsort(space.devices, kind="stable")
    owner = np.repeat(np.arange(space.num_blocks), np.diff(space.start))[order]
    device_start = np.searchsorted(space.devices[order], np.arange(space.cluster.num_devices + 1))
    blocks = space.start, space.devices, device_start, owner, space.degree
    result: NDArray[np.float64] = lost_weights(blocks, degree_weights(space), 0, space.num_blocks)
    return result


def _shown_by_published_mask(scenario: Scenario, episodes: Episodes, e: int) -> NDArray[np.bool_]:
    """Return, as published, degrees for which as many devices are free; without that defect, those that have a place now."""
    is_published = scenario.problem.candidate_rule == Rule.PUBLISHED
    if not scenario.settings.defects.mask_ignores_occupancy:
        return np.asarray(is_published & (episodes.candidate_block[e] >= 0))
    num_free = int((episodes.free_at_s[e] <= episodes.now_s[e]).sum())
    return np.asarray(is_published & (scenario.ranks <= num_free))
