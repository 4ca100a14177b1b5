"""Clusters and a job whose numbers the tests work with by hand."""

import pytest

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.jobs.graph import JobGraph

from ..samples.sample_clusters import clos, cluster_of
from ..samples.sample_graphs import profile


@pytest.fixture(scope="session")
def dgx() -> Cluster:
    """Eight hosts of eight: 300 GB/s and 0.6 us inside, 25 GB/s and 2 x 1.35 us along a rail."""
    return load_cluster("preset:dgx-a100-8x8")


@pytest.fixture(scope="session")
def ramp() -> Cluster:
    """4 groups x 4 racks x 2 servers, 1600 GB/s a node of 4 transceivers, 50 ns + 2 x 100 ns."""
    return load_cluster("preset:ramp-4x4x2")


@pytest.fixture(scope="session")
def leaves() -> Cluster:
    """Four hosts of two devices, two hosts below each leaf: 10 GB/s to a leaf, 2.5 GB/s from leaf to spine."""
    return cluster_of(clos(4, 2, card=(10, 2), num_spines=2, oversubscription=4, spine_latency_us=3), name="leaves")


@pytest.fixture(scope="session")
def one_op() -> JobGraph:
    """One op of 3.12 TFLOP that moves 2 GB of activation and 1 GB of parameters; profiled at 8 s and 16 s."""
    return profile(
        "one-op",
        [8.0],
        [16.0],
        op_names=("matmul",),
        forward_flops=[3.12e12],
        backward_flops=[6.24e12],
        activation_bytes=[2e9],
        parameter_bytes=[1e9],
        reference_device="a100",
    )
