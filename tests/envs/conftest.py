"""Two small benchmarks: the shipped toy, and one with deadlines, all placement rules and a network of two tiers."""

import pytest

from meshwright.envs.benchmark import load_benchmark

from ..fleet_samples import CLUSTER
from ..small_benchmarks import BENCHMARK, WORKLOAD, write_files

SMALL = {
    "small.yaml": BENCHMARK.format(name="small", cluster="cluster.yaml")
    + "reward: {accepted: 1.5, blocked: -0.5, slack: 0.25, device_seconds: -0.125}\n",
    "cluster.yaml": CLUSTER.replace("oversubscription: 4.0", "oversubscription: 2.0"),
    "workload.yaml": WORKLOAD % 600,
}


@pytest.fixture(scope="session")
def small_benchmark(tmp_path_factory):
    return load_benchmark(write_files(tmp_path_factory.mktemp("small"), SMALL))


@pytest.fixture(scope="session")
def toy_benchmark():
    return load_benchmark("preset:toy")


@pytest.fixture(scope="session")
def small(small_benchmark):
    return small_benchmark.build()


@pytest.fixture(scope="session")
def toy(toy_benchmark):
    return toy_benchmark.build()
