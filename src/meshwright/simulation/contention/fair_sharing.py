"""Max-min fair sharing of links by flows: the core of the ``fair`` contention mode.

At every moment each flow has its max-min fair rate. All rates rise together from zero; when a link is full, the flows across it
keep their rate and the others rise on (progressive filling). Rates are computed anew whenever a flow starts or has sent its last
byte, so within the model the times are exact. A flow takes its bandwidth from its start on. Its last byte arrives the latency of
the path after it was sent: alone it finishes at ``start + latency + bytes / bandwidth``. (With ``latency_first`` nothing moves,
and no bandwidth is taken, until the latency has passed. Alone a flow finishes at the same time.)

Legend: ``f`` flows, ``p`` crossings (entries of all paths together), ``L`` links.

Source:
    Bertsekas and Gallager, "Data networks", 2nd edition, 1992, section 6.5.2 (max-min flow control).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.topologies.topology import Links
from ...errors import GraphError
from ..ragged import arrays_of, row_starts
from . import fair_sharing_kernel
from .flows import Flows, FlowTimes

LATEST_S = 1e300
"""Times beyond this are refused, so that no sum of them overflows."""


class Sharing(NamedTuple):
    """Flows, links and rates: the arrays that the compiled functions read and write.

    Attributes:
        path_start, path_links, payload_bytes: as in `Flows`.
        room_start: where the crossings of a link begin in ``crossings``, ``(L + 1,)``.
        crossings: for each link the crossings of flows under way, the first ``num_crossings`` of its room, ``(p,)``.
        room_flow: the flow of each crossing in ``crossings``, ``(p,)``.
        crossing_place: place of each crossing in ``crossings``, ``(p,)``.
        num_crossings: ``(L,)``.
        active: the flows under way, the first ``sizes[0]``, ``(f,)``.
        active_place: place of each flow there, -1 where it is not under way, ``(f,)``.
        busy: the links with flows, the first ``sizes[1]``, ``(L,)``.
        busy_place: place of each link there, ``(L,)``.
        sizes: number of flows under way and of links with flows, ``(2,)``.
        rate_bytes_per_s: of each flow under way, ``(f,)``.
        left_bytes, since_s: bytes left when the rate last changed, and when that was, ``(f,)``.
        sent_s: when the last byte is sent at the present rate, ``(f,)``; kept when the flow ends.
        ended: flows of the last `fair_sharing_kernel.retire`, ``(f,)``.
        new_rate: of each flow under way, from `fair_sharing_kernel.fill`, ``(f,)``.
        tally: working space of `fair_sharing_kernel.fill`, a contiguous row per link, ``(L, 4)``. It has the link's bandwidth,
            the sum that settled crossings use, the rounding error of that sum, and the number of open crossings.
        flow_class: of each flow, the most urgent 0; a class shares the bandwidth that earlier ones leave, ``(f,)``.
        has_classes: whether there is more than one.
        heap, heap_level: links, the next one to be full on top, and the level at which each is full, ``(L,)``.
    """

    path_start: NDArray[np.int64]
    path_links: NDArray[np.int64]
    payload_bytes: NDArray[np.float64]
    room_start: NDArray[np.int64]
    crossings: NDArray[np.int64]
    room_flow: NDArray[np.int64]
    crossing_place: NDArray[np.int64]
    num_crossings: NDArray[np.int64]
    active: NDArray[np.int64]
    active_place: NDArray[np.int64]
    busy: NDArray[np.int64]
    busy_place: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rate_bytes_per_s: NDArray[np.float64]
    left_bytes: NDArray[np.float64]
    since_s: NDArray[np.float64]
    sent_s: NDArray[np.float64]
    ended: NDArray[np.int64]
    new_rate: NDArray[np.float64]
    tally: NDArray[np.float64]
    flow_class: NDArray[np.int64]
    has_classes: bool
    heap: NDArray[np.int64]
    heap_level: NDArray[np.float64]


def simulate(links: Links, flows: Flows, *, latency_first: bool = False) -> FlowTimes:
    """Run all flows from their starts to their finishes.

    Args:
        links: that the paths name by number.
        flows: to be run.
        latency_first: whether a flow pays its latency before its first byte moves; otherwise after its last one.

    Raises:
        ClusterError: a link without positive bandwidth, a negative latency, or a path over an absent link.
        GraphError: times that are not finite.
    """
    sharing = new_sharing(links, flows)
    latency_s = flows.latency_s(links)
    begin_s = flows.start_s + latency_s if latency_first else flows.start_s
    _check_finite(begin_s)
    # Counted from the first start, so that a late start of all costs no accuracy in what follows.
    origin_s = float(begin_s.min()) if len(flows) else 0.0
    after_s = begin_s - origin_s
    num_events = int(fair_sharing_kernel.run_flows(sharing, np.argsort(after_s, kind="stable"), after_s))
    sent_s = np.where(sharing.sent_s == after_s, begin_s, origin_s + sharing.sent_s)
    finish_s = sent_s if latency_first else sent_s + latency_s
    _check_finite(finish_s)
    return FlowTimes(sent_s, finish_s, num_events)


def new_sharing(links: Links, flows: Flows, classes: NDArray[np.int64] | None = None) -> Sharing:
    """Return arrays with no flow under way.

    Args:
        links: that the paths name by number.
        flows: to be run.
        classes: of each flow, see `Sharing`; by default one for all.

    Raises:
        ClusterError: a link without positive bandwidth, a negative latency, or a path over an absent link.
    """
    flows.check_on(links)
    f, p, num_links = len(flows), len(flows.path_links), len(links)
    tally = np.zeros((num_links, 4))
    tally[:, fair_sharing_kernel.BANDWIDTH] = links.bandwidth_bytes_per_s
    return arrays_of(
        Sharing,
        {
            "crossings room_flow crossing_place": p,
            "active active_place rate_bytes_per_s left_bytes since_s sent_s ended new_rate": f,
            "num_crossings busy busy_place heap heap_level": num_links,
            "sizes": 2,
        },
        {"active_place": -1},
        path_start=np.array(flows.path_start, np.int64),
        path_links=np.array(flows.path_links, np.int64),
        payload_bytes=np.array(flows.payload_bytes, np.float64),
        room_start=row_starts(np.bincount(flows.path_links, minlength=num_links)),
        tally=tally,
        flow_class=np.zeros(f, np.int64) if classes is None else classes,
        has_classes=classes is not None and bool((classes > 0).any()),
    )


def _check_finite(times_s: NDArray[np.float64]) -> None:
    bad = np.flatnonzero(~(np.abs(times_s) < LATEST_S))
    if len(bad):
        raise GraphError("its times are too large to be distinguished", field=f"flows.{bad[0]}")
