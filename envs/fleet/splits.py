"""Jobs of the first world in a fleet: what a workload draws, op graphs cut by splits, on aligned blocks of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...clusters.cluster import Cluster
from ...costs.routing import Routing
from ...costs.settings import CostSettings
from ...errors import ConfigError
from ...jobs.workload import Workload, load_workload
from ...planners.menu.build import Menu
from ...planners.menu.entries import SplitEntry
from ...planners.menu.job_types import GraphType
from ...plans.memory import op_split_memory_bytes
from ...simulation.decision_space.space import DecisionSpace, decision_space
from ...simulation.decision_space.step_times import StepTimes, step_times
from ...simulation.fleet.menu_table import FleetBlocks, MenuTable
from .settings import SplitsSettings


@dataclass(frozen=True, eq=False)
class SplitJobs:
    """Such jobs, as a fleet reads them.

    Attributes:
        workload: draws them.
        menu: an entry for each graph and degree; the classes of its placements are those of blocks.
        blocks: where jobs may run.
    """

    workload: Workload
    menu: Menu
    blocks: FleetBlocks


def split_jobs(
    settings: SplitsSettings,
    cluster: Cluster,
    costs: CostSettings,
    *,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> SplitJobs:
    """Load the workload and simulate the step times as a scenario of the first world does.

    Args:
        settings: the key ``splits``.
        cluster: where jobs run.
        costs: choices of the cost model.
        cache: folder of step times.
        progress: called with a graph's name, its number and the number of graphs before it is simulated.

    Raises:
        MeshwrightError: the workload is missing or wrong, or fits no block; the cluster is none of hosts with one
            device each, all of one type.
    """
    if cluster.num_hosts != cluster.num_devices or len(cluster.device_types) > 1:
        problem = "splits want hosts of one device each, all of one type, so that blocks of devices are blocks of hosts"
        raise ConfigError(problem, field="fleet.cluster", value=cluster.name)
    workload = load_workload(settings.workload)
    space = decision_space(cluster, settings.max_degree, Routing.from_settings(costs))
    times = step_times(workload.graphs, space, costs, settings.splitting, cache=cache, progress=progress)
    blocks = FleetBlocks(  # copies: an array that cannot be written is another type to compiled code
        degree=np.array(space.degrees, np.int64)[space.degree],
        first_host=np.array(space.start),
        hosts=np.array(cluster.device_host, np.int64)[space.devices],
        place_class=np.array(space.placement_class),
        are_classes=True,
    )
    return SplitJobs(workload, _menu(workload, space, times, settings), blocks)


def _menu(workload: Workload, space: DecisionSpace, times: StepTimes, settings: SplitsSettings) -> Menu:
    class_degree = space.degree[space.representative]
    types = tuple(GraphType(graph.name, graph.samples_per_step or 1, graph) for graph in workload.graphs)
    entries, rows, first, least = [], [], [0], []
    for number, graph in enumerate(workload.graphs):
        cost = []
        for d, degree in enumerate(space.degrees):
            step_s = np.where((class_degree == d) & times.can_run[number], times.step_s[number], np.inf)
            if np.isfinite(step_s).any():
                memory_bytes = op_split_memory_bytes(graph, settings.splitting.splits(graph, degree)).max()
                entries.append(SplitEntry(number, settings.splitting, degree, float(memory_bytes)))
                rows.append(step_s)
                cost.append(degree * step_s.min())
        first.append(len(entries))
        least.append(min(cost))
    steps = np.stack(rows)[:, None, None]
    none = np.zeros(0, np.int64)
    table = MenuTable(
        first_entry=np.array(first, np.int64),
        degree=np.array([entry.degree for entry in entries], np.int64),
        memory_bytes=np.array([entry.memory_bytes for entry in entries]),
        step_s=np.ascontiguousarray(steps),
        hidden_s=np.zeros_like(steps),
        flow_first=np.zeros(len(entries) + 1, np.int64),
        flow_from=none,
        flow_to=none.copy(),
        flow_bytes=np.zeros(0),
        flow_streams=none.copy(),
        state_bytes=np.array([one.state_bytes for one in types]),
        work_device_s=np.array(least),
    )
    return Menu(table, types, tuple(entries))
