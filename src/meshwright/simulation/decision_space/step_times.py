"""Step times of every job graph on every placement class, simulated once and kept on disk between runs.

Legend: ``g`` graphs, ``c`` placement classes. The file's name is a hash of all inputs of a figure (see `kept_files`),
the version of this module among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files, quantities
from ...costs.settings import CostSettings
from ...errors import PlanError
from ...jobs.graph import JobGraph
from ...plans.memory import op_split_memory_bytes
from .. import cached_files
from ..cached_files import cache_folder
from ..step.timeline import simulate
from .space import DecisionSpace
from .splitting import SplitSettings
from .trained_steps import PLAIN, GivenTraining, step_change

# Raised whenever lowering, kernel or cost formulas change their figures.
FIGURES_VERSION = 4

_FIGURE = np.dtype("<f8")
# Step, communication share, whether it can run, bytes that the tightest rank needs and has.
Row = tuple[float, float, float, float, float]
_NUM_FIGURES = 5


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Simulated figures of each graph on each placement class.

    Attributes:
        step_s: seconds of one training step, ``(g, c)``.
        communication_share: share of the step that the busiest rank does not compute, ``(g, c)``.
        can_run: whether the graph's ops can be cut that far and every rank's share fits its device, ``(g, c)``.
    """

    step_s: NDArray[np.float64]
    communication_share: NDArray[np.float64]
    can_run: NDArray[np.bool_]


def step_times(
    graphs: Sequence[JobGraph],
    space: DecisionSpace,
    costs: CostSettings,
    splitting: SplitSettings,
    *,
    training: GivenTraining = PLAIN,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> StepTimes:
    """Simulate one step of each graph on one block of each class, or read it from disk.

    A graph does not run on a block with more devices than any of its ops has pieces, since a smaller block serves as well.

    Args:
        graphs: the workload's graphs.
        space: the blocks.
        costs: one choice per layer of the cost model.
        splitting: how far each op is split when the job gets a number of ranks.
        training: how jobs are trained; any but synchronous training needs whole replicas, the split rule ``uniform``.
        cache: folder of the tables; None takes `cache_folder`.
        progress: called with a graph's name, its number and the number of graphs before each simulation.

    Raises:
        GraphError: a graph cannot be timed on a device of the cluster.
        PlanError: a graph needs more memory than the devices of any block have, takes ages on one, or cannot be trained so.
    """
    own = (
        [] if training.is_plain else [training.training.model_dump(), training.compression and training.compression.model_dump()]
    )

    def key(graph: JobGraph) -> str:
        # The source of a graph's times decides which compute model prices it; the graph's own digest leaves it out.
        return files.digest(FIGURES_VERSION, graph.digest, graph.source, space.digest, costs.digest, splitting.model_dump(), *own)

    def row(graph: JobGraph, devices: NDArray[np.int64]) -> Row:
        return _simulate(graph, space, devices, costs, splitting, training)

    return kept_step_times(graphs, space, key, row, cache, progress)


def kept_step_times(
    graphs: Sequence[JobGraph],
    space: DecisionSpace,
    key: Callable[[JobGraph], str],
    row: Callable[[JobGraph, NDArray[np.int64]], Row],
    cache: Path | None,
    progress: Callable[[str, int, int], None] | None,
) -> StepTimes:
    """Return the figures of each graph on one block of each class: from disk, or simulated and put there.

    Args:
        graphs, space, cache, progress: as of `step_times`.
        key: a hash of everything that the figures of a graph depend on.
        row: the figures of a graph on the devices of a block in rank order.

    Raises:
        PlanError: as `step_times` says.
    """
    folder, tables = cache_folder() if cache is None else cache, []
    for number, graph in enumerate(graphs):
        file = folder / f"{key(graph)}.steps"
        table = _read(file, len(space.representative))
        if table is None:
            if progress is not None:
                progress(graph.name, number, len(graphs))
            table = np.array([row(graph, space.block(block)) for block in space.representative.tolist()]).T
            cached_files.write(file, table.astype(_FIGURE).tobytes())
        _check_table(graph.name, space, table)
        tables.append(table)
    stacked = np.stack(tables)
    return StepTimes(stacked[:, 0], stacked[:, 1], stacked[:, 2] > 0)


def _simulate(
    graph: JobGraph,
    space: DecisionSpace,
    devices: NDArray[np.int64],
    costs: CostSettings,
    splitting: SplitSettings,
    training: GivenTraining,
) -> Row:
    splits = splitting.splits(graph, len(devices))
    timeline = simulate(graph, space.cluster, splits, devices[: splits.degree], costs)
    change = step_change(graph, space.cluster, devices[: splits.degree], costs, training)
    step_s, share = timeline.step_s, timeline.communication_share
    if change is None:  # nobody trains so on these devices
        return step_s, share, 0.0, 0.0, 0.0
    if change.times != 1:
        step_s, share = step_s * change.times, max(0.0, 1 - (1 - share) * change.computed / change.times)
    needed = op_split_memory_bytes(graph, splits) + change.extra_bytes
    capacity = space.cluster.memory_bytes[devices[: splits.degree]]
    tightest = int(np.argmax(needed - capacity))
    can_run = needed[tightest] <= capacity[tightest] and splits.degree == len(devices)
    return step_s, share, float(can_run), float(needed[tightest]), float(capacity[tightest])


FITS_NO_BLOCK = "fits no block of"
"""How the problem of a graph begins that no block has room for."""


def _check_table(name: str, space: DecisionSpace, table: NDArray[np.float64]) -> None:
    """Refuse a graph that fits no block, or takes longer than anything does.

    Raises:
        PlanError: with the memory that is lacking, or the time.
    """
    longest_s = float(table[0].max())
    problem = quantities.problem("step_s", longest_s)
    if problem is not None:
        message = f"a step on {space.cluster.name} {problem}; look at the figures of job, cluster and costs"
        raise PlanError(message, field="job", value=longest_s)
    if table[2].any():
        return
    lacking = table[3] - table[4]  # a block on which it fits, but that it would not fill, does not count
    needed_gbytes, capacity_gbytes = table[3:, np.argmin(np.where(lacking > 0, lacking, np.inf))] / 1e9
    raise PlanError(
        f"{FITS_NO_BLOCK} {space.cluster.name}: `meshwright plan --search` also tries tensor parallelism, pipelines and "
        f"sharding; cut op by op, even where it lacks the least, "
        f"a rank needs {needed_gbytes:.3f} GB and its device has {capacity_gbytes:.3f} GB",
        field="job",
        value=name,
    )


def _read(path: Path, num_classes: int) -> NDArray[np.float64] | None:
    """Return the table in a file; None where it is absent or damaged (it is then simulated again)."""
    figures = cached_files.read(path)
    if figures is None or len(figures) != _NUM_FIGURES * num_classes * _FIGURE.itemsize:
        return None
    return np.frombuffer(figures, _FIGURE).astype(np.float64).reshape(_NUM_FIGURES, num_classes)
