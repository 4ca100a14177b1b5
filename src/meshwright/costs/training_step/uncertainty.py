"""Uncertainty of the time of a step: errors of calibration, differences of runs, features of a layout that no run has shown.

Each term is a standard deviation of the step's logarithm, so a relative one. Together they are its uncertainty (root of the
sum of squares), and 95 % of runs lie within `interval`. No prediction is changed by this. Predictions were compared with runs
(docs, "How good are the predictions") that compute attention unfused and send gradients when the backward pass is over. These
runs reach at most `SEEN_UTILISATION` of their devices' peak. The further a layout goes beyond them, the wider its uncertainty.
`RUN_UNCERTAINTY` alone comes from those runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ...plans.partition import Layout
from ..work.operations import FusedAttention, Item, Pass, Product
from ..work.work import LayoutWork
from .kernels import FP8_SPEED, KernelModel, KernelSettings

RUN_UNCERTAINTY = 0.13
"""Common error of all rows of a published family beyond the other terms. It is due to their framework, its version and
switches that no layout names, their hosts, and the behaviour of a cluster at its scale. By `between_runs` of
`evaluation.validation.step_times.coverage` over families of frameworks that the constants of kernels do not know. A family's
own coverage is reported with its figure left out (a reference test holds this constant).
"""

SOFTWARE = "software and cluster"

KNOWN_SOFTWARE = "whole steps of this software"
"""In place of kernels, and of software and cluster, where a job's framework is named and the constants know its steps."""

STEPS_UNDER = {"fsdp2": 0.082, "megatron": 0.067}
"""In place of both by the framework of a layout, where the model is dense, numbers have 16 bits, and the device is one of
`SEEN_DEVICES`: by `under_framework` of `evaluation.validation.step_times.coverage` over the families of that framework. Those of
FSDP2 hide what they send, so that this adds nothing."""

SEEN_DEVICES = ("a100", "h100", "h200")
"""Device types with measured kernels and with published or measured whole steps."""

NETWORK_UNCERTAINTY = 0.25
"""Relative standard deviation of what crosses hosts, whose figures are nominal."""

UNKNOWN_LINKS_UNCERTAINTY = 0.5
"""The same of messages inside hosts of device types on which no collective was measured. A line that was scaled to their links
is 42 to 57 % off on GB200 and B300 above 1 MiB.
"""

FUSED_ATTENTION_UNCERTAINTY = 0.25
"""The same of fused attention's kernels. Their published speeds are 50 to 73 % of an A100's peak by length and width of the
heads, less where sequences are short. Dao, "FlashAttention-2", 2023, abstract and figures 4 to 6.
"""

HOST_UNCERTAINTY = 0.33
"""The same of the host's addition to a step of a known framework: its pace varies, and how far it runs ahead is not known.
From nine cells of vTrain's table of hidden size 2048, to which it adds a tenth or more and on which nothing is fitted. By
`between_runs` of `evaluation.validation.step_times.coverage`, errors and terms over that share.
"""

HIDDEN_UNCERTAINTY = 0.5
"""The same of communication that is taken to hide behind computation, were it not hidden: half of it may show. An assumption."""

SEEN_UTILISATION = 0.61
"""Largest share of a device's peak, counted in operations really done, of a run that a prediction was held against."""

UTILISATION = "utilisation beyond any measured run"

ATTENTION = "fused attention"
BETWEEN_HOSTS, INSIDE_HOSTS, HOST = OF_IDLE_KERNELS = "links between hosts", "links inside hosts", "host"
"""Doubts about time in which the kernels of a rank do not run."""

NORMAL_95 = 1.959964
"""Standard deviations to each side that hold 95 % of a normal distribution."""


def steps_under(layout: Layout, num_experts: int, constants: KernelSettings) -> float | None:
    """Return the uncertainty of whole steps under a layout's framework, one standard deviation; None where that is not known."""
    is_seen = num_experts <= 1 and layout.precision in ("bf16", "fp16") and constants.device in SEEN_DEVICES
    is_seen = is_seen and layout.lora_rank is None
    return STEPS_UNDER.get(layout.framework or "") if is_seen else None


