"""The toy cluster of four devices, short episodes of it, and a crowded one with deadlines."""

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


CROWDED = {
    "crowded.yaml": """
name: crowded
scenario:
  cluster: preset:host-8
  workload: workload.yaml
  num_jobs: 40
  num_warmup_jobs: 5
  max_degree: 8
  placement_rules: [first-fit, best-fit, aligned, fastest]
""",
    "workload.yaml": """
graphs: [zoo:squeezenet, zoo:alexnet]
steps: {kind: sequential_time, low_s: 500.0, high_s: 6000.0}
arrivals: {kind: poisson, mean_interarrival_s: 400.0}
deadline: {kind: uniform, low: 0.1, high: 1.2}
""",
}


@pytest.fixture(scope="session")
def crowded_benchmark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crowded")
    for name, text in CROWDED.items():
        (folder / name).write_text(text)
    return load_benchmark(str(folder / "crowded.yaml"))


@pytest.fixture(scope="session")
def crowded(crowded_benchmark):
    """Eight devices, jobs of two models at random times with deadlines, four placement rules."""
    return crowded_benchmark.build()
