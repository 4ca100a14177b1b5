"""``meshwright history``: decisions of a live cluster, and the past that is learned from."""

from ..help import group
from .live import decisions, feedback, replay

history = group(
    "history",
    """Look at the decisions of a live cluster, their outcomes, and the past under other policies.

    Examples:
      meshwright history decisions --state now.db
      meshwright history observe d-1 steps.jsonl --state now.db
      meshwright history replay --state now.db --cluster a.yaml --policy menu:sjf
    """,
    {
        "decisions": (decisions.show_decisions, "List decisions and their outcomes."),
        "observe": (feedback.observe_steps, "Keep measured step times of a job."),
        "calibration": (feedback.show_calibration, "Compare observed with predicted step times."),
        "replay": (replay.replay_span, "Play the past under other policies."),
    },
)
