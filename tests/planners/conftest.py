"""The toy cluster of four devices, short episodes of it, and a crowded one with deadlines."""

import pytest

from meshwright.envs.benchmark import load_benchmark

from ..small_benchmarks import BENCHMARK, WORKLOAD, write_files


@pytest.fixture(scope="session")
def toy():
    """Episodes of nine jobs on four devices."""
    return load_benchmark("preset:toy", changes=["scenario.num_jobs=9"]).build()


@pytest.fixture(scope="session")
def one_each():
    """Eight devices and one for each job, so that nothing but their number binds."""
    changes = ["scenario.cluster=preset:host-8", "scenario.num_jobs=40", "scenario.max_degree=1"]
    return load_benchmark("preset:toy", changes=changes).build()


CROWDED = {"crowded.yaml": BENCHMARK.format(name="crowded", cluster="preset:host-8"), "workload.yaml": WORKLOAD % 400}


@pytest.fixture(scope="session")
def crowded_benchmark(tmp_path_factory):
    return load_benchmark(write_files(tmp_path_factory.mktemp("crowded"), CROWDED))


@pytest.fixture(scope="session")
def crowded(crowded_benchmark):
    """Eight devices, jobs of two models at random times with deadlines, four placement rules."""
    return crowded_benchmark.build()
