"""The observation of a decision: the job, the cluster's own future, and each candidate with the state after it.

Legend: ``a`` candidates, ``n`` devices, ``d`` degrees, ``h`` slots. A *slot* is a moment ahead, counted in mean inter-arrival
times (`SLOTS`). Jobs are blocked by fragmentation. So cluster and candidates are described by when blocks of each degree become
free. Each degree and slot has the share of its blocks that are free by then, and whether any is. A candidate's slots show that
for the cluster as it will be once the candidate has been taken. A job that has waited in the queue is shown with the time that
its deadline still allows. Running jobs are shown with their end if nothing more interrupts them. Every feature lies in [0, 1];
unbounded figures ``x`` are squashed to ``x / (x + scale)``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from ..numba_records import by_reference
from ..simulation.cluster.problem import ONE_BLOCK_RULES, Problem, Rule
from ..simulation.cluster.queue import class_durations_s, timed_as
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import Episodes
from ..simulation.ragged import arrays_of

# Moments ahead, in mean inter-arrival times.
SLOTS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
# Durations are squashed around this many mean inter-arrival times.
DURATION_SCALE = 8.0

JOB_FEATURES = ("deadline", "duration", "has candidate", "fastest against deadline")
CLUSTER_FEATURES = ("free devices", "mean time left")
DEVICE_FEATURES = ("is free", "time left")
CANDIDATE_FEATURES = (
    "can place",
    "is reject",
    *(f"rule {rule}" for rule in ONE_BLOCK_RULES),
    "share of devices",
    "doublings",
    "completion against deadline",
    "completion",
    "device-seconds",
    "communication share",
    "efficiency",
    "free devices after",
)


@by_reference
class FeatureParameters(NamedTuple):
    """Figures that the compiled feature functions need in addition to the problem.

    Attributes:
        slots_s: moments ahead in seconds, ``(h,)``.
        scale_s: durations are squashed around this.
        per_degree: blocks of each degree, ``(d,)``.
    """

    slots_s: NDArray[np.float64]
    scale_s: float
    per_degree: NDArray[np.float64]


@by_reference
class ObservationArrays(NamedTuple):
    """Observations of ``e`` episodes, one array per key of the observation space."""

    graph_id: NDArray[np.int64]
    job: NDArray[np.float32]
    cluster: NDArray[np.float32]
    cluster_slots: NDArray[np.float32]
    devices: NDArray[np.float32]
    candidates: NDArray[np.float32]
    candidate_slots: NDArray[np.float32]
    action_mask: NDArray[np.int8]

    def current(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by key."""
        return self._asdict()


def feature_parameters(scenario: Scenario) -> FeatureParameters:
    """Return the slots and scales in seconds."""
    mean_s = scenario.settings.arrivals_per_slot * scenario.workload.mean_interarrival_s
    counts = np.bincount(scenario.space.degree, minlength=len(scenario.space.degrees))
    return FeatureParameters(np.array(SLOTS) * mean_s, DURATION_SCALE * mean_s, counts.astype(np.float64))


def new_observations(scenario: Scenario, num_episodes: int) -> ObservationArrays:
    """Return empty observations of ``e`` episodes; see `JobPartitioningEnv` for the meaning of each key."""
    e, a = num_episodes, scenario.problem.num_candidates
    slots = len(scenario.space.degrees), 2 * len(SLOTS)
    shapes: dict[str, int | tuple[int, ...]] = {
        "graph_id": e,
        "job": (e, len(JOB_FEATURES)),
        "cluster": (e, len(CLUSTER_FEATURES)),
        "cluster_slots": (e, *slots),
        "devices": (e, scenario.cluster.num_devices, len(DEVICE_FEATURES)),
        "candidates": (e, a, len(CANDIDATE_FEATURES)),
        "candidate_slots": (e, a, *slots),
        "action_mask": (e, a),
    }
    return arrays_of(ObservationArrays, shapes)


