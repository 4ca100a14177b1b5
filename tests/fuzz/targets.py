"""Every reader by name."""

from . import (
    costs_and_measurements,
    jobs_and_clusters,
    live_sources,
    plans_and_exports,
    profiles_and_traces,
    run_folders,
    runs_and_configs,
)
from .running import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (
        jobs_and_clusters,
        plans_and_exports,
        costs_and_measurements,
        runs_and_configs,
        run_folders,
        live_sources,
        profiles_and_traces,
    )
    for target in module.TARGETS
}
