"""Time an event of max-min fair sharing on a leaf-spine Clos of 1,024 hosts, from 10 to 10,000 flows at a time.

Closed loop: when a flow ends another one starts at that moment, so the number of flows under way stays the same. An
event is a moment at which all rates are worked out anew.
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np

from meshwright.clusters.cluster import Cluster
from meshwright.clusters.settings import ClusterSettings
from meshwright.clusters.topologies.clos import ClosSettings
from meshwright.compiled import njit
from meshwright.simulation.contention import fair_sharing
from meshwright.simulation.contention.fair_sharing import Sharing, new_sharing
from meshwright.simulation.contention.fair_sharing_kernel import retire, share, start_flow
from meshwright.simulation.contention.flows import Flows
from tests.oracles import fair_sharing_reference

from .measure import REPEATS, BenchmarkFigure

NUM_FLOWS = (10, 100, 1_000, 10_000)
NUM_EVENTS = {10: 10_000, 100: 5_000, 1_000: 1_000, 10_000: 200}
REFERENCE_FLOWS = (10, 100, 1_000)


def fair_sharing_events() -> list[BenchmarkFigure]:
    """Return the milliseconds per event by the number of flows, its growth, and the plain reference's filling."""
    cluster, rng = clos(), np.random.default_rng(0)
    on = f"Clos of {cluster.num_hosts} hosts, {len(cluster.links)} links"
    figures, event_s = [], {}
    began = time.perf_counter()
    events_s(cluster, rng, 2, 2)
    first_s = time.perf_counter() - began
    for n in NUM_FLOWS:
        event_s[n] = statistics.median(events_s(cluster, rng, n, NUM_EVENTS[n]) for _ in range(REPEATS))
        figures.append(BenchmarkFigure(f"event of {n:,} flows", event_s[n] * 1e3, "ms", on))
    few, many = NUM_FLOWS[0], NUM_FLOWS[-1]
    log_n, log_s = np.log(NUM_FLOWS), np.log([event_s[n] for n in NUM_FLOWS])
    slope = float(np.polyfit(log_n, log_s, 1)[0])
    figures.append(BenchmarkFigure(f"growth exponent of an event, {few:,} to {many:,} flows", slope, "", on))
    ratio = max(event_s[n] / event_s[few] / (n * math.log(n) / few / math.log(few)) for n in NUM_FLOWS[1:])
    figures.append(BenchmarkFigure(f"growth against n log n from {few:,} flows on, at most", ratio, "x", on))
    for n in REFERENCE_FLOWS:
        slow_s = statistics.median(reference_s(cluster, rng, n) for _ in range(REPEATS))
        figures.append(BenchmarkFigure(f"rates of {n:,} flows, plain reference", slow_s * 1e3, "ms", on))
    figures.append(BenchmarkFigure("first event: load from cache or compile", first_s * 1e3, "ms", on))
    return figures


def clos() -> Cluster:
    """Return the hosts as in the presets, 64 leaves of 16 hosts and 16 spines, oversubscribed four to one."""
    topology = ClosSettings(
        kind="clos",
        num_hosts=1024,
        devices_per_host=8,
        intra_host_bandwidth_gbytes_per_s=300.0,
        intra_host_latency_us=0.6,
        nics_per_host=4,
        nic_bandwidth_gbytes_per_s=12.5,
        nic_latency_us=1.35,
        hosts_per_leaf=16,
        num_spines=16,
        oversubscription=4.0,
        spine_latency_us=0.5,
    )
    return Cluster.from_settings(ClusterSettings(name="clos-1024", device="a100", topology=topology))


def random_flows(cluster: Cluster, rng: np.random.Generator, num_flows: int) -> Flows:
    """Return the messages of about 1 to 100 MB between devices drawn at random."""
    ends = rng.integers(0, cluster.num_devices, (num_flows, 2))
    ends[:, 1] += ends[:, 0] == ends[:, 1]
    ends %= cluster.num_devices
    paths = [cluster.path(int(source), int(target)) for source, target in ends]
    return Flows.from_paths(paths, 10 ** rng.uniform(6, 8, num_flows), np.zeros(num_flows))


def events_s(cluster: Cluster, rng: np.random.Generator, num_flows: int, num_events: int) -> float:
    """Return the mean seconds of an event with that many flows under way."""
    sharing = new_sharing(cluster.links, random_flows(cluster, rng, num_flows + num_events))
    now_s = fill_up(sharing, num_flows)
    began = time.perf_counter()
    done = keep_full(sharing, num_flows, num_events, now_s)
    return (time.perf_counter() - began) / int(done)


def reference_s(cluster: Cluster, rng: np.random.Generator, num_flows: int) -> float:
    """Return the seconds in which the plain reference finds the rates once, in floating-point numbers."""
    flows = random_flows(cluster, rng, num_flows)
    bandwidth = cluster.links.bandwidth_bytes_per_s.tolist()
    paths = {flow: flows.path(flow) for flow in range(num_flows)}
    began = time.perf_counter()
    result = fair_sharing_reference.rates(bandwidth, paths)
    slow_s = time.perf_counter() - began
    np.testing.assert_allclose(fair_sharing.rates(cluster.links, flows), [result[flow] for flow in range(num_flows)], rtol=1e-12)
    return slow_s


@njit
def fill_up(sharing: Sharing, num_flows: int) -> float:
    """Start the first flows; returns when the first of them ends."""
    for flow in range(num_flows):
        start_flow(sharing, flow, 0.0)
    return share(sharing, 0.0)


@njit
def keep_full(sharing: Sharing, num_flows: int, num_events: int, now_s: float) -> int:
    """Go from end to end, each time with new flows for those that ended; returns the number of events."""
    following = num_flows
    done = 0
    while done < num_events and following < len(sharing.payload_bytes):
        for _ in range(retire(sharing, now_s)):
            if following < len(sharing.payload_bytes):
                start_flow(sharing, following, now_s)
                following += 1
        now_s = share(sharing, now_s)
        done += 1
    return done
