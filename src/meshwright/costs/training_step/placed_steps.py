"""A transformer's step where hosts or devices are not alike: what the passes of its lanes take, and what follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...plans.stage_meshes import meshes_text
from ..process_groups.group_network import PlacedNetwork
from ..process_groups.lanes import Lane, PlacedLayout, RegularLayout
from ..process_groups.rank_groups import stage_width
from ..work.work import LayoutWork
from .uneven_steps import Passes, Tails, UnevenStep, uneven_step

if TYPE_CHECKING:
    from .step_time import Pricer


def placed_step(pricer: Pricer, work: LayoutWork) -> UnevenStep:
    """The step of a described layout, and what the lane that ends last does in it."""
    layout, wires = work.layout, pricer.wires
    if work.shape.long_skips is not None:
        problem = "long skips are priced where hosts and devices are alike"
        raise PlanError(problem, field="long_skips", value=work.shape.long_skips)
    if work.meshes:
        problem = "stages of unequal meshes are priced where hosts are alike"
        raise PlanError(problem, field="layout.stage_meshes", value=meshes_text(layout.stage_meshes or ()))
    placed: PlacedLayout | RegularLayout = RegularLayout(layout, wires.devices_per_host, pricer.order)
    if isinstance(wires, PlacedNetwork):
        placed = wires.layout(layout, pricer.order, pass_axes=work.pass_axes)
    lanes = pricer.lanes(work)
    distinct = {id(lane): lane for lane in lanes}
    blocks = {key: pricer.blocks_of(work, lane) for key, lane in distinct.items()}
    passes = {key: _passes(pricer, work, lane, pricer.task_s(work, blocks[key])) for key, lane in distinct.items()}

    def exposed_s(stage: int, number: int, messages: list[tuple[str, float]], is_backward: bool) -> float:
        lane = id(lanes[number])
        whole_s = sum(seconds for _, seconds in messages)
        way_s = float(passes[lane].send_s[: layout.pp].mean())
        return pricer.exposed_s(work, stage, blocks[lane][stage], messages, whole_s, is_backward=is_backward, way_s=way_s)

    def optimizer_s(stage: int) -> NDArray[np.float64]:
        return np.repeat(
            [pricer.optimizer_s(work, stage, lane.kinds_at(stage)) for lane in lanes], stage_width(layout) // len(lanes)
        )

    tails = Tails(
        lambda stage: work.stages[stage].sync,
        lambda stage: work.stages[stage].gather,
        optimizer_s,
        lambda message, groups: pricer.message_s(message, layout, groups),
        exposed_s,
    )
    return uneven_step(layout, placed, [passes[id(lane)] for lane in lanes], tails)


def _passes(pricer: Pricer, work: LayoutWork, lane: Lane, task_s: NDArray[np.float64]) -> Passes:
    """The passes of a lane with their transfers; what the receiving ranks then gather counts where they stand."""
    layout, pp, v = work.layout, work.layout.pp, work.layout.virtual_stages
    send_s, gather_s, computed_s = np.zeros((len(lane.ways), pp)), np.zeros(pp), task_s.copy()
    for item in work.boundary:
        if item.axis == "pp":
            send_s += [[pricer.message_s(item, layout, group) for group in way] for way in lane.ways]
        else:
            gather_s += [pricer.message_s(item, layout, groups[item.axis]) for groups in lane.stages]
    if layout.overlap_pp:
        send_s += np.maximum(np.roll(gather_s, -1), gather_s)  # forward on the one side, backward on the other
    else:  # the first chunk is given nothing forward, the last one nothing backward
        task_s[:, :, :2] += gather_s[:, None, None]
        task_s[0, 0, 0] -= gather_s[0]
        task_s[-1, v - 1, 1] -= gather_s[-1]
    if layout.is_bidirectional:  # at the fold nothing is sent
        there, back = send_s[0, :-1], send_s[-1, :-1]
        ways = [[there, back[::-1]], [back, there[::-1]]][: len(send_s)]
        return Passes(task_s, np.concatenate([[*first, 0.0, *then, 0.0] for first, then in ways]), computed_s)
    return Passes(task_s, np.tile(send_s, v).reshape(-1), computed_s)
