"""The decision as data: partition, placement, plan, its JSON schema and legality; `planning` takes it."""

from .document import Figure, PlacementPlan
from .legality import check, check_cluster
from .making import layout_plan, load_plan, moved_plan, op_placement_plan, op_split_plan
from .memory import check_memory, op_split_memory_bytes
from .op_placement import OpGroup, OpPlacementPartition
from .partition import Coordinates, Layout
from .placement import Placement, place
from .splitting.op_splits import OpSplits, sip_ml_splits, uniform_splits

__all__ = [
    "Coordinates",
    "Figure",
    "Layout",
    "OpGroup",
    "OpPlacementPartition",
    "OpSplits",
    "Placement",
    "PlacementPlan",
    "check",
    "check_cluster",
    "check_memory",
    "layout_plan",
    "load_plan",
    "moved_plan",
    "op_placement_plan",
    "op_split_memory_bytes",
    "op_split_plan",
    "place",
    "sip_ml_splits",
    "uniform_splits",
]
