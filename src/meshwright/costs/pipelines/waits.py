"""Why a stage of a pipeline does not compute: transfers, the schedule's bubble, and stages that have more to do.

The *bubble* is idle time due to the schedule alone. It is the time of the pipeline with free transfers, less the computing
time of its busiest stage. With equal stages it is ``(p - 1) / (v m)`` of that ideal time, ``p`` stages of ``v`` chunks, ``m``
micro-batches. A stage that has less to do than the busiest one waits for it besides: that is *imbalance* and no bubble. The
rest is *pipeline transfers*: the stage's own sends, and longer waits because of others that send.

Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters", 2021, sections 2.2.1 and 2.2.2
(bubble time over ideal time).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IDLE = ("pipeline transfers", "bubble", "imbalance")
"""Parts of a step in which a stage of a pipeline does not compute."""


def waits(span_s: float, unsent_span_s: float, computed_s: NDArray[np.float64], stage: int) -> dict[str, float]:
    """Return seconds of each of `IDLE` from the first to the last pass of a stage; with its computation the whole span.

    Args:
        span_s: the stage's span.
        unsent_span_s: the same if transfers took no time.
        computed_s: what each stage computes, ``(p,)``.
        stage: the stage.
    """
    left_s = max(0.0, span_s - float(computed_s[stage]))
    most_s = float(computed_s.max())
    imbalance_s = min(left_s, most_s - float(computed_s[stage]))
    bubble_s = min(left_s - imbalance_s, max(0.0, unsent_span_s - most_s))
    return dict(zip(IDLE, (left_s - imbalance_s - bubble_s, bubble_s, imbalance_s), strict=True))


def bubble_time_fraction(breakdown_s: dict[str, float]) -> float:
    """Return the bubble time over ideal time, from the breakdown of a step: the time in which the busiest stage computes.

    Args:
        breakdown_s: seconds of the parts of a step, see `step_time.StepTime`.
    """
    after = ("gradient sync", "parameter gather", "optimizer")
    ideal_s = sum(s for name, s in breakdown_s.items() if name not in (*after, "pipeline transfers", "bubble"))
    return breakdown_s["bubble"] / ideal_s if ideal_s > 0 else 0.0
