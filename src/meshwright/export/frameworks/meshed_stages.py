"""mesh.py of a plan whose stages have meshes of their own: a ``DeviceMesh`` for each stage, and what brings tensors between them.

The generated module needs PyTorch only and asks for it when a function is called. A rank gets each part of a tensor from one of
the ranks that hold it, by itself: which algorithm the prices chose is not said.
"""

from __future__ import annotations

import math

from ...costs.resharding.stage_tensors import StageTensor
from ...errors import ExportError
from ...plans.document import PlacementPlan
from ...plans.partition import Layout
from ..options import ExportOptions
from ..requirements import refuse_unrunnable
from ..target import Needs, header
from . import device_mesh


def mesh_text(plan: PlacementPlan, head: str) -> str:
    """Return the module of any plan with coordinates.

    Args:
        plan: whose stages have one mesh, or each its own.
        head: comment lines to begin with.
    """
    layout = plan.layout()
    return (
        device_mesh.device_mesh_text(plan, head) if layout is None or not layout.is_meshed else _meshed_text(plan, layout, head)
    )


def needs(plan: PlacementPlan, options: ExportOptions, not_guaranteed: tuple[str, ...]) -> Needs:
    """Return FSDP2's mesh and the arguments of ``fully_shard``, which are calls of the script.

    Raises:
        ExportError: no layout, or one that FSDP2 does not run.
    """
    if plan.layout() is None:
        problem = "has no layout, which the mesh needs; `meshwright plan --search --for fsdp2` finds one"
        raise ExportError(problem, field="partition")
    refuse_unrunnable(plan, "fsdp2")
    head = header(options.job_name(plan), plan, "FSDP2", device_mesh.NOT_GUARANTEED)
    return Needs(plan, files={device_mesh.FILE_NAME: mesh_text(plan, head)}, not_guaranteed=not_guaranteed)


def _meshed_text(plan: PlacementPlan, layout: Layout, head: str) -> str:
    coordinates = device_mesh.coordinates_of(plan)
    places = [rank.coordinates for rank in plan.ranks if rank.coordinates is not None]
    members = [[rank for rank, place in enumerate(places) if place.pp == stage] for stage in range(layout.pp)]
    grids = [device_mesh.places_grid(places, ranks)[0] for ranks in members]
    experts = [device_mesh.expert_cut(places, grid[None])[0] for grid in grids] if layout.ep > 1 else None
    tiles = _tiles(layout)
    at = {layout.coordinates(rank): tile for rank, tile in enumerate(tiles)}
    return _MODULE.format(
        head=head,
        rows="".join(f"    ({rank.rank}, {rank.host!r}, {coordinates[rank.rank]!r}),\n" for rank in plan.ranks),
        grids="".join(f"    {device_mesh.nested(grid, '    ')},\n" for grid in grids),
        experts="None"
        if experts is None
        else "[\n" + "".join(f"    {device_mesh.nested(expert, '    ')},\n" for expert in experts) + "]",
        tiles="".join(f"    {at[place]!r},\n" for place in places),
        first_ops=device_mesh.first_ops_text(plan),
        host=device_mesh.HOST,
        split_points=device_mesh.SPLIT_POINTS,
    )


def _tiles(layout: Layout) -> list[tuple[tuple[int, int], ...]]:
    """Return samples and parts of the sequence that each rank of the layout's own numbering holds of a micro-batch."""
    meshes = [layout.at(stage) for stage in range(layout.pp)]
    cuts = [mesh.sequence_parallel and mesh.tp > 1 for mesh in meshes]
    tokens = math.lcm(*(mesh.cp * (mesh.tp if is_cut else 1) for mesh, is_cut in zip(meshes, cuts, strict=True)))
    result = []
    for mesh, is_cut in zip(meshes, cuts, strict=True):
        hosts = (0,) * (mesh.tp * mesh.cp * mesh.dp)
        held = StageTensor(layout.micro_batch * layout.dp, tokens, 1, mesh.tp, mesh.cp, mesh.dp, is_cut, hosts)
        of_rank = {device.place: tile for tile, devices in held.replicas().items() for device in devices}
        result += [of_rank[place] for place in range(len(hosts))]
    return result


