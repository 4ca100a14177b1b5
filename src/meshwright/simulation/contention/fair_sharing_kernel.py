"""The compiled kernel of `fair_sharing`: flows begin and end, `fill` finds their rates, `share` the next end.

`fill` costs ``O(p log l)`` for ``p`` crossings of links by the flows under way and ``l`` links with flows. The level at which a
link would be full never falls while others are filled, so one heap with late corrections yields the next one. ``s`` is a
`fair_sharing.Sharing` throughout.
"""

import numpy as np

from ...compiled import njit

# Flows that would end within this share of their bytes, or moments that differ by no more than this many spacings of
# floating-point numbers, are one event: rounding must not part what is simultaneous. Each keeps its own finish.
SAME_BYTES = 1e-13
SAME_MOMENT = 8 * 2.0**-52


# Of a link's bandwidth: less than this is what rounding leaves of a full link.
FULL = 1e-12

# Columns of `Sharing.tally`.
BANDWIDTH, USED, CARRY, OPEN = range(4)


@njit(error_model="numpy")
def run_flows(s, order, begin_s):  # type: ignore[no-untyped-def]
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
            num_begun += start_flow(s, order[following], begin_s[order[following]])
            following += 1
        if num_ended + num_begun > 0:
            next_end_s = share(s, now_s)
            num_events += 1
    return num_events


@njit(error_model="numpy")
def retire(s, now_s):  # type: ignore[no-untyped-def]
    """End the flows that have sent their last byte by now.

    Returns:
        Their number; ``ended`` holds them, and ``sent_s`` the time of each.
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


@njit(error_model="numpy")
def share(s, now_s):  # type: ignore[no-untyped-def]
    """Set the fair rate of every active flow from now on.

    A flow whose rate stays as it is keeps its figures to the last bit.

    Returns:
        When the next one will have sent its last byte; infinite where none is under way.
    """
    fill(s)
    next_end_s = np.inf
    for i in range(s.sizes[0]):
        flow = s.active[i]
        if s.new_rate[flow] != s.rate_bytes_per_s[flow]:
            sent_bytes = s.rate_bytes_per_s[flow] * (now_s - s.since_s[flow])
            s.left_bytes[flow] = max(0.0, s.left_bytes[flow] - sent_bytes)  # rounding may take a little too much
            s.since_s[flow] = now_s
            s.rate_bytes_per_s[flow] = s.new_rate[flow]
            s.sent_s[flow] = now_s + s.left_bytes[flow] / s.new_rate[flow] if s.new_rate[flow] > 0.0 else np.inf
        next_end_s = min(next_end_s, s.sent_s[flow])
    return next_end_s


@njit(error_model="numpy")
def start_flow(s, flow, now_s):  # type: ignore[no-untyped-def]
    """Start a flow; `share` must follow before time advances.

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
        s.room_flow[place] = flow
        s.num_crossings[link] += 1
    return True


@njit(error_model="numpy")
def end(s, flow):  # type: ignore[no-untyped-def]
    """Remove a flow from its links; `share` must follow before time advances."""
    s.sizes[0] -= 1
    last = s.active[s.sizes[0]]
    s.active[s.active_place[flow]] = last
    s.active_place[last] = s.active_place[flow]
    s.active_place[flow] = -1
    for c in range(s.path_start[flow], s.path_start[flow + 1]):
        link = s.path_links[c]
        s.num_crossings[link] -= 1
        last_place = s.room_start[link] + s.num_crossings[link]
        moved = s.crossings[last_place]
        s.crossings[s.crossing_place[c]] = moved
        s.room_flow[s.crossing_place[c]] = s.room_flow[last_place]
        s.crossing_place[moved] = s.crossing_place[c]
        if s.num_crossings[link] == 0:
            s.sizes[1] -= 1
            other = s.busy[s.sizes[1]]
            s.busy[s.busy_place[link]] = other
            s.busy_place[other] = s.busy_place[link]


