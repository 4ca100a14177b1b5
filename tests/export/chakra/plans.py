"""Plans whose traces are tested."""

import numpy as np
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.job import Job
from meshwright.plans import OpSplits, op_split_plan, place

from ...samples.sample_graphs import profile

CLUSTER = load_cluster("preset:dgx-a100-8x8")


def graph_of(edges, activation_bytes, parameter_bytes, forward_s=None):
    n = len(activation_bytes)
    forward_s = np.full(n, 1e-3) if forward_s is None else np.array(forward_s, float)
    return profile("g", forward_s, 2 * forward_s, edges, activation_bytes=activation_bytes, parameter_bytes=parameter_bytes)


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
