"""The collective layer compared with measured times that were not fitted on.

Of each table (an operation, a group size, a data type) it gets the 1st, 3rd, ... size and predicts the others. For an operation
measured on at least three group sizes, each one between the smallest and the largest is also left out altogether. It is
predicted from its neighbours' 1st, 3rd, ... sizes. Two usual methods are compared: one latency and one bandwidth for each table,
and interpolation between the two nearest sizes in log-log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...costs import nccl
from ...costs.collectives.libraries.curves import Curve
from ...costs.collectives.libraries.system import FittedLine, System, TableKey, curve_of
from ...costs.collectives.prices import Provenance
from ...errors import InputFileError
from ..calibration.collective_files import Measurement, read
from .comparison import gathered

SIZES = "message sizes left out"
GROUPS = "group sizes left out"
BASELINES = ("alpha-beta line", "log-log interpolation")

Point = tuple[float, float]


class Table(NamedTuple):
    """The subject of a table.

    Attributes:
        device: the devices' name.
        version: of the library.
        key: operation, group and data type.
    """

    device: str
    version: str
    key: TableKey


@dataclass(frozen=True)
class MeasuredCollective:
    """One measured time.

    Attributes:
        family: `SIZES` or `GROUPS`.
        table: that has it.
        payload_bytes: size.
        predicted_s: ours.
        reference_s: as measured.
        provenance: ours.
        baselines_s: of each of `BASELINES`; none for a group left out.
    """

    family: str
    table: Table
    payload_bytes: float
    predicted_s: float
    reference_s: float
    provenance: Provenance
    baselines_s: tuple[float, ...] = ()

    @property
    def relative_error(self) -> float:
        """Distance over the reference."""
        return abs(self.predicted_s - self.reference_s) / self.reference_s

    @property
    def group(self) -> str:
        """Operation, group size and data type in words."""
        key = self.table.key
        hosts = f" on {key.num_hosts} hosts" if key.num_hosts > 1 else ""
        return f"{key.operation} {key.num_ranks}{hosts} {key.data_type}".strip()

    def to_data(self) -> dict[str, Any]:
        """Return the measurement as plain data."""
        others = dict(zip(BASELINES, self.baselines_s, strict=False))
        return {
            "item": f"{self.group}: {self.payload_bytes:.0f} B",
            "family": self.family,
            "device": self.table.device,
            "version": self.table.version,
            "operation": self.table.key.operation,
            "num_ranks": self.table.key.num_ranks,
            "data_type": self.table.key.data_type,
            "payload_bytes": self.payload_bytes,
            "predicted": self.predicted_s,
            "reference": self.reference_s,
            "relative_error": self.relative_error,
            "provenance": self.provenance,
            **({"baselines": others} if others else {}),
        }


Rows = Sequence[MeasuredCollective]


def mean_error(rows: Rows) -> float:
    """Return the mean relative error of some rows."""
    return math.fsum(row.relative_error for row in rows) / len(rows)


def worst(rows: Rows) -> MeasuredCollective:
    """Return the row of the largest relative error."""
    return max(rows, key=lambda row: row.relative_error)


def baseline(rows: Rows, number: int) -> float | None:
    """Return the mean relative error of one of `BASELINES`; None where it says nothing of these rows."""
    results = [abs(row.baselines_s[number] / row.reference_s - 1) for row in rows if row.baselines_s]
    return math.fsum(results) / len(results) if results else None


@dataclass(frozen=True)
class Validation:
    """All rows of the validation, and what was calibrated on.

    Attributes:
        rows: in the order of the file, the message sizes first.
        num_tables: tables of the file.
        num_calibrated: sizes that it was calibrated on.
        num_outliers: of these, left out since a larger size takes less time.
        unsupported: what is wrong with rows of the file that cannot be read.
    """

    rows: tuple[MeasuredCollective, ...]
    num_tables: int
    num_calibrated: int
    num_outliers: int
    unsupported: tuple[str, ...] = ()

    def families(self) -> dict[str, Rows]:
        """Return the rows of each family."""
        return {**gathered(self.rows, lambda row: row.family)}

    def groups(self, family: str) -> dict[tuple[str, int], Rows]:
        """Return the rows of each operation and group size of a family."""
        rows = [row for row in self.rows if row.family == family]
        return dict(sorted(gathered(rows, lambda row: (row.table.key.operation, row.table.key.num_ranks)).items()))

    def to_data(self) -> dict[str, Any]:
        """Return plain data: the rows, a summary of each family, and the calibration."""

        def errors(rows: Rows) -> dict[str, Any]:
            most = worst(rows).relative_error
            return {"items": len(rows), "mean_relative_error": mean_error(rows), "max_relative_error": most}

        summary: dict[str, Any] = {}
        for family, rows in self.families().items():
            groups = {f"{operation} {n}": errors(some) for (operation, n), some in self.groups(family).items()}
            baselines = {name: baseline(rows, number) for number, name in enumerate(BASELINES)}
            summary[family] = {**errors(rows), "largest_at": worst(rows).to_data()["item"], "groups": groups}
            summary[family] |= {"baselines": baselines} if None not in baselines.values() else {}
        return {
            "rows": [row.to_data() for row in self.rows],
            "summary": summary,
            "unsupported": list(self.unsupported),
            "calibration": {
                "tables": self.num_tables,
                "sizes": self.num_calibrated,
                "outliers": self.num_outliers,
                "rule": "the 1st, 3rd, ... size of each table",
            },
        }


def validate(path: str | Path, *, operation: str | None = None) -> Validation:
    """Calibrate on every second size of a file's tables and predict the others, then groups that were left out.

    Args:
        path: as `collective_files.read`.
        operation: as there.

    Raises:
        InputFileError: as there, where no row can be read, or no table has two sizes.
    """
    refused: list[InputFileError] = []
    tables = by_table(read(path, operation=operation, refused=refused))
    known = {table: every_second(points) for table, points in tables.items()}
    if not any(left_out for _, left_out in known.values()):
        raise InputFileError("no table has two sizes, so none can be left out", file=path)
    systems = _systems({table: calibration for table, (calibration, _) in known.items()})
    rows = [row for table, (calibration, left) in known.items() for row in _sizes(table, systems[table[:2]], calibration, left)]
    for table, points in tables.items():
        rows += _group(table, systems[table[:2]], points)
    curves = [curve for system in systems.values() for curve in system.curves.values() if isinstance(curve, Curve)]
    return Validation(
        rows=tuple(rows),
        num_tables=len(tables),
        num_calibrated=sum(len({size for size, _ in calibration}) for calibration, _ in known.values()),
        num_outliers=sum(curve.num_outliers for curve in curves),
        unsupported=tuple(str(error) for error in refused),
    )


def by_table(measured: Iterable[Measurement]) -> dict[Table, list[Point]]:
    """Return the sizes and seconds of each table, by size."""
    tables = gathered(measured, lambda one: Table(one.device, one.version, one.key))
    return {table: sorted((one.payload_bytes, one.seconds) for one in rows) for table, rows in tables.items()}


def every_second(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Return the points of the 1st, 3rd, ... size, and those of the others."""
    sizes = sorted({size for size, _ in points})
    first = set(sizes[::2])
    return [p for p in points if p[0] in first], [p for p in points if p[0] not in first]


