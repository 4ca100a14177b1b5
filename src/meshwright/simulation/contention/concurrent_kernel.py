"""The compiled kernel of `concurrent_jobs`: tasks on streams, messages as flows that share links, and ranks that do both slower.

The rules are those of `concurrent_reference.schedule`. Streams are handed out as in `kernel`; `fair_sharing_kernel` says how fast
each flow is. A task with a duration is in a heap, ordered by its end; a change of its pace moves it there. ``w`` is a
`concurrent_arrays.Work`, ``v`` a `concurrent_arrays.State`, ``s`` a `fair_sharing.Sharing`.
"""

import numpy as np

from ...compiled import njit
from ..step.kernel import _merge, _pop, _push
from .fair_sharing_kernel import SAME_BYTES, end, fill, start_flow

# Moments that differ by no more than this share, at least one of them the outcome of a pace that changed, are one:
# rounding must not part what is simultaneous. Moments that are sums of durations are separated to the last bit.
SAME_MOMENT = 256 * 2.0**-52

# Numba counts a reference to every array of a tuple on each call, which would take longer than what the functions do.
_inlined = njit(error_model="numpy", inline="always")

# Places in `State.sizes`.
CANDIDATES, TIMED, DIRTY, ENDED, SENT = range(5)


@njit(error_model="numpy")
def run_concurrent_jobs(w, v, s):  # type: ignore[no-untyped-def]
    """Run all tasks; start and finish are written to ``v``.

    Returns:
        Tasks that have finished, moments, and the moments at which flows got new rates.
    """
    for i in range(len(w.rank)):
        w.task_of[w.rank[i]] = i
        if v.waiting_for[i] == 0:
            v.sizes[CANDIDATES] = _push(v.candidates, v.sizes[CANDIDATES], i, w.rank)
    now_s = 0.0
    next_sent_s = np.inf
    num_done = 0
    num_moments = 0
    num_fillings = 0
    flows_differ = False
    while True:
        flows_differ = _start_what_can(w, v, s, now_s) or flows_differ
        paces_differ = _change_paces(w, v, now_s)
        if flows_differ or paces_differ:
            if flows_differ:
                fill(s)
                num_fillings += 1
            next_sent_s = _send(w, v, s, now_s)
        if v.sizes[TIMED] == 0 and s.sizes[0] == 0:
            break
        now_s, flows_differ = _go_on(w, v, s, next_sent_s)
        num_moments += 1
        for k in range(v.sizes[ENDED]):
            i = v.ended[k]
            if v.phase[i] >= 0 and v.phase[i] + 1 < w.phase_start[i + 1]:
                v.phase[i] += 1
                flows_differ = _begin_phase(w, v, s, i, now_s) or flows_differ
            else:
                _finish(w, v, i, now_s)
                num_done += 1
    return num_done, num_moments, num_fillings


@_inlined
def _start_what_can(w, v, s, now_s):  # type: ignore[no-untyped-def]
    """Start ready tasks in the order of their priority, as `kernel` does; returns whether flows have begun."""
    flows_begin = False
    while v.sizes[CANDIDATES] > 0:
        i = v.candidates[0]
        v.sizes[CANDIDATES] = _pop(v.candidates, v.sizes[CANDIDATES], w.rank)
        r = w.rank[i]
        blocked_by = -1
        for k in range(w.stream_start[i], w.stream_start[i + 1]):
            if v.is_held[w.streams[k]]:
                blocked_by = w.streams[k]
                break
        if blocked_by >= 0:
            v.left[r] = -1
            v.right[r] = -1
            v.depth[r] = 1
            v.hanging[blocked_by] = _merge(v.hanging[blocked_by], r, v.left, v.right, v.depth)
            # The free streams that this task wanted may serve the next one that hangs on them.
            for k in range(w.stream_start[i], w.stream_start[i + 1]):
                stream = w.streams[k]
                if not v.is_held[stream] and stream != blocked_by:
                    _take_hanging(w, v, stream)
            continue
        for k in range(w.stream_start[i], w.stream_start[i + 1]):
            v.is_held[w.streams[k]] = True
        v.start_s[i] = now_s
        if w.has_slowdown:
            _touch(w, v, i)
        if w.phase_start[i] < w.phase_start[i + 1]:
            v.phase[i] = w.phase_start[i]
            flows_begin = _begin_phase(w, v, s, i, now_s) or flows_begin
        else:
            _begin_timed(w, v, i, w.work_s[i], now_s)
    return flows_begin


@_inlined
def _take_hanging(w, v, stream):  # type: ignore[no-untyped-def]
    """Try the most urgent task that hangs on a stream."""
    top = v.hanging[stream]
    if top >= 0:
        v.hanging[stream] = _merge(v.left[top], v.right[top], v.left, v.right, v.depth)
        v.sizes[CANDIDATES] = _push(v.candidates, v.sizes[CANDIDATES], w.task_of[top], w.rank)


