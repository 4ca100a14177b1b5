"""Parts of the tree of a transformer's layouts that still wait to be examined."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from ...costs.work.work import LayoutWork
from .space import LayoutFamily, Leaf


class OrderBound(NamedTuple):
    """The least time of a layout in a rank order; ``number`` is unique within the layout, ``work`` has its layers."""

    bound_s: float
    number: int
    order: str
    work: LayoutWork


class BranchStage(IntEnum):
    """How far layouts that wait have been looked at.

    Attributes:
        NODE: their time is bounded by that of the least ZeRO stage, their memory by the smallest micro-batch.
        ROUGH: those of one ZeRO stage; their time is bounded by that of a lower one, whose passes send no more.
        ZERO: those of one ZeRO stage.
        EQUAL: those of one ZeRO stage that have one bound, as schedules alone differ; their memory is that of the leanest.
        LEAF: one that fits only if more is computed again; its memory is bounded by that of the leanest of its ZeRO stage.
        FITTING: one that fits.
        BOUNDED: one that is bounded in each rank order.
    """

    NODE = 0
    ROUGH = 1
    ZERO = 2
    EQUAL = 3
    LEAF = 4
    FITTING = 5
    BOUNDED = 6


class LayoutBranch(NamedTuple):
    """Layouts of a node still to be examined: all, those of one ZeRO stage, or one. The least bound is next.

    Attributes:
        bound_s: no layout of it takes less.
        memory_bytes: none needs less.
        number: unique, with a fraction for a single layout.
        node: the node.
        leaves: of the node, as far as they are meant.
        stage: what is known of them.
        work: of the layout, or of the leanest one of them.
        held_bytes: of a node, see `Held`.
        bounds: by rank order and spread of layers, see `LayoutSearch._bounds`; empty as long as the bound is that of any.
    """

    bound_s: float
    memory_bytes: float
    number: float
    node: LayoutFamily
    leaves: tuple[Leaf, ...]
    stage: BranchStage
    work: LayoutWork
    held_bytes: Mapping[int | Leaf, float] = MappingProxyType({})
    bounds: tuple[OrderBound, ...] = ()
