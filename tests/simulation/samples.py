"""Small jobs, workloads and scenarios made to measure."""

import numpy as np

from meshwright import settings
from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.workload import Workload, WorkloadSettings
from meshwright.simulation.cluster.scenario import Scenario, ScenarioSettings, assemble


def small_workload(**changes) -> Workload:
    """Two small graphs whose jobs arrive about as fast as 32 devices work, with deadlines from tight to loose."""
    data = {
        "graphs": ["zoo:alexnet", "zoo:squeezenet"],
        "steps": {"kind": "sequential_time", "low_s": 1000.0, "high_s": 9000.0},
        "arrivals": {"kind": "poisson", "mean_interarrival_s": 120.0},
        "deadline": {"kind": "uniform", "low": 0.1, "high": 1.0, "decimals": 2},
        **changes,
    }
    return Workload.from_settings(settings.build_settings(WorkloadSettings, data))


def profile(name, forward_s, backward_s, edges, *, activation_bytes=None, parameter_bytes=None, **rest) -> JobGraph:
    """A graph with times and bytes only, as a profile tells them."""
    n = len(forward_s)
    return JobGraph(
        name=name,
        op_names=tuple(f"op-{i}" for i in range(n)),
        op_kinds=("Linear",) * n,
        forward_s=np.array(forward_s),
        backward_s=np.array(backward_s),
        forward_flops=np.zeros(n),
        backward_flops=np.zeros(n),
        activation_bytes=np.zeros(n) if activation_bytes is None else np.array(activation_bytes),
        parameter_bytes=np.zeros(n) if parameter_bytes is None else np.array(parameter_bytes),
        workspace_bytes=np.zeros(n),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        **{"source": "measured", **rest},
    )


def small_scenario(**changes) -> Scenario:
    """Thirty jobs of the small workload on a RAMP cluster of 32 devices, with every placement rule."""
    chosen = ScenarioSettings(
        **{
            "cluster": "preset:ramp-4x4x2",
            "workload": "made to measure",
            "num_jobs": 30,
            "max_degree": 8,
            "placement_rules": ("first-fit", "best-fit", "aligned", "fastest"),
            **changes,
        }
    )
    return assemble(chosen, load_cluster(chosen.cluster), small_workload())
