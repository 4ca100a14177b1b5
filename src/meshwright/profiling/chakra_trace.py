"""A Chakra execution trace of one rank as a job graph with the times that ran.

Computations are ops. Where names end in ``forward`` and ``backward``, as in our exports, the two are one op. Otherwise each
node is an op of its own, all of its time forward. Edges follow data dependencies, also through messages. A sum of gradients
(all-reduce, reduce-scatter) that waits for computations gives the bytes of their parameters. A trace has no sizes of outputs; a
node's ``tensor_size``, the bytes that it reads and writes, takes their place.

Source:
    MLCommons Chakra, ``schema/protobuf/et_def.proto``, version 0.0.4, and the attributes that ASTRA-sim's feeder reads.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from .. import files
from ..errors import TraceError
from ..export.chakra.schema import Collective, NodeType, TraceNode, decode
from ..jobs.graph import JobGraph

SUFFIX = ".et"

_SUMS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
_WAYS = (" forward", " backward")


def read_chakra(path: Path) -> JobGraph:
    """Return the job graph of a rank's trace.

    Raises:
        InputFileError: the file is missing.
        TraceError: it is no trace, or nothing is computed in it.
    """
    try:
        trace = decode(files.read_bytes(path))
    except ValueError as error:  # also of bytes that are no text
        raise TraceError(f"is no Chakra execution trace: {error}", file=path) from None
    nodes = {node.id: node for node in trace.nodes}
    if len(nodes) < len(trace.nodes):
        raise TraceError("is no Chakra execution trace: two nodes have one id", file=path)
    computed = [node for node in trace.nodes if node.type == NodeType.COMP]
    if not computed:
        raise TraceError("holds no node that computes", file=path, value=len(nodes))
    is_paired = all(node.name.endswith(_WAYS) for node in computed)
    names: list[str] = []
    seen, op_of, known = Counter[str](), dict[int, int](), dict[str, int]()
    for node in computed:
        way = next((way for way in _WAYS if is_paired and node.name.endswith(way)), "")
        name = node.name.removesuffix(way) or f"node {node.id}"
        seen[name + way] += 1
        name += f":{seen[name + way]}" if seen[name + way] > 1 else ""
        if name not in known or not is_paired:
            known[name] = len(names)
            names.append(name)
        op_of[node.id] = known[name]
    costs = np.zeros((6, len(names)))  # forward and backward seconds and operations, output, parameters
    for node in computed:
        op, is_backward = op_of[node.id], int(is_paired and node.name.endswith(_WAYS[1]))
        costs[is_backward, op] += _number(node, "duration_s") or node.duration_micros / 1e6
        costs[2 + is_backward, op] += _number(node, "num_ops")
        costs[4, op] = max(costs[4, op], 0.0 if is_backward else _number(node, "tensor_size"))
    edges = set()
    for node in trace.nodes:
        sources = _computed_before(node, nodes)
        if node.type == NodeType.COMP and not (is_paired and node.name.endswith(_WAYS[1])):
            edges |= {(op_of[one.id], op_of[node.id]) for one in sources if not (is_paired and one.name.endswith(_WAYS[1]))}
        elif node.type == NodeType.COMM_COLL and node.attributes.get("comm_type") in _SUMS:
            for source in sources:
                costs[5, op_of[source.id]] += _number(node, "comm_size") / len(sources)
    pairs = sorted((source, target) for source, target in edges if source != target)
    return JobGraph(
        name=path.stem,
        op_names=tuple(names),
        op_kinds=tuple(name.partition(":")[0] for name in names),
        forward_s=costs[0],
        backward_s=costs[1],
        forward_flops=costs[2],
        backward_flops=costs[3],
        activation_bytes=costs[4],
        parameter_bytes=costs[5],
        workspace_bytes=np.zeros(len(names)),
        edges=np.array(pairs, np.int64).reshape(-1, 2),
        source="measured",
    )


def _computed_before(node: TraceNode, nodes: dict[int, TraceNode]) -> list[TraceNode]:
    """Return the computations whose results a node reads, also where messages bring them."""
    trace_nodes: dict[int, TraceNode] = {}
    seen, left = {node.id}, list(node.data_deps)
    while left:
        one = nodes.get(left.pop())
        if one is None or one.id in seen:
            continue
        seen.add(one.id)
        if one.type == NodeType.COMP:
            trace_nodes[one.id] = one
        else:
            left += one.data_deps
    return list(trace_nodes.values())


def _number(node: TraceNode, name: str) -> float:
    value = node.attributes.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0
