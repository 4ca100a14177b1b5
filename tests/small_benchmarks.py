"""Files of small benchmarks of clusters: a workload of two models with deadlines, and a tuning run of a moment."""

from pathlib import Path

from meshwright import settings
from meshwright.envs.benchmark import BenchmarkSettings

BENCHMARK = """
name: {name}
scenario:
  cluster: {cluster}
  workload: workload.yaml
  num_jobs: 40
  num_warmup_jobs: 5
  max_degree: 8
  placement_rules: [first-fit, best-fit, aligned, fastest]
"""
WORKLOAD = """
graphs: [zoo:squeezenet, zoo:alexnet]
steps: {kind: sequential_time, low_s: 500.0, high_s: 6000.0}
arrivals: {kind: poisson, mean_interarrival_s: %g}
deadline: {kind: uniform, low: 0.1, high: 1.2}
"""
"""Wants the mean seconds between two arrivals."""

LINEAR = """method: linear
name: scorer
benchmark: benchmark.yaml
generations: 3
population: 4
elite: 2
num_episodes: 1
validate_every_generations: 1
num_validation_seeds: 2
"""
EVENTS = {
    "queue_capacity": 3,
    "num_cooldown_jobs": 2,
    "failures": {"mean_time_between_failures_h": 4.0, "repair_s": 300.0, "checkpoint_every_s": 400.0, "restart_s": 60.0},
    "preemption": {"rate_per_job_h": 0.2, "pause_s": 120.0},
}


def with_events(benchmark: BenchmarkSettings) -> BenchmarkSettings:
    """A benchmark with a queue, failures and preemption."""
    data = benchmark.model_dump()
    return settings.build_settings(BenchmarkSettings, data | {"scenario": data["scenario"] | EVENTS})


def write_files(folder: Path, files: dict[str, str]) -> str:
    """Write texts by their names into a folder; the path of the first."""
    for name, text in files.items():
        (folder / name).write_text(text)
    return str(folder / next(iter(files)))
