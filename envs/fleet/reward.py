"""What an agent in a fleet is paid: sums that telescope to the objective of the benchmark.

=====================  ==================================================================================
objective              paid in every step
=====================  ==================================================================================
mean_completion_s      minus the jobs in the system, per second: they sum to the completion times of all jobs
p95_completion_s       the same; a percentile is no sum over time
mean_wait_s            minus the waiting jobs, per second
makespan_s             minus the seconds that pass
blocking_rate          -1 for a job that is refused, expires or ends late, +1 for one that ends in time
deadline_met_rate      the same
device_hours           minus the devices held, per second
=====================  ==================================================================================

Seconds count in mean durations of a job, so that one decision pays about -1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...simulation.fleet.state import Total
from .fleet import Fleet


def reward_weights(fleet: Fleet) -> NDArray[np.float64]:
    """Weight of each column of the totals, then that of the seconds that pass."""
    weights = np.zeros(len(Total) + 1)
    scale = 1.0 / fleet.mean_duration_s
    objective = fleet.settings.objective
    if objective in ("mean_completion_s", "p95_completion_s"):
        weights[Total.IN_SYSTEM_S] = -scale
    elif objective == "mean_wait_s":
        weights[Total.WAITING_S] = -scale
    elif objective == "makespan_s":
        weights[-1] = -scale
    elif objective == "device_hours":
        weights[Total.HELD_DEVICE_S] = -scale / fleet.cluster.num_devices
    else:
        weights[Total.BLOCKED], weights[Total.LATE], weights[Total.MET] = -1.0, -1.0, 1.0
    return weights
