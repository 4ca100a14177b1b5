"""Plans whose traces are tested."""

import numpy as np
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.job import Job
from meshwright.plans import OpSplits, op_split_plan, place

CLUSTER = load_cluster("preset:dgx-a100-8x8")


def graph_of(edges, activation_bytes, parameter_bytes, forward_s=None):
    n = len(activation_bytes)
    forward_s = np.full(n, 1e-3) if forward_s is None else np.array(forward_s, float)
    names = tuple(f"op{i}" for i in range(n))
    rows = np.zeros((2, n)), np.array(activation_bytes, float), np.array(parameter_bytes, float), np.zeros(n)
    return JobGraph(
        "g",
        names,
        ("Linear",) * n,
        forward_s,
        2 * forward_s,
        rows[0][0],
        rows[0][1],
        rows[1],
        rows[2],
        rows[3],
        np.array(edges, np.int64).reshape(-1, 2),
        source="measured",
    )


def plan_of(graph, splits, first=6):
    splits = OpSplits(np.array(splits))
    return op_split_plan(Job(graph, 1), CLUSTER, splits, place(CLUSTER, np.arange(first, first + splits.degree)))


@st.composite
def plans(draw):
    n = draw(st.integers(1, 6))
    edges = [(a, b) for b in range(n) for a in range(b) if draw(st.booleans())]
    sizes = st.sampled_from([0, 1, 999, 1e6, 2.5e8])
    graph = graph_of(
        edges,
        [draw(sizes) for _ in range(n)],
        [draw(sizes) for _ in range(n)],
        [draw(st.sampled_from([0.0, 3e-7, 1e-3])) for _ in range(n)],
    )
    return plan_of(graph, [draw(st.integers(1, 4)) for _ in range(n)], first=draw(st.integers(0, 8)))
