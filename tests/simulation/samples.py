"""Small jobs, workloads and scenarios made to measure."""

from meshwright import settings
from meshwright.clusters.cluster import load_cluster
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


def small_scenario(**changes) -> Scenario:
    """Thirty jobs of the small workload on a RAMP cluster of 32 devices, with every placement rule."""
    config = ScenarioSettings(
        **{
            "cluster": "preset:ramp-4x4x2",
            "workload": "made to measure",
            "num_jobs": 30,
            "max_degree": 8,
            "placement_rules": ("first-fit", "best-fit", "aligned", "fastest"),
            **changes,
        }
    )
    return assemble(config, load_cluster(config.cluster), small_workload())
