"""mesh.py for a pipeline of ops on devices: its stages, a process group for each, and where the model is cut."""

from __future__ import annotations

from ...plans.document import PlacementPlan
from .op_devices import check_runs, placed_graph

NOT_GUARANTEED = (
    "Pipelines of ops: mesh.py tells stages, their ranks and the first op of each; the program makes the stages and their "
    "schedule, whose waits are not in the plan's figures.",
)


def stages_text(plan: PlacementPlan, head: str) -> str:
    """The text of the module that makes the stages.

    Args:
        plan: one of ops on devices.
        head: comment lines to begin with.

    Raises:
        ExportError: groups that are no runs of the model's ops; the first op that is not is named.
    """
    found = placed_graph(plan)
    runs, names = check_runs(found, "torch.distributed.pipelining"), found.graph.op_names
    rows = "".join(f"    ({rank.rank}, {rank.host!r}),\n" for rank in plan.ranks)
    stages = "".join(f"    {list(group.ranks)!r},\n" for group in found.partition.groups)
    first = "".join(f"    {names[run[0]]!r},\n" for run in runs[1:])
    return _MODULE.format(head=head, rows=rows, stages=stages, names=f"(\n{first})" if first else "()")


_MODULE = '''{head}"""The planned pipeline, for a program that torchrun has started with the ranks of the plan."""

# fmt: off
# Rank and host.
RANKS = [
{rows}]

# The ranks of each stage, in the order of the pipeline; several take turns from micro-batch to micro-batch.
STAGES = [
{stages}]

# The op with which each stage but the first begins, in the model's order.
FIRST_OPS = {names}
# fmt: on


def host(rank):
    """The host on which the plan puts a rank."""
    return RANKS[rank][1]


def stage(rank):
    """The pipeline stage of a rank."""
    return next(number for number, ranks in enumerate(STAGES) if rank in ranks)


def process_groups():
    """A process group for each stage, in which its replicas sum their gradients; every rank must call this, after
    init_process_group."""
    import torch.distributed as dist

    if dist.get_world_size() != len(RANKS):
        raise RuntimeError(f"the plan has {{len(RANKS)}} ranks, the job {{dist.get_world_size()}}")
    return [dist.new_group(ranks) for ranks in STAGES]


def split_points(modules=None):
    """The split_spec for torch.distributed.pipelining.pipeline.

    Args:
        modules: name of the model's submodule for each op of FIRST_OPS; by default the op's own name.
    """
    from torch.distributed.pipelining import SplitPoint

    modules = {{}} if modules is None else modules
    return {{modules.get(op, op): SplitPoint.BEGINNING for op in FIRST_OPS}}
'''
