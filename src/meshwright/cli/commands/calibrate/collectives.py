"""``meshwright dev calibrate collectives``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...key_models import CollectiveKeys


from ... import output


def calibrate_collectives(sources: Sequence[str], keys: CollectiveKeys, out: Path | None, json_file: str | None) -> None:
    """Read measured collectives and write a system's tables, for costs with collectives: measured."""
    from ....costs.nccl import foreign_constants
    from ....evaluation.calibration.fit_collectives import calibrate, write
    from ..validate.collectives import size_text

    output.check_file("--out", out)
    output.check_file("--json", json_file)
    found = calibrate([Path(source) for source in sources], **keys.model_dump())
    target = Path(f"{found.name}.yaml") if out is None else out
    output.check_file("--out", target)
    write(target, found)
    console = output.console(json_file)
    lines = [
        [
            one.operation,
            str(one.num_ranks),
            str(one.num_hosts),
            one.data_type,
            str(len(one.payload_bytes)),
            f"{size_text(min(one.payload_bytes))} - {size_text(max(one.payload_bytes))}",
        ]
        for one in found.curves
    ]
    columns = ["operation", "ranks", "hosts", "type", "sizes", "from - to"]
    output.table(console, f"Measured collectives of {found.name}", columns, lines)
    output.print_remarks(console, foreign_constants([found.device]))
    data = {"file": str(target), "name": found.name, "calibration": found.calibration, "tables": len(lines)}
    output.write_json(json_file, data)
    output.print_written(console, target, json_file)
