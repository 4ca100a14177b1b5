"""mesh.py for a pipeline of ops on devices: its stages, a process group for each, and where the model is cut."""

from __future__ import annotations

from ...plans.document import PlacementPlan
from ..frameworks.device_mesh import HOST, SPLIT_POINTS
from .op_devices import are_runs, has_shared_tensors, placed_graph, stages_in_order

NOT_GUARANTEED = (
    "Pipelines of ops: mesh.py has the stages, their ranks and the first op of each; the program makes the stages and their "
    "schedule, whose waits are not in the plan's figures.",
)


def stages_text(plan: PlacementPlan, head: str) -> str:
    """Return the text of the module that makes the stages.

    Where the model's own order of ops alternates between stages, no split points exist. The module then has a policy that
    brings the traced operations into the order of the stages. The policy is also needed where several stages read one tensor:
    it sends the tensor to each of them, so that torch computes gradients.

    Args:
        plan: one of ops on devices.
        head: comment lines to begin with.

    Raises:
        ExportError: a group that reads from a later one; the first op that does is named.
    """
    result = placed_graph(plan)
    stages, names = stages_in_order(result, "torch.distributed.pipelining"), result.graph.op_names
    rows = "".join(f"    ({rank.rank}, {rank.host!r}),\n" for rank in plan.ranks)
    ranks = "".join(f"    {list(group.ranks)!r},\n" for group in result.partition.groups)
    listed, split = [], []
    if are_runs(result):
        first = "".join(f"    {names[stage[0]]!r},\n" for stage in stages[1:])
        listed.append(_FIRST_OPS.format(names=f"(\n{first})" if first else "()"))
        split.append(SPLIT_POINTS)
    if not split or has_shared_tensors(result):
        ops = "".join("    (\n" + "".join(f"        {names[op]!r},\n" for op in stage) + "    ),\n" for stage in stages)
        listed.append(_STAGE_OPS.format(ops=ops))
        split.append(_SPLIT_POLICY)
    texts = {"listed": "\n".join(listed), "split": "\n\n".join(split), "host": HOST}
    return _MODULE.format(head=head, rows=rows, stages=ranks, **texts)


_FIRST_OPS = """# The op with which each stage but the first begins, in the model's order.
FIRST_OPS = {names}
"""

_STAGE_OPS = """# The ops of each stage, for split_policy. Split points do not do where the model's own order goes back and forth
# between stages; where several stages read one tensor, torch trains no model that is cut by them.
STAGE_OPS = (
{ops})
"""

_SPLIT_POLICY = '''def split_policy(modules=None):
    """The split_policy for torch.distributed.pipelining.pipeline: operations in the order of the stages, cut between them.

    An operation belongs to the stage of the module that calls it; one that no module of STAGE_OPS calls follows what it reads.

    Args:
        modules: name of the model's submodule for each op of STAGE_OPS, None for an op that is no module (a sum, the loss);
            by default the op's own name.
    """
    modules = {} if modules is None else modules
    stage_of = {}
    for number, ops in enumerate(STAGE_OPS):
        for name in (modules.get(op, op) for op in ops):
            if name is not None and stage_of.setdefault(name, number) != number:
                raise ValueError(f"module {name} would be in two stages, {stage_of[name]} and {number}")
    return lambda traced: _in_order(traced, stage_of)


def _in_order(traced, stage_of):
    """The traced model with its operations in the order of the stages, and pipe_split between two stages."""
    import torch
    from torch.distributed.pipelining import pipe_split

    class Cut(torch.nn.Module):
        def forward(self, x):
            pipe_split()
            return x

    nodes = [node for node in traced.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    module_of, place = {}, {}
    for node in nodes:
        schema = getattr(node.target, "_schema", None)  # nothing public says which arguments an op changes
        for argument, value in zip(schema.arguments, node.args) if schema else ():
            if not (argument.alias_info and argument.alias_info.is_write and isinstance(value, torch.fx.Node) and value in place):
                continue
            raise RuntimeError(
                f"{node.target} changes a tensor in its place, and operations that read it would be moved past it: write "
                "the model without it, as x = x + 1, or ReLU without inplace"
            )
        called = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        module_of[node] = next((path for path in reversed(called) if path in stage_of), None)
        read = max((place[one] for one in node.all_input_nodes if place.get(one) is not None), default=None)
        place[node] = read if module_of[node] is None else stage_of[module_of[node]]
        if read is not None and place[node] < read:
            name = module_of[node]
            raise RuntimeError(f"module {name} of stage {place[node]} reads from stage {read}, and no op of the plan does so")
    missing = sorted(set(stage_of) - set(module_of.values()))
    if missing:
        raise RuntimeError(f"the model calls no module {missing[0]}: name it in modules, or None if it is none; so for {missing}")
    for node in reversed(nodes):  # what reads nothing that a stage computes is computed where it is read
        if place[node] is None:
            place[node] = min((place[user] for user in node.users if user in place), default=0)
    for node in traced.graph.find_nodes(op="placeholder"):
        for user in node.users:
            if place.get(user):
                raise RuntimeError(
                    f"torch gives a model's inputs to its first stage, and {module_of[user] or user.name} of stage {place[user]} "
                    f"reads {node.name}; hand it on from a module of stage 0"
                )
    [cut] = [node.target for node in torch.export.export(Cut(), (torch.zeros(1),)).graph.nodes if node.op == "call_function"]
    end = next(iter(traced.graph.find_nodes(op="output")))
    for number in range(len(STAGE_OPS)):
        if number:
            with traced.graph.inserting_before(end):
                traced.graph.call_function(cut)
        for node in nodes:
            if place[node] == number:
                end.prepend(node)
    for node in nodes:  # torch trains no tensor that goes to two stages, and sends none that is not contiguous
        tensor = node.meta.get("val")
        readers = [user for user in node.users if place.get(user, place[node]) != place[node]]
        for number in sorted({place[user] for user in readers}) if isinstance(tensor, torch.Tensor) else ():
            with traced.graph.inserting_after(node):
                sent = traced.graph.call_function(torch.ops.aten.contiguous.default, (node,))
            sent.meta = {**node.meta, "val": tensor.contiguous()}
            for user in readers:
                if place[user] == number:
                    user.replace_input_with(node, sent)
    traced.recompile()
    return traced
'''

_MODULE = '''{head}"""The planned pipeline, for a program that torchrun has started with the ranks of the plan."""

# fmt: off
# Rank and host.
RANKS = [
{rows}]

# The ranks of each stage, in the order of the pipeline; several take turns from micro-batch to micro-batch.
STAGES = [
{stages}]

{listed}# fmt: on


{host}

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


{split}'''
