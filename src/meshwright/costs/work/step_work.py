"""The work of every rank of a layout in one step, whatever the job: the interface of transformers and graphs of ops.

A message names the axis of the layout along which it runs; all ranks of a stage do the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, Self

from ...errors import PlanError
from ...plans.partition import Layout
from ...quantities import compared_gb
from ..compression import Matrix
from ..process_groups.rank_groups import IN_PASSES
from .memory import StageMemory
from .operations import Message

SUMMED = ("dp_cp", "expert_dp")
"""Axes over which gradients are summed."""


class ModelParts(NamedTuple):
    """The weights of a whole job, part by part in model order.

    Attributes:
        sizes: parameters of each part.
        chunks: of each model chunk the first part and the one behind its last, ``(pp v,)``.
        number_bytes: of a parameter as the optimizer leaves it.
        optimizer_bytes: that the optimizer keeps of it; by default a master weight and both moments, in 4 bytes each.
    """

    sizes: tuple[float, ...]
    chunks: tuple[tuple[int, int], ...]
    number_bytes: float
    optimizer_bytes: float = 12.0


class StepWork(ABC):
    """The step of a layout.

    Attributes:
        layout: how the job is cut.
    """

    layout: Layout

    @property
    @abstractmethod
    def amount(self) -> tuple[int, Literal["tokens", "samples"]]:
        """Number of tokens or samples of a step over all ranks, and the unit."""

    @property
    def pass_axes(self) -> frozenset[str]:
        """Axes of the messages that belong to passes."""
        return IN_PASSES

    @property
    def partners(self) -> Mapping[int, int]:
        """The stage with which each stage sums gradients behind its passes, where there is one."""
        return {}

    @property
    @abstractmethod
    def weights(self) -> float:
        """Weights of a replica's ranks, in parameters or in bytes of their gradients: for shares of the same job."""

    @property
    @abstractmethod
    def gradient_number_bytes(self) -> float:
        """Bytes of a number of the gradients."""

    @property
    def op_cuts(self) -> tuple[int, ...]:
        """Ops of each chunk; none of a job that is cut by layers, whose layout says it."""
        return ()

    @property
    @abstractmethod
    def weight_parts(self) -> ModelParts:
        """The weights of the job and which chunk has which."""

    @abstractmethod
    def gradient_bytes_on(self, stage: int) -> float:
        """Return the bytes of the gradients of a rank of a stage."""

    @abstractmethod
    def with_gradient_share(self, share: float) -> Self:
        """Return the work with so much of the gradients' bytes; none with 0."""

    @abstractmethod
    def matrices(self, stage: int, message: Message) -> tuple[Matrix, ...]:
        """Return the matrices of a rank of a stage whose gradients a message sums."""

    def pass_messages(self) -> Iterator[tuple[Message, int, int]]:
        """Return messages inside passes, with their stage and number for each micro-batch; none where the job says none."""
        return iter(())

    @abstractmethod
    def sent(self, chunk: int) -> tuple[Message, ...]:
        """Return the messages that bring a micro-batch's activations from a chunk to the next one, or to all that read them."""

    @property
    @abstractmethod
    def last_output(self) -> tuple[Message, ...]:
        """A micro-batch's activations behind the last chunk, as a message from there would bring them."""

    @abstractmethod
    def returned(self, chunk: int) -> tuple[Message, ...]:
        """Return the gradients that a chunk sends to where it got the activations from."""

    @abstractmethod
    def sync(self, stage: int) -> tuple[Message, ...]:
        """Return the messages after the last backward pass of a stage, one after the other."""

    @abstractmethod
    def gather(self, stage: int) -> tuple[Message, ...]:
        """Return the messages after the optimizer of a stage."""

    @abstractmethod
    def memory(self, stage: int) -> StageMemory:
        """Return the memory of a rank of one stage."""

    def peak_memory(self) -> tuple[int, StageMemory]:
        """Return the stage whose ranks need most, the first of equal ones, and what they hold."""
        return max(((stage, self.memory(stage)) for stage in range(self.layout.pp)), key=lambda pair: pair[1].total)

    def summed(self, stage: int) -> tuple[Message, ...]:
        """Return the messages of `sync` that may be coded: sums of gradients over replicas."""
        return tuple(message for message in self.sync(stage) if message.axis in SUMMED)


def check_fits(peak: tuple[int, StageMemory], capacity_bytes: float) -> None:
    """Refuse a layout that does not fit a device.

    Args:
        peak: the stage whose ranks need most, and what they hold, see `memory.peak_memory`.
        capacity_bytes: memory of a device.

    Raises:
        PlanError: with what the fullest rank needs and what a device has.
    """
    stage, memory = peak
    if memory.total > capacity_bytes:
        need, has, _ = compared_gb(memory.total, capacity_bytes)
        raise PlanError(
            f"a rank of stage {stage} needs {need} ({memory.model_state / 1e9:.1f} model state, "
            f"{memory.activations / 1e9:.1f} activations, {memory.buffers / 1e9:.1f} buffers, a reserve of "
            f"{memory.runtime / 1e9:.1f} for context, NCCL and fragmentation), a device has {has}",
            field="layout",
        )
