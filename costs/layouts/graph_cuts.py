"""Where a pipeline of any job graph is cut: exactly so that its busiest stage is as little busy as can be.

Stages are runs of the topological order; layers of a transformer stay whole (`plans.stages.layer_starts`). For each
micro-batch a stage computes forward and backward, and sends activations to the next stage and gradients to the one before;
where it computes on while it sends, the longer of both counts. Of all cuts whose stages fit their devices those are taken
whose busiest stage is least busy, and of these the one that sends least in all.

Legend: ``u`` units that stay whole, ``k`` chunks, one for each stage unless schedules are interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...devices import DeviceType
from ...errors import PlanError
from ...jobs.graph import JobGraph
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ...plans.stages import layer_starts
from ..model import CostSettings
from .chunk_runs import load_s
from .graph_memory import flights, state_factor
from .graph_work import op_times_s, share_of
from .interleaved_cuts import Fitting, Held, fitting_cuts
from .memory import FRAGMENTATION, RUNTIME_BYTES
from .wires import Wiring, boundary_groups

ROUNDING = 1e-12
"""Relative. Sums in another order must not part what is equally busy."""


@dataclass(frozen=True, eq=False)
class Chain:
    """A graph as a pipeline sees it.

    Attributes:
        starts: first op of each unit by its place in the topological order and, last, the number of ops, ``(u + 1,)``.
        busy_s: seconds of a micro-batch through all units before each one, ``(u + 1,)``.
        weight_bytes: of all units before each one, ``(u + 1,)``.
        activation_bytes: of a micro-batch through all units before each one, ``(u + 1,)``.
        workspace_bytes: largest of a unit, ``(u,)``.
        crossing_bytes: what a micro-batch brings past each place between two units; nothing at both ends, ``(u + 1,)``.
    """

    starts: NDArray[np.int64]
    busy_s: NDArray[np.float64]
    weight_bytes: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    crossing_bytes: NDArray[np.float64]

    @classmethod
    def of(cls, graph: JobGraph, layout: Layout, device: DeviceType, costs: CostSettings) -> Chain:
        """The chain of a graph whose micro-batches are those of a layout.

        Raises:
            PlanError, GraphError: as `graph_work.describe_graph`.
        """
        forward_s, backward_s = op_times_s(graph, layout, device, costs)
        order, share, n = graph.order, share_of(graph, layout), graph.num_ops
        starts = np.append(layer_starts(graph), n)
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        last_use = place.copy()
        np.maximum.at(last_use, graph.edges[:, 0], place[graph.edges[:, 1]])
        # An op's output crosses every place behind it up to the last op that needs it.
        change = np.zeros(n + 1)
        np.add.at(change, place + 1, share * graph.activation_bytes)
        np.add.at(change, last_use + 1, -share * graph.activation_bytes)
        crosses = np.zeros(n + 1, np.int64)
        np.add.at(crosses, place + 1, 1)
        np.add.at(crosses, last_use + 1, -1)
        # Rounding must not leave a message where nothing crosses.
        crossing = np.where(np.cumsum(crosses) > 0, np.maximum(np.cumsum(change), 0.0), 0.0)

        def before(values: NDArray[np.float64]) -> NDArray[np.float64]:
            picked: NDArray[np.float64] = np.concatenate([np.zeros(1), np.cumsum(values[order])])[starts]
            return picked

        return cls(
            starts=starts,
            busy_s=before(forward_s + backward_s),
            weight_bytes=before(graph.parameter_bytes),
            activation_bytes=before(share * graph.activation_bytes),
            workspace_bytes=np.maximum.reduceat(share * graph.workspace_bytes[order], starts[:-1]),
            crossing_bytes=crossing[starts],
        )

    @property
    def num_units(self) -> int:
        """Number of units, ``u``."""
        return len(self.starts) - 1


class Cuts(NamedTuple):
    """Where a pipeline is cut.

    Attributes:
        places: the first op of each chunk by its place in the topological order and, last, the number of ops; None where no cut
            that fits was found.
        is_proven: whether no cut is better or, without places, none fits. Only chunks that share a device's memory may leave
            this open, where the search took more steps than it may.
        least_bytes: where it is open, the fullest device holds no less with any cut; else zero.
    """

    places: tuple[int, ...] | None
    is_proven: bool
    least_bytes: float = 0.0


def best_cuts(
    graph: JobGraph,
    layout: Layout,
    device: DeviceType,
    wires: Wiring,
    costs: CostSettings | None = None,
    *,
    order: str = DEFAULT_ORDER,
    capacity_bytes: float = np.inf,
    chain: Chain | None = None,
) -> tuple[int, ...] | None:
    """The places of `find_cuts`; None where it found no cut that fits."""
    return find_cuts(graph, layout, device, wires, costs, order=order, capacity_bytes=capacity_bytes, chain=chain).places


def find_cuts(
    graph: JobGraph,
    layout: Layout,
    device: DeviceType,
    wires: Wiring,
    costs: CostSettings | None = None,
    *,
    order: str = DEFAULT_ORDER,
    capacity_bytes: float = np.inf,
    chain: Chain | None = None,
    most_steps: float | None = None,
) -> Cuts:
    """The best cut of those that fit: its busiest chunk is least busy, and of such cuts it sends least.

    Interleaved schedules put several chunks on a stage, which share its memory (`interleaved_cuts`).

    Args:
        graph: the job.
        layout: its pipeline and micro-batches.
        device: on which it runs.
        wires: prices transfers.
        costs: chooses the compute model.
        order: how ranks are numbered, see `plans.rank_order`.
        capacity_bytes: memory of a device.
        chain: from `Chain.of`, if it is known.
        most_steps: of a search among chunks that share memory; `interleaved_cuts.MOST_STEPS` by default.

    Raises:
        PlanError: fewer units than chunks, or as `graph_work.describe_graph`.
        GraphError: as `graph_work.describe_graph`.
    """
    chain = chain or Chain.of(graph, layout, device, costs or CostSettings())
    num_chunks, units = layout.pp * layout.virtual_stages, chain.num_units
    if units < num_chunks:
        what = "ops" if units == graph.num_ops else "layers"
        raise PlanError(f"{num_chunks} stages are more than the job's {what}", field="layout.pp", value=units)
    if num_chunks == 1:
        capacity_bytes = np.inf  # there is nothing to choose
    is_plain = layout.virtual_stages == 1
    kept = np.array([flights(layout, chunk) if is_plain else 0.0 for chunk in range(num_chunks)])
    cuts = np.zeros(num_chunks + 1, np.int64)
    held = Held(chain.weight_bytes * state_factor(layout), chain.activation_bytes, chain.workspace_bytes, chain.crossing_bytes)
    transfers_s = _transfers_s(layout, chain, wires, order)
    found = _best_cuts(
        chain.busy_s,
        transfers_s,
        layout.overlap_pp,
        *held,
        kept,
        layout.recompute == "full",
        capacity_bytes * (1 - ROUNDING) if is_plain else np.inf,
        cuts,
    )
    fitting = Fitting(bool(found), True)
    if not is_plain and capacity_bytes < np.inf:
        busy_s, capacity_bytes = chain.busy_s, capacity_bytes * (1 - ROUNDING)
        fitting = fitting_cuts(layout, busy_s, transfers_s, held, capacity_bytes, cuts, most_steps)
    places = tuple(chain.starts[cuts].tolist()) if fitting.is_found else None
    return Cuts(places, fitting.is_proven, fitting.least_bytes)


def _transfers_s(layout: Layout, chain: Chain, wires: Wiring, order: str) -> NDArray[np.float64]:
    """Seconds in which a micro-batch, or its gradient, goes past each place behind each chunk, ``(k, u + 1)``.

    Nothing goes past the last one.
    """
    num_chunks = layout.pp * layout.virtual_stages
    found = np.zeros((num_chunks, chain.num_units + 1))
    groups = boundary_groups(layout, wires.devices_per_host, order)
    known: dict[object, NDArray[np.float64]] = {}
    for chunk in range(num_chunks - 1):
        group = groups[chunk % layout.pp]
        if group not in known:
            sizes = chain.crossing_bytes.tolist()
            known[group] = np.array([wires.group_s("send_recv", size, group) if size > 0 else 0.0 for size in sizes])
        found[chunk] = known[group]
    return found


@njit()
def _best_cuts(  # type: ignore[no-untyped-def]
    busy_s, transfer_s, hides, state_bytes, activation_bytes, workspace_bytes, crossing_bytes, kept, recomputes, capacity, cuts
):
    """Write the cuts; False where no cut fits. First the least load of the busiest chunk, then the least transfers under it."""
    num_chunks, u = len(transfer_s), len(busy_s) - 1
    least = np.full((num_chunks + 1, u + 1), np.inf)
    least[0, 0] = 0.0
    for chunk in range(num_chunks):
        for last in range(chunk + 1, u - (num_chunks - chunk - 1) + 1):
            best, workspace = np.inf, 0.0
            for first in range(last - 1, chunk - 1, -1):
                workspace = max(workspace, workspace_bytes[first])
                if busy_s[last] - busy_s[first] >= best:
                    break
                load = load_s(busy_s, transfer_s, hides, chunk, first, last)
                if max(least[chunk, first], load) < best and _fits(
                    state_bytes, activation_bytes, crossing_bytes, workspace, kept[chunk], recomputes, capacity, first, last
                ):
                    best = max(least[chunk, first], load)
            least[chunk + 1, last] = best
    limit = least[num_chunks, u]
    if limit == np.inf:
        return False
    limit *= 1.0 + ROUNDING
    waits = np.full((num_chunks + 1, u + 1), np.inf)
    waits[0, 0] = 0.0
    came_from = np.zeros((num_chunks + 1, u + 1), np.int64)
    for chunk in range(num_chunks):
        for last in range(chunk + 1, u - (num_chunks - chunk - 1) + 1):
            workspace = 0.0
            for first in range(last - 1, chunk - 1, -1):
                workspace = max(workspace, workspace_bytes[first])
                if busy_s[last] - busy_s[first] > limit:
                    break
                wait = waits[chunk, first] + transfer_s[chunk, last]
                if (
                    wait < waits[chunk + 1, last]
                    and load_s(busy_s, transfer_s, hides, chunk, first, last) <= limit
                    and _fits(
                        state_bytes, activation_bytes, crossing_bytes, workspace, kept[chunk], recomputes, capacity, first, last
                    )
                ):
                    waits[chunk + 1, last] = wait
                    came_from[chunk + 1, last] = first
    cuts[num_chunks] = u
    for chunk in range(num_chunks, 0, -1):
        cuts[chunk - 1] = came_from[chunk, cuts[chunk]]
    return True


@njit(inline="always")
def _fits(state_bytes, activation_bytes, crossing_bytes, workspace, kept, recomputes, capacity, first, last):  # type: ignore[no-untyped-def]
    """Whether a rank holds a chunk, counted as `graph_memory.graph_stage_memory` counts it."""
    if capacity == np.inf:
        return True
    own = activation_bytes[last] - activation_bytes[first]
    activations = kept * crossing_bytes[first] + own if recomputes else kept * own
    changing = activations + workspace + crossing_bytes[first] + crossing_bytes[last]
    return state_bytes[last] - state_bytes[first] + (1.0 + FRAGMENTATION) * changing + RUNTIME_BYTES <= capacity
