"""DualPipe and DualPipeV: what they ask of a layout.

Under DualPipe micro-batches enter a pipeline from both its ends. A rank holds a stage of the model for the one direction and the
stage as far from the other end for the other one, so that every stage stands on two ranks. DualPipeV folds that in the middle: a
rank holds the same two stages of a pipeline of twice as many, once, and a micro-batch goes down the ranks and up again.

Source:
    DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.2.1; deepseek-ai/DualPipe, README.md, and ``step`` of
    dualpipe/dualpipe.py; pytorch/pytorch, torch/distributed/pipelining/schedules.py (``ScheduleDualPipeV``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..partition import Layout


def bidirectional_objection(layout: Layout) -> str | None:
    """What keeps a layout from running DualPipe or DualPipeV; None where nothing does, or where it asks for neither.

    The published program refuses an odd number of ranks or of micro-batches, and fewer of these than twice as many; of DualPipeV,
    as PyTorch's, fewer micro-batches than chunks.
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
