"""Two small benchmarks: the shipped toy, and one with deadlines, all placement rules and a network of two tiers."""

import pytest

from meshwright.envs.benchmark import load_benchmark

SMALL = {
    "small.yaml": """
name: small
scenario:
  cluster: cluster.yaml
  workload: workload.yaml
  num_jobs: 40
  num_warmup_jobs: 5
  max_degree: 8
  placement_rules: [first-fit, best-fit, aligned, fastest]
reward:
  accepted: 1.5
  blocked: -0.5
  slack: 0.25
  device_seconds: -0.125
""",
    "cluster.yaml": """
name: small
device: a100
topology:
  kind: clos
  num_hosts: 4
  devices_per_host: 2
  intra_host_bandwidth_gbytes_per_s: 300.0
  intra_host_latency_us: 0.6
  nics_per_host: 1
  nic_bandwidth_gbytes_per_s: 12.5
  nic_latency_us: 1.35
  hosts_per_leaf: 2
  wiring: host
  num_spines: 1
  oversubscription: 2.0
  spine_latency_us: 0.5
""",
    "workload.yaml": """
graphs: [zoo:squeezenet, zoo:alexnet]
steps: {kind: sequential_time, low_s: 500.0, high_s: 6000.0}
arrivals: {kind: poisson, mean_interarrival_s: 600.0}
deadline: {kind: uniform, low: 0.1, high: 1.2}
""",
}


@pytest.fixture(scope="session")
def small_benchmark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    for name, text in SMALL.items():
        (folder / name).write_text(text)
    return load_benchmark(str(folder / "small.yaml"))


@pytest.fixture(scope="session")
def toy_benchmark():
    return load_benchmark("preset:toy")


@pytest.fixture(scope="session")
def small(small_benchmark):
    return small_benchmark.build()


@pytest.fixture(scope="session")
def toy(toy_benchmark):
    return toy_benchmark.build()
