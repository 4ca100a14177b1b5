"""The compiled kernel of `together`: tasks on streams, messages as flows that share links, and ranks that do both slower.

The rules are those of `together_reference.schedule`. Streams are handed out as in `kernel`; `fair_sharing_kernel` says
how fast each flow is. A task that takes its own time stands in a heap by the moment at which it ends; when its pace
changes its place there does. ``w`` is a `together.Work`, ``v`` a `together.State`, ``s`` a `fair_sharing.Sharing`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .fair_sharing_kernel import SAME_BYTES, begin, end, fill
from .kernel import _merge, _pop, _push

# Moments that differ by no more than this share, at least one of them the outcome of a pace that changed, are one:
# rounding must not part what is simultaneous. Moments that are sums of durations are told apart to the last bit.
SAME_MOMENT = 256 * 2.0**-52

# Places in `State.sizes`.
CANDIDATES, TIMED, CHANGED, DUE = range(4)


@njit(cache=True, error_model="numpy")
def run(w, v, s):  # type: ignore[no-untyped-def]
    """Run all tasks; start and finish stand in ``v``.

    Returns:
        Tasks that have finished, moments, and the moments at which flows got new rates.
    """
    for i in range(len(w.rank)):
        w.task_of[w.rank[i]] = i
        if v.waiting_for[i] == 0:
            v.sizes[CANDIDATES] = _push(v.candidates, v.sizes[CANDIDATES], w.rank[i])
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
        now_s = _take_what_ends(w, v, s, next_sent_s)
        num_moments += 1
        flows_differ = v.ended[0] > 0
        for k in range(v.sizes[DUE]):
            i = v.due[k]
            if v.open_flows[i] == 0 and v.phase[i] >= 0 and v.phase[i] < w.phase_start[i + 1]:
                _begin_phase(w, v, s, i, now_s)
                flows_differ = flows_differ or v.open_flows[i] > 0
            else:
                _finish(w, v, i, now_s)
                num_done += 1
    return num_done, num_moments, num_fillings


@njit(cache=True, error_model="numpy")
def _start_what_can(w, v, s, now_s):  # type: ignore[no-untyped-def]
    """Start ready tasks in the order of their priority, as `kernel` does; returns whether flows have begun."""
    flows_begin = False
    while v.sizes[CANDIDATES] > 0:
        r = v.candidates[0]
        v.sizes[CANDIDATES] = _pop(v.candidates, v.sizes[CANDIDATES])
        i = w.task_of[r]
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
                    _take_hanging(v, stream)
            continue
        for k in range(w.stream_start[i], w.stream_start[i + 1]):
            v.is_held[w.streams[k]] = True
        v.start_s[i] = now_s
        if w.has_slowdown:
            _touch(w, v, i)
        if w.phase_start[i] < w.phase_start[i + 1]:
            v.phase[i] = w.phase_start[i]
            _begin_phase(w, v, s, i, now_s)
            flows_begin = flows_begin or v.open_flows[i] > 0
        else:
            _begin_timed(w, v, i, w.work_s[i], now_s)
    return flows_begin


@njit(cache=True, error_model="numpy")
def _take_hanging(v, stream):  # type: ignore[no-untyped-def]
    """Try the most urgent task that hangs on a stream."""
    top = v.hanging[stream]
    if top >= 0:
        v.hanging[stream] = _merge(v.left[top], v.right[top], v.left, v.right, v.depth)
        v.sizes[CANDIDATES] = _push(v.candidates, v.sizes[CANDIDATES], top)


@njit(cache=True, error_model="numpy")
def _finish(w, v, i, now_s):  # type: ignore[no-untyped-def]
    """Free the streams of a task and tell its successors."""
    v.finish_s[i] = now_s
    for k in range(w.stream_start[i], w.stream_start[i + 1]):
        v.is_held[w.streams[k]] = False
    if w.has_slowdown:
        _leave(w, v, i)
    for k in range(w.successor_start[i], w.successor_start[i + 1]):
        j = w.successors[k]
        v.waiting_for[j] -= 1
        if v.waiting_for[j] == 0:
            v.sizes[CANDIDATES] = _push(v.candidates, v.sizes[CANDIDATES], w.rank[j])
    for k in range(w.stream_start[i], w.stream_start[i + 1]):
        _take_hanging(v, w.streams[k])


@njit(cache=True, error_model="numpy")
def _begin_phase(w, v, s, i, now_s):  # type: ignore[no-untyped-def]
    """Start the flows of a task's phase; where none is to be sent its latency passes at once."""
    p = v.phase[i]
    for flow in range(w.flow_start[p], w.flow_start[p + 1]):
        if begin(s, flow, now_s):
            v.open_flows[i] += 1
    if v.open_flows[i] == 0:
        v.phase[i] += 1
        _begin_timed(w, v, i, w.phase_latency_s[p], now_s)


