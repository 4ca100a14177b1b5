"""An episode of `JobPartitioning-v0` as `evaluation.metrics` reads it, and shares of its jobs by their allocations.

All leave out the jobs that arrive during the warm-up and the cool-down, and jobs that still wait in the queue when the episode
ends. Jobs that still run then count as placed, with the completion time that they will have. Under the published PAC-ML rules
they count as blocked instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ...simulation.cluster.state import OUTCOME_WORDS, Outcome

PERCENTILES = tuple(range(0, 101, 2))
"""Of the completion times of all placed jobs, for curves."""
SEVERAL_BLOCKS = "several blocks"


class ClusterFigures:
    """A view of one episode; ``a`` counted jobs that were placed.

    Args:
        record: of the episode.
        scenario: that was played.
    """

    def __init__(self, record: EpisodeRecord, scenario: Scenario) -> None:
        self._record, self._scenario, self._counted = record, scenario, scenario.settings.counted
        self._placed = np.zeros(len(record.arrival_s), np.bool_)
        self._placed[self._counted] = record.is_served[self._counted]
        self.completion_s: NDArray[np.float64] = record.completion_s[self._placed]
        self.degree, self.wait_s = record.degree[self._placed], record.wait_s[self._placed]
        self.delay_s = record.delay_s[self._placed]
        self.blocking_rate = record.blocking_rate(self._counted)

    @property
    def acceptance_rate(self) -> float:
        """Share of jobs placed."""
        arrived = int((~self._record.is_waiting[self._counted]).sum()) + self._record.num_undecided
        return int(self._placed.sum()) / arrived if arrived else 1.0

    @property
    def slack(self) -> NDArray[np.float64]:
        """Share of the allowed time that placed jobs with a deadline leave unused."""
        allowed_s = self._record.allowed_s[self._placed]
        return (1.0 - self.completion_s / allowed_s)[np.isfinite(allowed_s)]

    @property
    def throughput_per_h(self) -> float | None:
        """Jobs placed over the time that the counted arrivals take, each until the next one; None where none passes."""
        arrival_s = self._record.arrival_s[self._counted]
        length_s = float(arrival_s[-1] - arrival_s[0])
        if length_s <= 0:
            return None
        return int(self._placed.sum()) * (len(arrival_s) - 1) / len(arrival_s) / (length_s / 3600.0)

    @property
    def utilisation(self) -> float | None:
        """Share of device-time held from the first to the last counted arrival; None where that takes no time."""
        record = self._record
        begin_s, end_s = (float(record.arrival_s[self._counted][i]) for i in (0, -1))
        return None if end_s <= begin_s else mean_held_share(self._scenario, record, begin_s, end_s)

    @cached_property
    def fragmentation(self) -> float | None:
        """Mean share of ranks lost to fragmentation over the counted arrivals that find a free device.

        At each arrival it is one minus the ranks of the largest free block over the largest degree up to the number of free
        devices. It is 0 where the free devices can serve as large a job as their number allows. It is 3/4 where 8 are free and
        no block of more than 2. None if no arrival finds a free device.
        """
        space = self._scenario.space
        is_free = free_devices(self._record, self._scenario)[self._counted]
        degrees, sizes = np.array(space.degrees, np.int64), np.diff(space.start)
        owns = np.zeros((space.num_blocks, is_free.shape[1]), np.float32)
        owns[np.repeat(np.arange(len(sizes)), sizes), space.devices[: sizes.sum()]] = 1.0
        block_is_free = (~is_free).astype(np.float32) @ owns.T == 0
        largest = np.where(block_is_free, degrees[space.degree], 0).max(axis=1)
        allowed = np.concatenate([[0], degrees])[np.searchsorted(degrees, is_free.sum(axis=1), side="right")]
        meets = allowed > 0
        return float((1.0 - largest[meets] / allowed[meets]).mean()) if meets.any() else None


def mean_held_share(scenario: Scenario, record: EpisodeRecord, begin_s: float, end_s: float) -> float:
    """Return the share of the device-time between two moments that jobs held."""
    accepted = record.is_accepted
    held_s = np.minimum(record.finish_s[accepted], end_s) - np.maximum(record.start_s[accepted], begin_s)
    held_device_s = float((np.maximum(held_s, 0.0) * record.num_held[accepted]).sum())
    return held_device_s / (scenario.cluster.num_devices * (end_s - begin_s) or 1.0)


def shares(records: Sequence[EpisodeRecord], scenario: Scenario, *, is_policy: bool) -> dict[str, Any]:
    """Return what the counted jobs of several episodes were given: shares by name, and percentiles of completion times.

    Args:
        records: of the episodes.
        scenario: that was played.
        is_policy: whether placement rules mean something; a clairvoyant reference follows none.
    """
    counted = scenario.settings.counted
    taken = [record.is_accepted[counted] for record in records]

    def of_placed(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(each, name)[counted][is_taken] for each, is_taken in zip(records, taken, strict=True)])

    degrees, blocks, rules = of_placed("degree"), of_placed("block"), scenario.settings.placement_rules
    shapes = list(dict.fromkeys((*scenario.space.shape_names, SEVERAL_BLOCKS)))
    number = np.array([shapes.index(name) for name in (*scenario.space.shape_names, SEVERAL_BLOCKS)])
    counts = np.bincount(number[blocks], minlength=len(shapes)).tolist()  # -1, several blocks, is the last entry
    choice = [scenario.candidate_rule[candidate] for candidate in of_placed("candidate").tolist()] if is_policy else []
    times = np.concatenate([record.completion_s[counted][record.is_served[counted]] for record in records])
    return {
        "outcomes": _outcomes(records, counted),
        "degrees": {str(d): float((degrees == d).mean()) if len(degrees) else 0.0 for d in scenario.space.degrees},
        "shapes": {name: count / len(blocks) for name, count in zip(shapes, counts, strict=True) if count},
        "rules": {rule: choice.count(rule) / len(choice) for rule in rules if rule in choice},
        "completion_percentiles_s": np.percentile(times, PERCENTILES).tolist() if len(times) else None,
    }


def _outcomes(records: Sequence[EpisodeRecord], counted: slice) -> dict[str, float]:
    """Return the share of each outcome; jobs that still wait do not count, those that are never decided count and have none."""
    counts = [record.counts(counted) for record in records]
    waiting = OUTCOME_WORDS[Outcome.WAITING]
    words = [word for word in OUTCOME_WORDS.values() if word != waiting and any(word in count for count in counts)]
    result = {word: sum(count.get(word, 0) for count in counts) for word in words}
    arrived = sum(result.values()) + sum(record.num_undecided for record in records)
    return {word: count / max(1, arrived) for word, count in result.items()}


def free_devices(record: EpisodeRecord, scenario: Scenario) -> NDArray[np.bool_]:
    """Return whether each device is free when each job arrives, before it is decided, ``(k, n)``."""
    arrival_s = record.arrival_s
    is_free = np.ones((len(arrival_s), scenario.cluster.num_devices), np.bool_)
    for job in np.flatnonzero(record.is_accepted).tolist():
        first = max(job + 1, int(np.searchsorted(arrival_s, record.start_s[job], side="left")))
        last = int(np.searchsorted(arrival_s, record.finish_s[job], side="left"))
        is_free[first:last, record.devices_of(job, scenario)] = False
    return is_free
