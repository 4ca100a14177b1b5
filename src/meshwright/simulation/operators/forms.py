"""Forms of the value of a placement: what planners make small, and what else the same placement can be valued by.

An objective has a form that planners and learned policies optimise, its first one here. The others value what was found: with
messages that share links, or a pipeline that really runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from ...clusters.cluster import Cluster
from ...clusters.topologies.matrix import MatrixTopology
from ..contention.concurrent_jobs import schedule as schedule_together
from ..contention.placed_job import PlacedJob
from ..step.execution import ExecutionGraph
from .instance import OperatorInstance
from .lowering import Contention, lower
from .pipelined import followed_s
from .placement import OperatorObjective, OperatorPlacement

ValueForm = Literal["independent", "fair", "max-load", "simulated"]

FORMS: dict[OperatorObjective, tuple[ValueForm, ...]] = {
    "latency": ("independent", "fair"),
    "throughput": ("max-load", "simulated"),
}
"""The first of an objective is its default, which planners and learned policies optimise."""

_WIDEST_BYTES_PER_S = 1e18


def form_value_s(instance: OperatorInstance, made: OperatorPlacement, form: ValueForm) -> float:
    """Seconds of a legal placement under a form of its objective.

    Args:
        instance: what is placed.
        made: where, and in which order devices run their ops.
        form: one of `FORMS` of the placement's objective. ``fair``: messages of an ordered pair of devices share its bandwidth.
            ``simulated``: see `pipelined`; as many micro-batches are under way as devices have ops, and a device sends or gets
            one message at a time.

    Returns:
        The placement's own value for the default form.

    Raises:
        PlanError: the placement has no value of this form, as it is a pipeline of too many tasks.
    """
    if form == FORMS[made.objective][0]:
        return made.value_s
    columns = np.unique(made.device_of)
    if form == "simulated":
        return followed_s(_lowered(instance, made, "serialised"), len(columns), at_once=len(columns))
    job = PlacedJob(_lowered(instance, made, "fair"), columns)
    return float(schedule_together([job], _pairs(instance))[0][1].max())


def _lowered(instance: OperatorInstance, made: OperatorPlacement, contention: Contention) -> ExecutionGraph:
    columns, rank_of = np.unique(made.device_of, return_inverse=True)
    return lower(instance, rank_of.reshape(-1), columns, made.order, contention=contention)


def _pairs(instance: OperatorInstance) -> Cluster:
    """The instance's devices, with a channel for each ordered pair; types of devices do not matter to messages."""
    m = instance.num_devices
    rows = [[1.0] * m] * m
    network = {"kind": "matrix", "bandwidth_gbytes_per_s": rows, "latency_us": rows}
    whole = Cluster.from_data({"name": "pairs", "device": "a100", "topology": network})
    widths = np.minimum(instance.bandwidth_bytes_per_s, _WIDEST_BYTES_PER_S)
    return replace(whole, topology=MatrixTopology(widths, instance.latency_s))