def _systems(known: dict[Table, list[Point]]) -> dict[tuple[str, str], System]:
    """Return a system of curves for each device and version."""
    results: dict[tuple[str, str], dict[TableKey, Curve | FittedLine]] = {}
    for (device, version, key), points in known.items():
        inside = nccl.nominal_bytes_per_s(device)
        results.setdefault((device, version), {})[key] = curve_of(key, points, device, inside)
    return {(one, version): System(one, one, nccl.nominal_bytes_per_s(one), curves) for (one, version), curves in results.items()}


def _sizes(table: Table, system: System, calibration: list[Point], left_out: list[Point]) -> list[MeasuredCollective]:
    curve = system.curves[table.key]
    line, between = _fitted(calibration), _log_log(calibration)
    rows = []
    for size, reference_s in left_out:
        seconds, provenance = curve.at(size)
        rows.append(MeasuredCollective(SIZES, table, size, seconds, reference_s, provenance, (line(size), between(size))))
    return rows


def _group(table: Table, system: System, points: list[Point]) -> list[MeasuredCollective]:
    """Return the rows of a group between others, predicted from these."""
    key = table.key
    others = {k: curve for k, curve in system.curves.items() if k._replace(num_ranks=0) == key._replace(num_ranks=0) and k != key}
    sizes = [k.num_ranks for k in others]
    if not sizes or not min(sizes) < key.num_ranks < max(sizes):
        return []
    without = System(system.name, system.device, system.inside_bytes_per_s, others)
    way = without.way(key.operation, key.num_ranks, num_hosts=key.num_hosts, data_type=key.data_type)
    if way is None:
        return []
    priced = [(size, reference_s, way.price(size)) for size, reference_s in points]
    return [
        MeasuredCollective(GROUPS, table, size, price.seconds, reference_s, price.provenance)
        for size, reference_s, price in priced
    ]


def _fitted(points: Sequence[Point]) -> Callable[[float], float]:
    """Return the latency and bandwidth of least relative squares, neither negative."""
    a = math.fsum(1 / t**2 for _, t in points)
    b = math.fsum(s / t**2 for s, t in points)
    c = math.fsum(s * s / t**2 for s, t in points)
    d = math.fsum(1 / t for _, t in points)
    e = math.fsum(s / t for s, t in points)
    determinant = a * c - b * b
    slope = (a * e - b * d) / determinant if determinant > 0 else 0.0
    slope = max(0.0, slope)
    latency = max(0.0, (d - slope * b) / a)
    return lambda size: latency + slope * size


def _log_log(points: Sequence[Point]) -> Callable[[float], float]:
    """Return straight lines between neighbours in log-log, the outermost ones going on."""
    known = sorted(dict(reversed(points)).items())  # of equal sizes the first

    def at(size: float) -> float:
        if len(known) == 1:
            return known[0][1]
        place = min(max(sum(s <= size for s, _ in known) - 1, 0), len(known) - 2)
        (low, low_s), (high, high_s) = known[place : place + 2]
        return low_s * math.exp(math.log(high_s / low_s) * math.log(size / low) / math.log(high / low))

    return at
