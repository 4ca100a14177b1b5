"""Measured kernels and layers of a device compared with the cost model.

Constants may have been fitted on every second row of a file (see `evaluation.calibration.fit_measured`), so the other rows of
these kinds are shown. Whole layers and networks are in no calibration set. Two kinds are outside the model and shown separately:
the loss by operators that move fewer bytes, and another optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...costs.training_step.kernels import KernelModel, KernelSettings, kernel_settings
from ...devices import device_type
from ...jobs.zoo.catalogue import zoo_graph
from ..calibration.fit_measured import UNALIGNED as UNALIGNED_SHARES
from ..calibration.fit_measured import called, counts, halves, held_against, unaligned
from ..calibration.kernel_table import LayerItem, LossItem, MeasuredKernels, ModelItem, OptimizerItem, read
from ..calibration.layer_kernels import layer_kernels
from ..calibration.least_squares import Residual, summary
from ..progress import Progress, reported

HOST_SHARE = 0.8
"""Layers for which the host needs more than this share of their time are left out: they say nothing of the device."""

UNALIGNED, OTHER_LOSS = "product, rows not at 16 bytes", "loss by PyTorch's operators"
OTHER_UPDATE = "update by PyTorch's fused AdamW"
NOT_MODELLED = (OTHER_LOSS, OTHER_UPDATE)

LAYER = "layer, "
"""How families of layers begin."""


@dataclass(frozen=True)
class KernelErrors:
    """The model's times for a file of measured kernels.

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
        """Return plain data: a row per item, and a summary per family."""
        rows = [
            {"family": family, "item": r.item, "predicted": r.fitted, "reference": r.measured, "relative_error": r.relative_error}
            for family, results in self.families.items()
            for r in results
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
        """Return the number of rows, errors, whether the model is to describe them and what was left out, by family."""
        return {
            family: {
                **(summary(rows) if rows else {"items": 0}),
                "is_modelled": family not in NOT_MODELLED,
                "of_the_host": self.num_of_host.get(family, 0),
            }
            for family, rows in self.families.items()
        }


def validate(
    path: str | Path,
    *,
    constants: str | None = None,
    progress: Progress | None = None,
) -> KernelErrors:
    """Compare a file of measured kernels with the model.

    Args:
        path: what ``meshwright dev calibrate measure`` wrote, or the name of a device whose kernels come measured.
        constants: constants of the kernel model, by name or file; by default the device's that come with meshwright.
        progress: called with a phase, steps done and steps.

    Raises:
        InputFileError, ConfigError: the file or the constants are missing or wrong.
    """
    measured = read(path)
    device = device_type(measured.device)
    settled = kernel_settings(measured.device, constants)
    kernels = KernelModel(device, settled)
    families: dict[str, list[Residual]] = {}
    of_host: dict[str, int] = {}
    for family, items in halves(measured)[1].items():
        families[family] = list(held_against(items, kernels))
    if left_out := [item for name in UNALIGNED_SHARES for item in unaligned(measured, name)[1]]:
        families[UNALIGNED] = list(held_against(left_out, kernels))
    for item in measured.items:
        if isinstance(item, LossItem) and not counts(item):
            families.setdefault(OTHER_LOSS, []).extend(held_against([item], kernels))
    for update in measured.of("optimizer"):
        assert isinstance(update, OptimizerItem)
        assert update.us is not None
        predicted_s = kernels.optimizer_s(update.parameters, update.gradient_bytes)
        families.setdefault(OTHER_UPDATE, []).append(Residual(called(update), 1e6 * predicted_s, update.us))
    passes = [item for item in measured.items if isinstance(item, LayerItem | ModelItem)]
    for item in reported(passes, "layers", progress):
        assert item.us is not None
        assert item.host_us is not None
        family = f"{LAYER}{item.attention} attention" if isinstance(item, LayerItem) else "network by the roofline"
        family += ", backward" if item.is_backward else ", forward"
        families.setdefault(family, [])
        if item.host_us > HOST_SHARE * item.us:
            of_host[family] = of_host.get(family, 0) + 1
            continue
        if isinstance(item, LayerItem):
            predicted_s = sum(map(kernels.kernel_s, layer_kernels(item)))
        else:  # as jobs of the zoo are timed
            graph = zoo_graph(item.name, device, batch_size=item.batch_size)
            predicted_s = float((graph.backward_s if item.is_backward else graph.forward_s).sum())
        families[family].append(Residual(called(item), 1e6 * predicted_s, item.us))
    return KernelErrors(measured, settled, {family: tuple(rows) for family, rows in families.items()}, of_host)
