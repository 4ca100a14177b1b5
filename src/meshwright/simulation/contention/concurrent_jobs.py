"""Jobs side by side on one cluster: each with its own tasks, devices and start, all on the same links.

A job follows the rules of its execution graph and has its own streams. Jobs share links, where their contention is fair:

- A message with flows sends them phase by phase (see `costs.phases`). Rates are max-min fair over the links of all jobs. They
  change whenever a flow starts or has sent its last byte. The latency of a phase passes after its last byte. A message without
  flows takes its duration.
- Where a job gives its flows classes, those of a more urgent class share the links first, and the others the rest.
- While a rank's compute and communication streams are both busy, tasks on them take ``overlap_slowdown`` times as long. A
  computation slows by that factor. So does a message, within its share of the links, if one of its ranks computes, and the rest
  of a latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...clusters.cluster import Cluster
from ...clusters.topologies.topology import Links
from ..step.messages import Messages
from . import concurrent_kernel, fair_sharing
from .concurrent_arrays import new_state, work_of
from .flows import Flows
from .placed_job import PlacedJob, Times, check_devices, check_times, flow_classes, offsets_s, routed


def schedule(jobs: Sequence[PlacedJob], cluster: Cluster) -> list[Times]:
    """Run one step of each job.

    Raises:
        PlanError: a device is absent, or two ranks have the same one.
        ClusterError: a link on the way has no positive bandwidth.
        ConfigError: a message is spread over too many paths.
        GraphError: the dependencies of a job form a cycle, or its times are too large to be distinguished.
    """
    check_devices(jobs, cluster)
    offset_s = offsets_s(jobs)
    traffic = [routed(job, cluster) if job.is_fair else (job.execution.messages, []) for job in jobs]
    work = work_of(jobs, [messages for messages, _ in traffic])
    state = new_state(work)
    fair = [one for job, one in zip(jobs, traffic, strict=True) if job.is_fair]
    sent = [(job, one[0]) for job, one in zip(jobs, traffic, strict=True) if job.is_fair]
    classes = np.concatenate([np.zeros(0, np.int64), *(flow_classes(job, messages) for job, messages in sent)])
    concurrent_kernel.run_concurrent_jobs(work, state, fair_sharing.new_sharing(*_traffic(fair, cluster), classes))
    result, first = [], 0
    for number, (job, offset) in enumerate(zip(jobs, offset_s, strict=True)):
        rows = slice(first, first + job.execution.num_tasks)
        first = rows.stop + (offset > 0)
        start_s, finish_s = state.start_s[rows] - offset, state.finish_s[rows] - offset
        check_times(finish_s, f"jobs.{number}." if len(jobs) > 1 else "")
        result.append((start_s, finish_s))
    return result


def _traffic(sent_by: Sequence[tuple[Messages, list[tuple[int, ...]]]], cluster: Cluster) -> tuple[Links, Flows]:
    """Return the flows of all jobs that share links, and the links that they cross."""
    paths = [path for _, of_job in sent_by for path in of_job]
    payload_bytes = np.concatenate([np.zeros(0), *(messages.flow_bytes for messages, _ in sent_by)])
    flows = Flows.from_paths(paths, payload_bytes, np.zeros(len(paths)))
    used = np.unique(flows.path_links)
    names = tuple(cluster.links.names[link] for link in used.tolist())
    links = Links(names, cluster.links.bandwidth_bytes_per_s[used], cluster.links.latency_s[used])
    return links, replace(flows, path_links=np.searchsorted(used, flows.path_links))
