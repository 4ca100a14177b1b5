"""Progressive filling, compiled: the max-min fair rates of the flows under way.

All rates rise together from zero; when a link is full, the flows that cross it keep the rate they have, the others
rise on. `fill` costs ``O(p log l)`` for ``p`` crossings of links by the flows under way and ``l`` links with flows: the
level at which a link would be full never falls while others are filled, so one heap with late corrections finds the
next one.

Legend: ``f`` flows, ``p`` crossings (entries of all paths together), ``L`` links.

Source:
    Bertsekas and Gallager, "Data networks", 2nd edition, 1992, section 6.5.2 (max-min flow control).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..clusters.topology import Links
from .flows import Flows

# Columns of `Sharing.tally`.
USED, CARRY, OPEN, LEVEL = range(4)


class Sharing(NamedTuple):
    """Flows, links and who sends how fast: what the compiled functions read and write.

    Attributes:
        bandwidth_bytes_per_s: of each link, ``(L,)``.
        path_start, path_links, payload_bytes: as in `Flows`.
        crossing_flow: the flow of each crossing, ``(p,)``.
        room_start: where the crossings of a link stand in ``crossings``, ``(L + 1,)``.
        crossings: for each link the crossings of flows under way, the first ``num_crossings`` of its room, ``(p,)``.
        crossing_place: where each crossing stands in ``crossings``, ``(p,)``.
        num_crossings: ``(L,)``.
        active: the flows under way, the first ``sizes[0]``, ``(f,)``.
        active_place: where each stands there, -1 where it is not under way, ``(f,)``.
        busy: the links with flows, the first ``sizes[1]``, ``(L,)``.
        busy_place: where each stands there, ``(L,)``.
        sizes: number of flows under way and of links with flows, ``(2,)``.
        rate_bytes_per_s: of each flow under way, ``(f,)``.
        left_bytes, since_s: what was left when the rate last changed, and when that was, ``(f,)``.
        sent_s: when the last byte is sent at the present rate, ``(f,)``; kept when the flow ends.
        ended: flows of the last `fair_sharing.retire`, ``(f,)``.
        new_rate: of each flow under way, from `fill`, ``(f,)``.
        tally: working space of `fill`, a row per link so that it is read at once, ``(L, 4)``: bandwidth used by settled
            crossings, what rounding lost of that sum, number of open crossings, level at which the link is full.
        heap: links by that level, ``(L,)``.
    """

    bandwidth_bytes_per_s: NDArray[np.float64]
    path_start: NDArray[np.int64]
    path_links: NDArray[np.int64]
    payload_bytes: NDArray[np.float64]
    crossing_flow: NDArray[np.int64]
    room_start: NDArray[np.int64]
    crossings: NDArray[np.int64]
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
    heap: NDArray[np.int64]


def rates(links: Links, flows: Flows) -> NDArray[np.float64]:
    """Max-min fair rates in bytes per second if all flows were under way at once, ``(f,)``; infinite on an empty path.

    A flow of zero bytes has none.

    Raises:
        ClusterError: a link without positive bandwidth, or a path over an absent link.
    """
    sharing = new_sharing(links, flows)
    _begin_all(sharing)
    fill(sharing)
    return np.where(np.diff(flows.path_start) > 0, sharing.new_rate, np.inf)


def new_sharing(links: Links, flows: Flows) -> Sharing:
    """Arrays with no flow under way.

    Raises:
        ClusterError: a link without positive bandwidth, a negative latency, or a path over an absent link.
    """
    flows.check_on(links)
    f, p, num_links = len(flows), len(flows.path_links), len(links)
    room_start = np.zeros(num_links + 1, np.int64)
    np.cumsum(np.bincount(flows.path_links, minlength=num_links), out=room_start[1:])
    return Sharing(
        bandwidth_bytes_per_s=np.array(links.bandwidth_bytes_per_s, np.float64),
        path_start=np.array(flows.path_start, np.int64),
        path_links=np.array(flows.path_links, np.int64),
        payload_bytes=np.array(flows.payload_bytes, np.float64),
        crossing_flow=np.repeat(np.arange(f), np.diff(flows.path_start)),
        room_start=room_start,
        crossings=np.zeros(p, np.int64),
        crossing_place=np.zeros(p, np.int64),
        num_crossings=np.zeros(num_links, np.int64),
        active=np.zeros(f, np.int64),
        active_place=np.full(f, -1, np.int64),
        busy=np.zeros(num_links, np.int64),
        busy_place=np.zeros(num_links, np.int64),
        sizes=np.zeros(2, np.int64),
        rate_bytes_per_s=np.zeros(f),
        left_bytes=np.zeros(f),
        since_s=np.zeros(f),
        sent_s=np.zeros(f),
        ended=np.zeros(f, np.int64),
        new_rate=np.zeros(f),
        tally=np.zeros((num_links, 4)),
        heap=np.zeros(num_links, np.int64),
    )


@njit(cache=True, error_model="numpy")
def _begin_all(s):  # type: ignore[no-untyped-def]
    for flow in range(len(s.payload_bytes)):
        begin(s, flow, 0.0)


@njit(cache=True, error_model="numpy")
def begin(s, flow, now_s):  # type: ignore[no-untyped-def]
    """Let a flow start; `share` must follow before time goes on.

    Returns:
        Whether it is under way: a flow without bytes or without links is sent at once.
    """
    s.since_s[flow] = now_s
    s.rate_bytes_per_s[flow] = 0.0
    s.left_bytes[flow] = s.payload_bytes[flow]
    if s.payload_bytes[flow] == 0.0 or s.path_start[flow] == s.path_start[flow + 1]:
        s.sent_s[flow] = now_s
        return False
    s.sent_s[flow] = np.inf
    s.active_place[flow] = s.sizes[0]
    s.active[s.sizes[0]] = flow
    s.sizes[0] += 1
    for c in range(s.path_start[flow], s.path_start[flow + 1]):
        link = s.path_links[c]
        if s.num_crossings[link] == 0:
            s.busy_place[link] = s.sizes[1]
            s.busy[s.sizes[1]] = link
            s.sizes[1] += 1
        place = s.room_start[link] + s.num_crossings[link]
        s.crossings[place] = c
        s.crossing_place[c] = place
        s.num_crossings[link] += 1
    return True


@njit(cache=True, error_model="numpy")
def end(s, flow):  # type: ignore[no-untyped-def]
    """Take a flow off its links; `share` must follow before time goes on."""
    s.sizes[0] -= 1
    last = s.active[s.sizes[0]]
    s.active[s.active_place[flow]] = last
    s.active_place[last] = s.active_place[flow]
    s.active_place[flow] = -1
    for c in range(s.path_start[flow], s.path_start[flow + 1]):
        link = s.path_links[c]
        s.num_crossings[link] -= 1
        moved = s.crossings[s.room_start[link] + s.num_crossings[link]]
        s.crossings[s.crossing_place[c]] = moved
        s.crossing_place[moved] = s.crossing_place[c]
        if s.num_crossings[link] == 0:
            s.sizes[1] -= 1
            other = s.busy[s.sizes[1]]
            s.busy[s.busy_place[link]] = other
            s.busy_place[other] = s.busy_place[link]


@njit(cache=True, error_model="numpy")
def fill(s):  # type: ignore[no-untyped-def]
    """Progressive filling: write the fair rate of every flow under way to ``new_rate``."""
    for i in range(s.sizes[0]):
        s.new_rate[s.active[i]] = -1.0
    tally, heap, size = s.tally, s.heap, s.sizes[1]
    for i in range(size):
        link = s.busy[i]
        heap[i] = link
        tally[link, USED] = 0.0
        tally[link, CARRY] = 0.0
        tally[link, OPEN] = s.num_crossings[link]
        tally[link, LEVEL] = s.bandwidth_bytes_per_s[link] / s.num_crossings[link]
    for i in range(size // 2 - 1, -1, -1):
        _sift_down(heap, tally, i, size)
    rate = 0.0
    num_settled = 0
    while num_settled < s.sizes[0]:
        link = heap[0]
        if tally[link, OPEN] == 0.0:
            size -= 1
            heap[0] = heap[size]
            _sift_down(heap, tally, 0, size)
            continue
        level = (s.bandwidth_bytes_per_s[link] - tally[link, USED] - tally[link, CARRY]) / tally[link, OPEN]
        if level > tally[link, LEVEL]:
            tally[link, LEVEL] = level
            _sift_down(heap, tally, 0, size)
            continue
        rate = max(rate, level)  # by the rule it never falls; by rounding it might
        for k in range(s.room_start[link], s.room_start[link] + s.num_crossings[link]):
            flow = s.crossing_flow[s.crossings[k]]
            if s.new_rate[flow] < 0.0:
                s.new_rate[flow] = rate
                num_settled += 1
                for c in range(s.path_start[flow], s.path_start[flow + 1]):
                    _use(tally, s.path_links[c], rate)


@njit(cache=True, error_model="numpy")
def _use(tally, link, rate):  # type: ignore[no-untyped-def]
    """Count one crossing at a settled rate; the sum carries what rounding loses.

    Without it a link of ``n`` flows would lose up to ``n^2`` spacings of the rate of its last ones.

    Source:
        Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974.
    """
    before = tally[link, USED]
    after = before + rate
    tally[link, CARRY] += (before - after) + rate if before >= rate else (rate - after) + before
    tally[link, USED] = after
    tally[link, OPEN] -= 1.0


@njit(cache=True, error_model="numpy")
def _sift_down(heap, tally, place, size):  # type: ignore[no-untyped-def]
    """Move the link at a place down to where it belongs; smallest level on top, ties by number."""
    link = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _is_before(tally, heap[child + 1], heap[child]):
            child += 1
        if not _is_before(tally, heap[child], link):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = link


@njit(cache=True, error_model="numpy")
def _is_before(tally, a, b):  # type: ignore[no-untyped-def]
    return tally[a, LEVEL] < tally[b, LEVEL] or (tally[a, LEVEL] == tally[b, LEVEL] and a < b)
