"""The real events, played back: each job begins at its real time and place, and takes its steps times its step time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .durations import RealDurations
from .span import PastSpan

TRUSTED = 0.05
"""Share of the recorded mean completion time by which the playback may differ."""


class Outcomes(NamedTuple):
    """The outcomes of the jobs of a span, ``k`` of them.

    Attributes:
        is_blocked: turned away, or ended after the deadline, ``(k,)``.
        completion_s, waiting_s: from the first request to the end, and to the start; nan where a job did not end, ``(k,)``.
        device_s: device-seconds that it held, ``(k,)``.
        is_unknown: whether it ran on a number of devices on which it never was observed, ``(k,)``.
    """

    is_blocked: NDArray[np.bool_]
    completion_s: NDArray[np.float64]
    waiting_s: NDArray[np.float64]
    device_s: NDArray[np.float64]
    is_unknown: NDArray[np.bool_]


def play_back(span: PastSpan, durations: RealDurations) -> Outcomes:
    """Play what happened; a job whose devices are still held in the playback waits for them."""
    num = len(span.arrivals)
    completion_s, waiting_s, device_s = np.full(num, np.nan), np.full(num, np.nan), np.zeros(num)
    is_blocked, is_unknown = np.ones(num, np.bool_), np.zeros(num, np.bool_)
    free_s = np.full(span.cluster.num_devices, -np.inf)
    began = []
    for k, one in enumerate(span.arrivals):
        if one.run is not None:
            began_s = one.asked_s if one.run.began_at is None else span.seconds(one.run.began_at)
            began.append((began_s, k, one, one.run))
    for began_s, k, one, run in sorted(began, key=lambda row: row[:2]):
        taken_s = durations.seconds(run)
        start_s = max(began_s, float(free_s[one.devices].max(initial=-np.inf)))
        free_s[one.devices] = end_s = start_s + taken_s
        completion_s[k], waiting_s[k] = end_s - one.asked_s, start_s - one.asked_s
        device_s[k] = taken_s * len(one.devices)
        is_blocked[k] = one.request.deadline_s is not None and completion_s[k] > one.request.deadline_s
        is_unknown[k] = durations.own_ratio(run) is None and not durations.is_known(run.request, run.kind[0])
    return Outcomes(is_blocked, completion_s, waiting_s, device_s, is_unknown)


def trust(span: PastSpan, played: Outcomes, durations: RealDurations) -> dict[str, Any]:
    """Compare the playback with the record, over the jobs whose end is recorded.

    Returns:
        Whether the playback is within `TRUSTED` of the record, why, and the completion times of both; None where no job ended.
    """
    ended = [(k, one.run) for k, one in enumerate(span.arrivals) if one.run is not None and one.run.ended_at is not None]
    if not ended:
        why = "no job of the span has ended, so the playback cannot be checked"
        return {"is_trusted": False, "why": why, "recorded_mean_completion_s": None, "played_mean_completion_s": None}
    asked_s = np.array([span.arrivals[k].asked_s for k, _ in ended])
    ends_s = np.array([span.seconds(run.ended_at) for _, run in ended if run.ended_at is not None])
    recorded_s = float((ends_s - asked_s).mean())
    played_s = float(played.completion_s[[k for k, _ in ended]].mean())
    off = abs(played_s / recorded_s - 1.0) if recorded_s > 0 else np.inf
    message = (
        f"the real events, played back, take {played_s:.6g} s in the mean and took {recorded_s:.6g} s ({100 * off:.2g} % off)"
    )
    means = {"recorded_mean_completion_s": recorded_s, "played_mean_completion_s": played_s}
    if off <= TRUSTED:
        return {"is_trusted": True, "why": message, **means}
    others = []
    for _, run in ended:
        ran_s, wanted_s = run.ran_s or 0.0, durations.seconds(run)
        if abs(ran_s / wanted_s - 1.0) > TRUSTED:
            others.append((abs(ran_s - wanted_s), run, ran_s, wanted_s))
    reason = "jobs waited for devices that were given back earlier than their steps take"
    if others:
        _, run, ran_s, wanted_s = max(others, key=lambda row: row[0])
        what = "it ended before its last step" if ran_s < wanted_s else "it held its devices longer than its steps take"
        reason = (
            f"{len(others)} of {len(ended)} jobs ran more than {100 * TRUSTED:.0f} % longer or shorter than their steps times "
            f"the step time; the most {run.decision}, {ran_s:.6g} s in place of {wanted_s:.6g} s: {what} ({run.ended_by})"
        )
    return {"is_trusted": False, "why": f"{message}; {reason}", **means}
