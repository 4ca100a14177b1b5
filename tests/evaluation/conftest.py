"""Small benchmarks, one of each world; that of clusters has one host of eight devices, two models and thirty jobs."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from meshwright.envs.benchmark import BenchmarkSettings, load_benchmark
from meshwright.envs.job_partitioning import play_episode
from meshwright.evaluation.evaluate import Evaluation, evaluate
from meshwright.evaluation.worlds.evaluated_cluster import EvaluatedCluster
from meshwright.evaluation.worlds.evaluated_world import EvaluatedWorld
from meshwright.evaluation.worlds.registry import load_worlds
from meshwright.planners.rules import rule_of_thumb
from meshwright.simulation.cluster.records import EpisodeRecord
from meshwright.simulation.cluster.scenario import Scenario

from ..elastic_samples import write_folder, write_times
from ..fleet_samples import write_small_fleet

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


@pytest.fixture(scope="session")
def toy() -> Scenario:
    """The shipped toy: one host of four devices."""
    return load_benchmark("preset:toy").build()


@pytest.fixture(scope="session")
def record(toy: Scenario) -> EpisodeRecord:
    """An episode of the toy in which each job gets as few devices as may be."""
    return play_episode(rule_of_thumb("min", degrees=toy.space.degrees, placements=toy.settings.placement_rules), toy, 0)


@pytest.fixture(scope="session")
def compare(small: BenchmarkSettings, scenario: Scenario) -> Callable[..., Evaluation]:
    """Evaluates policies on the small benchmark."""
    return lambda *specs, **options: evaluate(EvaluatedCluster(small, built=scenario), specs, **options)


SPECS = {
    "cluster": ("fixed-2", "linear-programme"),
    "fleet": ("bound",),
    "elastic": ("tiresias", "shortest-remaining"),
    "operators": ("shipped:operators-latency",),
    "tasklets": ("structured@0.01",),
}
"""Compared besides the policies of each small benchmark."""


@pytest.fixture(scope="session")
def world_of(small_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], EvaluatedWorld]:
    """Returns the small benchmark of a world."""
    folder = tmp_path_factory.mktemp("worlds")
    elastic = write_folder(folder / "elastic")
    write_times(elastic, "pollux", [500 + 100 * j for j in range(6)])
    benchmarks = {
        "cluster": (str(small_file), []),
        "fleet": (str(write_small_fleet(folder)), []),
        "elastic": (
            "preset:elastic-published-1.0",
            [f"elastic.data={elastic}", "elastic.published=[pollux]", "elastic.cluster.num_nodes=3", "policies=[]"],
        ),
        "operators": (
            "preset:latency-tight",
            [
                "placement.instances.num_ops=[8]",
                "placement.devices.num_devices=[3]",
                "best_known_s=0.01",
                "budgets_s=[0.01]",
                "policies=[heft, round-robin]",
                "num_seeds=3",
            ],
        ),
        "tasklets": (
            "preset:tasklets-64",
            ["tasklets.num_devices=[8]", "tasklets.num_stages=[2]", "best_known_s=0.01", "policies=[chain@0.01]", "num_seeds=3"],
        ),
    }
    return lambda world: load_worlds(*benchmarks[world])[0]


@pytest.fixture(scope="session")
def played(world_of: Callable[[str], EvaluatedWorld]) -> Callable[[str], Evaluation]:
    """Evaluates the small benchmark of a world, once."""
    return cache(lambda world: evaluate(world_of(world), SPECS[world]))
