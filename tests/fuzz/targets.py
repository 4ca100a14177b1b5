"""Every reader by name."""

from . import costs_and_measurements, jobs_and_clusters, plans_and_exports, recorded_elsewhere, run_folders, runs_and_configs
from .running import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (
        jobs_and_clusters,
        plans_and_exports,
        costs_and_measurements,
        runs_and_configs,
        run_folders,
        recorded_elsewhere,
    )
    for target in module.TARGETS
}