@njit(cache=True, error_model="numpy")
def _begin_timed(w, v, i, work_s, now_s):  # type: ignore[no-untyped-def]
    """Let a task work by itself for so long, longer where its rank sends and computes at once."""
    v.left_s[i] = work_s
    v.since_s[i] = now_s
    v.end_s[i] = now_s + work_s * w.slowdown[i] if v.is_slow[i] else now_s + work_s
    place = v.sizes[TIMED]
    v.sizes[TIMED] += 1
    v.timed[place] = i
    v.timed_place[i] = place
    _move_up(v, place)


@njit(cache=True, error_model="numpy")
def _take_what_ends(w, v, s, next_sent_s):  # type: ignore[no-untyped-def]
    """Go to the next moment and collect in ``due`` the tasks that have ended a phase or all of their work.

    Returns:
        The moment. What is simultaneous but for rounding ends together, at the latest of its times.
    """
    first_s = next_sent_s
    if v.sizes[TIMED] > 0:
        first_s = min(first_s, v.end_s[v.timed[0]])
    latest_s = first_s + SAME_MOMENT * first_s
    now_s = first_s
    v.sizes[DUE] = 0
    v.ended[0] = 0
    while v.sizes[TIMED] > 0 and v.end_s[v.timed[0]] <= latest_s:
        v.due[v.sizes[DUE]] = v.timed[0]
        v.sizes[DUE] += 1
        _take_timed(v, 0)
    num_timed = v.sizes[DUE]
    # A flow may be off by a rounding of its bytes, which is more than one of the time where it has become slow.
    if next_sent_s <= first_s * (1.0 + 1e-9):
        k = 0
        while k < s.sizes[0]:
            flow = s.active[k]
            left_bytes = s.rate_bytes_per_s[flow] * (s.sent_s[flow] - first_s)
            if s.sent_s[flow] <= latest_s or left_bytes <= SAME_BYTES * s.payload_bytes[flow]:
                v.ended[0] += 1
                now_s = max(now_s, min(s.sent_s[flow], latest_s))
                end(s, flow)  # another flow moves into place k
                i = w.flow_task[flow]
                v.open_flows[i] -= 1
                if v.open_flows[i] == 0:
                    v.due[v.sizes[DUE]] = i
                    v.sizes[DUE] += 1
            else:
                k += 1
    together = v.ended[0] > 0
    for k in range(num_timed):
        together = together or v.is_inexact[v.due[k]]
    num_due = 0
    for k in range(v.sizes[DUE]):
        i = v.due[k]
        if k < num_timed:
            if not together and v.end_s[i] > first_s:
                place = v.sizes[TIMED]
                v.sizes[TIMED] += 1
                v.timed[place] = i
                v.timed_place[i] = place
                _move_up(v, place)
                continue
            now_s = max(now_s, v.end_s[i])
        v.due[num_due] = i
        num_due += 1
    v.sizes[DUE] = num_due
    # Sent, but not yet there: the latency of the phase is still to come.
    num_due = 0
    for k in range(v.sizes[DUE]):
        i = v.due[k]
        p = v.phase[i]
        if v.timed_place[i] == -1 and p >= 0 and p < w.phase_start[i + 1] and w.flow_start[p] < w.flow_start[p + 1]:
            pass
        v.due[num_due] = i
        num_due += 1
    return now_s
