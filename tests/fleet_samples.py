"""A small fleet that is priced in a second: eight devices below two leaves, two networks of convolutions, degrees 1, 2 and 4."""

from pathlib import Path
from typing import Any

CLUSTER = """name: small
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
  oversubscription: 4.0
  spine_latency_us: 0.5
"""

BENCHMARK = """name: small
fleet:
  cluster: fleet-cluster.yaml
  job_types:
    - {name: small, job: zoo:alexnet, global_batch: 64}
    - {name: large, job: zoo:resnet18, global_batch: 64}
  menu: {layouts: 2, degrees: [1, 2, 4]}
  num_jobs: 16
  num_warmup_jobs: 2
  num_cooldown_jobs: 2
  load: 0.8
  duration: {median_s: 300, sigma: 1.0, most_s: 3600}
  requested: {1: 2, 2: 1, 4: 1}
  queue_capacity: 16
  visible_jobs: 3
policies: [random, fifo, sjf+backfill, best-fixed-entry]
num_seeds: 3
num_validation_seeds: 2
"""

DEADLINES = ["fleet.deadline={low: 1.1, high: 2.0}", "fleet.objective=blocking_rate"]
FAILURES = ["fleet.failures.mean_time_between_failures_h=0.8", "fleet.failures.repair_s=400"]
"""A failure in six minutes; an episode takes an hour or more."""
ELASTIC = ["fleet.elastic={every_s: 60.0, restart_s: 5.0, storage_gbytes_per_s: 1.0}"]


def coded(multiplier: float) -> dict[str, Any]:
    """An entry of the menu whose messages are quantised, for which so many times the steps are declared."""
    compression = {"kind": "quantise", "bits": 4, "multiplier": multiplier, "multiplier_source": "a test"}
    return {"name": "coded", "compression": compression, "partition": "dp=2|4"}


def write_small_fleet(folder: Path) -> Path:
    """Write the benchmark and its cluster into a folder; the benchmark's file."""
    (folder / "fleet-cluster.yaml").write_text(CLUSTER)
    (folder / "fleet.yaml").write_text(BENCHMARK)
    return folder / "fleet.yaml"
