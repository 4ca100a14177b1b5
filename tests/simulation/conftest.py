"""Small jobs, clusters and scenarios that the tests of this floor share."""

import pytest

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.jobs.graph import JobGraph
from meshwright.simulation.cluster.scenario import Scenario

from ..samples.sample_graphs import profile
from .samples import small_scenario


@pytest.fixture(scope="session")
def host() -> Cluster:
    """Eight devices behind a switch: 300 GB/s and 0.6 us between any two."""
    return load_cluster("preset:host-8")


@pytest.fixture(scope="session")
def two_ops() -> JobGraph:
    """Ops a -> b: forward 2 and 4 s, backward 4 and 8 s. Parameters: 300 and 600 GB; activation from a: 60 GB."""
    return profile("two-ops", [2.0, 4.0], [4.0, 8.0], [[0, 1]], activation_bytes=[60e9, 0.0], parameter_bytes=[300e9, 600e9])


@pytest.fixture(scope="session")
def scenario() -> Scenario:
    """Thirty jobs on a RAMP cluster of 32 devices, with every placement rule."""
    return small_scenario()
