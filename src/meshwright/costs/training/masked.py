"""Partially masked training in closed form: a cycle of two phases, each by a plan of its own or both by one.

In a step of the core every rank works under the layout and the cuts of the whole job. A narrow transformer is another
transformer, whose kernels the kernel model prices. So are its matrices of low rank: two thin products in place of each. Of any
other job each op takes its share of the time, a launch at least.

Legend: ``k_c, k_f`` steps of the core and of the whole model in a cycle, ``t_c, t_f`` seconds of a step of each. ``t_r``
seconds in which weights and optimizer go from the places of one plan to those of the other.

Source:
    Mohtashami, Jaggi and Stich, "Masked training of neural networks with partial gradients", 2022, arXiv 2106.08895.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...jobs.masked import Core, core_graph, core_shape, core_shares, masked_s
from ...plans.rank_order import coordinates
from ...plans.training import Masked
from ..process_groups.group_network import GroupNetwork
from ..resharding.model_state import ModelPlace, moved_s, state_tasks
from ..training_step.stage_crossings import sending_ways
from ..work.graph_work import GraphWork, crossing_bytes
from ..work.layer import BlockWork
from ..work.memory import StageMemory
from ..work.operations import Item, Pass, Product, Sweep, joined, thin
from ..work.step_work import StepWork
from ..work.work import LayoutWork, describe, with_blocks
from .replicas import Replicas
from .synchronisation import synchronous_s


def cycle_s(core_s: float, full_s: float, training: Masked, resharding_s: float = 0.0) -> float:
    """Return the seconds of a cycle: ``k_c t_c + k_f t_f + 2 t_r``."""
    return training.core_steps * core_s + training.full_steps * full_s + 2.0 * resharding_s


def cycle_bytes(core_bytes: float, full_bytes: float, training: Masked) -> float:
    """Return the bytes that a rank sums over its replicas in a cycle: ``k_c mu W + k_f W``."""
    return training.core_steps * core_bytes + training.full_steps * full_bytes


def joint_saving(core_s: float, full_s: float, training: Masked, resharding_s: float = 0.0) -> float:
    """Return the saving of one training of both models over one of each, of equal steps: ``1 - t_joint / (t_full + t_core)``."""
    joint_s = cycle_s(core_s, full_s, training, resharding_s) / training.num_steps
    return 1.0 - joint_s / (full_s + core_s)


class PhaseStep(NamedTuple):
    """Steps of one phase.

    Attributes:
        name: ``core`` or ``full``.
        num_steps: in a cycle.
        step_s: seconds of each.
    """

    name: str
    num_steps: int
    step_s: float


class MaskedStep(NamedTuple):
    """The steps of both phases of a masked job under a layout.

    Attributes:
        core, full: the phases.
        sent_bytes: of gradients for each step and rank, in the mean.
        share: of the weights that the core has, ``mu``.
    """

    core: PhaseStep
    full: PhaseStep
    sent_bytes: float
    share: float

    def remark(self, training: Masked) -> str:
        """Describe the size of the core, and the saving of one training of both models."""
        saving = joint_saving(self.core.step_s, self.full.step_s, training)
        return (
            f"the core has {self.share:.1%} of the weights and takes {1e3 * self.core.step_s:.3f} ms a step, the whole model "
            f"{1e3 * self.full.step_s:.3f} ms; one training of both takes {saving:.0%} less than one of each"
        )


def masked_step(training: Masked, full: Replicas, core: Replicas, share: float) -> MaskedStep:
    """Return the steps of both phases.

    Args:
        training: the cycle.
        full, core: replicas of each phase, by its own plan.
        share: of the weights that the core has, see `core_work.parameter_share`.
    """
    return MaskedStep(
        PhaseStep("core", training.core_steps, synchronous_s(core)),
        PhaseStep("full", training.full_steps, synchronous_s(full)),
        cycle_bytes(core.sent_bytes, full.sent_bytes, training) / training.num_steps,
        share,
    )


def core_replicas(replicas: Replicas, training: Masked) -> Replicas:
    """Return the core by the same plan.

    Raises:
        GraphError, PlanError: the job has no such core, or the layout cannot cut it.
    """
    return replace(replicas, work=core_work(replicas.work, training.core, replicas.pricer.device.kernel_launch_s))


def core_memory(whole: StageMemory, core: StageMemory) -> StageMemory:
    """Return memory of a rank in a step of the core: the whole model and optimizer, gradients and activations of the core."""
    return core._replace(parameters=whole.parameters, optimizer=whole.optimizer)


def model_place(work: StepWork, order: str, hosts: NDArray[np.int64]) -> ModelPlace:
    """Return the places of the parts of a job's model.

    Args:
        work: of the whole job, by the plan of a phase.
        order: how ranks are numbered.
        hosts: of each rank's device, in that order, ``(world,)``.
    """
    layout, parts = work.layout, work.weight_parts
    each = parts.number_bytes, parts.optimizer_bytes
    return ModelPlace(layout, parts.sizes, parts.chunks, coordinates(layout, order), tuple(hosts.tolist()), *each)


def resharding_s(source: ModelPlace, target: ModelPlace, wires: GroupNetwork) -> float:
    """Return seconds in which weights and optimizer go from the places of one plan to another's; none between equal ones.

    A host sends over the cards of all its devices, a part each.

    Raises:
        PlanError: plans between which the state is not priced, see `model_state.state_tasks`.
    """
    tasks = state_tasks(source, target)
    ways = sending_ways(source.hosts, wires)
    return moved_s(tasks, ways.between_s, ways.inside_s)


ENDS = ("embedding", "head")
"""Blocks whose tables stay whole under a rank."""

SUM = "gradient sum"
"""End of the names of sweeps that add a gradient to the sum."""


def core_work(work: StepWork, core: Core, launch_s: float) -> StepWork:
    """Return the work of the core.

    Args:
        work: of the whole job under a layout.
        core: what is left of it.
        launch_s: no op of a job graph that the mask shortens takes less.

    Raises:
        GraphError: the core of such a job is not known, or a width leaves a part of a head or of a number.
        PlanError: the layout cannot cut the core.
    """
    if isinstance(work, GraphWork):
        return _of_graph(work, core, launch_s)
    assert isinstance(work, LayoutWork)
    if core.rank is not None:
        return _of_rank(work, core.rank)
    assert core.width is not None
    return describe(core_shape(work.shape, core.width), work.layout, work.sequence_length)


def parameter_share(work: StepWork, core: StepWork) -> float:
    """Return the share of the weights that a core has, ``mu``: of all that the ranks of one replica hold."""
    return core.weights / work.weights


def _of_graph(work: GraphWork, core: Core, launch_s: float) -> GraphWork:
    shares, graph = core_shares(work.graph, core), core_graph(work.graph, core, launch_s)
    boundary_bytes, given_bytes = crossing_bytes(graph, work.layout, work.chunks, is_direct=work.is_direct)
    return replace(
        work,
        graph=graph,
        forward_s=masked_s(work.forward_s, shares.compute, launch_s),
        backward_s=masked_s(work.backward_s, shares.compute, launch_s),
        gradient_bytes=work.gradient_bytes * shares.weights,
        boundary_bytes=boundary_bytes,
        given_bytes=given_bytes,
    )


def _of_rank(work: LayoutWork, rank: int) -> LayoutWork:
    """Return thin matrices in the layers; experts and weights that travel in passes are not cut so."""
    layout, shape = work.layout, work.shape
    if shape.num_experts > 1 or shape.latent is not None:
        problem = f"is known for dense layers; {shape.name} has others"
        raise PlanError(problem, field="training.core.rank", value=rank)
    if layout.lora_rank is not None:
        raise PlanError("has thin matrices of its own", field="layout.trainable", value=layout.trainable)
    if layout.zero >= 3 or layout.reduces_in_passes or work.meshes:
        key, value = ("stage_meshes", "unequal") if work.meshes else ("zero", layout.zero)
        raise PlanError("goes with weights that stay where they are, on equal stages", field=f"layout.{key}", value=value)
    blocks: Mapping[str, BlockWork] = {
        name: block if name in ENDS else _thin_block(block, rank) for name, block in work.blocks.items()
    }
    if all(blocks[name] is work.blocks[name] for name in blocks):
        return work
    return with_blocks(work, blocks, ("rank", rank))


def _thin_block(block: BlockWork, rank: int) -> BlockWork:
    """Return a block with thin matrices; itself where no matrix has less weights so."""
    gone = sum(_gone(item, rank) for item in block.backward if isinstance(item, Product) and item.is_weight)
    if not gone:
        return block
    return replace(
        block,
        forward=_thin(block.forward, rank),
        recompute=_thin(block.recompute, rank),
        backward=_thin(block.backward, rank),
        dense_parameters=block.dense_parameters - gone,
        largest_weight=min(block.largest_weight, block.dense_parameters - gone),
    )


def _gone(product: Product, rank: int) -> float:
    """Return the weights that a gradient of a matrix has less."""
    return float(product.batch * max(0, product.m * product.n - rank * (product.m + product.n)))


def _thin(items: Pass, rank: int) -> Pass:
    """Return a pass with two thin products in place of one, where they compute less; messages overlap with both."""
    made, share = [], 1.0
    for item in items:
        if isinstance(item, Product) and item.is_weight:
            share = 1.0 - _gone(item, rank) / (item.batch * item.m * item.n)
        made.append(_thin_items(item, rank, share))
    return joined(made)


def _thin_items(item: Item, rank: int, share: float) -> tuple[Item, ...]:
    """Return an item of the core; ``share`` of the weights of the last gradient are left, which a sum of it sweeps."""
    if isinstance(item, Sweep) and item.name.endswith(SUM):
        return (replace(item, moved_bytes=share * item.moved_bytes),)
    if not isinstance(item, Product) or item.is_attention:
        return (item,)
    m, n, k = item.m, item.n, item.k
    rows, columns = (m, n) if item.is_weight else (n, k)
    if rank * (rows + columns) >= rows * columns:
        return (item,)
    return thin(item, rank, "inner", "outer")
