"""Stages on devices of several types: which room each has, and how many layers each is given so that the pipeline takes least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...costs.process_groups.device_kinds import DeviceKinds
from ...costs.process_groups.lanes import Lane
from ...costs.training_step.kernels import KernelModel
from ...costs.training_step.step_time import Pricer
from ...costs.work.memory import StageMemory
from ...costs.work.operations import FusedAttention, Product, Sweep
from ...costs.work.step_work import StepWork
from ...costs.work.work import LayoutWork
from ...plans.partition import Layout
from ...plans.rank_order import numbers
from ...plans.strategies.trained_state import MOMENT_BYTES


@dataclass(frozen=True)
class FastestKernels(KernelModel):
    """Each kernel on the kind of device on which it takes the least.

    Attributes:
        models: what prices kernels on each kind.
    """

    models: tuple[KernelModel, ...] = ()

    @classmethod
    def among(cls, models: tuple[KernelModel, ...]) -> Self:
        """Return the fastest of some kinds; the host of the one that waits least for it."""
        least = {key: min(model.host_us[key] for model in models) for key in models[0].host_us}
        return cls(models[0].device, models[0].constants.model_copy(update=least), models[0].software, models=models)

    @cached_property
    def of_tuned_libraries(self) -> Self:
        """See `KernelModel.of_tuned_libraries`."""
        return self.among(tuple(model.of_tuned_libraries for model in self.models))

    def kernel_s(self, item: Product | FusedAttention | Sweep, element_bytes: int = 2) -> float:
        """Return the seconds of a kernel, as `KernelModel.kernel_s` gives them."""
        return min(model.kernel_s(item, element_bytes) for model in self.models)

    def optimizer_s(self, parameters: float, gradient_bytes: int = 2, moment_bytes: int = MOMENT_BYTES) -> float:
        """Return the seconds of the optimizer's update, as `KernelModel.optimizer_s` gives them."""
        return min(model.optimizer_s(parameters, gradient_bytes, moment_bytes) for model in self.models)


@dataclass(frozen=True, eq=False)
class StageDevices:
    """The devices of the ranks of a search, where they differ.

    Attributes:
        models: price kernels on each kind of device.
        kinds: which kind each rank has; None where kinds differ in memory alone.
        memory_bytes: of the device of each rank, in rank order.
    """

    models: tuple[KernelModel, ...]
    kinds: DeviceKinds | None
    memory_bytes: NDArray[np.float64]

    def num_of_kind(self, world: int) -> tuple[int, ...]:
        """Return the number of ranks on each kind of device, among a number of ranks."""
        if self.kinds is None or self.kinds.devices is None:
            return (world,)
        return tuple(np.bincount(self.kinds.of_device[self.kinds.devices[:world]], minlength=len(self.models)).tolist())

    def room_bytes(self, layout: Layout, order: str) -> NDArray[np.float64]:
        """Return the memory of the smallest device of each stage, ``(p,)``."""
        firsts = [layout.first_rank(stage) for stage in range(layout.pp)]
        result: NDArray[np.float64] = np.minimum.reduceat(self.memory_bytes[numbers(layout, order)], firsts)
        return result

    def missing_bytes(self, work: StepWork, order: str) -> tuple[float, int, StageMemory]:
        """Return the most bytes that a stage lacks (negative: has left), that stage, and the memory of a rank.

        Args:
            work: of a layout.
            order: of its ranks.
        """
        held = [work.memory(stage) for stage in range(work.layout.pp)]
        missing = np.array([one.total for one in held]) - self.room_bytes(work.layout, order)
        stage = int(missing.argmax())
        return float(missing[stage]), stage, held[stage]

    def least_bytes(self, work: LayoutWork) -> float:
        """Return the least memory of some rank however layers are spread: one stage has as many as here, or more."""
        return min(work.memory(stage).total for stage in range(work.layout.pp))

    def spreads(
        self, work: LayoutWork, pricer: Pricer, describe: Callable[[Layout], LayoutWork], is_run: Callable[[Layout], bool]
    ) -> list[LayoutWork]:
        """Return a layout as it is, and with layers spread by the speed of the stages' devices (`best_load`), as far as they fit.

        Args:
            work: of the layout with equally many layers on each stage.
            pricer: in the rank order that is meant.
            describe: makes the work of a layout.
            is_run: whether the framework that is asked for runs a layout.
        """
        result, layout = [work] if self.missing_bytes(work, pricer.order)[0] <= 0 else [], work.layout
        if layout.pp == 1 or layout.chunks_per_rank > 1 or work.shape.other_layers is not None or layout.is_meshed:
            return result
        if not is_run(layout.model_copy(update={"stage_layers": tuple(held.num_layers for held in work.stages)})):
            return result
        most = [work.shape.num_layers] * layout.pp
        seconds, number = _slowest_seconds(work, pricer), layout.num_micro_batches
        while (layers := best_load(work.shape.num_layers, *seconds, most, number)) is not None:
            if layers == tuple(chunk.num_layers for chunk in work.chunks):
                break
            other = describe(layout.model_copy(update={"stage_layers": layers}))
            room = self.room_bytes(layout, pricer.order)
            too_many = [stage for stage in range(layout.pp) if other.memory(stage).total > room[stage]]
            if not too_many:
                return [*result, other]
            for stage in too_many:
                most[stage] = layers[stage] - 1
        return result


