"""The toy cluster of four devices, short episodes of it,."""

import pytest

from meshwright.envs.benchmark import load_benchmark


@pytest.fixture(scope="session")
def toy():
    """Episodes of nine jobs on four devices."""
    return load_benchmark("preset:toy", changes=["scenario.num_jobs=9"]).build()


@pytest.fixture(scope="session")
def one_each():
    """Eight devices and one for each job, so that nothing but their number binds."""
    changes = ["scenario.cluster=preset:host-8", "scenario.num_jobs=40", "scenario.max_degree=1"]
    return load_benchmark("preset:toy", changes=changes).build()
