"""A cluster of three hosts, and planners of it that are ready."""

import pytest

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.live.deciding import Planners

from .controller_samples import JOB
from .live_samples import CLUSTER


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Cluster:
    path = tmp_path_factory.mktemp("cluster") / "three.yaml"
    path.write_text(CLUSTER)
    return load_cluster(str(path))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Of the cluster of replays and of priced menus."""
    return tmp_path_factory.mktemp("replays")


@pytest.fixture(scope="module")
def planners(cluster, tmp_path_factory) -> Planners:
    made = Planners(cluster, "fastest-feasible", scratch=tmp_path_factory.mktemp("jobs"))
    made.make_ready(JOB)
    return made
