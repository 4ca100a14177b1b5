"""Time of a kernel on a device: products by tiles and waves, everything else by the bytes that it moves.

The constants are data (``configs/kernels``), calibrated once, see `evaluation.calibration.fit_a100`. A device without a
calibration of its own takes the shares of its peaks that the calibrated one reaches. A user who has calibrated a device gives
a file of the same form (`CostSettings.kernels`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ... import files, settings, yaml12
from ...clusters.cluster import Cluster
from ...devices import DeviceType, base_name
from ...errors import ConfigError
from ...packaged import Shipped
from ...plans.frameworks.defaults import TRAITS
from ...plans.strategies.trained_state import MOMENT_BYTES
from ..host_update import HostProcessors
from ..settings import CostSettings
from ..work.operations import ALIGNED_BYTES, FusedAttention, Product, Sweep

TILES = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.92),
    (256, 64, 0.85),
    (64, 256, 0.85),
    (128, 64, 0.75),
    (64, 128, 0.75),
    (64, 64, 0.55),
)
"""Rows and columns of the tiles that a library of products chooses from, and what each reaches of the largest one's speed.
A smaller tile loads more bytes for each operation. Shapes and order: NVIDIA, "Matrix multiplication background user's
guide", 2023, section 4.2; the shares are an assumption."""

MAX_SPLITS, LEAST_SUM = 16, 512
"""Into how many parts at most the sums of a product are cut, and what must be left of them to be cut again."""

GRADIENT_SWEEPS = 7
"""How often one update goes over a gradient: unscaling (read, write), norm (read), clipping (read, write), Adam (read), zero
for the next step (write). The calibrated bytes hold for gradients of two bytes."""

WIDE_HEAD = 128
"""Width of a head from which on a kernel of fused attention fills the matrix units."""

FP8_SPEED = 2.0
"""Peak in numbers of one byte over that in 16 bits, of all devices that have both. NVIDIA, "H100 tensor core GPU
architecture", 2022, and "Blackwell architecture technical brief", 2024.
"""

HOST_OF = "h200"
"""The device type on whose host FSDP2's hooks and further launches of an op were timed: others are taken to have its pace."""

ANY = "any"
"""The constants of a device without any of its own, and the ``device`` of constants that are for every one."""


CONSTANTS = Shipped("kernels", "the name of kernels' constants", "kernels")
"""Those that come with the package."""


class Fp8Settings(settings.Settings):
    """Constants of products of numbers of one byte.

    Attributes:
        product_efficiency: share of twice the peak in 16 bits.
        product_overhead_k: start and end of a tile, as of a product in 16 bits.
        cast_bytes_per_number: bytes moved to turn the left operand into bytes, for each of its numbers.
        start_us: the launches that this takes, on top of the product's own.
    """

    product_efficiency: float = Field(gt=0, le=1)
    product_overhead_k: float = Field(ge=0)
    cast_bytes_per_number: float = Field(ge=0)
    start_us: float = Field(ge=0)


class AttentionSettings(settings.Settings):
    """How the share of the peak that fused attention reaches hangs on its sizes.

    Attributes:
        half_length: of a sequence of so many tokens the kernel reaches half of its share, of longer ones more.
        narrow_share: of its share, with heads of 64 numbers instead of 128; between them as a power of the width.
        start_us: of a kernel, on top of the time between two.
    """

    half_length: float = Field(ge=0)
    narrow_share: float = Field(gt=0, le=2)
    start_us: float = Field(ge=0)

    def reached(self, length: int, head_dim: int) -> float:
        """Return the part of the share that a kernel reaches."""
        narrow = self.narrow_share ** math.log2(WIDE_HEAD / min(head_dim, WIDE_HEAD)) if head_dim else 1.0
        return narrow * (length / (length + self.half_length) if length else 1.0)


