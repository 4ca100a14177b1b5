"""Accelerators as data: what a device can compute, move and hold, and the roofline that times an op on it.

A device type is a YAML file in ``configs/devices`` or a mapping of the same keys inside a cluster's YAML. Keys carry their
units and are converted once, here. Jobs and clusters both build on this module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from . import settings
from .errors import ConfigError, Names
from .packaged import shipped_path

_LONG_NAMES = ("rtx-pro-6000",)
"""Device types whose names hold a hyphen that does not begin a variant."""

_MEMORY = re.compile(r"-[0-9]+gi?b(-|$)")
"""In the name of a variant, as ``a100-48gb``."""

GIB = 2.0**30

Links = Literal["nvswitch", "cube mesh", "pcie"]
"""How the devices of a host reach each other: through switches, over NVLink to some of the others, or over PCIe alone."""


class DeviceSettings(settings.Settings):
    """One device type as YAML spells it.

    The efficiencies are the shares of the two peaks that well-shaped kernels reach in practice. A mapping whose name begins with
    that of a built-in type, as ``h100-500w``, takes from there what it leaves out. ``memory_gib`` is what the driver reports;
    ``memory_gbytes``, of 1e9 bytes, is the older key for it.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")
    peak_tflops_per_s: float = Field(gt=0)
    peak_tf32_tflops_per_s: float | None = Field(default=None, gt=0)
    peak_fp32_tflops_per_s: float | None = Field(default=None, gt=0)
    memory_gbytes: float | None = Field(default=None, gt=0, exclude=True)
    memory_gib: float = Field(gt=0)
    memory_bandwidth_gbytes_per_s: float = Field(gt=0)
    compute_efficiency: float = Field(gt=0, le=1)
    memory_efficiency: float = Field(gt=0, le=1)
    kernel_launch_us: float = Field(ge=0)
    links: Links | None = None
    link_gbytes_per_s: float | None = Field(default=None, gt=0)
    host_link_gbytes_per_s: float | None = Field(default=None, gt=0)
    power_watts: float | None = Field(default=None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _rest_of_the_base_type(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if isinstance(gbytes := data.get("memory_gbytes"), int | float):
            if "memory_gib" in data:
                raise ValueError("memory_gib and memory_gbytes say the same; leave memory_gbytes out")
            data = data | {"memory_gib": gbytes * 1e9 / GIB}
        missing = [key for key, field in cls.model_fields.items() if field.is_required() and key not in data]
        if not missing or not isinstance(name := data.get("name"), str) or not data.keys() <= cls.model_fields.keys():
            return data
        if (base := name if name in _names() else base_name(name)) in _names():
            rest = _built_in(base).to_data()
            if base != name and _MEMORY.search(name):  # another memory than that type's, so it has to be given
                rest.pop("memory_gib")
            return rest | data
        problem = f"{missing[0]} is missing; a name that begins with a device type, as {_names()[0]}-mine, takes from it"
        raise ValueError(f"{problem} what is left out")


@dataclass(frozen=True)
class DeviceType:
    """An accelerator model.

    Attributes:
        name: lower-case name, for example ``a100``.
        peak_flops_per_s: dense peak of the matrix units in 16 bits.
        memory_bytes: capacity as the driver reports it.
        memory_bandwidth_bytes_per_s: peak of the device's own memory.
        compute_efficiency: reachable share of ``peak_flops_per_s``.
        memory_efficiency: reachable share of ``memory_bandwidth_bytes_per_s``.
        kernel_launch_s: time below which no op goes.
        power_watts: limit of its power; None where none is known.
        peak_tf32_flops_per_s, peak_fp32_flops_per_s: peaks of TF32 on the matrix units, and of float32 without them. None means
            that of the built-in type with which the name begins, see `peak_of`.
        links, link_bytes_per_s: how it reaches others of its host, and how fast, one direction; None as of peaks.
        host_link_bytes_per_s: the same of its link to the host's memory; of PCIe 4.0 x16 where none is known.
    """

    name: str
    peak_flops_per_s: float
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    compute_efficiency: float
    memory_efficiency: float
    kernel_launch_s: float
    power_watts: float | None = None
    peak_tf32_flops_per_s: float | None = None
    peak_fp32_flops_per_s: float | None = None
    links: Links | None = None
    link_bytes_per_s: float | None = None
    host_link_bytes_per_s: float = 31.5e9

    @property
    def clock_share(self) -> float:
        """Clock under the limit of power over the clock at the data sheet's, while matrix units are busy; 1 at most.

        They run at the limit, so a lower limit lowers the clock. Dynamic power is capacitance x voltage squared x clock, or the
        cube of the clock where the voltage follows it. H100 NVL, 400 W: 0.83 by that, 0.84 by the peaks of NVIDIA's data sheets
        (835 of 989 TFLOP/s). Power that does not depend on the clock, and that of the memory, are not subtracted.

        Source:
            Mei et al., "A survey and measurement study of GPU DVFS on energy conservation", 2017, section 2.
        """
        rated = rated_watts(self.name)
        return 1.0 if rated is None or self.power_watts is None else min(1.0, self.power_watts / rated) ** (1 / 3)

    @property
    def reached_flops_per_s(self) -> float:
        """Peak of the matrix units at the clock that the limit of power leaves."""
        return self.peak_flops_per_s * self.clock_share

    def peak_of(self, element_bytes: int, *, is_convolution: bool = False) -> float:
        """Return the dense peak in numbers of a size, at the data sheet's clock.

        PyTorch lets cuDNN's convolutions of float32 take TF32 by default, where a device has it, but no product of matrices. A
        type with neither figure takes an A100's shares of its peak.

        Args:
            element_bytes: of a number; only four bytes differ here.
            is_convolution: whether a convolution computes with them.

        Source:
            PyTorch, notes on CUDA semantics, "TensorFloat-32 (TF32) on Ampere (and later) devices".
        """
        if element_bytes != 4:
            return self.peak_flops_per_s
        of = self if self.peak_fp32_flops_per_s is not None else built_in_of(self.name) or _built_in("a100")
        plain = of.peak_fp32_flops_per_s or of.peak_flops_per_s
        result = (of.peak_tf32_flops_per_s or plain) if is_convolution else plain
        return result * self.peak_flops_per_s / of.peak_flops_per_s

    @property
    def host_links(self) -> tuple[Links, float]:
        """How it reaches the others of its host and the bytes per second of one direction; without bound where none is known."""
        of = built_in_of(self.name) or self
        links, rate = self.links or of.links, self.link_bytes_per_s or of.link_bytes_per_s
        return links or "nvswitch", rate or np.inf

    def op_s(
        self,
        flops: NDArray[np.float64],
        moved_bytes: NDArray[np.float64],
        peak_flops_per_s: NDArray[np.float64] | float | None = None,
    ) -> NDArray[np.float64]:
        """Return the seconds of each op by the roofline: launch time plus the slower of arithmetic and memory traffic.

        Args:
            flops: floating-point operations of each op, shape ``(num_ops,)``.
            moved_bytes: bytes that each op reads and writes, shape ``(num_ops,)``.
            peak_flops_per_s: of the numbers of each op, see `peak_of`; by default that in 16 bits.

        Returns:
            Seconds, shape ``(num_ops,)``; zero where an op neither computes nor moves anything.

        Source:
            Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009.
        """
        peak = self.peak_flops_per_s if peak_flops_per_s is None else peak_flops_per_s
        arithmetic_s = flops / (peak * self.clock_share * self.compute_efficiency)
        memory_s = moved_bytes / (self.memory_bandwidth_bytes_per_s * self.memory_efficiency)
        busy_s = np.maximum(arithmetic_s, memory_s)
        return np.where(busy_s > 0, busy_s + self.kernel_launch_s, 0.0)

    def to_data(self) -> dict[str, Any]:
        """Return the mapping that `device_type` reads."""
        known = ((key, getattr(self, name), times, over) for key, name, times, over in _UNITS)
        result: dict[str, Any] = {key: value * over / times for key, value, times, over in known if value is not None}
        if self.power_watts == rated_watts(self.name):
            result.pop("power_watts", None)
        if self.host_link_bytes_per_s == (built_in_of(self.name) or DeviceType).host_link_bytes_per_s:
            result.pop("host_link_gbytes_per_s", None)
        return {"name": self.name} | result | ({} if self.links is None else {"links": self.links})


_UNITS = (
    ("peak_tflops_per_s", "peak_flops_per_s", 1e12, 1.0),
    ("memory_gib", "memory_bytes", GIB, 1.0),
    ("memory_bandwidth_gbytes_per_s", "memory_bandwidth_bytes_per_s", 1e9, 1.0),
    ("compute_efficiency", "compute_efficiency", 1.0, 1.0),
    ("memory_efficiency", "memory_efficiency", 1.0, 1.0),
    ("kernel_launch_us", "kernel_launch_s", 1.0, 1e6),
    ("power_watts", "power_watts", 1.0, 1.0),
    ("peak_tf32_tflops_per_s", "peak_tf32_flops_per_s", 1e12, 1.0),
    ("peak_fp32_tflops_per_s", "peak_fp32_flops_per_s", 1e12, 1.0),
    ("link_gbytes_per_s", "link_bytes_per_s", 1e9, 1.0),
    ("host_link_gbytes_per_s", "host_link_bytes_per_s", 1e9, 1.0),
)
"""Of each number the key in YAML, the attribute, and the factor and the divisor by which the first becomes the second."""


def device_type(spec: str | DeviceSettings) -> DeviceType:
    """Return a device type by name (``v100``, ``a100``, ``h100``) or from settings.

    Raises:
        ConfigError: the name is unknown.
    """
    if isinstance(spec, str):
        return _built_in(spec)
    spelled = ((name, getattr(spec, key), times, over) for key, name, times, over in _UNITS)
    options = {name: value * times / over for name, value, times, over in spelled if value is not None}
    if "host_link_bytes_per_s" not in options and (built_in := built_in_of(spec.name)) is not None:
        options["host_link_bytes_per_s"] = built_in.host_link_bytes_per_s
    return DeviceType(name=spec.name, links=spec.links, **options)


def base_name(name: str) -> str:
    """Return a device type without its variant: ``a100`` of ``a100-80gb``, ``rtx-pro-6000`` of ``rtx-pro-6000-server``."""
    lower = name.lower()
    return next((known for known in _LONG_NAMES if f"{lower}-".startswith(f"{known}-")), lower.split("-")[0])


def rated_watts(name: str) -> float | None:
    """Return the power of a device type, or of the one that it is a variant of, by its data sheet; None where unknown."""
    result = built_in_of(name)
    return None if result is None else result.power_watts


def built_in_of(name: str) -> DeviceType | None:
    """Return the built-in device type that a name, as ``a100-80gb``, is or begins with; None where there is none."""
    base = name if name in _names() else base_name(name)
    return _built_in(base) if base in _names() else None


def is_variant(name: str, product: str) -> bool:
    """Return whether a product, as ``NVIDIA A100-SXM4-80GB``, is of a device type, as ``a100`` or ``a100-80gb``."""
    words = re.escape(base_name(name)).replace(r"\-", "[- ]")
    return re.search(rf"(?<![a-z0-9]){words}(?![a-z0-9])", product.lower()) is not None


def device_names() -> list[str]:
    """Return the names of the built-in device types."""
    return Names("devices", _names())


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in shipped_path("devices").glob("*.yaml")))


@cache
def _built_in(name: str) -> DeviceType:
    if name not in device_names():
        raise ConfigError("unknown device type", value=name, choices=device_names())
    return device_type(settings.load(DeviceSettings, shipped_path("devices") / f"{name}.yaml"))
