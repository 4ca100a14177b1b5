"""How far free devices lie in the wrong places, which their number alone does not show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario


def fragmentation(record: EpisodeRecord, scenario: Scenario) -> float | None:
    """Mean over the counted arrivals that find a free device of the share of ranks lost to fragmentation.

    At each such arrival, one less the ranks of the largest free block over the largest degree for which as many devices
    are free: 0 where the free devices can serve as large a job as their number allows, 3/4 where 8 are free and no block
    of more than 2. None where no arrival finds a free device.
    """
    counted = scenario.settings.counted
    is_free = free_devices(record, scenario)[counted]
    degrees = np.array(scenario.space.degrees, np.int64)
    sizes = np.diff(scenario.space.start)
    owns = np.zeros((scenario.space.num_blocks, is_free.shape[1]), np.float32)
    owns[np.repeat(np.arange(len(sizes)), sizes), scenario.space.devices[: sizes.sum()]] = 1.0
    block_is_free = (~is_free).astype(np.float32) @ owns.T == 0
    largest = np.where(block_is_free, degrees[scenario.space.degree], 0).max(axis=1)
    allowed = np.concatenate([[0], degrees])[np.searchsorted(degrees, is_free.sum(axis=1), side="right")]
    meets = allowed > 0
    return float((1.0 - largest[meets] / allowed[meets]).mean()) if meets.any() else None


def free_devices(record: EpisodeRecord, scenario: Scenario) -> NDArray[np.bool_]:
    """Whether each device is free when each job arrives, before it is decided, ``(k, n)``."""
    arrival_s = record.arrival_s
    is_free = np.ones((len(arrival_s), scenario.cluster.num_devices), np.bool_)
    for job in np.flatnonzero(record.is_accepted).tolist():
        first = max(job + 1, int(np.searchsorted(arrival_s, record.start_s[job], side="left")))
        last = int(np.searchsorted(arrival_s, record.finish_s[job], side="left"))
        is_free[first:last, record.devices_of(job, scenario)] = False
    return is_free