class KernelSettings(settings.Settings):
    """Constants of kernels on one device type; keys are explained in ``a100``, ``b200``, ``h200.yaml`` of ``configs/kernels``."""

    device: str
    calibrated: bool
    num_multiprocessors: int = Field(gt=0)
    product_efficiency: float = Field(gt=0, le=1)
    attention_product_efficiency: float = Field(gt=0, le=1)
    product_overhead_k: float = Field(ge=0)
    memory_efficiency: float = Field(gt=0, le=1)
    loss_efficiency: float = Field(gt=0)
    spread_loss_efficiency: float = Field(gt=0)
    fused_attention_efficiency: float = Field(gt=0, le=1)
    fused_attention_backward_efficiency: float = Field(gt=0, le=1)
    kernel_gap_us: float = Field(ge=0)
    host_us_per_kernel: float = Field(ge=0)
    host_us_per_message: float = Field(ge=0)
    optimizer_bytes_per_parameter: float = Field(gt=0)
    step_overhead_ms: float = Field(ge=0)
    uncertainty: float = Field(gt=0)
    steps_of: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    # Left out of dumps where there is none, so that no digest of constants without them changes.
    product_memory_efficiency: float | None = Field(default=None, gt=0, le=1, exclude_if=lambda share: share is None)
    last_wave_share: float | None = Field(default=None, ge=0, le=1, exclude_if=lambda share: share is None)
    unaligned_product_efficiency: float | None = Field(default=None, gt=0, le=1, exclude_if=lambda share: share is None)
    half_aligned_product_efficiency: float | None = Field(default=None, gt=0, le=1, exclude_if=lambda share: share is None)
    host_us_per_hook: float | None = Field(default=None, ge=0, exclude_if=lambda us: us is None)
    host_us_per_compiled_hook: float | None = Field(default=None, ge=0, exclude_if=lambda us: us is None)
    host_us_per_launch: float | None = Field(default=None, ge=0, exclude_if=lambda us: us is None)
    fp8: Fp8Settings | None = Field(default=None, exclude_if=lambda fp8: fp8 is None)
    attention: AttentionSettings | None = Field(default=None, exclude_if=lambda attention: attention is None)


