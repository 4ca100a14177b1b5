"""A small job and a small cluster, whose numbers the tests work with by hand."""

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.job import Job
from meshwright.plans import Figure, Layout, OpSplits, PlacementPlan, layout_plan, op_split_plan, place

from ..samples.sample_clusters import TWO_HOSTS
from ..samples.sample_graphs import profile


@pytest.fixture(scope="session")
def two_hosts() -> Cluster:
    """Two hosts of four devices, 80 GB each; the names are not in alphabetical order."""
    return Cluster.from_data(TWO_HOSTS)


@pytest.fixture(scope="session")
def chain() -> JobGraph:
    """Four ops in a row, forward 1, 2, 3, 0 s, backward twice that."""
    forward_s = np.array([1.0, 2.0, 3.0, 0.0])
    sizes = {
        "activation_bytes": [100.0, 200.0, 400.0, 40.0],
        "parameter_bytes": [10.0, 20.0, 30.0, 0.0],
        "workspace_bytes": [0.0, 1000.0, 400.0, 8.0],
    }
    named = {"op_names": ("a", "b", "c", "d"), "op_kinds": ("Linear", "Linear", "Linear", "Loss"), "source": "estimated"}
    return profile("chain", forward_s, 2 * forward_s, **named, **sizes, samples_per_step=32)


@pytest.fixture
def split_plan(chain: JobGraph, two_hosts: Cluster) -> PlacementPlan:
    """Four ranks in an order that no sort gives."""
    step = Figure(name="step_s", value=4.5, unit="s", provenance="estimated")
    splits = OpSplits(np.array([1, 2, 4, 1]))
    job = Job(chain, 50, deadline_s=300.0)
    return op_split_plan(job, two_hosts, splits, place(two_hosts, [5, 4, 0, 3]), predicted=[step], why="lowest step time")


@pytest.fixture
def grid_plan(chain: JobGraph, two_hosts: Cluster) -> PlacementPlan:
    """Eight ranks: tensor-parallel pairs, two replicas, two stages."""
    layout = Layout.parse("tp=2,pp=2,dp=2,ep=2,micro_batch=4", samples_per_step=chain.samples_per_step)
    return layout_plan(Job(chain, 50), two_hosts, layout, place(two_hosts, range(8)))
