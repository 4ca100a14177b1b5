"""The plain reference of `fair_sharing`: progressive filling, spelled out without an eye on speed.

`simulate` counts in rational numbers, so its times are exact: what is simultaneous is equal, and nothing is rounded.
`rates` works on whatever numbers it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from meshwright.clusters.topologies.topology import Links
from meshwright.simulation.contention.flows import Flows

Number = TypeVar("Number", float, Fraction)


def simulate(links: Links, flows: Flows, *, latency_first: bool = False) -> list[Fraction]:
    """Exact finish of each flow in seconds; arguments and errors as in `fair_sharing.simulate`."""
    flows.check_on(links)
    bandwidth = [Fraction(value) for value in links.bandwidth_bytes_per_s.tolist()]
    latency_s = [Fraction(value) for value in links.latency_s.tolist()]
    paths = [flows.path(flow) for flow in range(len(flows))]
    delay_s = [sum((latency_s[link] for link in path), Fraction(0)) for path in paths]
    begin_s = [Fraction(value) for value in flows.start_s.tolist()]
    if latency_first:
        begin_s = [begin + delay for begin, delay in zip(begin_s, delay_s, strict=True)]
    left_bytes = [Fraction(value) for value in flows.payload_bytes.tolist()]

    sent_s = list(begin_s)  # of a flow that has nothing to send, or nowhere to send it
    to_come = {flow for flow, path in enumerate(paths) if path and left_bytes[flow] > 0}
    under_way: set[int] = set()
    now_s = min(begin_s, default=Fraction(0))
    while to_come or under_way:
        under_way |= {flow for flow in to_come if begin_s[flow] == now_s}
        to_come -= under_way
        rate = rates(bandwidth, {flow: paths[flow] for flow in under_way})
        next_s = min([now_s + left_bytes[flow] / rate[flow] for flow in under_way] + [begin_s[flow] for flow in to_come])
        for flow in list(under_way):
            left_bytes[flow] -= rate[flow] * (next_s - now_s)
            if left_bytes[flow] == 0:
                sent_s[flow] = next_s
                under_way.remove(flow)
        now_s = next_s
    return sent_s if latency_first else [sent + delay for sent, delay in zip(sent_s, delay_s, strict=True)]


def rates(bandwidth: Sequence[Number], paths: Mapping[int, Sequence[int]]) -> dict[int, Number]:
    """Max-min fair rate of each flow in bytes per second.

    Each round finds the level at which the next link is full if all open flows have it. The flows that cross such a link
    are settled there.

    Args:
        bandwidth: of each link.
        paths: the links of each flow, at least one.
    """
    room = list(bandwidth)
    settled: dict[int, Number] = {}
    while len(settled) < len(paths):
        crossings = Counter(link for flow, path in paths.items() if flow not in settled for link in path)
        level = min(room[link] / count for link, count in crossings.items())
        full = {link for link, count in crossings.items() if room[link] / count == level}
        for flow, path in paths.items():
            if flow not in settled and not full.isdisjoint(path):
                settled[flow] = level
                for link in path:
                    room[link] -= level
    return settled
