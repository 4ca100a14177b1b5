"""Step times of jobs that hold one block: each op on the block's first servers in order, as many as it is cut into.

The published first fit spreads ops over blocks of their own (see `first_fit`); every other rule gives a job one block. Figures
are kept on disk like those of the general simulator. The file's name is a hash of graph, blocks, defects and the sources of this
package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...jobs.graph import JobGraph
from ..decision_space.space import DecisionSpace
from ..decision_space.step_times import Row, StepTimes, kept_step_times
from .lookahead import LookaheadResult
from .simulator import Simulator


def block_step_times(
    simulator: Simulator,
    graphs: Sequence[JobGraph],
    space: DecisionSpace,
    *,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> StepTimes:
    """Simulate one step of each graph on one block of each class, or read it from disk.

    Args:
        simulator: of these graphs on the space's cluster.
        graphs: the jobs.
        space: the blocks.
        cache: folder of the tables; None takes `cache_folder`.
        progress: called with a graph's name, its number and the number of graphs before each simulation.

    Raises:
        PlanError: a graph needs more memory than the servers of any block have.
    """

    def key(graph: JobGraph) -> str:
        of_graph = graph.digest, graph.source, list(graph.op_names), list(graph.op_kinds)
        return files.digest(_sources(), *of_graph, space.digest, simulator.defects.model_dump(), simulator.tie_seed)

    def row(graph: JobGraph, devices: NDArray[np.int64]) -> Row:
        return _row(simulator, graph.name, devices)

    return kept_step_times(graphs, space, key, row, cache, progress)


def _row(simulator: Simulator, name: str, devices: NDArray[np.int64]) -> Row:
    cut = simulator.split(name, len(devices))  # at most as often as the block has servers
    placed = simulator.placed(name, len(devices), devices[np.arange(cut.num_sub_ops) - cut.first[cut.op]])
    step = simulator.step(placed)
    pieces = placed.split.splits[: placed.split.job.num_forward]
    each = 2.0 * placed.split.job.memory_bytes[: len(pieces)] / pieces  # a forward sub-op and its backward one
    needed = np.array([each[pieces > rank].sum() for rank in range(len(devices))])
    capacity = simulator.cluster.memory_bytes[devices]
    tightest = int(np.argmax(needed - capacity))
    can_run = needed[tightest] <= capacity[tightest] and pieces.max() == len(devices)
    return step.step_s, communication_share(step), float(can_run), float(needed[tightest]), float(capacity[tightest])


def communication_share(step: LookaheadResult) -> float:
    """Return the share of a step in which some flow is under way."""
    return step.communication_s / step.step_s if step.step_s > 0 else 0.0


@cache
def _sources() -> str:
    """Return a hash of the modules that the figures come from."""
    return files.digest([path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))])
