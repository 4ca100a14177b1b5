"""Layouts that predictions cannot tell from the fastest one, the plainest first, and how sure the order of two layouts is.

A doubt that two layouts share moves both steps alike and cancels; one that they do not share adds to `COMPARED_UNCERTAINTY`, by
which two predictions of one job on one system differ from what was measured. A tie is a difference within one standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

from ...costs.training_step.step_figures import StepTime
from ...costs.training_step.uncertainty import UTILISATION
from ...plans.partition import VOLUMES, Layout
from ...plans.rank_order import DEFAULT_ORDER
from .results import RankedLayout, unasked
from .space import SEARCHED

COMPARED_UNCERTAINTY = 0.10
"""Standard deviation of the logarithm of the predicted ratio of two steps, told by how often the faster of two is told right:
most likely on 2,459 pairs of vTrain's single-host runs of hidden size 2048, which no constant was fitted on, each pair one model
on as many devices in two layouts whose predicted steps are at most a quarter apart (VIA-Research/vTrain). Of pairs that are as
far apart as this, 89 % are told right."""

FARTHEST = 0.25
"""Logarithm of the ratio of two steps beyond which no doubt makes them a tie."""

LATER_ONLY = ("hidden communication", UTILISATION)
"""Doubts by which a step can only take longer than predicted; those of the slower one speak for no tie."""

_AXES = ("tp", "cp", "pp", "ep", *VOLUMES)
_NO_SWITCHES = (
    *(*SEARCHED, *VOLUMES, "global_batch", "recompute_method", "recompute_num_layers", "framework", "compile"),
    "sequence_parallel",  # comes with tensor parallelism
)

_SCHEDULES = ("none", "1f1b", "gpipe", "eager-1f1b", "interleaved", "zb-h1", "zb-2p", "dualpipev", "dualpipe")
_RECOMPUTATIONS = ("none", "selective", "selective-ops", "full")


class Compared(NamedTuple):
    """Two steps of one job by one cost model.

    Attributes:
        ratio: of the first step to the second.
        uncertainty: standard deviation of its logarithm; 0 where both are the same layout.
    """

    ratio: float
    uncertainty: float

    @classmethod
    def of(cls, first: StepTime, second: StepTime, *, are_same: bool) -> Compared:
        """The first of two steps with the second."""
        pair = (first, second) if first.step_s <= second.step_s else (second, first)
        width = 0.0 if are_same else paired_uncertainty(*(one.uncertainty_terms for one in pair))
        return cls(first.step_s / second.step_s, width)

    @property
    def order_probability(self) -> float:
        """The probability that the step which is told to be shorter is so; of one layout there is no order, one half."""
        return NormalDist().cdf(abs(math.log(self.ratio)) / self.uncertainty) if self.uncertainty else 0.5

    @property
    def is_told_apart(self) -> bool:
        """Whether the difference is more than its uncertainty."""
        return abs(math.log(self.ratio)) > self.uncertainty

    @property
    def text(self) -> str:
        """The difference, for people; none that is within its uncertainty is called a gain or a loss."""
        if not self.uncertainty:
            return "as long, it is the same layout"
        more = f"{abs(1 - self.ratio):.1%} {'less' if self.ratio < 1 else 'more'}"
        sure = f"the order is {self.order_probability:.0%} sure"
        if self.is_told_apart:
            return f"{more}, paired uncertainty {self.uncertainty:.0%}, {sure}"
        none = "gain" if self.ratio < 1 else "loss"
        return f"{more}, which is no {none}: within the paired uncertainty of {self.uncertainty:.0%}, {sure}"

    def to_data(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {
            "difference": self.ratio - 1,
            "paired_uncertainty": self.uncertainty,
            "order_probability": self.order_probability,
            "is_told_apart": self.is_told_apart,
        }


def paired_uncertainty(faster: Mapping[str, float], slower: Mapping[str, float]) -> float:
    """Standard deviation of the logarithm of the ratio of two steps that one cost model predicts.

    Args:
        faster: doubts of the faster step, by name, see `costs.training_step.uncertainty`.
        slower: of the other one.
    """
    unshared = {name: faster.get(name, 0.0) - slower.get(name, 0.0) for name in {*faster, *slower}}
    counted = (max(0.0, more) if name in LATER_ONLY else more for name, more in unshared.items())
    return math.hypot(COMPARED_UNCERTAINTY, *counted)


def tie_width(faster: Mapping[str, float], slower: Mapping[str, float]) -> float:
    """Largest logarithm of the ratio of a step to a faster one that is a tie; see `paired_uncertainty`."""
    return min(FARTHEST, paired_uncertainty(faster, slower))


def are_tied(fastest_s: float, other_s: float, width: float) -> bool:
    """Whether a step is as fast as the fastest within a `tie_width`."""
    return math.log(other_s / fastest_s) <= width


def mechanisms(layout: Layout, devices_per_host: int) -> tuple[str, ...]:
    """What makes a layout more than plain, in the words of its keys.

    Plain is tensor parallelism inside a host, with or without sequence parallelism, data parallelism with ZeRO-1 at most, a 1F1B
    pipeline, powers of two, nothing computed again, and every other key as it is unasked.
    """
    usual, degrees = unasked(layout), [getattr(layout, axis) for axis in (*_AXES, "dp", "micro_batch")]
    has_schedule = layout.pp > 1 and layout.schedule not in ("1f1b", "gpipe")
    told = {
        f"cp={layout.cp}": layout.cp > 1,
        f"{layout.schedule}:{layout.virtual_stages}": has_schedule,
        f"zero={layout.zero}": layout.zero > 1,
        f"recompute={layout.recompute}": layout.recompute != "none",
        f"tp={layout.tp} across hosts": layout.tp > devices_per_host,
        "no powers of two": any(degree & (degree - 1) for degree in degrees),
    }
    switches = (name for name in Layout.model_fields if name not in _NO_SWITCHES and getattr(layout, name) != usual[name])
    return (*(name for name, is_there in told.items() if is_there), *switches)


def plainness(found: RankedLayout, devices_per_host: int) -> tuple[Any, ...]:
    """What sorts layouts by how plain they are, the plainest first.

    Fewer `mechanisms`, an unusual rank order being one; fewer axes along which the job is cut; fewer devices; smaller degrees of
    all axes but data parallelism, which every framework has; no recomputation; no ZeRO; a plain schedule; no sequence
    parallelism. Equal ones stand by their time.
    """
    layout = found.layout
    degrees = [getattr(layout, axis) for axis in _AXES]
    return (
        len(mechanisms(layout, devices_per_host)) + (found.order != DEFAULT_ORDER),
        sum(degree > 1 for degree in (*degrees, layout.dp)),
        found.devices,
        math.prod(degrees),
        _RECOMPUTATIONS.index(layout.recompute),
        layout.zero,
        _SCHEDULES.index(layout.schedule) if layout.pp > 1 else 0,
        layout.virtual_stages,
        layout.sequence_parallel,
        *found[:4],
    )
