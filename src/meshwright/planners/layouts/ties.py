"""Layouts that tie with the fastest one within the uncertainty of predictions, and how sure the order of two layouts is.

A doubt that two layouts share moves both steps equally and cancels. One that they do not share adds to `COMPARED_UNCERTAINTY`,
the error of the ratio of two predictions of one job on one system. A tie is a difference within one standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

from ...costs.training_step.step_figures import StepTime
from ...costs.training_step.uncertainty import ATTENTION, FUSED_ATTENTION_UNCERTAINTY, OF_IDLE_KERNELS, UTILISATION
from ...plans.partition import VOLUMES, Layout
from .results import RankedLayout, unasked
from .space import SEARCHED

COMPARED_UNCERTAINTY = 0.10
"""Standard deviation of the logarithm of the predicted ratio of two steps. It is the most likely value given how often the
faster of two is predicted right. The data are 2,459 pairs of vTrain's single-host runs of hidden size 2048
(VIA-Research/vTrain). No constant was fitted on these. Each pair is one model on equally many devices in two layouts whose
predicted steps are at most a quarter apart. Of pairs this far apart 89 % are predicted right."""

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
    def from_steps(cls, first: StepTime, second: StepTime, *, are_same: bool) -> Compared:
        """Return the first of two steps with the second."""
        pair = (first, second) if first.step_s <= second.step_s else (second, first)
        width = 0.0 if are_same else paired_uncertainty(*(one.uncertainty_terms for one in pair))
        return cls(first.step_s / second.step_s, width)

    @property
    def order_probability(self) -> float:
        """The probability that the step which is predicted to be shorter is so; of one layout there is no order, one half."""
        return NormalDist().cdf(abs(math.log(self.ratio)) / self.uncertainty) if self.uncertainty else 0.5

    @property
    def exceeds_uncertainty(self) -> bool:
        """Whether the difference is more than its uncertainty."""
        return abs(math.log(self.ratio)) > self.uncertainty

    @property
    def text(self) -> str:
        """The difference to the second, the fastest, for people, and how probable their order is."""
        if not self.uncertainty:
            return "the same layout"
        is_less, probability = self.ratio < 1, self.order_probability
        more = f"{abs(1 - self.ratio):.1%} {'less' if is_less else 'more'} time than the fastest"
        sure = "over 99%" if probability > 0.99 else f"{probability:.0%}"
        sure = f"{'faster' if is_less else 'slower'} with a probability of {sure}"
        if self.exceeds_uncertainty:
            return f"{more}, ± {self.uncertainty:.0%}; {sure}"
        return f"{more}, within their paired uncertainty of {self.uncertainty:.0%}; {sure}"

    def to_data(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {
            "difference": self.ratio - 1,
            "paired_uncertainty": self.uncertainty,
            "order_probability": self.order_probability,
            "exceeds_uncertainty": self.exceeds_uncertainty,
        }


class Busy(NamedTuple):
    """Bounds on the work of the deciding stage in a step.

    Attributes:
        kernels_s: seconds of its kernels, at least.
        least_attention_s: of those in fused attention, at least.
        most_attention_s: the same at most.
    """

    kernels_s: float = 0.0
    least_attention_s: float = 0.0
    most_attention_s: float = math.inf


def paired_uncertainty(faster: Mapping[str, float], slower: Mapping[str, float]) -> float:
    """Return the standard deviation of the logarithm of the ratio of two steps that one cost model predicts.

    Args:
        faster: doubts of the faster step, by name, see `costs.training_step.uncertainty`.
        slower: of the other one.
    """
    unshared = {name: faster.get(name, 0.0) - slower.get(name, 0.0) for name in {*faster, *slower}}
    counted = (max(0.0, more) if name in LATER_ONLY else more for name, more in unshared.items())
    return math.hypot(COMPARED_UNCERTAINTY, *counted)


def widest_tie(fastest: Mapping[str, float], fastest_s: float, least_s: float, busy: Busy, idle: float) -> float:
    """Return the logarithm of the ratio to the fastest step beyond which a step does not tie with it, at most `FARTHEST`.

    Doubts by which it could only take longer do not count. Fused attention is known. All others are of time in which the
    kernels of the deciding stage do not run.

    Args:
        fastest: doubts of the fastest step, by name.
        fastest_s: its seconds.
        least_s: the other one's at least.
        busy: of the other one.
        idle: relative doubt of the least certain second without kernels, see `uncertainty.of_idle_kernels`.
    """
    shared = [value for name, value in fastest.items() if name in (*LATER_ONLY, *OF_IDLE_KERNELS)]
    attention, width = fastest.get(ATTENTION, 0.0), FARTHEST
    for _ in range(3):  # a tie takes no longer than this
        longest_s = fastest_s * math.exp(width)
        least = FUSED_ATTENTION_UNCERTAINTY * busy.least_attention_s / longest_s
        most = FUSED_ATTENTION_UNCERTAINTY * busy.most_attention_s / least_s
        of_idle = idle * max(0.0, 1 - busy.kernels_s / longest_s)
        width = min(width, math.hypot(COMPARED_UNCERTAINTY, *shared, of_idle, max(attention - least, most - attention)))
    return width


def are_tied(fastest_s: float, other_s: float, width: float) -> bool:
    """Return whether the logarithm of the ratio of a step to the fastest is within a width."""
    return math.log(other_s / fastest_s) <= width


def more_than_plain(layout: Layout, devices_per_host: int) -> int:
    """Return how many mechanisms a layout has that a plain one lacks.

    Plain are tensor parallelism inside a host, with or without sequence parallelism, and data parallelism with ZeRO-1 at most. So
    are a pipeline of 1F1B or GPipe, powers of two, no recomputation, and the default of every other key.
    """
    usual, degrees = unasked(layout), [getattr(layout, axis) for axis in (*_AXES, "dp", "micro_batch")]
    has_schedule = layout.pp > 1 and layout.schedule not in ("1f1b", "gpipe")
    has_odd_degrees = any(degree & (degree - 1) for degree in degrees)
    is_wide, is_recomputed = layout.tp > devices_per_host, layout.recompute != "none"
    switches = (getattr(layout, name) != usual[name] for name in Layout.model_fields if name not in _NO_SWITCHES)
    return sum((layout.cp > 1, has_schedule, layout.zero > 1, is_recomputed, is_wide, has_odd_degrees, *switches))


def plainness(ranked: RankedLayout, devices_per_host: int) -> tuple[Any, ...]:
    """Return the key that sorts layouts, the plainest first.

    In this order: fewer mechanisms (see `more_than_plain`; the order of ranks is none), axes and devices; smaller degrees of
    all axes but data parallelism. Then: no recomputation, no ZeRO, a plain schedule, no sequence parallelism, less time.
    """
    layout = ranked.layout
    degrees = [getattr(layout, axis) for axis in _AXES]
    return (
        more_than_plain(layout, devices_per_host),
        sum(degree > 1 for degree in (*degrees, layout.dp)),
        ranked.devices,
        math.prod(degrees),
        _RECOMPUTATIONS.index(layout.recompute),
        layout.zero,
        _SCHEDULES.index(layout.schedule) if layout.pp > 1 else 0,
        layout.virtual_stages,
        layout.sequence_parallel,
        *ranked[:4],
    )