@njit(error_model="numpy")
def fill(s):  # type: ignore[no-untyped-def]
    """Fill progressively : write the fair rate of every flow under way to ``new_rate``."""
    for i in range(s.sizes[0]):
        s.new_rate[s.active[i]] = -1.0
    if s.has_classes:
        _fill_by_class(s)
        return
    tally, heap, heap_level, size = s.tally, s.heap, s.heap_level, s.sizes[1]
    for i in range(size):
        link = s.busy[i]
        count = s.num_crossings[link]
        tally[link, USED] = 0.0
        tally[link, CARRY] = 0.0
        tally[link, OPEN] = count
        heap[i] = link
        heap_level[i] = tally[link, BANDWIDTH] / count
    _settle(s, size, s.sizes[0], -1)


@njit(error_model="numpy")
def _fill_by_class(s):  # type: ignore[no-untyped-def]
    """Fill class by class: each fills what the ones before it leave of the links; where nothing is left it waits."""
    tally, heap, heap_level = s.tally, s.heap, s.heap_level
    for i in range(s.sizes[1]):
        tally[s.busy[i], USED] = 0.0
        tally[s.busy[i], CARRY] = 0.0
        tally[s.busy[i], OPEN] = 0.0
    flows = s.active[: s.sizes[0]].copy()
    flows = flows[np.argsort(s.flow_class[flows])]
    first = 0
    while first < len(flows):
        own, last, size = s.flow_class[flows[first]], first, 0
        while last < len(flows) and s.flow_class[flows[last]] == own:
            for c in range(s.path_start[flows[last]], s.path_start[flows[last] + 1]):
                link = s.path_links[c]
                if tally[link, OPEN] == 0.0:
                    heap[size] = link
                    size += 1
                tally[link, OPEN] += 1.0
            last += 1
        for i in range(size):
            heap_level[i] = _level(tally, heap[i], True)
        _settle(s, size, last - first, own)
        first = last


@njit(error_model="numpy", inline="always")
def _settle(s, size, num_flows, own):  # type: ignore[no-untyped-def]
    """Give so many flows their rates, link after link as they fill; those of one class, or with -1 all of them.

    The first ``size`` places of the heap hold the links, each with its level.
    """
    tally, heap, heap_level, num_settled = s.tally, s.heap, s.heap_level, 0
    for i in range(size // 2 - 1, -1, -1):
        _sift_down(heap, heap_level, i, size)
    while num_settled < num_flows:
        link = heap[0]
        if tally[link, OPEN] == 0.0:
            size -= 1
            heap[0] = heap[size]
            heap_level[0] = heap_level[size]
            _sift_down(heap, heap_level, 0, size)
            continue
        level = _level(tally, link, own >= 0)
        if level > heap_level[0]:
            heap_level[0] = level
            _sift_down(heap, heap_level, 0, size)
            continue
        for k in range(s.room_start[link], s.room_start[link] + s.num_crossings[link]):
            flow = s.room_flow[k]
            if s.new_rate[flow] < 0.0 and (own < 0 or s.flow_class[flow] == own):
                s.new_rate[flow] = level
                num_settled += 1
                for c in range(s.path_start[flow], s.path_start[flow + 1]):
                    _use(tally, s.path_links[c], level)


@njit(error_model="numpy")
def _level(tally, link, may_be_full):  # type: ignore[no-untyped-def]
    """Return the share of each open crossing of a link; zero if earlier classes fill the link but for rounding."""
    left = tally[link, BANDWIDTH] - tally[link, USED] - tally[link, CARRY]
    return 0.0 if may_be_full and left <= FULL * tally[link, BANDWIDTH] else left / tally[link, OPEN]


@njit(error_model="numpy")
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


@njit(error_model="numpy")
def _sift_down(heap, level, place, size):  # type: ignore[no-untyped-def]
    """Move the link at a place down to where it belongs; smallest level on top, ties by number."""
    link, own = heap[place], level[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (level[other] < level[child] or (level[other] == level[child] and heap[other] < heap[child])):
            child = other
        if not (level[child] < own or (level[child] == own and heap[child] < link)):
            break
        heap[place] = heap[child]
        level[place] = level[child]
        place = child
    heap[place] = link
    level[place] = own
