"""Small benchmarks: the shipped toy, one with deadlines, all placement rules and a network of two tiers, and a fleet."""

import pytest

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.fleet.benchmark import load_fleet_benchmark

from ..fleet_samples import CLUSTER, write_small_fleet
from ..small_benchmarks import BENCHMARK, WORKLOAD, with_events, write_files

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


@pytest.fixture(scope="session")
def eventful(small_benchmark):
    return with_events(small_benchmark)


@pytest.fixture(scope="session")
def eventful_scenario(eventful):
    return eventful.build()


@pytest.fixture(scope="session")
def small_file(tmp_path_factory):
    return write_small_fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="session")
def small_fleet(small_file):
    return load_fleet_benchmark(str(small_file)).build()