def best_load(
    num_layers: int, layer_s: Sequence[float], other_s: Sequence[float], most: Sequence[int], num_micro_batches: int
) -> tuple[int, ...] | None:
    """Return the layers of each stage with which a pipeline takes least, see `filled_s`; None without room for all.

    As long as no stage may be busier than a given time, layers go to the fastest stages first. That time is one of those that
    some stage takes with some number of layers, and all of them are tried.

    Args:
        num_layers: of the model.
        layer_s: seconds of a layer on each stage, in both passes.
        other_s: seconds of what else each stage does.
        most: layers for which each stage has room.
        num_micro_batches: of a step.
    """
    if min(most) < 1 or sum(most) < num_layers or num_layers < len(most):
        return None
    each, other, room = np.array(layer_s), np.array(other_s), np.minimum(most, num_layers)
    busy_s = each[:, None] * np.arange(1, num_layers + 1) + other[:, None]
    is_possible = np.arange(1, num_layers + 1) <= room[:, None]
    caps_s = np.unique(busy_s[is_possible])
    caps_s = caps_s[caps_s >= busy_s[:, 0].max()]  # every stage has one layer
    fitting = (is_possible & (busy_s <= caps_s[:, None, None])).sum(axis=2)  # (caps, p)
    order = np.argsort(each, kind="stable")
    before = np.cumsum(fitting[:, order] - 1, axis=1) - (fitting[:, order] - 1)
    layers = np.empty_like(fitting)
    layers[:, order] = 1 + np.clip(num_layers - len(most) - before, 0, fitting[:, order] - 1)
    layers = layers[layers.sum(axis=1) == num_layers]
    seconds = filled_s(layers, each, other, num_micro_batches)
    return tuple(layers[int(seconds.argmin())].tolist())


def filled_s(
    layers: NDArray[np.int64], layer_s: NDArray[np.float64], other_s: NDArray[np.float64], num_micro_batches: int
) -> NDArray[np.float64]:
    """Return seconds in which a pipeline is filled, works and is drained: all stages once, and the busiest for each other one.

    Args:
        layers: of each stage, ``(..., p)``.
        layer_s, other_s, num_micro_batches: as of `best_load`.
    """
    busy_s = layers * layer_s + other_s
    result: NDArray[np.float64] = busy_s.sum(axis=-1) + (num_micro_batches - 1) * busy_s.max(axis=-1)
    return result


def _slowest_seconds(work: LayoutWork, pricer: Pricer) -> tuple[list[float], list[float]]:
    """Return the seconds of a layer, and of embedding or head, on each stage, in all passes: those of the slowest lane."""
    lanes = {id(lane): lane for lane in pricer.lanes(work)}.values()
    layer_s, other_s = np.array([layer_seconds(work, pricer, lane) for lane in lanes]).max(axis=0)
    return layer_s.tolist(), other_s.tolist()


def layer_seconds(work: LayoutWork, pricer: Pricer, lane: Lane) -> NDArray[np.float64]:
    """Return the seconds of a layer, and of embedding or head, on each stage of a lane, in all passes, ``(2, p)``."""
    blocks = pricer.blocks_of(work, lane)
    seconds = [{name: sum(times.task_s) for name, times in of_stage.items()} for of_stage in blocks]
    ends = [{"embedding": chunk.has_embedding, "head": chunk.has_head} for chunk in work.chunks]
    both = zip(seconds, ends, strict=True)
    other_s = [sum(of_stage[name] for name, held in end.items() if held) for of_stage, end in both]
    return np.array([[of_stage["layer"] for of_stage in seconds], other_s])
