"""What every rank does in a step of the core of a partially masked job, under the layout and the cuts of the whole job.

A narrow transformer is another transformer, whose kernels the kernel model prices, and so are its matrices of low rank: two thin
products in place of each. Of any other job each op takes its share of the time, a launch at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import PlanError
from ...jobs.masked import Core, core_graph, core_shape, core_shares, masked_s
from ..work.graph_work import GraphWork, crossing_bytes
from ..work.layer import BlockWork
from ..work.operations import Item, Message, Pass, Product, Sweep
from ..work.step_work import StepWork
from ..work.work import LayoutWork, describe, with_blocks

ENDS = ("embedding", "head")
"""Blocks whose tables stay whole under a rank."""

SUM = "gradient sum"
"""End of the names of sweeps that add a gradient to the sum."""


def core_work(work: StepWork, core: Core, launch_s: float) -> StepWork:
    """The work of the core.

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
    """Share of the weights that a core has, ``mu``: of all that the ranks of one replica hold."""
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
    """Thin matrices in the layers; experts and weights that travel in passes are not cut so."""
    layout, shape = work.layout, work.shape
    if shape.num_experts > 1 or shape.latent is not None:
        problem = f"is known for dense layers; {shape.name} has others"
        raise PlanError(problem, field="training.core.rank", value=rank)
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
    """A block with thin matrices; itself where no matrix has less weights so."""
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
    """Weights that a gradient of a matrix has less."""
    return float(product.batch * max(0, product.m * product.n - rank * (product.m + product.n)))


def _thin(items: Pass, rank: int) -> Pass:
    """A pass with two thin products in place of one, where they compute less; messages run beside both."""
    made, share = [], 1.0
    for item in items:
        if isinstance(item, Product) and item.is_weight:
            share = 1.0 - _gone(item, rank) / (item.batch * item.m * item.n)
        made.append(_thin_items(item, rank, share))
    found: list[Item] = []
    for place, (item, instead) in enumerate(zip(items, made, strict=True)):
        if isinstance(item, Message) and item.beside:
            found.append(replace(item, beside=sum(map(len, made[place + 1 : place + 1 + item.beside]))))
        else:
            found += instead
    return tuple(found)


def _thin_items(item: Item, rank: int, share: float) -> tuple[Item, ...]:
    """An item of the core; ``share`` of the weights of the last gradient are left, which a sum of it sweeps."""
    if isinstance(item, Sweep) and item.name.endswith(SUM):
        return (replace(item, moved_bytes=share * item.moved_bytes),)
    if not isinstance(item, Product) or item.is_attention:
        return (item,)
    m, n, k = item.m, item.n, item.k
    rows, columns = (m, n) if item.is_weight else (n, k)
    if rank * (rows + columns) >= rows * columns:
        return (item,)
    first, last = replace(item, name=f"{item.name}, inner"), replace(item, name=f"{item.name}, outer")
    if item.is_weight:  # gradients of both thin matrices, each over all tokens
        return replace(first, n=rank), replace(last, m=rank)
    return replace(first, n=rank), replace(last, k=rank)
