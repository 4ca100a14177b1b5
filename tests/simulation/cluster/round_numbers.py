"""A scenario of round numbers, for episodes that are worked by hand."""

import dataclasses
import math

import numpy as np

from meshwright import settings as yaml_settings
from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.arrivals import Arrivals
from meshwright.simulation.cluster.scenario import ScenarioSettings, assemble
from meshwright.simulation.decision_space.step_times import StepTimes

from ..samples import small_workload

# --- worked by hand ---


def round_numbers(**changes):
    """Eight devices of one host; a step takes 4 s on one rank, 2 s on two, 1 s on four. Nothing fails by itself."""
    failures = {"mean_time_between_failures_h": 1e15, "repair_s": 100.0, "checkpoint_every_s": 300.0, "restart_s": 50.0}
    settings = yaml_settings.build_settings(
        ScenarioSettings,
        {
            "cluster": "preset:host-8",
            "workload": "made to measure",
            "num_jobs": 4,
            "max_degree": 4,
            "placement_rules": ["first-fit"],
            "failures": failures,
            **changes,
        },
    )
    scenario = assemble(settings, load_cluster("preset:host-8"), small_workload())
    classes = np.zeros(scenario.times.step_s.shape[1])
    classes[scenario.space.placement_class] = 4.0 / np.array(scenario.space.degrees)[scenario.space.degree]
    times = StepTimes(np.tile(classes, (2, 1)), scenario.times.communication_share, np.ones_like(scenario.times.can_run))
    return dataclasses.replace(scenario, times=times)


def jobs_of(arrival_s, num_steps):
    n = len(arrival_s)
    return Arrivals(np.array(arrival_s), np.zeros(n, np.int64), np.array(num_steps), np.full(n, math.inf))
