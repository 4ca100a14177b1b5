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
from .contiguous import contiguous_value_s
from .instance import OperatorInstance
from .lowering import Contention, lower
from .pipelined import followed_s
from .placement import OperatorObjective, OperatorPlacement
from .stage_forms import pipedream_form_s, piper_form_s

ValueForm = Literal["independent", "fair", "contiguous-accelerator", "max-load", "simulated", "pipedream", "piper"]

FORMS: dict[OperatorObjective, tuple[ValueForm, ...]] = {
    "latency": ("independent", "fair", "contiguous-accelerator"),
    "throughput": ("max-load", "pipedream", "piper", "simulated"),
}
"""The first of an objective is its default, which planners and learned policies optimise; only `pipedream` and `piper` make their
own form small."""
WORDS: dict[ValueForm, str] = {
    "fair": "messages under way from one device to another share the link between them",
    "contiguous-accelerator": "an accelerator runs its ops at once when all inputs are there, in pieces where it must wait",
    "pipedream": "devices are stages in order on equal links; the largest of a stage's ops and of twice what it gets or hands on",
    "piper": "devices are stages in order on equal links; the largest of a stage's ops and twice its cut edges together",
    "simulated": "the time from one micro-batch to the next in a full pipeline, by the event simulator",
}
"""What is valued by a form that is not the default."""

_WIDEST_BYTES_PER_S = 1e18


def form_value_s(instance: OperatorInstance, made: OperatorPlacement, form: ValueForm) -> float:
    """Seconds of a legal placement under a form of its objective.

    Args:
        instance: what is placed.
        made: where, and in which order devices run their ops.
        form: one of `FORMS` of the placement's objective. ``fair``: messages of an ordered pair of devices share its bandwidth.
            ``simulated``: see `pipelined`; as many micro-batches are under way as devices have ops, and a device sends or gets
            one message at a time. ``contiguous-accelerator``: see `contiguous`; ``pipedream`` and ``piper``: see `stage_forms`.

    Returns:
        The placement's own value for the default form.

    Raises:
        PlanError: the placement has no value of this form, as its devices are no stages in order or wait for each other, or it is
            a pipeline of too many tasks.
    """
    if form == FORMS[made.objective][0]:
        return made.value_s
    if form == "contiguous-accelerator":
        return contiguous_value_s(instance, made.device_of)[0]
    if form == "pipedream":
        return pipedream_form_s(instance, made.device_of)
    if form == "piper":
        return piper_form_s(instance, made.device_of)
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
