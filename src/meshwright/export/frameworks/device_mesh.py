"""mesh.py for torch programs: the plan's grid as a ``DeviceMesh`` and its stages as split points.

The generated module needs PyTorch only and asks for it when a function is called, so its tables can be read anywhere.

Source of the arguments of ``fully_shard``:
    The documentation of ``fully_shard`` and ``MixedPrecisionPolicy`` in PyTorch 2.13. A mesh of one dimension shards over all
    of it, of two over the second. ``reshard_after_forward=False`` keeps parameters whole until the backward pass, ZeRO stage 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...plans.document import PlacementPlan
from ...plans.partition import Coordinates, Layout
from ...plans.strategies.trained_state import TrainedState

FILE_NAME = "mesh.py"

NOT_GUARANTEED = (
    "Order in groups: DeviceMesh sorts the ranks inside a process group and may reuse the world's group for a dimension that "
    "spans it, so rings follow rank order whatever the mesh says. Only the numbering of the ranks places a job.",
    "Parts of a volume: mesh.py says which rank has which; the script cuts samples and exchanges halos.",
    "Stage of a rank: torch.distributed.pipelining puts stage i on the pipeline group's rank i modulo its size; keep to "
    "schedules that do so.",
)

_AXES = ("pp", "dp", "cp", "tp")


def has_grid(plan: PlacementPlan) -> bool:
    """Return whether the ranks have coordinates, so that `device_mesh_text` can be written."""
    return plan.ranks[0].coordinates is not None


def rank_grid(plan: PlacementPlan) -> NDArray[np.int64]:
    """Return the rank at each place of the grid, ``(pp, dp, cp, tp)``; parts of a volume lie along ``cp``."""
    places = [rank.coordinates for rank in plan.ranks if rank.coordinates is not None]
    return places_grid(places, range(len(places)))


def places_grid(places: Sequence[Coordinates], ranks: Sequence[int]) -> NDArray[np.int64]:
    """Return the grid of some ranks, those of one stage or of all; see `rank_grid`.

    Args:
        places: of all ranks.
        ranks: that are meant.
    """
    at = np.array([[getattr(places[rank], axis) for axis in _AXES] for rank in ranks])
    at[:, 0] -= at[:, 0].min()
    sp = np.array([places[rank].sp for rank in ranks])
    at[:, _AXES.index("cp")] = at[:, _AXES.index("cp")] * (sp.max() + 1) + sp
    grid = np.empty(at.max(axis=0) + 1, np.int64)
    grid[tuple(at.T)] = ranks
    return grid


def coordinates_of(plan: PlacementPlan) -> list[dict[str, int]]:
    """Return the place of each rank by axis; ``sp`` is there only where volumes are cut. Empty for ranks without a place."""
    cuts_volumes = any(rank.coordinates is not None and rank.coordinates.sp for rank in plan.ranks)
    dumped = [rank.coordinates.model_dump() if rank.coordinates else {} for rank in plan.ranks]
    return [{"sp": 0} | one if cuts_volumes and one else one for one in dumped] if cuts_volumes else dumped


def expert_grid(plan: PlacementPlan) -> NDArray[np.int64] | None:
    """Return the rank at each place of the experts' grid, ``(pp, dp of experts, ep, etp)``; None where experts are not cut."""
    places, layout = [rank.coordinates for rank in plan.ranks if rank.coordinates is not None], plan.layout()
    etp = None if layout is None else layout.etp
    return None if max((place.ep for place in places), default=0) == 0 else expert_cut(places, rank_grid(plan), etp)


