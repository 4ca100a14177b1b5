"""Measured kernels and layers of a device held against what the cost model says of them.

Constants may have been fitted on every second row of a file (see `evaluation.calibrate_measured`), so of those kinds the
others are shown; whole layers and networks are nobody's calibration set. What the model does not know of, products whose
rows do not begin at multiples of 16 bytes and the loss by operators that move fewer bytes, is shown apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..costs.layouts import blocks
from ..costs.layouts.block_key import BlockKey
from ..costs.layouts.items import Item, Message, Sweep
from ..costs.layouts.kernels import KernelModel, KernelSettings, kernel_settings
from ..devices import DeviceType, device_type
from ..jobs.zoo import zoo_graph
from ..plans.partition import Layout
from .calibrate_kernels import Residual
from .calibrate_measured import called, counts, halves, held_against, is_aligned, summary
from .measured_kernels import LayerItem, LossItem, MeasuredKernels, ModelItem, ProductItem, read
from .step_time_rows import gpt

HOST_SHARE = 0.8
"""Layers for which the host needs more than this share of their time are left out: they say nothing of the device."""

NOT_MODELLED = ("product, rows not at 16 bytes", "loss by PyTorch's operators")

LAYER = "layer, "
"""How families of layers begin."""

VOCABULARY = 51_200
"""Of the model around a layer, of which the layer does not depend."""


@dataclass(frozen=True)
class KernelErrors:
    """What the model says of a file of measured kernels.

    Attributes:
        measured: the file.
        constants: of the kernel model.
        families: by name, rows in microseconds.
        num_of_host: by name, passes that were left out because the host took most of their time.
    """

    measured: MeasuredKernels
    constants: KernelSettings
    families: Mapping[str, tuple[Residual, ...]]
    num_of_host: Mapping[str, int]

    def to_data(self) -> dict[str, Any]:
        """Plain data: a row per item, and a summary per family."""
        rows = [
            {"family": family, "item": r.item, "predicted": r.fitted, "reference": r.measured, "relative_error": r.relative_error}
            for family, found in self.families.items()
            for r in found
        ]
        header = self.measured.model_dump(mode="json", exclude={"items", "left_out"}, exclude_none=True)
        return {
            "measured": header,
            "constants": self.constants.model_dump(),
            "rows": rows,
            "summary": self.summary(),
            "unit": "microseconds",
        }

    def summary(self) -> dict[str, dict[str, Any]]:
        """By family: number of rows and errors, whether the model is to describe it, and what was left out."""
        return {
            family: {**summary(rows), "is_modelled": family not in NOT_MODELLED, "of_the_host": self.num_of_host.get(family, 0)}
            for family, rows in self.families.items()
        }


def validate(
    path: str | Path,
    *,
    constants: KernelSettings | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> KernelErrors:
    """Hold a file of measured kernels against the model.

    Args:
        path: what ``meshwright calibrate measure`` wrote, or the name of a device whose kernels come measured.
        constants: of the kernel model; by default those that come with meshwright.
        progress: called with a phase, steps done and steps.

    Raises:
        InputFileError, ConfigError: the file is missing or wrong.
    """
    measured = read(path)
    device = device_type(measured.device)
    settled = constants or kernel_settings(measured.device)
    kernels = KernelModel(device, settled)
    families: dict[str, list[Residual]] = {}
    of_host: dict[str, int] = {}
    for family, items in halves(measured)[1].items():
        families[family] = list(held_against(items, kernels))
    for item in measured.items:
        if isinstance(item, ProductItem | LossItem) and not counts(item):
            families.setdefault(NOT_MODELLED[is_aligned(item)], []).extend(held_against([item], kernels))
    passes = [item for item in measured.items if isinstance(item, LayerItem | ModelItem)]
    for number, item in enumerate(passes):
        assert item.us is not None
        family = _family(item)
        if item.host_us is not None and item.host_us > HOST_SHARE * item.us:
            of_host[family] = of_host.get(family, 0) + 1
        else:
            predicted_s = _layer_s(item, kernels) if isinstance(item, LayerItem) else _network_s(item, device)
            families.setdefault(family, []).append(Residual(called(item), 1e6 * predicted_s, item.us))
        if progress is not None:
            progress("layers", number + 1, len(passes))
    return KernelErrors(measured, settled, {family: tuple(rows) for family, rows in families.items()}, of_host)


def layer_items(item: LayerItem) -> tuple[Item, ...]:
    """The kernels of a measured pass as the cost model has them, without messages.

    Of unfused attention PyTorch does more than the cost model's kernels, which are Megatron-LM's: the mask is added by a
    kernel of its own, and the softmax goes over the whole matrix of scores. Both are counted here.
    """
    is_fused = item.attention == "fused"
    shape = gpt(1, item.hidden, item.num_heads, VOCABULARY, item.sequence_length, has_dropout=item.has_dropout)
    if not is_fused:
        shape = replace(shape, is_encoder=True)  # no causal mask, so that softmax reads and writes all of the scores
    layout = Layout(tp=item.tp, micro_batch=item.micro_batch, global_batch=item.micro_batch, attention=item.attention)
    work = blocks.layer(shape, BlockKey.of(layout, item.sequence_length))
    kernels = [one for one in (work.backward if item.is_backward else work.forward) if not isinstance(one, Message)]
    if not is_fused and not item.is_backward:
        scores = item.micro_batch * item.num_heads // item.tp * item.sequence_length**2
        kernels.append(Sweep("mask", 2.0 * 2 * scores))
    return tuple(kernels)


def _family(item: LayerItem | ModelItem) -> str:
    side = "backward" if item.is_backward else "forward"
    return f"{LAYER}{item.attention} attention, {side}" if isinstance(item, LayerItem) else f"network by the roofline, {side}"


def _layer_s(item: LayerItem, kernels: KernelModel) -> float:
    return sum(kernels.kernel_s(one) for one in layer_items(item) if not isinstance(one, Message))


def _network_s(item: ModelItem, device: DeviceType) -> float:
    """By the roofline of the device type, as jobs of the zoo are timed."""
    graph = zoo_graph(item.name, device, batch_size=item.batch_size)
    return float((graph.backward_s if item.is_backward else graph.forward_s).sum())