_MODULE = '''{head}"""The planned meshes of the stages, for a program that torchrun or Ray has started with the ranks of the plan.

reshard brings tensors from stage to stage by sends and receives of single ranks, whatever algorithm the plan was priced by.
"""

# fmt: off
# Rank, host and place in the mesh of its stage.
RANKS = [
{rows}]

DIM_NAMES = ("dp", "cp", "tp")

# Of each stage the rank at each place of DIM_NAMES.
GRIDS = [
{grids}]

EXPERT_DIM_NAMES = ("edp", "ep", "tp")

# The same ranks for the experts' layers, or None where the plan cuts no experts.
EXPERT_GRIDS = {experts}

# What each rank holds of a micro-batch of all replicas between two layers: from which sample to which, and from which part of the
# sequence to which.
TILES = [
{tiles}]

{first_ops}

def coordinates(rank):
    """Place of a rank: a mapping of pp, dp, cp, ep and tp."""
    return dict(RANKS[rank][2])


{host}

def device_mesh(device_type="cuda"):
    """The DeviceMesh of this rank's stage; every rank must call this, after init_process_group."""
    return _own(device_type, GRIDS, DIM_NAMES)


def expert_mesh(device_type="cuda"):
    """That of its experts' layers; every rank must call this. None where the plan cuts no experts."""
    return None if EXPERT_GRIDS is None else _own(device_type, EXPERT_GRIDS, EXPERT_DIM_NAMES)


{split_points}

def reshard(tensor, source, target):
    """Bring a micro-batch, or its gradient, from a stage to another one; every rank of both stages must call this.

    Args:
        tensor: (samples, tokens, ...); on a rank of the source what it holds, on one of the target an empty tensor of the size
            of what it wants, which is filled and returned.
        source, target: stages.
    """
    import torch
    import torch.distributed as dist

    rank, sends, fills = dist.get_rank(), [], []
    for sender, receiver, part in messages(source, target):
        if rank == sender:
            sends.append(dist.P2POp(dist.isend, tensor[_within(part, sender, tensor)].contiguous(), receiver))
        elif rank == receiver:
            place = _within(part, receiver, tensor)
            buffer = torch.empty_like(tensor[place], memory_format=torch.contiguous_format)
            sends.append(dist.P2POp(dist.irecv, buffer, sender))
            fills.append((place, buffer))
    for request in dist.batch_isend_irecv(sends) if sends else ():
        request.wait()
    for place, buffer in fills:
        tensor[place] = buffer
    return tensor


def messages(source, target):
    """Of all messages sender, receiver, and which samples and parts of the sequence go."""
    held, found = {{}}, []
    for rank in _ranks(source):
        held.setdefault(TILES[rank], []).append(rank)
    for number, receiver in enumerate(_ranks(target)):
        for tile, senders in held.items():
            part = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(tile, TILES[receiver]))
            if all(begin < end for begin, end in part):
                found.append((senders[number % len(senders)], receiver, part))
    return found


def _ranks(stage):
    return [rank for rank, _, place in RANKS if place["pp"] == stage]


def _within(part, rank, tensor):
    """Where a part lies in what a rank holds."""
    units = [size // (end - begin) for size, (begin, end) in zip(tensor.shape, TILES[rank])]
    return tuple(
        slice((begin - first) * unit, (end - first) * unit)
        for (begin, end), (first, _), unit in zip(part, TILES[rank], units)
    )


def _own(device_type, grids, names):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    if dist.get_world_size() != len(RANKS):
        raise RuntimeError(f"the plan has {{len(RANKS)}} ranks, the job {{dist.get_world_size()}}")
    meshes = [DeviceMesh(device_type, torch.tensor(grid), mesh_dim_names=names) for grid in grids]
    return meshes[coordinates(dist.get_rank())["pp"]]
'''
