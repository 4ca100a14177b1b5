"""Layouts that predictions cannot tell from the fastest one, the simplest first.

A doubt that two layouts share moves both steps alike and cancels; one that they do not share adds to `COMPARED_UNCERTAINTY`, by
which two predictions of one job on one system differ from what was measured. A tie is a difference within one standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...costs.training_step.uncertainty import UTILISATION
from ...plans.partition import Layout
from ...plans.rank_order import ORDERS
from .results import RankedLayout, unasked

COMPARED_UNCERTAINTY = 0.10
"""Standard deviation of the logarithm of the predicted ratio of two steps, told by how often the faster of two is told right:
most likely on 2,459 pairs of vTrain's single-host runs of hidden size 2048, which no constant was fitted on, each pair one model
on as many devices in two layouts whose predicted steps are at most a quarter apart (VIA-Research/vTrain). Of pairs that are as
far apart as this, 89 % are told right."""

FARTHEST = 0.25
"""Logarithm of the ratio of two steps beyond which no doubt makes them a tie."""

LATER_ONLY = ("hidden communication", UTILISATION)
"""Doubts by which a step can only take longer than predicted; those of the slower one speak for no tie."""

_SCHEDULES = ("none", "1f1b", "gpipe", "eager-1f1b", "interleaved", "zb-h1", "zb-2p", "dualpipev", "dualpipe")
_RECOMPUTATIONS = ("none", "selective", "selective-ops", "full")


def tie_width(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Largest logarithm of the ratio of a step to a faster one that is a tie.

    Args:
        first: doubts of the faster step, by name, see `costs.training_step.uncertainty`.
        second: of the other one.
    """
    unshared = {name: first.get(name, 0.0) - second.get(name, 0.0) for name in {*first, *second}}
    counted = (max(0.0, more) if name in LATER_ONLY else more for name, more in unshared.items())
    return min(FARTHEST, math.hypot(COMPARED_UNCERTAINTY, *counted))


def are_tied(fastest_s: float, other_s: float, width: float) -> bool:
    """Whether a step is as fast as the fastest within a `tie_width`."""
    return math.log(other_s / fastest_s) <= width


def simplicity(found: RankedLayout) -> tuple[Any, ...]:
    """What sorts layouts by how simple they are, the simplest first.

    Fewer axes along which the job is cut; fewer devices; smaller degrees of all axes but data parallelism, which every
    framework has; no recomputation; no ZeRO; a plain schedule; fewer switches that are other than usual; the usual rank order.
    Equal ones stand by their time.
    """
    layout = found.layout
    degrees = (layout.tp, layout.cp, layout.pp, layout.ep, layout.sp_d, layout.sp_h, layout.sp_w)
    usual = unasked(layout)
    counted = (
        "tp",
        "cp",
        "pp",
        "dp",
        "ep",
        "sp_d",
        "sp_h",
        "sp_w",
        "recompute",
        "zero",
        "schedule",
        "virtual_stages",
        "micro_batch",
        "global_batch",
    )
    switches = sum(getattr(layout, name) != usual[name] for name in Layout.model_fields if name not in counted)
    return (
        sum(degree > 1 for degree in (*degrees, layout.dp)),
        found.devices,
        math.prod(degrees),
        _RECOMPUTATIONS.index(layout.recompute),
        layout.zero,
        _SCHEDULES.index(layout.schedule) if layout.pp > 1 else 0,
        layout.virtual_stages,
        switches,
        ORDERS.index(found.order),
        *found[:4],
    )
