"""Measured collectives of a system, from what tools wrote, as a file that `CostSettings.collectives_table` names."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ... import files, yaml12
from ...costs.collectives.libraries.curves import merged
from ...costs.collectives.libraries.tables import CurveSettings, SystemSettings, plain
from ...errors import ConfigError
from ..validation.collectives import by_table, every_second
from .collective_files import Measurement, read

MAX_NAME = 63
"""Letters of a system's name."""

FIRST_LINE = "# Measured collectives, for costs: {collectives: measured, collectives_table: this file}.\n"


def calibrate(
    paths: Sequence[str | Path],
    *,
    name: str | None = None,
    operation: str | None = None,
    device: str | None = None,
    library_version: str | None = None,
    half: bool = False,
) -> SystemSettings:
    """Return the tables of some files together, as measured; outliers are excluded where tables are read.

    Args:
        paths: files as `collective_files.read`.
        name: of the system; by default its device's.
        operation: which collective an nccl-tests file is about that does not say so itself.
        device: the devices to keep, where the files have several; their name, where the files have none.
        library_version: the version to keep, where the files have several.
        half: keep the 1st, 3rd, ... size of each table only, so that the others can be held against it.

    Raises:
        InputFileError: as `collective_files.read`.
        ConfigError: several devices or versions and none chosen, an absent one, a name that cannot be one.
    """
    measured = [one for path in paths for one in read(path, operation=operation)]
    devices = {one.device for one in measured}
    if device is None or devices != {""}:
        measured = _select(measured, "device", "--device", device)
    kept_device = device if devices == {""} else measured[0].device
    measured = _select(measured, "version", "--set library_version", library_version)
    if not kept_device:
        raise ConfigError("the files do not say which devices they are about; name them", field="--device")
    curves = []
    for table, points in by_table(measured).items():
        known = merged(every_second(points)[0] if half else points)
        curves.append(
            CurveSettings(
                operation=table.key.operation,
                num_ranks=table.key.num_ranks,
                num_hosts=table.key.num_hosts,
                data_type=table.key.data_type,
                payload_bytes=tuple(size for size, _ in known),
                time_us=tuple(round(seconds * 1e6, 4) for _, seconds in known),
            )
        )
    made = _slug(kept_device) if name is None else name
    if _slug(made) != made or not 0 < len(made) <= MAX_NAME:
        problem = f"a name is lower-case letters, digits, dots and hyphens, {MAX_NAME} at most"
        raise ConfigError(problem, field="--set name", value=made)
    return SystemSettings(name=made, device=kept_device, calibration=_calibration(paths, measured, half), curves=tuple(curves))


def system_text(described: SystemSettings) -> str:
    """Return the file's text: YAML with one line for each list of figures."""
    data = plain(described)
    curves = data.pop("curves")
    head = yaml12.dump(data, allow_unicode=True, width=1_000_000)
    body = yaml12.dump({"curves": curves}, default_flow_style=None, width=1_000_000)
    return FIRST_LINE + head + body


def write(path: str | Path, described: SystemSettings) -> None:
    """Write the tables, whole or not at all; as JSON where the file's name ends so.

    Raises:
        InputFileError: the file cannot be written.
    """
    if Path(path).suffix == ".json":
        files.write_json(path, plain(described))
    else:
        files.write_text(path, system_text(described))


def _select(measured: list[Measurement], field: str, option: str, target: str | None) -> list[Measurement]:
    known = sorted({getattr(one, field) for one in measured})
    if target is None and len(known) > 1:
        raise ConfigError(f"the files have several; choose one by {option}", field=option, choices=known)
    if target is not None and target not in known:
        raise ConfigError("not in the files", field=option, value=target, choices=known)
    return [one for one in measured if target is None or getattr(one, field) == target]


def _calibration(paths: Iterable[str | Path], measured: Sequence[Measurement], half: bool) -> dict[str, str]:
    """Return where the tables come from: files with their SHA-256, versions and the day."""
    from ... import __version__

    result: dict[str, Any] = {}
    for number, path in enumerate(paths):
        end = f"_{number + 1}" if number else ""
        result[f"file{end}"] = Path(path).name
        result[f"sha256{end}"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    result["library_version"] = measured[0].version or "not stated"
    result["sizes"] = "the 1st, 3rd, ... of each table" if half else "all"
    result["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    result["meshwright"] = __version__
    return result


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:63]
