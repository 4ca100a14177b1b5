"""What is told of each device that the next group of ops may get, in the order of `placing.PlacingState.candidates`."""

from __future__ import annotations

NUM_CANDIDATE_FEATURES = 13
CANDIDATE_FEATURES = (
    "start",
    "end",
    "end_beyond_best",
    "wait_for_inputs",
    "op_time",
    "relative_speed",
    "memory_left",
    "load",
    "free_at",
    "input_share_here",
    "growth",
    "co_input_share_here",
    "is_allowed",
)
"""What is told of each device for the next group, in this order.

Seconds ``s`` stand as ``s / (s + scale)`` with the lower bound of the value as the scale. ``start`` and ``end``: earliest ones
of the group's first op, for throughput the load before and after; ``end_beyond_best``: end less the least end of all allowed
devices; ``wait_for_inputs``: seconds between the end of the last producer and the arrival of all inputs, for throughput the
seconds of transfers; ``op_time``; ``relative_speed``: best time of the op over its time here; ``memory_left``: share of the
device's memory after it; ``load``: seconds of work on the device; ``free_at``: end of its last op; ``input_share_here``: share
of the input bytes that is there already; ``growth``: of the value so far; ``co_input_share_here``: share of the bytes that the
readers of this op read from others and that are there already; ``is_allowed``.
"""

FROM_PLACED = ("start", "end", "end_beyond_best", "wait_for_inputs", "input_share_here", "growth", "co_input_share_here")
"""Those that come from neighbours that are placed already."""
