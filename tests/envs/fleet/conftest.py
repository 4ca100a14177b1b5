import pytest

from meshwright.envs.fleet.benchmark import load_fleet_benchmark

from ...fleet_samples import write_small_fleet


@pytest.fixture(scope="session")
def small_file(tmp_path_factory):
    return write_small_fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="session")
def small_fleet(small_file):
    return load_fleet_benchmark(str(small_file)).build()