@njit
def observe(problem: Problem, episodes: Episodes, e: int, layout: FeatureParameters, out: ObservationArrays) -> None:
    """Write the observation of episode ``e`` into row ``e`` of ``out``."""
    out.devices[e] = 0.0
    for a in range(out.action_mask.shape[1]):
        if out.action_mask[e, a]:  # the other rows are empty
            out.candidates[e, a] = 0.0
            out.candidate_slots[e, a] = 0.0
            out.action_mask[e, a] = 0
    k = episodes.job[e]
    now_s = episodes.now_s[e]
    graph = episodes.graph_id[e, k]
    num_steps = episodes.num_steps[e, k]
    allowed_s = episodes.allowed_s[e, k] - (now_s - episodes.arrival_s[e, k])
    sequential_s = num_steps * problem.sequential_step_s[graph]
    num_devices = episodes.free_at_s.shape[1]
    num_degrees = len(problem.degrees)
    num_slots = len(layout.slots_s)
    num_candidates = out.candidates.shape[1]

    fastest_s = class_durations_s(problem, episodes, e, k).min()
    out.graph_id[e] = graph
    out.job[e, 0] = _ratio(allowed_s, sequential_s)
    out.job[e, 1] = sequential_s / (sequential_s + layout.scale_s)
    out.job[e, 2] = 1.0 if episodes.can_place[e, 1:].any() else 0.0
    out.job[e, 3] = _ratio(fastest_s, allowed_s)

    num_free = 0
    left = 0.0
    for i in range(num_devices):
        left_s = max(0.0, episodes.free_at_s[e, i] - now_s)
        if left_s == 0.0:
            num_free += 1
            out.devices[e, i, 0] = 1.0
        out.devices[e, i, 1] = left_s / (left_s + layout.scale_s)
        left += out.devices[e, i, 1]
    out.cluster[e, 0] = num_free / num_devices
    out.cluster[e, 1] = left / num_devices

    # First slot by which each block is free; num_slots where none is.
    num_blocks = problem.num_blocks
    first_slot = np.empty(num_blocks, np.int64)
    freed = np.zeros((num_degrees, num_slots + 1))
    for b in range(num_blocks):
        first_slot[b] = _slot(episodes.block_free_at_s[e, b] - now_s, layout.slots_s)
        freed[problem.degree[b], first_slot[b]] += 1.0
    _write_slots(freed, layout.per_degree, out.cluster_slots[e])

    after = np.empty_like(freed)
    for a in range(num_candidates):
        row = out.candidates[e, a]
        after[:] = freed
        if a == 0:
            row[0] = 1.0
            row[1] = 1.0
            row[13] = num_free / num_devices
            out.action_mask[e, 0] = 1
        else:
            block = episodes.candidate_block[e, a]
            if block < 0 or not episodes.can_place[e, a]:
                continue
            time_s = episodes.candidate_s[e, a]
            degree = problem.degrees[problem.degree[block]]
            held = problem.start[block + 1] - problem.start[block]
            row[0] = 1.0
            if problem.candidate_rule[a] < Rule.PUBLISHED:
                row[2 + problem.candidate_rule[a]] = 1.0
            row[6] = held / num_devices
            row[7] = np.log2(degree) / max(1.0, np.log2(num_devices))
            row[8] = _ratio(time_s, allowed_s)
            row[9] = time_s / (time_s + layout.scale_s)
            device_s = held * time_s / num_devices
            row[10] = device_s / (device_s + layout.slots_s[0])
            row[11] = problem.communication_share[graph, timed_as(problem, episodes, e, graph, block)]
            row[12] = _ratio(sequential_s, held * time_s)
            row[13] = (num_free - held) / num_devices
            out.action_mask[e, a] = 1
            until = _slot(time_s, layout.slots_s)
            for i in range(problem.neighbour_start[block], problem.neighbour_start[block + 1]):
                other = problem.neighbours[i]
                if first_slot[other] < until:
                    after[problem.degree[other], first_slot[other]] -= 1.0
                    after[problem.degree[other], until] += 1.0
        _write_slots(after, layout.per_degree, out.candidate_slots[e, a])


@njit
def _ratio(x: float, y: float) -> float:
    """Return ``x / (x + y)``: one half where both are equal; one where ``x`` is infinite, zero where ``y`` is."""
    if np.isinf(y):
        return 0.0
    if np.isinf(x):
        return 1.0
    return x / (x + y) if x + y > 0.0 else 0.0


@njit
def _slot(wait_s: float, slots_s: NDArray[np.float64]) -> int:
    for h in range(len(slots_s)):
        if wait_s <= slots_s[h]:
            return h
    return len(slots_s)


@njit
def _write_slots(freed, per_degree, out):  # type: ignore[no-untyped-def]
    num_degrees, num_slots = freed.shape[0], freed.shape[1] - 1
    for d in range(num_degrees):
        total = 0.0
        for h in range(num_slots):
            total += freed[d, h]
            out[d, h] = total / per_degree[d]
            out[d, num_slots + h] = 1.0 if total > 0.5 else 0.0
