"""Stages and ranks: pipeline stages of a layout, runs of ranks of an op split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from ..jobs.graph import JobGraph
from .document import Stage
from .partition import Coordinates, Layout
from .splitting.op_splits import OpSplits

_LAYER = re.compile(r"layer\d+\.")


def balanced_cuts(load_s: NDArray[np.float64], num_stages: int, *, of: str = "ops") -> NDArray[np.int64]:
    """Cut a chain into contiguous stages, none empty, so that the heaviest is as light as possible.

    A load ``B`` is enough if filling stages greedily up to ``B`` needs no more than ``num_stages``. Bisection down to
    neighbouring numbers yields the least such ``B``.

    Args:
        load_s: load of each op along the chain, ``(n,)``.
        num_stages: stages wanted.
        of: name of the chain's elements, for the error.

    Returns:
        First op of each stage and, last, ``n``: ``(num_stages + 1,)``.

    Raises:
        PlanError: fewer ops than stages.

    Source:
        Pinar and Aykanat, "Fast optimal load balancing algorithms for 1D partitioning", 2004, section 3.
    """
    n = len(load_s)
    if n < num_stages:
        raise PlanError(f"{num_stages} stages are more than the job's {of}", field="layout.pp", value=n)
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


def layer_starts(graph: JobGraph) -> NDArray[np.int64]:
    """Return the places in the topological order where a pipeline may be cut: the ends of transformer layers.

        Ops named ``layerN.*`` belong to layer ``N``. Ops before the first layer stay together, and so do ops after the last. A
        graph without such names may be cut before every op.

    Returns:
        First op of each unit that stays whole, ``(num_units,)``, beginning with 0.
    """
    layers = [_LAYER.match(graph.op_names[op]) for op in graph.order.tolist()]
    if not any(layers):
        return np.arange(graph.num_ops)
    labels = [layer[0] if layer else "" for layer in layers]
    return np.flatnonzero([True, *(a != b for a, b in pairwise(labels))]).astype(np.int64)


def layout_stages(
    graph: JobGraph, layout: Layout, places: Sequence[Coordinates] | None = None, layers: Sequence[int] | None = None
) -> tuple[Stage, ...]:
    """Return the model chunks of a layout's pipeline, balanced by forward plus backward seconds along the topological order.

    Layers of a transformer stay whole (see `layer_starts`), as launchers such as Megatron require. Chunk ``k`` of
    ``pp * virtual_stages`` is on pipeline stage `Layout.stage_of`; under DualPipe each is on two.

    Args:
        graph: the job.
        layout: its pipeline.
        places: of the ranks; by default in the layout's own order.
        layers: layers of each chunk, in place of balance; ops before and after all layers go to both ends.

    Raises:
        PlanError: fewer layers, or ops of a graph without layers, than chunks; or ``layers`` that are not the graph's.
    """
    order, starts = graph.order, layer_starts(graph)
    num_chunks = layout.pp * layout.virtual_stages
    if layers is None:
        load_s = np.add.reduceat((graph.forward_s + graph.backward_s)[order], starts)
        what = "ops" if len(starts) == graph.num_ops else "layers"
        unit_cuts = balanced_cuts(load_s, num_chunks, of=what).tolist()
    else:
        unit_cuts = _cuts_by_layers(graph, starts, layers, num_chunks)
    first_ops = [*starts, graph.num_ops]
    cuts = [int(first_ops[unit]) for unit in unit_cuts]
    stage_of = [layout.coordinates(rank).pp for rank in range(layout.world)] if places is None else [place.pp for place in places]
    stages = []
    for chunk in range(layout.pp * layout.chunks_per_rank):
        first, last = list(pairwise(cuts))[chunk % num_chunks]
        stage = layout.stage_of(chunk)
        ranks = tuple(rank for rank, at in enumerate(stage_of) if at == stage)
        names = tuple(graph.op_names[op] for op in order[first:last].tolist())
        stages.append(Stage(stage=stage, chunk=chunk // layout.pp, ranks=ranks, num_ops=last - first, ops=names))
    return tuple(stages)


def _cuts_by_layers(graph: JobGraph, starts: NDArray[np.int64], layers: Sequence[int], num_chunks: int) -> list[int]:
    """Return the first unit of each chunk and, last, the number of units."""
    is_layer = [_LAYER.match(graph.op_names[graph.order[start]]) is not None for start in starts.tolist()]
    if len(layers) != num_chunks or min(layers) < 1 or sum(layers) != sum(is_layer):
        problem = f"{num_chunks} chunks share the {sum(is_layer)} layers of {graph.name}"
        raise PlanError(problem, field="layers", value=",".join(map(str, layers)))
    before = is_layer.index(True)
    return [0, *(before + end for end in accumulate(layers[:-1])), len(starts)]


def op_split_stages(splits: OpSplits) -> tuple[Stage, ...]:
    """Return runs of ranks that hold the same ops: rank ``r`` holds the ops that are split more than ``r`` ways."""
    ends = np.unique(splits.splits).tolist()
    return tuple(
        Stage(stage=run, ranks=tuple(range(first, end)), num_ops=int((splits.splits >= end).sum()))
        for run, (first, end) in enumerate(pairwise([0, *ends]))
    )


def _greedy_cuts(total: NDArray[np.float64], num_stages: int, limit_s: float) -> NDArray[np.int64]:
    """Return stages filled up to a limit, each leaving an op for every later one; ends before ``n`` where it is too low."""
    n = len(total) - 1
    cuts = np.zeros(num_stages + 1, np.int64)
    for stage in range(num_stages):
        first = int(cuts[stage])
        fits = int(np.searchsorted(total, total[first] + limit_s, side="right")) - 1
        cuts[stage + 1] = min(max(fits, first), n - (num_stages - stage - 1))
    return cuts
