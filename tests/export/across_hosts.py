"""Plans on eight hosts of eight devices, two hosts below each leaf switch, whose tensor-parallel groups may span hosts."""

from collections.abc import Sequence

import numpy as np

from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.job import Job
from meshwright.plans import Layout, PlacementPlan, layout_plan, place


def plan_across(hosts: Sequence[int], degrees: str) -> PlacementPlan:
    """A layout on all devices of some hosts of ``preset:clos-64-4to1``, in that order; hosts 0 and 1 share a leaf."""
    cluster = load_cluster("preset:clos-64-4to1")
    n = 8
    chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    graph = JobGraph("gpt", tuple(f"op{i}" for i in range(n)), ("Linear",) * n, *np.ones((7, n)), chain)
    layout = Layout.parse(f"{degrees},micro_batch=1,global_batch=8")
    devices = [8 * host + device for host in hosts for device in range(8)]
    return layout_plan(Job(graph, 1), cluster, layout, place(cluster, devices))


def two_stages_of_two_groups() -> PlacementPlan:
    """Stage 0 on leaves 3 and 0, stage 1 on leaves 2 and 1; each group of 16 has a leaf of its own."""
    return plan_across([7, 6, 0, 1, 5, 4, 2, 3], "tp=16,pp=2,dp=2")
