"""One episode in the Trace Event Format, which Perfetto and chrome://tracing open: who held which device, and when."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ...simulation.cluster.state import OUTCOME_WORDS, Outcome

# The format counts microseconds; a second of the episode is shown as a millisecond, so that days fit on the screen.
UNITS_PER_S = 1e3


def to_chrome_trace(record: EpisodeRecord, scenario: Scenario) -> dict[str, Any]:
    """A process per host, a thread per device, a slice per job and device; jobs turned away are instant events.

    Times are in thousandths of the episode's seconds: what the viewer calls 1 ms is one second of the cluster.
    """
    cluster = scenario.cluster
    events: list[dict[str, Any]] = []
    for host, name in enumerate(cluster.host_names):
        events.append({"ph": "M", "name": "process_name", "pid": host, "tid": 0, "args": {"name": name}})
    for device in range(cluster.num_devices):
        place = {"pid": int(cluster.device_host[device]), "tid": int(cluster.local_rank[device])}
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": cluster.device_name(device)}})
    names = [graph.name for graph in scenario.workload.graphs]
    for k in range(len(record.arrival_s)):
        label = f"job {k} {names[int(record.graph_id[k])]}"
        arrival = float(record.arrival_s[k]) * UNITS_PER_S
        if not record.is_accepted[k]:
            reason = OUTCOME_WORDS[Outcome(int(record.outcome[k]))]
            events.append(
                {"ph": "i", "s": "g", "name": f"{label}: {reason}", "cat": "turned away", "pid": 0, "tid": 0, "ts": arrival}
            )
            continue
        allowed_s = float(record.allowed_s[k])
        told = {"ranks": int(record.degree[k]), "allowed_s": allowed_s if np.isfinite(allowed_s) else None}
        for rank, device in enumerate(record.devices_of(k, scenario).tolist()):
            place = {"pid": int(cluster.device_host[device]), "tid": int(cluster.local_rank[device])}
            duration = float(record.completion_s[k]) * UNITS_PER_S
            events.append(
                {"ph": "X", "name": label, "cat": names[int(record.graph_id[k])], **place, "ts": arrival, "dur": duration}
                | {"args": {"rank": rank, **told}}
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