def expert_cut(places: Sequence[Coordinates], grid: NDArray[np.int64], etp: int | None = None) -> NDArray[np.int64]:
    """Return the ranks of a grid as the experts' grid, ``(pp, dp of experts, ep, etp)``.

    Args:
        places: of all ranks.
        grid: as `rank_grid` gives it.
        etp: tensor-parallel degree of experts; None: that of the grid.
    """
    num_ep = max(places[rank].ep for rank in grid.reshape(-1).tolist()) + 1
    stages, slices = len(grid), etp or grid.shape[-1]
    cut = np.empty((stages, grid.size // (stages * num_ep * slices), num_ep, slices), np.int64)
    for stage in range(stages):
        for piece in range(slices):
            ranks = grid[stage, :, :, piece::slices].reshape(-1).tolist()
            for expert in range(num_ep):
                cut[stage, :, expert, piece] = [rank for rank in ranks if places[rank].ep == expert]
    return cut


def splits(plan: PlacementPlan) -> tuple[tuple[str, ...], str]:
    """Name of the first op of each stage but the first, in model order, and why there are none, empty where there are."""
    chunks = sorted(plan.stages, key=lambda stage: (stage.chunk, stage.stage))
    if not chunks or not has_grid(plan):
        return (), "the plan has no pipeline stages"
    layout, stage_of = plan.layout(), [rank.coordinates.pp for rank in plan.ranks if rank.coordinates is not None]
    num_stages = max(stage_of) + 1
    if num_stages == 1:
        return (), "the pipeline has one stage"
    if layout is not None and layout.is_bidirectional:
        return (), "stages go down the pipeline and up again, or lie on two ranks"
    in_turn = [position % num_stages for position in range(len(chunks))]
    if len(chunks) % num_stages or [stage.stage for stage in chunks] != in_turn:
        return (), "the chunks do not go round the pipeline stages in turn"
    if not all(stage.ops for stage in chunks):
        return (), "the plan does not name the ops of each stage"
    falls = np.diff(stage_of) if layout is not None and layout.is_meshed else np.diff(rank_grid(plan), axis=0)
    if (falls < 0).any():
        return (), "ranks fall along the pipeline, and process groups are sorted by rank"
    return tuple(stage.ops[0] for stage in chunks[1:]), ""


def device_mesh_text(plan: PlacementPlan, head: str) -> str:
    """Return the text of the module that makes the mesh.

    Args:
        plan: one with coordinates.
        head: comment lines to begin with.
    """
    places = zip(plan.ranks, coordinates_of(plan), strict=True)
    rows = "".join(f"    ({rank.rank}, {rank.host!r}, {place!r}),\n" for rank, place in places if place)
    grid, layout = rank_grid(plan), plan.layout()
    dims: tuple[str, ...] = ("pp", "dp", "cp", "tp")
    if layout is not None and layout.sp > 1:
        dims = ("pp", "dp", "cp", "sp_d", "sp_h", "sp_w", "tp")
        grid = grid.reshape([getattr(layout, axis) for axis in dims])
    experts = expert_grid(plan)
    return _MODULE.format(
        head=head,
        rows=rows,
        dims=repr(dims).replace("'", '"'),
        grid=nested(grid),
        experts="None" if experts is None else nested(experts),
        first_ops=first_ops_text(plan),
        host=HOST,
        split_points=SPLIT_POINTS,
        fully_shard=fully_shard_text(layout),
    )


def first_ops_text(plan: PlacementPlan) -> str:
    """Return the lines of a module that name the split points, or say why there are none."""
    first_ops, why_not = splits(plan)
    names = "".join(f"    {name!r},\n" for name in first_ops)
    note = f"# No split points: {why_not}.\n" if why_not else ""
    return f"""{note}# The op with which each pipeline stage but the first begins, in the model's order.
FIRST_OPS = {f"({chr(10)}{names})" if names else "()"}
# fmt: on
"""


def nested(grid: NDArray[np.int64], indent: str = "") -> str:
    """Return a grid as nested lists, a line for each of its innermost two dimensions."""
    if grid.ndim == 2:
        return repr(grid.tolist())
    inner = indent + "    "
    return "[\n" + "".join(f"{inner}{nested(part, inner)},\n" for part in grid) + f"{indent}]"


HOST = '''def host(rank):
    """The host on which the plan puts a rank."""
    return RANKS[rank][1]
'''

SPLIT_POINTS = '''def split_points(modules=None):
    """The split_spec for torch.distributed.pipelining.pipeline.

    Args:
        modules: name of the model's submodule for each op of FIRST_OPS; by default the op's own name.
    """
    from torch.distributed.pipelining import SplitPoint

    modules = {} if modules is None else modules
    return {modules.get(op, op): SplitPoint.BEGINNING for op in FIRST_OPS}
'''

_MODULE = '''{head}"""The planned grid of ranks, for a program that torchrun or Ray has started with the ranks of the plan."""

# fmt: off
# Rank, host and place in the grid.
RANKS = [
{rows}]

DIM_NAMES = {dims}

# The rank at each place of DIM_NAMES.
GRID = {grid}

EXPERT_DIM_NAMES = ("pp", "edp", "ep", "tp")

# The same ranks for the experts' layers, or None where the plan cuts no experts.
EXPERT_GRID = {experts}

{first_ops}

def coordinates(rank):
    """Place of a rank: a mapping of pp, dp, cp, ep and tp, and of sp where volumes are cut."""
    return dict(RANKS[rank][2])


{host}

def device_mesh(device_type="cuda"):
    """The planned DeviceMesh; every rank must call this, after init_process_group."""
    return _mesh(device_type, GRID, DIM_NAMES)


def expert_mesh(device_type="cuda"):
    """The DeviceMesh of the experts' layers; every rank must call this. None where the plan cuts no experts."""
    return None if EXPERT_GRID is None else _mesh(device_type, EXPERT_GRID, EXPERT_DIM_NAMES)


{split_points}
{fully_shard}
def _mesh(device_type, grid, names):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    if dist.get_world_size() != len(RANKS):
        raise RuntimeError(f"the plan has {{len(RANKS)}} ranks, the job {{dist.get_world_size()}}")
    return DeviceMesh(device_type, torch.tensor(grid), mesh_dim_names=names)
'''

_SCRIPT = (
    *("micro_batch", "num_micro_batches", "recompute", "recompute_method", "recompute_num_layers", "precision", "attention"),
    *("compile", "loss_chunks"),
)
"""Keys of a layout that do not describe sharding."""

_WHERE_SAID = tuple(TrainedState.model_fields)
"""The same of keys that are written where they are not at their defaults."""

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "bfloat16"}


def fully_shard_text(layout: Layout | None) -> str:
    """Return the lines; none where the layout is another framework's, or cuts along other axes than those of data."""
    if layout is None or layout.framework != "fsdp2" or layout.world != layout.dp or layout.zero not in (2, 3):
        return ""
    keys = {key: getattr(layout, key) for key in (*_SCRIPT, *(key for key in _WHERE_SAID if key in layout.model_dump()))}
    lines = "".join(f"    {key!r}: {value!r},\n" for key, value in keys.items()).replace("'", '"')
    dtype = _DTYPES[layout.precision]
    sums = "float32" if layout.gradient_bytes == 4 else dtype
    return _TEXT.format(keys=lines, shards=layout.num_shards, reshards=layout.zero == 3, dtype=dtype, sums=sums)


_TEXT = '''
# The plan's demands on the script, apart from sharding, by keys of its layout; compile: None leaves it to the script.
SCRIPT = {{
{keys}}}


def fully_shard_arguments(device_type="cuda"):
    """Keyword arguments of torch.distributed.fsdp.fully_shard, of each block and then of the model.

    Every rank must call this once, after init_process_group.
    """
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    ranks = [rank for rank, _, _ in sorted(RANKS, key=lambda one: one[2]["dp"])]
    groups = [ranks[first : first + {shards}] for first in range(0, len(ranks), {shards})]
    names = ("dp_replicate", "dp_shard")
    mesh = _mesh(device_type, groups, names) if len(groups) > 1 else _mesh(device_type, groups[0], names[1:])
    policy = MixedPrecisionPolicy(param_dtype=torch.{dtype}, reduce_dtype=torch.{sums})
    return {{"mesh": mesh, "reshard_after_forward": {reshards}, "mp_policy": policy}}

'''
