"""Kernels on the fastest of several kinds of device, for bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from ...plans.partition import Layout
from ...plans.strategies.trained_state import MOMENT_BYTES
from ..work.operations import FusedAttention, Product, Sweep
from .kernels import KernelModel


@dataclass(frozen=True)
class FastestKernels(KernelModel):
    """Each kernel on the kind of device on which it takes the least.

    Attributes:
        models: what prices kernels on each kind.
    """

    models: tuple[KernelModel, ...] = ()

    @classmethod
    def among(cls, models: tuple[KernelModel, ...]) -> Self:
        """The fastest of some kinds; the host of the one that waits least for it."""
        least = {key: min(model.host_us[key] for model in models) for key in models[0].host_us}
        return cls(models[0].device, models[0].constants.model_copy(update=least), models[0].software, models=models)

    @cached_property
    def of_tuned_libraries(self) -> Self:
        """See `KernelModel.of_tuned_libraries`."""
        return self.among(tuple(model.of_tuned_libraries for model in self.models))

    def kernel_s(self, item: Product | FusedAttention | Sweep, element_bytes: int = 2) -> float:
        """Seconds of a kernel, as `KernelModel.kernel_s` gives them."""
        return min(model.kernel_s(item, element_bytes) for model in self.models)

    def optimizer_s(self, parameters: float, gradient_bytes: int = 2, moment_bytes: int = MOMENT_BYTES) -> float:
        """Seconds of the optimizer's update, as `KernelModel.optimizer_s` gives them."""
        return min(model.optimizer_s(parameters, gradient_bytes, moment_bytes) for model in self.models)

    def offloaded_s(self, parameters: float, layout: Layout) -> float:
        """Seconds of an update on the host, as `KernelModel.offloaded_s` gives them."""
        return min(model.offloaded_s(parameters, layout) for model in self.models)
