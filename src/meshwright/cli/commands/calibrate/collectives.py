"""``meshwright calibrate collectives``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ... import output
from ...options import JsonFile


def calibrate_collectives(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="What nccl-tests wrote (text, or JSON by -J), or CSV of its times.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML or JSON to write; NAME.yaml in this folder by default.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the system; by default its device's.")] = None,
    operation: Annotated[
        str | None, typer.Option(metavar="NAME", help="What an nccl-tests file measures that does not say so itself.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which devices, where the files tell of several or of none.")
    ] = None,
    library_version: Annotated[
        str | None, typer.Option(metavar="V", help="Which version of the library, where the files tell of several.")
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep every second size only, to hold the others against.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Read measured collectives and write a system's tables, for costs with collectives: measured."""
    from ....costs.nccl import foreign_constants
    from ....evaluation.calibration.fit_collectives import calibrate, write
    from ..validate.collectives import size_text

    output.check_file("--out", out)
    output.check_file("--json", json_file)
    found = calibrate(files, name=name, operation=operation, device=device, library_version=library_version, half=half)
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
