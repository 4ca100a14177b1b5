"""Cuts of a pipeline of any job graph, for the shortest step among the cuts that fit.

Stages are runs of the topological order; layers of a transformer stay whole (`plans.stages.layer_starts`). For each
micro-batch a stage computes forward and backward, and sends activations to the next stage and gradients to the one before.
`GraphPricer.step_s` gives the value of a cut. GPipe and 1F1B are cut exactly (`cut_labels`). Others, and replicas on unequal
hosts, take the best of a family of cuts that no figure of a machine changes (`cut_family`). Either way the cut is the best one
of a set that does not depend on how fast anything is. More memory only adds to the cuts that fit. So no step takes longer on a
better machine.

Where none of the family fits, and chunks share a device's memory, others are made from its leanest ones (`tight_cuts`).

Legend: ``u`` units that stay whole, ``k`` chunks, one for each stage unless schedules are interleaved.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...devices import DeviceType
from ...errors import PlanError
from ...jobs.graph import JobGraph
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..pipelines.kept import first_rounds
from ..pipelines.schedules import is_plain, turns_of
from ..process_groups.group_network import GroupNetwork
from ..settings import CostSettings
from ..training_step.graph_step_time import GraphPricer, is_uneven
from ..work.graph_work import describe_graph
from .cut_memory import CutMemory
from .cut_prices import CutPricer
from .tight_cuts import tight_cuts
from .unit_chain import Chain

ROUNDING = 1e-12
"""Relative. Sums in another order must not part what is equally busy."""


class Cuts(NamedTuple):
    """The cuts of a pipeline.

    Attributes:
        places: the first op of each chunk by its place in the topological order and, last, the number of ops. None where no
            cut that fits was found.
        is_proven: whether the search came to its end: none of the cuts that are compared is better or, without places, none at
            all fits.
        least_bytes: where it is open, the fullest device holds no less with any cut; else zero.
    """

    places: tuple[int, ...] | None
    is_proven: bool
    least_bytes: float = 0.0


def find_cuts(
    graph: JobGraph,
    layout: Layout,
    device: DeviceType,
    wires: GroupNetwork,
    costs: CostSettings | None = None,
    *,
    order: str = DEFAULT_ORDER,
    capacity_bytes: float = np.inf,
    chain: Chain | None = None,
    most_steps: float | None = None,
    below_s: float = np.inf,
) -> Cuts:
    """Return the cut of the shortest step among those that fit.

    Args:
        graph: the job.
        layout: its pipeline and micro-batches.
        device: on which it runs.
        wires: prices transfers.
        costs: chooses the compute model.
        order: how ranks are numbered, see `plans.rank_order`.
        capacity_bytes: memory of a device.
        chain: from `Chain.from_graph`, if it is known.
        most_steps: of a search among chunks that share memory; `tight_cuts.MOST_STEPS` by default.
        below_s: cuts of a family that take as long may be left out.

    Raises:
        PlanError: fewer units than chunks, or as `graph_work.describe_graph`.
        GraphError: as `graph_work.describe_graph`.
    """
    costs = costs or CostSettings()
    chain = chain or Chain.from_graph(graph, layout, device, costs)
    num_chunks, units = layout.pp * layout.virtual_stages, chain.num_units
    if units < num_chunks:
        what = "ops" if units == graph.num_ops else "layers"
        raise PlanError(f"{num_chunks} stages are more than the job's {what}", field="layout.pp", value=units)
    if num_chunks == 1:
        return Cuts((0, graph.num_ops), True)  # there is nothing to choose
    capacity_bytes *= 1 - ROUNDING
    pricer = CutPricer(layout, chain, wires, order, costs.overlap_slowdown, capacity_bytes)
    if is_uneven(wires, layout):
        work = describe_graph(graph, layout, device, costs, cuts=chain.starts[pricer.memory.compared[0]].tolist())
        priced = GraphPricer(device, wires, costs.overlap_slowdown, order).step_s
        cuts = pricer.best(partial(pricer.placed_step_s, work, priced))
    elif is_plain(layout.schedule, layout.virtual_stages, overlaps_sends=layout.overlap_pp):
        cuts, is_proven = pricer.shortest()
        return Cuts(_places(chain, cuts), is_proven)
    else:
        cuts = pricer.best(pricer.step_s, below_s)
        if cuts is None and below_s < np.inf and pricer.memory.compared_bytes.min(initial=np.inf) <= capacity_bytes:
            return Cuts(None, True)
    if cuts is not None or layout.virtual_stages == 1 or chain.family.is_whole(num_chunks):
        return Cuts(_places(chain, cuts), True)
    num_played, round_of = first_rounds(layout)
    turns = turns_of(layout.schedule, layout.pp, layout.virtual_stages, num_played, round_of)
    result, least_bytes = tight_cuts(pricer.pipe, turns, num_played, pricer.memory.compared, most_steps)
    if not result:
        return Cuts(None, least_bytes == np.inf, least_bytes if least_bytes < np.inf else 0.0)
    return Cuts(_places(chain, min(result, key=pricer.step_s)), True)


def least_of(layout: Layout, chain: Chain, capacity_bytes: float) -> tuple[float, float] | None:
    """Lower bounds for the best cut that fits, known before the search; None where none is known to fit.

    Args:
        layout: its pipeline.
        chain: what is cut.
        capacity_bytes: memory of a device.

    Returns:
        Seconds of a micro-batch, forward and backward, on the busiest stage, and bytes of the fullest rank.
    """
    num_chunks = layout.pp * layout.virtual_stages
    if num_chunks == 1 or chain.num_units < num_chunks:
        return None
    memory = CutMemory.from_chain(layout, chain)
    if memory.least_bytes > capacity_bytes * (1 - ROUNDING):
        return None
    return chain.least_busiest_s(layout.pp, layout.virtual_stages), memory.least_bytes


def _places(chain: Chain, cuts: NDArray[np.int64] | None) -> tuple[int, ...] | None:
    return None if cuts is None else tuple(chain.starts[cuts].tolist())
