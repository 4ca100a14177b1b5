"""A small benchmark that is evaluated in a second: one host of eight devices, two models, thirty jobs."""

from pathlib import Path

import pytest

from meshwright.envs.benchmark import BenchmarkSettings, load_benchmark
from meshwright.simulation.cluster.scenario import Scenario

WORKLOAD = """
graphs: [zoo:alexnet, zoo:squeezenet]
device: a100
steps: {kind: sequential_time, low_s: 2000.0, high_s: 9000.0}
arrivals: {kind: fixed, interarrival_s: 700.0}
deadline: {kind: uniform, low: 0.15, high: 1.0, decimals: 2}
"""

BENCHMARK = """
name: small
scenario:
  cluster: preset:host-8
  workload: WORKLOAD
  num_jobs: 30
  num_warmup_jobs: 5
  max_degree: 8
policies: [max, min, random, best-fixed]
num_seeds: 4
num_validation_seeds: 2
"""


@pytest.fixture(scope="session")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The YAML of the small benchmark."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "workload.yaml").write_text(WORKLOAD)
    (folder / "small.yaml").write_text(BENCHMARK.replace("WORKLOAD", str(folder / "workload.yaml")))
    return folder / "small.yaml"


@pytest.fixture(scope="session")
def small(small_file: Path) -> BenchmarkSettings:
    """The small benchmark."""
    return load_benchmark(str(small_file))


@pytest.fixture(scope="session")
def scenario(small: BenchmarkSettings) -> Scenario:
    """The small benchmark's scenario."""
    return small.build()
