"""Measured collectives as files: YAML or JSON of curves and fitted lines, and those that come with the package."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from .... import settings
from ....errors import ConfigError, MeshwrightError
from ....packaged import Shipped
from ....settings import Settings
from ... import nccl
from ..prices import Operation, wire_factor
from .curves import Curve
from .system import FittedLine, System, TableKey, curve_of

Positive = Annotated[float, Field(gt=0)]

SYSTEMS = Shipped("collectives", "a system with measured collectives", "collectives_table")
"""Those that come with the package."""


class CurveSettings(Settings):
    """One table: either sizes and times as measured, or a latency and a bus bandwidth that were fitted.

    Attributes:
        operation: which collective.
        num_ranks: group size.
        num_hosts: hosts of the group.
        data_type: ``half``, ``float``, ...; empty: any.
        payload_bytes: total sizes as nccl-tests counts them.
        time_us: as many times.
        latency_us: of a fitted line.
        bus_gbytes_per_s: of a fitted line, bytes on the busiest link.
        from_bytes: least size of the fit.
        to_bytes: largest size of the fit.
        source: where the figures of this table are from.
    """

    operation: Operation
    num_ranks: int = Field(ge=2)
    num_hosts: int = Field(default=1, ge=1)
    data_type: str = ""
    payload_bytes: tuple[Positive, ...] = ()
    time_us: tuple[Positive, ...] = ()
    latency_us: float | None = Field(default=None, ge=0)
    bus_gbytes_per_s: float | None = Field(default=None, gt=0)
    from_bytes: float = Field(default=0.0, ge=0)
    to_bytes: float = Field(default=0.0, ge=0)
    source: str = ""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        is_line = self.latency_us is not None and self.bus_gbytes_per_s is not None
        if is_line == bool(self.payload_bytes):
            raise ValueError("a table has either payload_bytes and time_us, or latency_us and bus_gbytes_per_s")
        if len(self.payload_bytes) != len(self.time_us):
            raise ValueError(f"{len(self.payload_bytes)} payload_bytes for {len(self.time_us)} time_us")
        return self

    @property
    def key(self) -> TableKey:
        """The subject of the table."""
        return TableKey(self.operation, self.num_ranks, self.num_hosts, self.data_type)


class SystemSettings(Settings):
    """The root of a file of tables.

    Attributes:
        name: of the system.
        device: the devices' name; the protocols that the library uses follow from it.
        inside_gbytes_per_s: nominal, of one device to the others of its host; by the device's name if not given.
        source: where the figures are from.
        calibration: which file they were read from, its SHA-256, when, and by which version.
        curves: the tables.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")
    device: str
    inside_gbytes_per_s: float | None = Field(default=None, gt=0)
    source: str = ""
    calibration: dict[str, str] = Field(default_factory=dict)
    curves: tuple[CurveSettings, ...] = Field(min_length=1)

    def build(self) -> System:
        """Return the system with the units of the code.

        Raises:
            ConfigError: two tables of one operation, group and data type.
        """
        inside = nccl.nominal_bytes_per_s(self.device) if self.inside_gbytes_per_s is None else self.inside_gbytes_per_s * 1e9
        curves: dict[TableKey, Curve | FittedLine] = {}
        for number, one in enumerate(self.curves):
            if one.key in curves:
                raise ConfigError(
                    "is given twice", field=f"curves.{number}", value=" ".join(str(part) for part in one.key if part)
                )
            if one.latency_us is not None and one.bus_gbytes_per_s is not None:
                factor = wire_factor(one.operation, one.num_ranks)
                to_bytes = one.to_bytes or math.inf
                curves[one.key] = FittedLine(one.latency_us / 1e6, one.bus_gbytes_per_s * 1e9, one.from_bytes, to_bytes, factor)
            else:
                points = [(size, us / 1e6) for size, us in zip(one.payload_bytes, one.time_us, strict=True)]
                curves[one.key] = curve_of(one.key, points, self.device, inside)
                _check_growth(curves[one.key], number)
        return System(self.name, self.device, inside, curves)


def load(spec: str) -> System:
    """Return a system that comes with the package, by name, or from a file; read again when the file has changed.

    Raises:
        InputFileError: neither a name nor a file.
        ConfigError: the file's content is not of this form.
    """
    path = SYSTEMS.path(spec)
    if not path.is_file():
        return _loaded(path, None)  # which tells what is wrong
    state = path.stat()
    return _loaded(path, (state.st_mtime_ns, state.st_size))


def content(spec: str | None) -> str:
    """Return the text of a system's file; of all that come with the package where none is named.

    Raises:
        InputFileError: as `load`.
    """
    return "".join(SYSTEMS.text(name) for name in (SYSTEMS.names() if spec is None else (spec,)))


@cache
def _loaded(path: Path, state: tuple[int, int] | None) -> System:
    described = settings.load(SystemSettings, path)
    try:
        return described.build()
    except MeshwrightError as error:
        raise error.at(file=path) from None


def _check_growth(curve: Curve | FittedLine, number: int) -> None:
    """Refuse a table by which larger messages would be sent at less than a byte a second.

    Raises:
        ConfigError: it is one.
    """
    assert isinstance(curve, Curve)
    points = [(0.0, 0.0), *curve.points] if len(curve.points) == 1 else curve.points
    (size, seconds), (larger, longer_s) = points[-2:]
    if longer_s - seconds > larger - size:
        problem = f"from {size:g} to {larger:g} bytes a byte takes more than a second; larger messages would take ages"
        raise ConfigError(problem, field=f"curves.{number}.time_us", value=longer_s * 1e6)


def plain(described: SystemSettings) -> dict[str, Any]:
    """Return plain data of the shape of the file."""
    return described.model_dump(mode="json", exclude_defaults=True)
