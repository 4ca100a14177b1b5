"""Readers of jobs, clusters and what arrives."""

import json
from functools import partial
from pathlib import Path

import numpy as np

from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.load import load_graph, load_shape
from meshwright.jobs.workload import load_workload

from . import inputs
from .inputs import written
from .possible import positive, possible_cluster, possible_graph
from .running import Target


def _cluster(text: str, folder: Path) -> None:
    possible_cluster(load_cluster(str(written(folder / "cluster.yaml", text))))


def _matrix(text: str, folder: Path) -> None:
    (folder / "m.csv").write_text(text, newline="")
    latency = [[float(i != j) for j in range(3)] for i in range(3)]
    topology = {"kind": "matrix", "bandwidth_gbytes_per_s_csv": "m.csv", "latency_us": latency}
    _cluster(json.dumps({"name": "m", "device": "a100", "topology": topology}), folder)


def _hosts(text: str, folder: Path) -> None:
    (folder / "hosts.csv").write_text(text, newline="")
    rest = inputs.CLUSTERS[-1].partition("hosts_at:")[2].partition("]],")[2]
    head = inputs.CLUSTERS[-1].partition("hosts_at:")[0]
    _cluster(f"{head}csv: hosts.csv,{rest}", folder)


def _graph(name: str, text: str, folder: Path) -> None:
    possible_graph(load_graph(str(written(folder / name, text))))


def _config(text: str, folder: Path) -> None:
    _graph("config.json", text, folder)
    shape, _ = load_shape(str(folder / "config.json"))
    possible_graph(shape.graph(2, 16))


def _workload(text: str, folder: Path) -> None:
    written(folder / "jobs.csv", inputs.valid("jobs.csv"))
    _sampled(text, folder)


def _trace(text: str, folder: Path) -> None:
    written(folder / "jobs.csv", text)
    _sampled(TRACED, folder)


def recorded(name: str, text: str, folder: Path, more: str = "") -> None:
    """Two jobs of a trace of this name, with ``more`` keys of its reader, played as they were recorded."""
    written(folder / name, text)
    as_recorded(name + more, folder)


MORE = ", columns: {model: model, steps: steps, deadline: due, requested_gpus: asked}, models: {bert: graph.txt}"
"""How a table with columns of its own is read."""


def _pai(name: str, text: str, folder: Path) -> None:
    for table in PAI_TABLES:
        (folder / table).write_text(text if table == name else inputs.valid(table), newline="")
    as_recorded("pai_task_table.csv, columns: {model: workload}, models: {bert: graph.txt, ctr: graph.txt}", folder)


def as_recorded(file: str, folder: Path) -> None:
    """Two jobs of a trace in a folder, played as they were recorded."""
    _sampled(AS_RECORDED % file, folder)


def _sampled(text: str, folder: Path) -> None:
    """Two jobs of a workload of one graph: when they come, how long they are, how urgent."""
    written(folder / "graph.txt", inputs.valid("graph.txt"))
    workload = load_workload(written(folder / "workload.yaml", text))
    positive("mean time between arrivals", workload.mean_interarrival_s, 0.0, 1e12)
    arrivals = workload.sample(np.random.default_rng(0), 2)
    for number in range(2):
        job = arrivals.job(number, workload.graphs)
        positive("arrival", job.arrival_s, 0.0, 1e15)
        positive("sequential time", job.sequential_s, 0.0, 1e15)
        positive("deadline", job.deadline_s or 0.0, 0.0, 1e18)
    assert workload.digest


TRACED = """graphs: [graph.txt]
arrivals: {kind: trace, file: jobs.csv, offered_load: 0.9, num_devices: 8, min_gpus: 2}
deadline: {kind: skew_normal, low: 0.1, high: 1.0, skewness: 3.0}
"""

AS_RECORDED = """graphs: [graph.txt]
arrivals: {kind: trace, min_gpus: 2, file: %s}
deadline: {kind: uniform, low: 0.1, high: 1.0}
"""

PAI_TABLES = ("pai_task_table.csv", "pai_job_table.csv", "pai_group_tag_table.csv")

WORKLOADS = (
    """graphs: [graph.txt]
steps: {kind: fixed, num_steps: 1000}
arrivals: {kind: fixed, interarrival_s: 20.0}
deadline: {kind: none}
""",
    """graphs: [graph.txt, zoo:squeezenet]
weights: [1.0, 2.0]
device: a100
drop_input_ops: true
steps: {kind: sequential_time, low_s: 100.0, high_s: 1000.0}
arrivals: {kind: poisson, mean_interarrival_s: 20.0}
deadline: {kind: uniform, low: 0.1, high: 1.0, decimals: 2}
""",
    TRACED,
)

TARGETS = (
    Target("clusters", "yaml", lambda: inputs.CLUSTERS, _cluster),
    Target("matrices", "csv", lambda: (inputs.MATRIX,), _matrix),
    Target("host-tables", "csv", lambda: (inputs.valid("hosts.csv"),), _hosts),
    Target("profiles", "text", lambda: (inputs.valid("graph.txt"),), partial(_graph, "graph.txt")),
    Target("job-graphs", "json", inputs.graphs, partial(_graph, "graph.json")),
    Target("transformers", "json", lambda: map(json.dumps, inputs.TRANSFORMERS), _config),
    Target("workloads", "yaml", lambda: WORKLOADS, _workload),
    Target("job-traces", "csv", lambda: (inputs.valid("jobs.csv"),), _trace),
    Target("told-traces", "csv", lambda: (inputs.valid("told.csv"),), partial(recorded, "told.csv", more=MORE)),
    Target("philly-logs", "json", lambda: (inputs.valid("cluster_job_log.json"),), partial(recorded, "jobs.json")),
    *(
        Target(table.removesuffix(".csv").replace("_", "-"), "csv", lambda t=table: (inputs.valid(t),), partial(_pai, table))
        for table in PAI_TABLES
    ),
)
