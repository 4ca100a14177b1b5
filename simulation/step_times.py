"""Step times of every job graph on every placement class, simulated once and kept on disk between runs.

Legend: ``g`` graphs, ``c`` placement classes. The file's name is a hash of everything that a figure depends on
(graph, cluster, blocks, cost settings, split rule, version of this module), so a changed input never meets a stale
figure.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..costs.model import CostSettings
from ..errors import PlanError
from ..jobs.graph import JobGraph
from ..plans.memory import op_split_memory_bytes
from .space import DecisionSpace
from .splitting import SplitSettings
from .timeline import simulate

# Raised whenever lowering, kernel or cost formulas change their figures.
FIGURES_VERSION = 2


@dataclass(frozen=True, eq=False)
class StepTimes:
    """What the simulator says of each graph on each placement class.

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
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> StepTimes:
    """Simulate one step of each graph on one block of each class, or read it from disk.

    A graph of which no op is split into as many pieces as a block has devices does not run on it: it would leave
    devices idle, and a smaller block serves as well.

    Args:
        graphs: the workload's graphs.
        space: the blocks.
        costs: one choice per layer of the cost model.
        splitting: how far each op is split when the job gets a number of ranks.
        cache: folder of the tables; None takes `cache_folder`.
        progress: called with a graph's name, its number and the number of graphs before each simulation.

    Raises:
        GraphError: a graph cannot be timed on a device of the cluster.
        PlanError: a graph needs more memory than the devices of any block have.
    """
    folder = cache_folder() if cache is None else cache
    tables = []
    for number, graph in enumerate(graphs):
        key = files.digest(FIGURES_VERSION, graph.digest, space.digest, costs.digest, splitting.model_dump())
        table = _read(folder / f"{key}.npz")
        if table is None:
            if progress is not None:
                progress(graph.name, number, len(graphs))
            table = _simulate(graph, space, costs, splitting)
            _write(folder / f"{key}.npz", table)
        _check_memory(graph, space, table)
        tables.append(table)
    stacked = np.stack(tables)
    return StepTimes(stacked[:, 0], stacked[:, 1], stacked[:, 2] > 0)


def cache_folder() -> Path:
    """``$MESHWRIGHT_CACHE``, else ``meshwright`` in the user's cache folder."""
    named = os.environ.get("MESHWRIGHT_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright" / "step_times"


def _simulate(graph: JobGraph, space: DecisionSpace, costs: CostSettings, splitting: SplitSettings) -> NDArray[np.float64]:
    table = np.empty((4, len(space.representative)))
    for c, block in enumerate(space.representative.tolist()):
        devices = space.block(block)
        splits = splitting.splits(graph, len(devices))
        timeline = simulate(graph, space.cluster, splits, devices[: splits.degree], costs)
        needed = op_split_memory_bytes(graph, splits)
        fits = bool((needed <= space.cluster.memory_bytes[devices[: splits.degree]]).all())
        can_run = fits and splits.degree == len(devices)
        table[:, c] = timeline.step_s, timeline.communication_share, float(can_run), needed.max()
    return table


def _check_memory(graph: JobGraph, space: DecisionSpace, table: NDArray[np.float64]) -> None:
    if not table[2].any():
        needed_gbytes, capacity_gbytes = table[3].min() / 1e9, space.cluster.memory_bytes.max() / 1e9
        raise PlanError(
            f"needs at least {needed_gbytes:.1f} GB on some rank however it is split; "
            f"the largest device of {space.cluster.name} has {capacity_gbytes:.1f} GB",
            field="job",
            value=graph.name,
        )


def _read(path: Path) -> NDArray[np.float64] | None:
    """The table in a file; None where it is absent or damaged (it is then simulated again)."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return np.asarray(file["table"], np.float64)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(path: Path, table: NDArray[np.float64]) -> None:
    buffer = BytesIO()
    np.savez(buffer, table=table)
    with files.atomic_file(path) as file:
        file.write(buffer.getvalue())
