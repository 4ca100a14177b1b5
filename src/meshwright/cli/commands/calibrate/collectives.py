"""``meshwright calibrate collectives``."""

from __future__ import annotations

from pathlib import Path

from ... import output


def calibrate_collectives(
    paths: list[Path],
    out: Path | None,
    name: str | None,
    operation: str | None,
    device: str | None,
    library_version: str | None,
    half: bool,
    json_file: str | None,
) -> None:
    """Read the files, write the tables, and print a line for each."""
    from ....evaluation.calibration.fit_collectives import calibrate, write
    from ..validate.collectives import size_text

    output.check_file("--out", out)
    output.check_file("--json", json_file)
    found = calibrate(paths, name=name, operation=operation, device=device, library_version=library_version, half=half)
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
    data = {"file": str(target), "name": found.name, "calibration": found.calibration, "tables": len(lines)}
    output.write_json(json_file, data)
    output.print_written(console, target, json_file)
