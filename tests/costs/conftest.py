"""Clusters and a job whose numbers the tests work with by hand."""

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.jobs.graph import JobGraph


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
    return Cluster.from_data(
        {
            "name": "leaves",
            "device": "a100",
            "topology": {
                "kind": "clos",
                "num_hosts": 4,
                "devices_per_host": 2,
                "intra_host_bandwidth_gbytes_per_s": 100,
                "intra_host_latency_us": 1,
                "nics_per_host": 1,
                "nic_bandwidth_gbytes_per_s": 10,
                "nic_latency_us": 2,
                "hosts_per_leaf": 2,
                "num_spines": 2,
                "oversubscription": 4,
                "spine_latency_us": 3,
            },
        }
    )


@pytest.fixture(scope="session")
def one_op() -> JobGraph:
    """One op of 3.12 TFLOP that moves 2 GB of activation and 1 GB of parameters; profiled at 8 s and 16 s."""
    return JobGraph(
        name="one-op",
        op_names=("matmul",),
        op_kinds=("Linear",),
        forward_s=np.array([8.0]),
        backward_s=np.array([16.0]),
        forward_flops=np.array([3.12e12]),
        backward_flops=np.array([6.24e12]),
        activation_bytes=np.array([2e9]),
        parameter_bytes=np.array([1e9]),
        workspace_bytes=np.array([0.0]),
        edges=np.zeros((0, 2), np.int64),
        reference_device="a100",
        source="measured",
    )
