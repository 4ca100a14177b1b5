"""Jobs side by side, and the two ways in which they are run."""

import numpy as np

from meshwright.simulation.contention import concurrent_jobs
from meshwright.simulation.contention.placed_job import PlacedJob

from ...oracles import concurrent_reference
from ..execution_samples import SWITCH, cluster_of, execution_of, sent

SCHEDULERS = [concurrent_jobs.schedule, concurrent_reference.schedule]


switch = cluster_of(SWITCH)


def finishes(schedule, cluster, *jobs):
    """Finish of each task of each job, all exact: what is worked by hand has no rounding."""
    return [finish_s.tolist() for _, finish_s in schedule(list(jobs), cluster)]


def messages_of(cluster, *flows, devices, **rest):
    """A job in which each of the flows ``(sender, receiver, GB)`` is a message that starts at once."""
    phases = [sent(a, b, size * 1e9) for a, b, size in flows]
    execution = execution_of([0.0] * len(flows), num_ranks=len(devices), phases=phases, members=[flow[:2] for flow in flows])
    return PlacedJob(execution, np.array(devices), **rest)
