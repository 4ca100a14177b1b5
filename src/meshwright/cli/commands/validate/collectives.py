"""``meshwright dev validate collectives`` and ``dev calibrate collectives``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ... import output
from ...kinds import one_source
from .published import judge

if TYPE_CHECKING:
    from ....evaluation.validation.collectives import Rows
    from ...key_models import CollectiveKeys, HeldCollectiveKeys


def validate_collectives(sources: Sequence[str], keys: HeldCollectiveKeys, json_file: str | None) -> None:
    """Calibrate on every second size of each table, predict the others, then whole group sizes from their neighbours.

    Exit 1 only where a mean error is larger than a key allows.
    """
    from ....costs.nccl import foreign_constants
    from ....evaluation.validation.collectives import BASELINES, GROUPS, SIZES, mean_error, validate

    allowed = {f"{SIZES}: mean error": keys.max_mean_error, f"{GROUPS}: mean error": keys.max_mean_group_error}
    result = validate(Path(one_source(sources)), operation=keys.operation)
    out = output.console(json_file)
    message = f"Calibrated on {result.num_calibrated} sizes, the 1st, 3rd, ... of each of {result.num_tables} tables"
    out.print(f"{message}; {result.num_outliers} outliers left out.")
    families = result.families()
    for family, rows in families.items():
        names = BASELINES if family == SIZES else ()
        columns = ["operation", "ranks", "items", "mean error", "largest", "at", *names]
        lines = [[operation, str(n), *_line(some, len(names))] for (operation, n), some in result.groups(family).items()]
        output.table(out, family.capitalize(), columns, [*lines, ["all", "", *_line(rows, len(names))]])
    output.print_remarks(out, foreign_constants(row.table.device for row in result.rows))
    for problem in result.unsupported:
        out.print(f"unsupported: {problem}")
    if GROUPS not in families:
        out.print("No group size lies between two others, so none was left out.")
    output.write_json(json_file, result.to_data())
    judge(out, {f"{family}: mean error": mean_error(rows) for family, rows in families.items()}, allowed)


def calibrate_collectives(sources: Sequence[str], keys: CollectiveKeys, out: Path | None, json_file: str | None) -> None:
    """Read measured collectives and write a system's tables, for costs with collectives: measured."""
    from ....costs.nccl import foreign_constants
    from ....evaluation.calibration.fit_collectives import calibrate, write

    result = calibrate([Path(source) for source in sources], **keys.model_dump())
    target = Path(f"{result.name}.yaml") if out is None else out
    output.check_file("--out", target)
    write(target, result)
    console = output.console(json_file)
    lines = [
        [
            curve.operation,
            str(curve.num_ranks),
            str(curve.num_hosts),
            curve.data_type,
            str(len(curve.payload_bytes)),
            f"{_size_text(min(curve.payload_bytes))} - {_size_text(max(curve.payload_bytes))}",
        ]
        for curve in result.curves
    ]
    columns = ["operation", "ranks", "hosts", "type", "sizes", "from - to"]
    output.table(console, f"Measured collectives of {result.name}", columns, lines)
    output.print_remarks(console, foreign_constants([result.device]))
    data = {"file": str(target), "name": result.name, "calibration": result.calibration, "tables": len(lines)}
    output.write_json(json_file, data)
    output.print_written(console, target, json_file)


def _line(rows: Rows, num_baselines: int) -> list[str]:
    from ....evaluation.validation.collectives import baseline, mean_error, worst

    most = worst(rows)
    baselines = [baseline(rows, number) for number in range(num_baselines)]
    return [
        str(len(rows)),
        f"{mean_error(rows):.2%}",
        f"{most.relative_error:.1%}",
        _size_text(most.payload_bytes),
        *("" if error is None else f"{error:.2%}" for error in baselines),
    ]


def _size_text(payload_bytes: float) -> str:
    """Return a size with the largest binary unit in which it is at least 1."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if payload_bytes >= scale:
            return f"{payload_bytes / scale:g} {unit}"
    return f"{payload_bytes:g} B"