@_inlined
def _finish(w, v, i, now_s):  # type: ignore[no-untyped-def]
    """Free the streams of a task and count it off at its successors."""
    v.finish_s[i] = now_s
    for k in range(w.stream_start[i], w.stream_start[i + 1]):
        v.is_held[w.streams[k]] = False
    if w.has_slowdown:
        _leave(w, v, i)
    for k in range(w.successor_start[i], w.successor_start[i + 1]):
        j = w.successors[k]
        v.waiting_for[j] -= 1
        if v.waiting_for[j] == 0:
            v.sizes[CANDIDATES] = _push(v.candidates, v.sizes[CANDIDATES], j, w.rank)
    for k in range(w.stream_start[i], w.stream_start[i + 1]):
        _take_hanging(w, v, w.streams[k])


@_inlined
def _begin_phase(w, v, s, i, now_s):  # type: ignore[no-untyped-def]
    """Start the flows of a task's phase and return whether there are any; else start its latency."""
    p = v.phase[i]
    for flow in range(w.flow_start[p], w.flow_start[p + 1]):
        if start_flow(s, flow, now_s):
            v.open_flows[i] += 1
    if v.open_flows[i] > 0:
        return True
    _begin_timed(w, v, i, w.phase_latency_s[p], now_s)
    return False


@_inlined
def _begin_timed(w, v, i, work_s, now_s):  # type: ignore[no-untyped-def]
    """Let a task work by itself for so long, longer where its rank sends and computes at once."""
    v.left_s[i] = work_s
    v.since_s[i] = now_s
    v.end_s[i] = now_s + work_s * w.slowdown[i] if v.is_slow[i] else now_s + work_s
    v.is_inexact[i] = v.is_inexact[i] or v.is_slow[i]
    _put_timed(v, i)


@_inlined
def _go_on(w, v, s, next_sent_s):  # type: ignore[no-untyped-def]
    """Advance to the next moment and collect the tasks that have ended a phase, or all of their work, in ``ended``.

    Returns:
        The moment, and whether flows have ended. Events that only rounding separates end together, at the latest of their times.
    """
    first_s = next_sent_s
    if v.sizes[TIMED] > 0:
        first_s = min(first_s, v.end_s[v.timed[0]])
    latest_s = first_s + SAME_MOMENT * first_s
    now_s = first_s
    v.sizes[SENT] = 0
    flows_end = False
    # A flow may be off by a rounding of its bytes, which is more than one of the time where it has become slow.
    if next_sent_s <= first_s * (1.0 + 1e-9):
        k = 0
        while k < s.sizes[0]:
            flow = s.active[k]
            left_bytes = s.rate_bytes_per_s[flow] * (s.sent_s[flow] - first_s)
            if s.sent_s[flow] <= latest_s or left_bytes <= SAME_BYTES * s.payload_bytes[flow]:
                flows_end = True
                if s.sent_s[flow] <= latest_s:
                    now_s = max(now_s, s.sent_s[flow])
                end(s, flow)  # another flow moves into place k
                i = w.flow_task[flow]
                v.open_flows[i] -= 1
                if v.open_flows[i] == 0:
                    v.sent[v.sizes[SENT]] = i
                    v.sizes[SENT] += 1
            else:
                k += 1
    v.sizes[ENDED] = 0
    is_inexact = flows_end
    while v.sizes[TIMED] > 0 and v.end_s[v.timed[0]] <= latest_s:
        i = v.timed[0]
        v.ended[v.sizes[ENDED]] = i
        v.sizes[ENDED] += 1
        is_inexact = is_inexact or v.is_inexact[i]
        _take_timed(v, i)
    num_ended = 0
    for k in range(v.sizes[ENDED]):
        i = v.ended[k]
        if is_inexact or v.end_s[i] == first_s:
            now_s = max(now_s, v.end_s[i])
            v.ended[num_ended] = i
            num_ended += 1
        else:
            _put_timed(v, i)
    v.sizes[ENDED] = num_ended
    for k in range(v.sizes[SENT]):
        i = v.sent[k]
        v.is_inexact[i] = True
        if w.phase_latency_s[v.phase[i]] > 0.0:
            _begin_timed(w, v, i, w.phase_latency_s[v.phase[i]], now_s)
        else:
            v.ended[v.sizes[ENDED]] = i
            v.sizes[ENDED] += 1
    return now_s, flows_end