@lru_cache(maxsize=65_536)  # searches ask for the same few products again and again
def _best_tiles_s(
    batch: int,
    m: int,
    n: int,
    k: int,
    per_core: float,
    overhead_k: float,
    bytes_per_s: float,
    cores: int,
    last_wave: float | None,
) -> float:
    """Return the seconds of a product by the fastest tile and split; see `KernelModel.product_s`."""
    summed_bytes, best = 8.0 * batch * m * n, math.inf
    for rows, columns, speed in TILES:
        tiles = batch * -(-m // rows) * -(-n // columns)
        step_s = 2.0 * rows * columns / (per_core * speed)
        split = 1
        while True:
            part = k / split
            waves: float = -(-tiles * split // cores)
            if last_wave is not None:
                waves = max(1.0, (1.0 - last_wave) * tiles * split / cores + last_wave * waves)
            seconds = waves * step_s * (part + overhead_k)
            if split > 1:
                seconds += summed_bytes * split / bytes_per_s
            if seconds < best:
                best = seconds
            if split >= MAX_SPLITS or part < LEAST_SUM:
                break
            split *= 2
    return best


@dataclass(frozen=True)
class KernelModel:
    """Prices kernels on a device.

    Attributes:
        device: peaks and capacity.
        constants: what kernels reach of the peaks.
        software: the framework that runs the job, one of ``steps_of`` of the constants; None where it may be any.
        tuned: what kernels of tuned libraries reach, for frameworks that take those; None where ``constants`` are theirs.
        host: what updates weights that ``offload`` takes to the host.
    """

    device: DeviceType
    constants: KernelSettings
    software: str | None = None
    tuned: KernelSettings | None = None
    host: HostProcessors = field(default_factory=HostProcessors)
    _known: dict[tuple[int | bool, ...], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def of_tuned_libraries(self) -> Self:
        """The model of kernels of tuned libraries; itself where there are no constants of those."""
        return self if self.tuned is None else replace(self, constants=self.tuned, tuned=None)

    def under(self, framework: str | None) -> Self:
        """Return the model of the kernels that a framework launches."""
        return self.of_tuned_libraries if TRAITS[framework].uses_transformer_engine else self

    @cached_property
    def host_us(self) -> dict[str, float]:
        """Microseconds of the host, by key in the order of `KernelSettings`; keys that the constants lack as in `HOST_OF`'s."""
        all_of_host = kernel_settings(HOST_OF).model_dump() | self.constants.model_dump()
        return {key: us for key, us in all_of_host.items() if key.startswith("host_us")}

    @property
    def step_uncertainty(self) -> float | None:
        """Uncertainty of whole steps of the framework, one standard deviation; None where it may be any framework."""
        return None if self.software is None else self.constants.steps_of[self.software]

    def product_s(self, item: Product, element_bytes: int = 2) -> float:
        """Return seconds of a product: the fastest choice of tile and split, at least the time of moving its matrices.

        Tiles are computed in waves of one per multiprocessor. The last wave costs as much as a full one, or where the
        constants have a ``last_wave_share`` that part of what it leaves empty. Each tile pays its start and end as
        ``product_overhead_k`` further steps along the sums. It loads its first operands and stores its result while it
        multiplies nothing. One that adds to a sum of float32 moves four times the bytes. The sums may be cut, also where tiles
        would not fill the last wave; partial results are then added in float32. Where rows begin at other than multiples of 16
        bytes, another kernel reaches a share of the peak of its own.

        Source:
            NVIDIA, "Matrix multiplication background user's guide", 2023 (tile and wave quantisation).
        """
        constants, device = self.constants, self.device
        cores = constants.num_multiprocessors
        if item.is_fp8:
            return self._fp8_product_s(item)
        share = constants.attention_product_efficiency if item.is_attention else constants.product_efficiency
        per_core = device.peak_of(element_bytes) * device.clock_share * share / cores
        result_bytes = 2 * item.sum_bytes or element_bytes
        overhead_k = constants.product_overhead_k * result_bytes / element_bytes
        seconds = self._tiled_s(item, element_bytes, result_bytes, per_core, overhead_k)
        slow = self._unaligned_share(item) if element_bytes == 2 else None
        if slow is not None:
            seconds = max(seconds, item.flops / (device.reached_flops_per_s * slow))
        return seconds + constants.kernel_gap_us / 1e6

    def _unaligned_share(self, item: Product) -> float | None:
        """Return the share of the peak where rows do not begin at multiples of 16 bytes and the constants have one.

        Multiples of 2 and of 8 bytes were measured. The share of 4 bytes is taken to be their geometric mean.
        """
        if item.row_bytes == ALIGNED_BYTES:
            return None
        at_two, at_half = self.constants.unaligned_product_efficiency, self.constants.half_aligned_product_efficiency
        if item.row_bytes == ALIGNED_BYTES // 4 and at_two is not None and at_half is not None:
            return math.sqrt(at_two * at_half)
        return at_half if item.row_bytes == ALIGNED_BYTES // 2 else at_two

    def _fp8_product_s(self, item: Product) -> float:
        """Time a product of one-byte numbers, with turning its left operand, both or none into such; the result has 16 bits."""
        constants, device = self.constants, self.device
        if constants.fp8 is None:
            problem = "there are no constants of products in fp8, which precision=fp8 asks for; precision=bf16 does without"
            raise ConfigError(problem, field="kernels", value=constants.device)
        per_core = FP8_SPEED * device.reached_flops_per_s * constants.fp8.product_efficiency / constants.num_multiprocessors
        cast = item.batch * item.k * (item.m * (item.fp8_casts > 0) + item.n * (item.fp8_casts > 1))
        cast_s = cast * constants.fp8.cast_bytes_per_number / self._product_bytes_per_s
        starts_s = (constants.kernel_gap_us + (constants.fp8.start_us if item.fp8_casts else 0.0)) / 1e6
        result_bytes = 2 * item.sum_bytes or 2
        return self._tiled_s(item, 1, result_bytes, per_core, constants.fp8.product_overhead_k) + cast_s + starts_s

    @property
    def _product_bytes_per_s(self) -> float:
        share = self.constants.product_memory_efficiency or self.constants.memory_efficiency
        return self.device.memory_bandwidth_bytes_per_s * share

    def _tiled_s(self, item: Product, element_bytes: int, result_bytes: int, per_core: float, overhead_k: float) -> float:
        """See `product_s`, without the time between kernels."""
        constants, bytes_per_s = self.constants, self._product_bytes_per_s
        batch, m, n = item.batch, item.m, item.n
        reached = (per_core, overhead_k, bytes_per_s, constants.num_multiprocessors, constants.last_wave_share)
        moved = batch * (element_bytes * (m * item.k + item.k * n) + result_bytes * m * n)
        return max(_best_tiles_s(batch, m, n, item.k, *reached), moved / bytes_per_s)

    def attention_s(self, item: FusedAttention) -> float:
        """Return the seconds of a fused attention kernel: a share of the peak, at least the time of moving its operands.

        The share grows with the sequence where the constants say how (`AttentionSettings`).
        """
        constants, device = self.constants, self.device
        share = constants.fused_attention_backward_efficiency if item.is_backward else constants.fused_attention_efficiency
        moved_s = item.moved_bytes / (device.memory_bandwidth_bytes_per_s * constants.memory_efficiency)
        start_us = constants.kernel_gap_us
        if constants.attention is not None:
            share *= constants.attention.reached(item.length, item.head_dim)
            start_us += constants.attention.start_us
        return max(item.flops / (device.reached_flops_per_s * share), moved_s) + start_us / 1e6

    def sweep_s(self, item: Sweep) -> float:
        """Return the seconds of element-wise kernels: bytes over what the memory reaches."""
        constants = self.constants
        share = {
            "stream": constants.memory_efficiency,
            "loss": constants.loss_efficiency,
            "spread loss": constants.spread_loss_efficiency,
        }[item.kind]
        bytes_per_s = self.device.memory_bandwidth_bytes_per_s * share
        return item.moved_bytes / bytes_per_s + item.num_kernels * self.constants.kernel_gap_us / 1e6

    def kernel_s(self, item: Product | FusedAttention | Sweep, element_bytes: int = 2) -> float:
        """Return seconds of any kernel; products are kept by shape, since thousands of layouts share a few hundred."""
        if isinstance(item, Product):
            kind = item.is_attention, item.is_weight, item.sum_bytes, item.is_fp8, item.fp8_casts, item.row_bytes, element_bytes
            key = item.m, item.n, item.k, item.batch, *kind
            if (seconds := self._known.get(key)) is None:
                seconds = self._known[key] = self.product_s(item, element_bytes)
            return seconds
        if isinstance(item, FusedAttention):
            return self.attention_s(item)
        return self.sweep_s(item)

    def optimizer_s(self, parameters: float, gradient_bytes: int = 2, moment_bytes: int = MOMENT_BYTES) -> float:
        """Return seconds of one update, moments of so many bytes read and written, with all else that is done once a step."""
        bytes_per_s = self.device.memory_bandwidth_bytes_per_s * self.constants.memory_efficiency
        moved = self.constants.optimizer_bytes_per_parameter + GRADIENT_SWEEPS * (gradient_bytes - 2)
        moved -= 4.0 * (MOMENT_BYTES - moment_bytes)
        return parameters * moved / bytes_per_s + self.constants.step_overhead_ms / 1e3


def kernel_settings(device_name: str, constants: str | None = None) -> KernelSettings:
    """Return the constants of a device type.

    A name such as ``a100-80gb`` finds, and is fitted by, the constants of ``a100``.

    Args:
        device_name: as `DeviceType.name`.
        constants: constants that come with the package, by name, or a file; read again when its text has changed. None: those of
            the device type, or the calibrated device's shares where it has none of its own.

    Raises:
        InputFileError: ``constants`` is neither a name nor a file.
        ConfigError: the file's content is not of this form, or the constants are of another device type.
    """
    base = base_name(device_name)
    path = CONSTANTS.path((base if base in CONSTANTS.names() else ANY) if constants is None else constants)
    result, line = _read(path, files.read_text(path))
    fitting = dict.fromkeys((base, device_name, ANY))
    if constants is not None and result.device not in fitting:
        problem = f"does not fit {device_name}, the device type that is priced; valid: {', '.join(fitting)}"
        if constants in CONSTANTS.names():
            raise ConfigError(problem, field="kernels", value=constants)
        raise ConfigError(problem, file=path, line=line, field="device", value=result.device)
    return result


def kernel_model(device: DeviceType, constants_name: str | None = None, software: str | None = None) -> KernelModel:
    """Return the kernels of a device type, by its own constants or by given ones.

    Args:
        device: peaks and capacity.
        constants_name: as for `kernel_settings`.
        software: the framework that runs the job, one of ``steps_of`` of the constants; None: it may be any.

    Raises:
        InputFileError, ConfigError: as `kernel_settings`; no whole step of that software was held against the constants.
    """
    constants = kernel_settings(device.name, constants_name)
    tuned = f"{base_name(device.name)}-tuned"
    if software is not None and software not in constants.steps_of:
        known = ", ".join(constants.steps_of) or "none, leave the key out"
        problem = f"no whole step of it was held against the constants of kernels of {constants.device}; valid: {known}"
        raise ConfigError(problem, field="software", value=software)
    has_tuned = constants_name is None and tuned in CONSTANTS.names()
    return KernelModel(device, constants, software, kernel_settings(device.name, tuned) if has_tuned else None)


def device_kinds(cluster: Cluster, costs: CostSettings) -> tuple[tuple[KernelModel, ...], NDArray[np.int64]]:
    """Return the models that price kernels on the devices of a cluster, by first appearance, and each device's number, ``(n,)``.

    Devices that differ in name or memory alone share a model.

    Raises:
        InputFileError, ConfigError: as `kernel_model`.
    """
    known: dict[object, int] = {}
    made: list[KernelModel] = []
    of_type = []
    for kind in cluster.device_types:
        one = replace(kernel_model(kind, costs.kernels, costs.software), host=HostProcessors.of(cluster, costs))
        key = replace(kind, name="", memory_bytes=0.0, power_watts=None), kind.clock_share, one.constants.model_dump_json()
        if key not in known:
            known[key] = len(made)
            made.append(one)
        of_type.append(known[key])
    return tuple(made), np.array(of_type, np.int64)[cluster.device_type]


@lru_cache(maxsize=64)
def _read(path: Path, text: str) -> tuple[KernelSettings, int | None]:
    """Return the constants that a text says, and the line on which it names their device."""
    data, lines = yaml12.parse(text, file=path)
    read = settings.build_settings(KernelSettings, {} if data is None else data, file=path, lines=lines)
    return read, lines.get(("device",))
