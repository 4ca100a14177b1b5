"""Times of the passes of one block: a layer, the embedding or the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..training_step.passes import NO_TIME, PassTime
from ..work.layer import BlockWork
from ..work.operations import Pass, side_by_side

_NO_PAIRS: Mapping[str, PassTime] = {}


@dataclass(frozen=True)
class BlockTimes:
    """Times of the passes of a block or chunk.

    Attributes:
        forward: the forward pass.
        recompute: the part of it that is recomputed before each backward pass.
        backward: of inputs and weights, or of inputs alone where the schedule splits all backward passes.
        weight: the gradients of weights where any backward pass is split.
        inputs: those of inputs where some backward passes are split and others whole.
        concurrent: the forward pass paired with the recomputation and backward pass of another block (bidirectional schedules).
    """

    forward: PassTime
    recompute: PassTime
    backward: PassTime
    weight: PassTime
    inputs: PassTime = NO_TIME
    concurrent: Mapping[str, PassTime] = field(default_factory=lambda: _NO_PAIRS)

    @classmethod
    def from_work(
        cls,
        block: BlockWork,
        time: Callable[[Pass], PassTime],
        *,
        parts: bool = False,
        others: Mapping[str, BlockWork] | None = None,
    ) -> BlockTimes:
        """Price the passes of a block.

        Args:
            block: its work.
            time: prices a pass.
            parts: whether the schedule splits all backward passes.
            others: of a bidirectional schedule, by name, the blocks whose backward passes overlap with this forward pass.
        """
        ahead, again = time(block.forward), time(block.recompute)
        if not parts and others is None:
            return cls(ahead, again, time(block.backward), NO_TIME)
        inputs, weights = map(time, block.parts)
        if others is None:
            return cls(ahead, again, inputs, weights)
        backward_items = {name: (*other.recompute, *other.backward) for name, other in others.items()}
        concurrent = {name: time(side_by_side(block.forward, items)) for name, items in backward_items.items()}
        return cls(ahead, again, time(block.backward), weights, inputs, concurrent)

    @classmethod
    def slowest(cls, kinds: Sequence[BlockTimes]) -> BlockTimes:
        """Return the slowest time of each pass among ranks that wait for each other."""
        if len(kinds) == 1:
            return kinds[0]
        passes = [max(times, key=lambda one: one.seconds) for times in zip(*(kind.passes for kind in kinds), strict=True)]
        concurrent = {
            name: max((kind.concurrent[name] for kind in kinds), key=lambda time: time.seconds) for name in kinds[0].concurrent
        }
        return cls(passes[0], passes[1], passes[2], passes[3], passes[4], concurrent)

    @property
    def passes(self) -> tuple[PassTime, PassTime, PassTime, PassTime, PassTime]:
        """The times of all passes but those of pairs."""
        return self.forward, self.recompute, self.backward, self.weight, self.inputs

    @cached_property
    def task_s(self) -> tuple[float, float, float]:
        """Seconds of the tasks of a schedule, of one block."""
        return self.forward.seconds, (self.recompute + self.backward).seconds, self.weight.seconds

    def both_ways_s(self) -> tuple[float, float, float, float]:
        """Return the seconds of each kind of task but pairs in a bidirectional schedule, see `pipelines.bidirectional`."""
        return (*self.task_s, (self.recompute + self.inputs).seconds)
