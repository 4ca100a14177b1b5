"""Measured times of kernels on one device: a YAML file with a header and one row per item, and the suite of items.

A row names its family, the shape under the keys of `costs.work.operations`, and microseconds. `KernelModel.kernel_s` prices its
`priced`. An item whose time is not known yet has no ``us``; every row of a file has one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ... import files, settings, yaml12
from ...costs.work.operations import FusedAttention, Product, Sweep, row_bytes
from ...devices import device_names
from ...errors import ConfigError
from ...packaged import Shipped
from ...settings import Settings
from ...yaml12 import Lines

PAIRED = ("layer", "model")
"""Families whose forward and backward item follow each other and are measured together."""

QUICK = {
    "product": 24,
    "attention_product": 4,
    "fused_attention": 6,
    "stream": 11,
    "loss": 4,
    "optimizer": 2,
    "layer": 10,
    "model": 2,
}
"""About as many items of these families are measured with ``quick``, spread over each."""

FIRST_LINE = "# Measured by meshwright dev calibrate measure; each key is explained in docs/formats.md.\n"

MEASURED = Shipped("measured", "a device whose kernels come measured")
"""Files that come with the package, by device."""

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0)]


class _Timed(Settings):
    """Name and microseconds of one item."""

    name: Name
    us: float | None = Field(default=None, gt=0)

    def priced(self) -> Product | FusedAttention | Sweep | None:
        """Return the operation that the cost model prices by itself; None of an item that is something else."""
        return None


class ProductItem(_Timed):
    """``batch`` products of ``m x k`` by ``k x n``; an operand that is ``transposed`` lies in memory the other way round."""

    family: Literal["product", "attention_product"]
    m: Count
    n: Count
    k: Count
    batch: Count = 1
    is_weight: bool = False
    transposed: Literal["none", "first", "second"] = "none"

    def priced(self) -> Product:
        """Return the product; one of attention where the family says so."""
        is_attention = self.family == "attention_product"
        return Product(self.name, self.m, self.n, self.k, self.batch, self.is_weight, is_attention, row_bytes=self.row_bytes)

    @property
    def row_bytes(self) -> int:
        """Multiple of bytes at which all rows of its three matrices begin, see `costs.work.operations.row_bytes`."""
        first = self.m if self.transposed == "first" else self.k
        return row_bytes(self.n, first, self.k if self.transposed == "second" else self.n)


class FusedAttentionItem(_Timed):
    """One attention kernel over ``batch`` heads; operations really done, bytes moved as `costs.work.layer_parts` counts both."""

    family: Literal["fused_attention"]
    batch: Count
    sequence_length: Count
    head_dim: Count
    is_causal: bool
    is_backward: bool
    flops: float = Field(gt=0)
    moved_bytes: float = Field(gt=0)

    def priced(self) -> FusedAttention:
        """Return the attention kernel."""
        moved, length = self.moved_bytes, self.sequence_length
        return FusedAttention(self.name, self.flops, moved, self.is_backward, length=length, head_dim=self.head_dim)


class StreamItem(_Timed):
    """Element-wise or reducing kernels over ``numbers`` values of two bytes in rows of ``columns``."""

    family: Literal["stream"]
    numbers: Count
    columns: Count
    moved_bytes: float = Field(gt=0)
    num_kernels: Count

    def priced(self) -> Sweep:
        """Return the sweep."""
        return Sweep(self.name, self.moved_bytes, self.num_kernels)


class LossItem(_Timed):
    """The loss over a vocabulary; bytes and launches are those of Megatron-LM's operators, whatever ``operators`` ran."""

    family: Literal["loss"]
    operators: Literal["megatron", "torch"]
    tokens: Count
    vocabulary: Count
    is_backward: bool
    moved_bytes: float = Field(gt=0)
    num_kernels: Count

    def priced(self) -> Sweep:
        """Return the sweep of kind ``loss``."""
        return Sweep(self.name, self.moved_bytes, self.num_kernels, kind="loss")


class OptimizerItem(_Timed):
    """One update of ``parameters`` parameters of two bytes in ``num_tensors`` equal tensors, with float32 masters."""

    family: Literal["optimizer"]
    parameters: Count
    num_tensors: Count
    gradient_bytes: Literal[2] = 2
    is_clipped: bool


class PaceItem(_Timed):
    """Microseconds from kernel to kernel: on the device (``gap``, a tiny kernel's own run with it), or of the ``host``."""

    family: Literal["gap", "host"]


class LayerItem(_Timed):
    """A pass of one rank through a whole GPT layer, eager; for validation only."""

    family: Literal["layer"]
    hidden: Count
    num_heads: Count
    tp: Count
    micro_batch: Count
    sequence_length: Count
    attention: Literal["fused", "unfused"]
    has_dropout: bool
    is_backward: bool
    host_us: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _is_cut_evenly(self) -> Self:
        if self.hidden % self.num_heads or self.num_heads % self.tp or 4 * self.hidden % self.tp:
            raise ValueError("num_heads must divide hidden, and tp num_heads and the inner width")
        return self


