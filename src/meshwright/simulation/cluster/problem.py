"""The fixed data of a scenario, as the flat arrays that compiled functions read.

Legend: ``n`` devices, ``b`` blocks, ``s`` placements by the published rule on several blocks, ``d`` degrees, ``g`` graphs, ``c``
placement classes, ``a`` candidates. Placements by the published rule are found during episodes (see
`simulation.pacml.placement_cache`). Their numbers follow those of the blocks; arrays of ``b + s`` have spare room.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numba_records import by_reference
from ..decision_space.block_bits import BlockBits
from .interruptions import Interruptions


class Rule(IntEnum):
    """The free block of a degree that a candidate takes; ties go to the first in scan order.

    All but two take one block. ``PUBLISHED`` is first fit as the published PAC-ML simulator has it: ops that are cut less
    far than the degree take blocks of their own. ``ALL_BLOCKS`` makes a candidate of every free block (see
    `simulation.cluster.candidates`).
    """

    FIRST_FIT = 0
    BEST_FIT = 1
    ALIGNED = 2
    FASTEST = 3
    PUBLISHED = 4
    ALL_BLOCKS = 5


RULE_NAMES = {rule.name.lower().replace("_", "-"): rule for rule in Rule}
# Rules that take one block of a degree, whatever the semantics.
ONE_BLOCK_RULES = ("first-fit", "best-fit", "aligned", "fastest")


class Published(NamedTuple):
    """The input of the published first fit, and the placements that it has found.

    A row is a graph and a degree, ``graph * d + degree``. A placement's key begins with the row. Where memory cannot bind, the
    first free block of each size follows; else the free devices as bits, `DEVICES_PER_WORD` to a number.

    Attributes:
        is_on: whether any candidate follows this rule.
        part_start: sizes of row ``i`` are ``part_degree[part_start[i]:part_start[i + 1]]``.
        part_degree: degree whose blocks have the size, -1 where no block has it.
        is_tight: whether memory may bind, ``(g d,)``.
        slots: hash table: number of a key plus one, 0 where there is none; a power of two long.
        keys: ``(keys, length of a key)``, padded by -1.
        block: of each key, -1 where the job cannot be placed, ``(keys,)``.
    """

    is_on: bool
    part_start: NDArray[np.int64]
    part_degree: NDArray[np.int64]
    is_tight: NDArray[np.bool_]
    slots: NDArray[np.int64]
    keys: NDArray[np.int64]
    block: NDArray[np.int64]


DEVICES_PER_WORD = 62


class QueueOrder(IntEnum):
    """The waiting job that is decided first; equal jobs come in the order of their arrival.

    No job that runs ever waits again, so that all waiting ones have attained no service and have all of their work left.
    """

    FIFO = 0
    SHORTEST_REMAINING = 1
    LEAST_ATTAINED_SERVICE = 2
    DEADLINE = 3


QUEUE_ORDERS = {order.name.lower().replace("_", "-"): order for order in QueueOrder}
"""By the words of YAML."""


@by_reference
class Problem(NamedTuple):
    """The arrays of a scenario that never change.

    Attributes:
        num_blocks: ``b``.
        num_classes: ``c``.
        start: devices of block or placement ``i`` are ``devices[start[i]:start[i + 1]]`` in rank order.
        devices: see ``start``.
        degree: index into ``degrees``, ``(b + s,)``.
        placement_class: column of ``step_s``, ``(b + s,)``.
        class_degree: index into ``degrees`` of the blocks of each class, ``(c,)``.
        neighbour_start, neighbours: blocks that share a device with ``i`` (itself among them).
        bits: the same as bits.
        weight: weight of each block of a degree in best fit and alignment, one over their number, so that every
            degree counts the same, ``(d,)``.
        degrees: ranks of each degree, ``(d,)``.
        rules: `Rule` of each placement rule that takes one candidate of each degree.
        candidate_degree: index into ``degrees`` of each candidate, -1 for the rejection and for listed blocks, ``(a,)``.
        candidate_rule: `Rule`, -1 for the rejection, ``(a,)``.
        step_s: ``(g, c + s)``.
        communication_share: ``(g, c + s)``.
        can_run: ``(g, c + s)``.
        sequential_step_s: ``(g,)``.
        horizon_s: alignment looks this far ahead.
        deadline_tolerance: share by which a completion time may exceed its limit, for rounding.
        queue_capacity: jobs that may wait at a time.
        queue_order: `QueueOrder` in which they are put up.
        is_keyed_by_degree: whether an episode's first placement of a graph and degree fixes their step time.
        last_reward_is_lost: whether the last decision pays as one turned down if nothing ends after it.
        interruptions: failures and preemptions.
        published: the published first fit.
    """

    num_blocks: int
    num_classes: int
    start: NDArray[np.int64]
    devices: NDArray[np.int64]
    degree: NDArray[np.int64]
    placement_class: NDArray[np.int64]
    class_degree: NDArray[np.int64]
    neighbour_start: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    bits: BlockBits
    weight: NDArray[np.float64]
    degrees: NDArray[np.int64]
    rules: NDArray[np.int64]
    candidate_degree: NDArray[np.int64]
    candidate_rule: NDArray[np.int64]
    step_s: NDArray[np.float64]
    communication_share: NDArray[np.float64]
    can_run: NDArray[np.bool_]
    sequential_step_s: NDArray[np.float64]
    horizon_s: float
    deadline_tolerance: float
    queue_capacity: int
    queue_order: int
    is_keyed_by_degree: bool
    last_reward_is_lost: bool
    interruptions: Interruptions
    published: Published

    @property
    def num_candidates(self) -> int:
        """Candidates of a decision, the rejection among them."""
        return len(self.candidate_degree)
