"""Max-min fair sharing of links by flows, compiled: the core of the ``fair`` contention mode.

At every moment each flow has its max-min fair rate (`progressive_filling`). Rates are worked out anew whenever a flow
starts or has sent its last byte, so within the model the times are exact. A flow takes its bandwidth from its start on,
and its last byte arrives the latency of the path after it was sent: alone it finishes at
``start + latency + bytes / bandwidth``. (``latency_first`` is the other reading: nothing moves, and no bandwidth is
taken, until the latency has passed. Alone a flow finishes at the same time.)
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..clusters.topology import Links
from ..errors import GraphError
from .flows import Flows, FlowTimes
from .progressive_filling import begin, end, fill, new_sharing

# Flows that would end within this share of their bytes, or moments that differ by no more than this many spacings of
# floating-point numbers, are one event: rounding must not part what is simultaneous. Each keeps its own finish.
SAME_BYTES = 1e-13
SAME_MOMENT = 8 * 2.0**-52


def simulate(links: Links, flows: Flows, *, latency_first: bool = False) -> FlowTimes:
    """Run all flows from their starts to their finishes.

    Args:
        links: what the paths name by number.
        flows: what is sent.
        latency_first: whether a flow pays its latency before its first byte moves; otherwise after its last one.

    Raises:
        ClusterError: a link without positive bandwidth, a negative latency, or a path over an absent link.
        GraphError: times that are too large to be told.
    """
    sharing = new_sharing(links, flows)
    latency_s = flows.latency_s(links)
    begin_s = flows.start_s + latency_s if latency_first else flows.start_s
    # Counted from the first start, so that a late start of all costs no accuracy in what follows.
    origin_s = float(begin_s.min(initial=np.inf)) if len(flows) else 0.0
    after_s = begin_s - origin_s
    _check_finite(after_s)
    num_events = int(_run(sharing, np.argsort(after_s, kind="stable"), after_s))
    sent_s = np.where(sharing.sent_s == after_s, begin_s, origin_s + sharing.sent_s)
    finish_s = sent_s if latency_first else sent_s + latency_s
    _check_finite(finish_s)
    return FlowTimes(sent_s, finish_s, num_events)


def _check_finite(times_s: NDArray[np.float64]) -> None:
    bad = np.flatnonzero(~np.isfinite(times_s))
    if len(bad):
        raise GraphError("its times are too large to be told", field=f"flows.{bad[0]}")


@njit(cache=True, error_model="numpy")
def _run(s, order, begin_s):  # type: ignore[no-untyped-def]
    """Start the flows in their order and go from event to event; returns the number of events."""
    num_events = 0
    following = 0
    next_end_s = np.inf
    while following < len(order) or s.sizes[0] > 0:
        now_s = next_end_s
        if following < len(order):
            now_s = min(now_s, begin_s[order[following]])
        num_ended = retire(s, now_s)
        num_begun = 0
        while following < len(order) and begin_s[order[following]] <= now_s + SAME_MOMENT * now_s:
            num_begun += begin(s, order[following], begin_s[order[following]])
            following += 1
        if num_ended + num_begun > 0:
            next_end_s = share(s, now_s)
            num_events += 1
    return num_events


@njit(cache=True, error_model="numpy")
def retire(s, now_s):  # type: ignore[no-untyped-def]
    """End the flows that have sent their last byte by now.

    Returns:
        How many; they stand in ``ended``, and ``sent_s`` tells each one's own time.
    """
    num_ended = 0
    i = 0
    while i < s.sizes[0]:
        flow = s.active[i]
        sent_s = s.sent_s[flow]
        left_bytes = s.rate_bytes_per_s[flow] * (sent_s - now_s)
        if sent_s <= now_s + SAME_MOMENT * now_s or left_bytes <= SAME_BYTES * s.payload_bytes[flow]:
            s.ended[num_ended] = flow
            num_ended += 1
            end(s, flow)  # another flow moves into place i
        else:
            i += 1
    return num_ended


@njit(cache=True, error_model="numpy")
def share(s, now_s):  # type: ignore[no-untyped-def]
    """Give every flow under way its fair rate from now on.

    A flow whose rate stays as it is keeps its figures to the last bit.

    Returns:
        When the next one will have sent its last byte; infinite where none is under way.
    """
    fill(s)
    next_end_s = np.inf
    for i in range(s.sizes[0]):
        flow = s.active[i]
        if s.new_rate[flow] != s.rate_bytes_per_s[flow]:
            # A flow that begins within the same moment has its own start, which may be a rounding later than now.
            passed_s = max(0.0, now_s - s.since_s[flow])
            s.left_bytes[flow] -= s.rate_bytes_per_s[flow] * passed_s
            s.since_s[flow] += passed_s
            s.rate_bytes_per_s[flow] = s.new_rate[flow]
            s.sent_s[flow] = s.since_s[flow] + s.left_bytes[flow] / s.new_rate[flow]
        next_end_s = min(next_end_s, s.sent_s[flow])
    return next_end_s