class ModelItem(_Timed):
    """A pass through a whole convolutional network of the zoo, eager; for validation only."""

    family: Literal["model"]
    name: Literal["alexnet", "vgg16", "resnet18", "resnet50", "squeezenet"]
    batch_size: Count
    is_backward: bool
    host_us: float | None = Field(default=None, gt=0)


Item = ProductItem | FusedAttentionItem | StreamItem | LossItem | OptimizerItem | PaceItem | LayerItem | ModelItem
FAMILIES = ("product", "attention_product", "fused_attention", "stream", "loss", "optimizer", "gap", "host", "layer", "model")
"""In the order of a file's rows."""


class LeftOut(Settings):
    """An item, or a whole family, that could not be measured."""

    family: Literal[FAMILIES]  # type: ignore[valid-type]
    name: Name
    reason: Name


class MeasuredKernels(Settings):
    """The file: on what and how it was measured, and the items."""

    device: Name
    gpu: Name
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    torch: Name
    cuda: Name
    driver: Name
    python: Name
    meshwright: Name
    command: Name
    power_limit_w: float | None = Field(default=None, gt=0)
    sm_clock_max_mhz: float | None = Field(default=None, gt=0)
    sm_clock_mhz: float | None = Field(default=None, gt=0)
    cache_bytes: int = Field(ge=0)
    num_multiprocessors: int | None = Field(default=None, gt=0)
    min_repeats: Count
    budget_ms: float = Field(gt=0)
    seed: int = Field(ge=0)
    left_out: tuple[LeftOut, ...] = ()
    items: tuple[Annotated[Item, Field(discriminator="family")], ...] = Field(min_length=1)

    def of(self, family: str) -> tuple[Item, ...]:
        """Return the items of a family, in the file's order."""
        return tuple(item for item in self.items if item.family == family)


def item_data(item: Item) -> dict[str, Any]:
    """Return plain data of a row: the family first, the time last, defaults left out."""
    data = item.model_dump(exclude_defaults=True)
    last: dict[str, Any] = {key: data.pop(key) for key in ("us", "host_us") if key in data}
    return {"family": data.pop("family"), "name": data.pop("name"), **data, **last}


def to_data(measured: MeasuredKernels) -> dict[str, Any]:
    """Return plain data of the shape of the file."""
    data = measured.model_dump(mode="json", exclude={"items", "left_out"}, exclude_none=True)
    data["left_out"] = [one.model_dump() for one in measured.left_out]
    data["items"] = [item_data(item) for item in measured.items]
    return data


def kernels_text(measured: MeasuredKernels) -> str:
    """Return the file's text: a line for each key of the header, each item, and each thing left out."""
    data = to_data(measured)
    rows = {key: data.pop(key) for key in ("left_out", "items")}
    lines = [FIRST_LINE, yaml12.dump(data, allow_unicode=True, width=1_000_000)]
    for key, result in rows.items():
        if result:
            body = yaml12.dump(result, allow_unicode=True, default_flow_style=None, width=1_000_000)
            lines.append(f"{key}:\n" + "".join(f"  {line}\n" for line in body.splitlines()))
    return "".join(lines)


def write(path: str | Path, measured: MeasuredKernels) -> None:
    """Write the file, whole or not at all.

    Raises:
        ConfigError: an item without its time.
        InputFileError: the file cannot be written.
    """
    _check_times(measured)
    files.write_text(path, kernels_text(measured))


def read(path: str | Path) -> MeasuredKernels:
    """Read a file of measured kernels, or the one of a device that comes with meshwright.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, an unknown family or key, a time that is none, an item without its time; with the line.
    """
    data, lines = settings.read_yaml(MEASURED.path(str(path)))
    measured = settings.build_settings(MeasuredKernels, data, file=path, lines=lines)
    if measured.device not in device_names():
        line, choices = lines.get(("device",)), device_names()
        raise ConfigError("unknown type", file=path, line=line, field="device", value=measured.device, choices=choices)
    _check_times(measured, file=path, lines=lines)
    return measured


def _check_times(measured: MeasuredKernels, file: str | Path | None = None, lines: Lines | None = None) -> None:
    for number, item in enumerate(measured.items):
        for key in ("us", "host_us"):
            if getattr(item, key, 0.0) is None:
                line = (lines or {}).get(("items", number))
                raise ConfigError("the key is missing", file=file, line=line, field=f"items.{number}.{key}")


@cache
def suite() -> tuple[Item, ...]:
    """Return all kernels that `measure` measures: the rows of the H100's, without their times, so that every device has the same.

    Products, bytes and operations are those of a transformer layer on one rank by `costs.work.layer_parts`.
    """
    return tuple(
        item.model_copy(update={key: None for key in ("us", "host_us") if hasattr(item, key)}) for item in read("h100").items
    )


def grid(*, quick: bool = False) -> tuple[Item, ...]:
    """Return all items; with ``quick`` about as many of each family as `QUICK` says, spread over it."""
    if not quick:
        return suite()
    items: list[Item] = []
    for family in FAMILIES:
        own = [item for item in suite() if item.family == family]
        together = 2 if family in PAIRED else 1
        number = min(len(own), QUICK.get(family, len(own))) // together
        for place in range(number):
            first = together * ((2 * place + 1) * (len(own) // together) // (2 * number))
            items += own[first : first + together]
    return tuple(items)
