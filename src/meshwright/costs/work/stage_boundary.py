"""What goes between stages of a transformer that have meshes of their own: the tensor as each holds it."""

from __future__ import annotations

from ..resharding.stage_tensors import StageTensor, largest_slice_bytes
from .work import LayoutWork


def stage_tensor(work: LayoutWork, stage: int, carried: int, devices_per_host: int) -> StageTensor:
    """Some residual streams of a micro-batch of all replicas on a stage, whose ranks have consecutive devices."""
    layout, mesh = work.layout, work.at(stage).layout
    return StageTensor(
        samples=layout.micro_batch * layout.dp,
        tokens=work.sequence_length,
        element_bytes=carried * layout.number_bytes * work.shape.hidden,
        tp=mesh.tp,
        cp=mesh.cp,
        dp=mesh.dp,
        cuts_tokens=mesh.sequence_parallel and mesh.tp > 1,
        hosts=tuple(rank // devices_per_host for rank in range(layout.first_rank(stage), layout.first_rank(stage + 1))),
    )


def slice_buffer_bytes(work: LayoutWork, stage: int) -> float:
    """The largest slice that a rank of a stage receives from a rank of another mesh, as a buffer."""
    pp, last, most = work.layout.pp, len(work.chunks) - 1, 0.0
    for chunk in (one for one in range(last + 1) if one % pp == stage):
        for sender, boundary in ((chunk - 1, chunk - 1), (chunk + 1, chunk)):
            if 0 <= sender <= last and work.at(sender % pp) is not work.at(stage):
                ends = [stage_tensor(work, one, work.carried(boundary), 1) for one in (sender % pp, stage)]
                most = max(most, largest_slice_bytes(ends[0], ends[1]))
    return most
