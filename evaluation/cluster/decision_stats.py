"""Into how many ranks jobs were cut, by the state in which that was decided: is a policy more than a constant?

Only decisions count at which something could be chosen: the job was placed, or turned away though it had a place. Three
things tell the state, each by itself: how many devices were free when the job arrived, how tight its deadline was
(allowed time as a share of the time on one device), and which graph it ran. Devices under repair count as free.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ...simulation.cluster.state import OUTCOME_WORDS, Outcome

REJECTED = OUTCOME_WORDS[Outcome.REJECTED]
FREE_DEVICES, DEADLINE, GRAPH = "free devices", "deadline", "graph"
NUM_DEVICE_BINS = 8
# Upper ends of the classes of deadlines; looser ones, and none at all, come last.
DEADLINE_ENDS = (0.2, 0.4, 0.6, 0.8, 1.0)

Bins = list[dict[str, Any]]


def degrees_by_state(records: Sequence[EpisodeRecord], scenario: Scenario) -> dict[str, Bins]:
    """The share of each degree among the decisions of each class of state, for each figure of the state.

    Each class is a mapping of ``state`` (its name), ``decisions`` (their number) and ``shares`` (of each degree that occurs
    and of jobs turned away by choice, by their names).
    """
    counted = scenario.settings.counted
    chosen = [(record.is_accepted | np.equal(record.outcome, int(Outcome.REJECTED)))[counted] for record in records]

    def gathered(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([value[counted][is_chosen] for value, is_chosen in zip(values, chosen, strict=True)])

    degree = gathered([record.degree for record in records])
    free = gathered([free_devices(record, scenario).sum(axis=1) for record in records])
    fraction = gathered([record.allowed_s / record.sequential_s for record in records])
    graph = gathered([record.graph_id for record in records])
    width = -(-scenario.cluster.num_devices // NUM_DEVICE_BINS)
    firsts = range(1, scenario.cluster.num_devices + 1, width)
    last = scenario.cluster.num_devices
    ends = ("", *(f"{end:g}" for end in DEADLINE_ENDS))
    return {
        FREE_DEVICES: _shares(degree, (free - 1) // width, [_span(first, min(first + width - 1, last)) for first in firsts]),
        DEADLINE: _shares(
            degree,
            np.searchsorted(DEADLINE_ENDS, fraction),  # an end belongs to the class below it
            [*(f"{low} to {high}" if low else f"up to {high}" for low, high in pairwise(ends)), "looser"],
        ),
        GRAPH: _shares(degree, graph, [one.name for one in scenario.workload.graphs]),
    }


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _shares(degree: NDArray[np.int64], number: NDArray[np.int64], names: Sequence[str]) -> Bins:
    found = []
    for i, name in enumerate(names):
        degrees, counts = np.unique(degree[number == i], return_counts=True)
        total = int(counts.sum())
        words = {REJECTED if d == 0 else str(d): int(c) / total for d, c in zip(degrees.tolist(), counts.tolist(), strict=True)}
        if total:
            found.append({"state": name, "decisions": total, "shares": words})
    return found


def free_devices(record: EpisodeRecord, scenario: Scenario) -> NDArray[np.bool_]:
    """Whether each device is free when each job arrives, before it is decided, ``(k, n)``."""
    arrival_s = record.arrival_s
    is_free = np.ones((len(arrival_s), scenario.cluster.num_devices), np.bool_)
    for job in np.flatnonzero(record.is_accepted).tolist():
        first = max(job + 1, int(np.searchsorted(arrival_s, record.start_s[job], side="left")))
        last = int(np.searchsorted(arrival_s, record.finish_s[job], side="left"))
        is_free[first:last, record.devices_of(job, scenario)] = False
    return is_free
