"""Element-wise ops run inside the op whose output they read, as compilers and fused kernels have it.

An op is element-wise if each number of its output depends on the numbers at the same place alone. It joins the op before it
where no other op reads that op's output, so the graph stays free of cycles. The graphs of the zoo are made in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..jobs.graph import JobGraph


def fused(graph: JobGraph, is_pointwise: Sequence[bool]) -> tuple[JobGraph, NDArray[np.int64]]:
    """Return the graph with element-wise ops joined to the ones before them.

    Args:
        graph: with ops in topological order.
        is_pointwise: of each op, ``(n,)``.

    Returns:
        The graph, and for each op the number of the op that contains it, ``(n,)``. FLOPs, seconds and parameters of joined ops
        are summed. The workspace is the largest, the output is that of the last, name and kind are those of the first.
    """
    part_of = np.arange(graph.num_ops)
    last = np.arange(graph.num_ops)
    readers: list[set[int]] = [set() for _ in range(graph.num_ops)]
    sources: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for source, target in graph.edges.tolist():
        readers[source].add(target)
        sources[target].append(source)
    for op in range(graph.num_ops):
        if not is_pointwise[op]:
            continue
        for source in reversed(sources[op]):  # the op nearest before it
            if len(readers[source]) == 1 and last[part_of[source]] == source:
                part_of[op] = part_of[source]
                last[part_of[op]] = op
                break
    kept = np.unique(part_of)
    kept = kept[np.argsort(last[kept])]  # what reads an output ends after it, so the graph stays in topological order
    number = np.full(graph.num_ops, -1)
    number[kept] = np.arange(len(kept))
    part_of = number[part_of]
    edges = part_of[graph.edges]
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    workspace = np.zeros(len(kept))
    np.maximum.at(workspace, part_of, graph.workspace_bytes)

    def summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(part_of, values, len(kept)).astype(np.float64)

    made = replace(
        graph,
        op_names=tuple(graph.op_names[op] for op in kept.tolist()),
        op_kinds=tuple(graph.op_kinds[op] for op in kept.tolist()),
        activation_bytes=graph.activation_bytes[last[kept]],
        workspace_bytes=workspace,
        edges=edges,
        forward_s=summed(graph.forward_s),
        backward_s=summed(graph.backward_s),
        forward_flops=summed(graph.forward_flops),
        backward_flops=summed(graph.backward_flops),
        parameter_bytes=summed(graph.parameter_bytes),
    )
    return made, part_of
