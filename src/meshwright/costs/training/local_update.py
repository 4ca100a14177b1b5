"""Blocks on devices of their own that are updated by local targets: no gradient of activations goes back.

Legend: ``f, t, u`` seconds of a block's forward pass, target and update, ``p`` blocks, ``D`` blocks that an error goes through.

Source:
    Synthetic intermediate labels, 2024, arXiv 2403.11204; Ororbia et al., "Large-scale gradient-free deep learning with recursive
    local representation alignment", 2020, arXiv 2002.03911.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import PlanError
from ...plans.training import LocalUpdate
from ..process_groups.group_network import whole_lane
from .replicas import Replicas

UPDATE_SHARE = 0.5
"""Time of a local update over that of a backward pass: the gradients of the weights alone. An assumption."""


def one_batch_s(forward_s: Sequence[float], target_s: Sequence[float], update_s: Sequence[float], depth: int) -> float:
    """Seconds of one batch by itself: ``sum f + D max t + max u``."""
    return sum(forward_s) + depth * max(target_s) + max(update_s)


def streaming_s(forward_s: Sequence[float], target_s: Sequence[float], update_s: Sequence[float]) -> float:
    """Seconds of each of many batches, one behind the other: ``max (f + t + u)``; no device ever waits."""
    return max(f + t + u for f, t, u in zip(forward_s, target_s, update_s, strict=True))


def cut_bytes(num_samples: int, label_bytes: float, width_bytes: float) -> float:
    """Bytes over the cut between two blocks that are trained one behind the other, each to its end: ``C h + N h``.

    Args:
        num_samples: ``N``.
        label_bytes: of the synthetic labels of all classes, ``C h``, sent once.
        width_bytes: of a sample's activations at the cut, ``h``.
    """
    return label_bytes + num_samples * width_bytes


class LocalBlocks(NamedTuple):
    """The blocks of a job, as prices and the simulator take them.

    Attributes:
        forward_s, target_s, update_s: of a micro-batch in each block, ``(p,)``.
        send_s: of its activations from each block to the next one, ``(p - 1,)``.
    """

    forward_s: tuple[float, ...]
    target_s: tuple[float, ...]
    update_s: tuple[float, ...]
    send_s: tuple[float, ...]


def local_update_s(replicas: Replicas, training: LocalUpdate) -> float:
    """Seconds of a step whose micro-batches stream through the stages, which send behind their computation.

    Raises:
        PlanError: replicas, which would have to be summed, or a stage of several chunks.
    """
    blocks = local_blocks(replicas, training)
    busy_s = streaming_s(blocks.forward_s, blocks.target_s, blocks.update_s)
    return replicas.layout.num_micro_batches * max(busy_s, *blocks.send_s, 0.0)


def local_blocks(replicas: Replicas, training: LocalUpdate) -> LocalBlocks:
    """The blocks of a job: a pipeline stage each.

    Raises:
        PlanError: replicas, which would have to be summed, or a stage of several chunks.
    """
    layout = replicas.layout
    if layout.dp > 1:
        raise PlanError("updates blocks by local targets; set dp=1", field="layout.dp", value=layout.dp)
    if layout.virtual_stages > 1:
        raise PlanError("has one block on each device", field="layout.virtual_stages", value=layout.virtual_stages)
    forward, backward = replicas.pricer.passes_s(replicas.work)
    targets, updates = training.target_share * backward, UPDATE_SHARE * backward
    of_blocks = [tuple(one.tolist()) for one in (forward, targets, updates)]
    return LocalBlocks(of_blocks[0], of_blocks[1], of_blocks[2], tuple(_sends_s(replicas)))


def _sends_s(replicas: Replicas) -> list[float]:
    """Seconds of a micro-batch's activations from each stage to the next one."""
    work, pricer, layout = replicas.work, replicas.pricer, replicas.layout
    lane, found = whole_lane(pricer.wires, layout, pricer.order), []
    for stage in range(layout.pp - 1):
        groups = {**lane.at(stage + 1), "pp": lane.boundary[stage]}
        found.append(sum(pricer.message_s(item, layout, groups[item.axis]) for item in work.sent(stage)))
    return found
