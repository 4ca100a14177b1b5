"""Many steps of a layout from a lowering of a few: from the second one on every step has the same tasks.

To lower a step takes longer than to run it. The first step has no parameters to wait for, so that its tasks may be others;
of three steps the last one is what is repeated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ..ragged import row_starts
from ..step.execution import ExecutionGraph
from ..step.messages import Messages
from .lowering import LAST, Lowered

FEWEST = 3
"""Steps that have to be lowered: the first one, one behind it, and the one that is repeated."""


def extended(lowered: Lowered, num_steps: int) -> Lowered:
    """The execution graph of more steps; ``passes``, ``flops`` and ``moved_bytes`` stay those of the steps that were lowered.

    Args:
        lowered: of at least `FEWEST` steps.
        num_steps: steps one after another.

    Raises:
        PlanError: fewer steps than were lowered, or fewer were than is needed.
    """
    present = len(lowered.optimizers)
    if present < FEWEST or num_steps < present:
        raise PlanError(
            f"must be at least {max(present, FEWEST)}, the steps that were lowered", field="num_steps", value=num_steps
        )
    if num_steps == present:
        return lowered
    execution, times = lowered.execution, num_steps - present
    sent, end = execution.messages, execution.num_tasks
    size = int((lowered.optimizers[-1] - lowered.optimizers[-2])[0])
    tasks = slice(end - size, end)
    phases = slice(*sent.phase_start[[end - size, end]].tolist())
    flows = slice(*sent.flow_start[[phases.start, phases.stop]].tolist())
    late = execution.edges[execution.edges.max(axis=1) >= tasks.start]
    later = size * np.arange(1, times + 1)
    stream_start, streams = _lists(execution.stream_start, execution.streams, tasks, times)
    member_start, members = _lists(sent.member_start, sent.members, tasks, times)
    phase_start, phase_latency_s = _lists(sent.phase_start, sent.phase_latency_s, tasks, times)
    messages = Messages(
        member_start,
        members,
        phase_start,
        phase_latency_s,
        row_starts(_more(np.diff(sent.flow_start), phases, times)),
        *(_more(values, flows, times) for values in (sent.sender, sent.receiver, sent.flow_bytes)),
    )
    made = ExecutionGraph(
        num_ranks=execution.num_ranks,
        kind=_more(execution.kind, tasks, times),
        duration_s=_more(execution.duration_s, tasks, times),
        priority=np.append(execution.priority, np.add.outer(LAST * np.arange(1, times + 1), execution.priority[tasks])),
        stream_start=stream_start,
        streams=streams,
        edges=np.concatenate([execution.edges, *(late + shift for shift in later)]),
        op=_more(execution.op, tasks, times),
        rank=_more(execution.rank, tasks, times),
        is_backward=_more(execution.is_backward, tasks, times),
        payload_bytes=_more(execution.payload_bytes, tasks, times),
        describe_messages=lambda: messages,
    )
    optimizers = np.concatenate([lowered.optimizers, lowered.optimizers[-1] + later[:, None]])
    return replace(lowered, execution=made, optimizers=optimizers)


def _more(values: NDArray[Any], part: slice, times: int) -> NDArray[Any]:
    return np.concatenate([values, np.tile(values[part], times)])


def _lists(start: NDArray[np.int64], values: NDArray[Any], part: slice, times: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Lists one behind the other, by their starts, and those of a part again so many times."""
    return row_starts(_more(np.diff(start), part, times)), _more(values, slice(start[part.start], start[part.stop]), times)