def uncertainty_terms(
    *,
    kernels: float,
    step_s: float,
    crossing_s: float,
    fused_attention_s: float,
    hidden_s: float,
    utilisation: float,
    unknown_links_s: float = 0.0,
    host_s: float = 0.0,
    runs: float = 0.0,
    steps: float | None = None,
) -> dict[str, float]:
    """Return the uncertainty terms of a step, by name; terms of zero are left out.

    Args:
        kernels: calibration's error of kernels.
        step_s: the step.
        crossing_s: of it, waiting for messages between hosts.
        fused_attention_s: of it, in fused attention.
        hidden_s: communication in addition, taken to hide behind computation.
        utilisation: share of the peak that the busiest devices reach. Where it is beyond `SEEN_UTILISATION`, the time of the
            step at that share is one standard deviation away.
        unknown_links_s: of the step, waiting for messages inside hosts whose links are not known, see
            `StepPricer.link_waits_s`.
        host_s: of the step, by which the host makes the device's time longer, under a framework whose steps are known. Its
            updates of weights count too, see `costs.host_update`.
        runs: differences between runs of the same layout, see `RUN_UNCERTAINTY`.
        steps: error of whole steps of the framework that runs the job, in place of kernels and runs. None where it may be any
            framework.
    """
    of_any = {"kernels": kernels} if steps is None else {KNOWN_SOFTWARE: steps}
    if step_s <= 0:
        return of_any
    result = of_any | {
        SOFTWARE: runs if steps is None else 0.0,
        BETWEEN_HOSTS: NETWORK_UNCERTAINTY * crossing_s / step_s,
        INSIDE_HOSTS: UNKNOWN_LINKS_UNCERTAINTY * unknown_links_s / step_s,
        ATTENTION: FUSED_ATTENTION_UNCERTAINTY * fused_attention_s / step_s,
        HOST: HOST_UNCERTAINTY * host_s / step_s,
        "hidden communication": HIDDEN_UNCERTAINTY * hidden_s / step_s,
        UTILISATION: max(0.0, utilisation / SEEN_UTILISATION - 1.0),
    }
    return {name: value for name, value in result.items() if value > 0}


def of_idle_kernels(*, knows_links: bool, knows_steps: bool) -> float:
    """Return the relative standard deviation of the least certain second in which kernels do not run.

    Args:
        knows_links: whether messages inside hosts were measured.
        knows_steps: whether whole steps of the framework are known, see `steps_under`.
    """
    links = NETWORK_UNCERTAINTY if knows_links else math.hypot(NETWORK_UNCERTAINTY, UNKNOWN_LINKS_UNCERTAINTY)
    return max(links, HOST_UNCERTAINTY if knows_steps else 0.0)


def uncertainty(result: Mapping[str, float]) -> float:
    """Return all uncertainty terms together."""
    return math.hypot(*result.values())


def interval(value: float, relative: float) -> tuple[float, float]:
    """Return the ends of what holds 95 % of the runs of a figure with an uncertainty: as many times more above as less below."""
    factor = math.exp(NORMAL_95 * relative)
    return value / factor, value * factor


def per_step(work: LayoutWork, stage: int, of_pass: Callable[[Pass], float]) -> float:
    """Sum a figure over all passes of a stage in a step."""
    total = 0.0
    for chunk in work.chunks:
        if chunk.stage == stage:
            for name, times in chunk.parts:
                block = work.blocks[name]
                total += times * sum(of_pass(items) for items in (block.forward, block.recompute, block.backward))
    return work.layout.num_micro_batches * total


def fused_attention_s(items: Sequence[Item], model: KernelModel) -> float:
    """Return the seconds of a pass in fused attention."""
    return sum(model.kernel_s(item) for item in items if isinstance(item, FusedAttention))


def operations(items: Sequence[Item]) -> float:
    """Return operations that a rank really does in a pass's products and fused attention; those in fp8 count a half."""
    products = sum(item.flops / (FP8_SPEED if item.is_fp8 else 1.0) for item in items if isinstance(item, Product))
    return products + sum(item.flops for item in items if isinstance(item, FusedAttention))