@_inlined
def _send(w, v, s, now_s):  # type: ignore[no-untyped-def]
    """Let every flow go on at its share of the links, slower where its ranks compute as well.

    Returns:
        When the next one will have sent its last byte; infinite where none is under way.
    """
    next_sent_s = np.inf
    for k in range(s.sizes[0]):
        flow = s.active[k]
        i = w.flow_task[flow]
        rate = s.new_rate[flow] / w.slowdown[i] if v.is_slow[i] else s.new_rate[flow]
        if rate != s.rate_bytes_per_s[flow]:
            sent_bytes = s.rate_bytes_per_s[flow] * (now_s - s.since_s[flow])
            s.left_bytes[flow] = max(0.0, s.left_bytes[flow] - sent_bytes)
            s.since_s[flow] = now_s
            s.rate_bytes_per_s[flow] = rate
            s.sent_s[flow] = now_s + s.left_bytes[flow] / rate if rate > 0.0 else np.inf
        next_sent_s = min(next_sent_s, s.sent_s[flow])
    return next_sent_s


@_inlined
def _touch(w, v, i):  # type: ignore[no-untyped-def]
    """Make a task's streams busy."""
    _mark(v, i)
    for c in range(w.touch_start[i], w.touch_start[i + 1]):
        stream = w.touches[c]
        place = w.room_start[stream] + v.num_here[stream]
        v.here[place] = c
        v.here_place[c] = place
        v.num_here[stream] += 1
        if v.num_here[stream] == 1:
            _mark_all(w, v, w.partner[stream])


@_inlined
def _leave(w, v, i):  # type: ignore[no-untyped-def]
    """Release the streams of a task."""
    for c in range(w.touch_start[i], w.touch_start[i + 1]):
        stream = w.touches[c]
        v.num_here[stream] -= 1
        moved = v.here[w.room_start[stream] + v.num_here[stream]]
        v.here[v.here_place[c]] = moved
        v.here_place[moved] = v.here_place[c]
        if v.num_here[stream] == 0:
            _mark_all(w, v, w.partner[stream])


@_inlined
def _mark_all(w, v, stream):  # type: ignore[no-untyped-def]
    for place in range(w.room_start[stream], w.room_start[stream] + v.num_here[stream]):
        _mark(v, w.touch_task[v.here[place]])


@_inlined
def _mark(v, i):  # type: ignore[no-untyped-def]
    """Remember that a task's pace may have changed."""
    if not v.is_dirty[i]:
        v.is_dirty[i] = True
        v.dirty[v.sizes[DIRTY]] = i
        v.sizes[DIRTY] += 1


@_inlined
def _change_paces(w, v, now_s):  # type: ignore[no-untyped-def]
    """Slow down or speed up what runs on ranks that have begun or ceased to send and compute at once.

    Returns:
        Whether the pace of a message with flows under way has changed.
    """
    flows_differ = False
    for k in range(v.sizes[DIRTY]):
        i = v.dirty[k]
        v.is_dirty[i] = False
        if not np.isnan(v.finish_s[i]):
            continue
        is_slow = False
        for c in range(w.touch_start[i], w.touch_start[i + 1]):
            if v.num_here[w.partner[w.touches[c]]] > 0:
                is_slow = True
                break
        if is_slow == v.is_slow[i] or w.slowdown[i] == 1.0:
            continue
        if v.open_flows[i] > 0:
            flows_differ = True
        else:
            done_s = now_s - v.since_s[i]
            if v.is_slow[i]:
                done_s /= w.slowdown[i]
            v.left_s[i] = max(0.0, v.left_s[i] - done_s)
            v.since_s[i] = now_s
            _take_timed(v, i)
            v.end_s[i] = now_s + (v.left_s[i] * w.slowdown[i] if is_slow else v.left_s[i])
            _put_timed(v, i)
        v.is_slow[i] = is_slow
        v.is_inexact[i] = True
    v.sizes[DIRTY] = 0
    return flows_differ


@_inlined
def _put_timed(v, i):  # type: ignore[no-untyped-def]
    """Put a task into the heap by its end."""
    v.sizes[TIMED] += 1
    _rise(v, v.sizes[TIMED] - 1, i)


@_inlined
def _take_timed(v, i):  # type: ignore[no-untyped-def]
    """Remove a task from the heap, wherever it is."""
    v.sizes[TIMED] -= 1
    size = v.sizes[TIMED]
    place = v.timed_place[i]
    last = v.timed[size]
    if place == size:
        return
    while True:  # down with the last one
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and v.end_s[v.timed[child + 1]] < v.end_s[v.timed[child]]:
            child += 1
        if v.end_s[last] <= v.end_s[v.timed[child]]:
            break
        v.timed[place] = v.timed[child]
        v.timed_place[v.timed[place]] = place
        place = child
    _rise(v, place, last)


@_inlined
def _rise(v, place, i):  # type: ignore[no-untyped-def]
    """Put a task at a place of the heap and move it up to where it belongs."""
    while place > 0:
        parent = (place - 1) >> 1
        if v.end_s[v.timed[parent]] <= v.end_s[i]:
            break
        v.timed[place] = v.timed[parent]
        v.timed_place[v.timed[place]] = place
        place = parent
    v.timed[place] = i
    v.timed_place[i] = place
