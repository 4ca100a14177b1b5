"""Requirements of DualPipe and DualPipeV on a layout.

Under DualPipe micro-batches enter a pipeline from both its ends. A rank holds one stage for each direction, equally far from
either end, so that every stage is on two ranks. DualPipeV folds a pipeline of twice as many stages in the middle. A rank holds
the same two stages, each on one rank alone, and a micro-batch goes down the ranks and up again.

Source:
    DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.2.1; deepseek-ai/DualPipe, README.md, and ``step`` of
    dualpipe/dualpipe.py; pytorch/pytorch, torch/distributed/pipelining/schedules.py (``ScheduleDualPipeV``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..partition import Layout


def bidirectional_objection(layout: Layout) -> str | None:
    """Return the problem of a layout under DualPipe or DualPipeV; None if it has none, or uses neither.

    The published program of DualPipe requires even numbers of ranks and micro-batches, and twice as many micro-batches as ranks.
    DualPipeV, as PyTorch's, requires as many micro-batches as chunks.
    """
    name, pp, number = layout.schedule, layout.pp, layout.num_micro_batches
    if not layout.is_bidirectional:
        return None
    chunks = 1 if layout.has_mirrored_stages else 2
    if layout.virtual_stages != chunks:
        return f"schedule={name} needs virtual_stages={chunks}, not {layout.virtual_stages}"
    if layout.has_mirrored_stages and pp % 2:
        return f"schedule={name} needs an even pp, as {pp + 1}, not {pp}: each stage lies on two ranks"
    if number < 2 * pp:
        return f"schedule={name} needs at least 2 pp = {2 * pp} micro-batches, not {number}"
    if layout.has_mirrored_stages and number % 2:
        return f"schedule={name} needs an even number of micro-batches, as {number + 1}, not {number}: half go each way"
    if not layout.overlap_pp:
        return f"schedule={name} needs overlap_pp=true: it is there to hide transfers"
    if layout.overlap_dp:
        return f"schedule={name} needs overlap_dp=false: gradients of both chunks of a rank go behind its last passes"
    if layout.stage_meshes is not None:
        return f"schedule={name} puts two stages on a rank, stage_meshes gives each a mesh of its own"
    return None
