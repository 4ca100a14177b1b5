"""What each rank holds: pipeline stages of a layout, runs of ranks of an op split."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from ..jobs.graph import JobGraph
from .document import Stage
from .partition import Layout, OpSplits


def balanced_cuts(load_s: NDArray[np.float64], num_stages: int) -> NDArray[np.int64]:
    """Cut a chain into contiguous stages, none empty, so that the heaviest is as light as possible.

    A load ``B`` is enough if filling stages greedily up to ``B`` needs no more than ``num_stages``; the least such
    ``B`` is found by bisection down to neighbouring numbers.

    Args:
        load_s: load of each op along the chain, ``(n,)``.
        num_stages: stages wanted.

    Returns:
        First op of each stage and, last, ``n``: ``(num_stages + 1,)``.

    Raises:
        PlanError: fewer ops than stages.

    Source:
        Pinar and Aykanat, "Fast optimal load balancing algorithms for 1D partitioning", 2004, section 3.
    """
    n = len(load_s)
    if n < num_stages:
        raise PlanError(f"{num_stages} stages are more than the job's ops", field="layout.pp", value=n)
    total = np.concatenate([[0.0], np.cumsum(load_s)])
    low, high = max(float(np.max(load_s, initial=0.0)), float(total[-1]) / num_stages), float(total[-1])
    if _greedy_cuts(total, num_stages, low)[-1] == n:
        high = low
    while (middle := low + (high - low) / 2) not in (low, high):
        if _greedy_cuts(total, num_stages, middle)[-1] == n:
            high = middle
        else:
            low = middle
    return _greedy_cuts(total, num_stages, high)


def layout_stages(graph: JobGraph, layout: Layout) -> tuple[Stage, ...]:
    """The model chunks of a layout's pipeline, balanced by forward plus backward seconds along the topological order.

    Chunk ``k`` of ``pp * virtual_stages`` stands on pipeline stage ``k mod pp``, as interleaved schedules want it.

    Raises:
        PlanError: fewer ops than chunks.
    """
    order = graph.order
    cuts = balanced_cuts((graph.forward_s + graph.backward_s)[order], layout.pp * layout.virtual_stages).tolist()
    per_stage = layout.world // layout.pp
    stages = []
    for chunk, (first, last) in enumerate(pairwise(cuts)):
        stage = chunk % layout.pp
        ranks = tuple(range(stage * per_stage, (stage + 1) * per_stage))
        names = tuple(graph.op_names[op] for op in order[first:last].tolist())
        stages.append(Stage(stage=stage, chunk=chunk // layout.pp, ranks=ranks, num_ops=last - first, ops=names))
    return tuple(stages)


def op_split_stages(splits: OpSplits) -> tuple[Stage, ...]:
    """The runs of ranks that hold the same ops: rank ``r`` holds the ops that are split more than ``r`` ways."""
    ends = np.unique(splits.splits).tolist()
    return tuple(
        Stage(stage=run, ranks=tuple(range(first, end)), num_ops=int((splits.splits >= end).sum()))
        for run, (first, end) in enumerate(pairwise([0, *ends]))
    )


def _greedy_cuts(total: NDArray[np.float64], num_stages: int, limit_s: float) -> NDArray[np.int64]:
    """Stages filled up to a limit, each leaving an op for every later one; ends before ``n`` where the limit is too low."""
    n = len(total) - 1
    cuts = np.zeros(num_stages + 1, np.int64)
    for stage in range(num_stages):
        first = int(cuts[stage])
        fits = int(np.searchsorted(total, total[first] + limit_s, side="right")) - 1
        cuts[stage + 1] = min(max(fits, first), n - (num_stages - stage - 1))
    return cuts
