"""PipeDream's form of throughput, of given stages of a profile.

Source:
    Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section 3.1.

Legend of shapes: ``n`` ops, ``e`` edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...jobs.graph import JobGraph

StageOps = tuple[NDArray[np.bool_], int]
"""Whether each op is in a stage, ``(n,)``, and its replicas."""


def pipedream_stages_s(graph: JobGraph, stages: Sequence[StageOps], bandwidth_bytes_per_s: float) -> float:
    """Return the seconds between two minibatches of given stages of a profile, on machines of one level, by PipeDream's form.

    A stage has c seconds of ops, p bytes of parameters, m replicas, and o bytes that cross its begin or end. It takes the largest
    of ``(c + 4 (m - 1) p / (B m)) / m`` and, unless it is the first, ``2 o / (B m)`` of both its ends.

    Args:
        graph: the profile.
        stages: in order.
        bandwidth_bytes_per_s: B, between machines.

    Raises:
        PlanError: the stages do not hold each op once, or an edge leads back.
    """
    stage_of = _stage_of(stages, graph.num_ops)
    check_stages(stages, graph.edges, graph.op_names)
    value_s, last = 0.0, len(stages) - 1
    for number, (ops, replicas) in enumerate(stages):
        seconds = float((graph.forward_s + graph.backward_s)[ops].sum())
        parameters = float(graph.parameter_bytes[ops].sum())
        exchanged_s = 4.0 * (replicas - 1) * parameters / (bandwidth_bytes_per_s * replicas)
        value_s = max(value_s, (seconds + exchanged_s) / replicas)
        for at in (number, number + 1) if 0 < number < last else (number,) if number else ():
            crossing = (stage_of[graph.edges[:, 0]] < at) & (stage_of[graph.edges[:, 1]] >= at)
            sent = float(graph.activation_bytes[np.unique(graph.edges[crossing, 0])].sum())
            value_s = max(value_s, 2.0 * sent / (bandwidth_bytes_per_s * replicas))
    return value_s


def check_stages(stages: Sequence[StageOps], edges: NDArray[np.int64], op_names: Sequence[str]) -> None:
    """Refuse stages that lack an op or have one twice, or between which an edge ``(e, 2)`` leads backwards.

    Raises:
        PlanError: with the first op for which it does not hold.
    """
    times = np.array([ops for ops, _ in stages]).sum(axis=0)
    if (times != 1).any():
        op = int(np.flatnonzero(times != 1)[0])
        raise PlanError("each op is in one stage", field="stages", value=f"{op_names[op]} is in {times[op]}")
    stage_of = _stage_of(stages, len(op_names))
    backward_edges = np.flatnonzero(stage_of[edges[:, 0]] > stage_of[edges[:, 1]]) if len(edges) else np.zeros(0, np.int64)
    if backward_edges.size:
        source, reader = (op_names[op] for op in edges[backward_edges[0]].tolist())
        raise PlanError(f"{reader} is in an earlier stage than {source}, whose output it reads", field="stages")


def _stage_of(stages: Sequence[StageOps], n: int) -> NDArray[np.int64]:
    stage_of = np.full(n, -1, np.int64)
    for number, (ops, _) in enumerate(stages):
        stage_of[ops] = number
    return stage_of
