"""``meshwright export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import settings
from ..errors import ExportError
from . import output


def run(
    source: Path | None, target: str | None, changes: list[str], out: Path | None, list_targets: bool, json_file: str | None
) -> None:
    """Export a plan or all plans of a run, or list the formats."""
    from ..export import ExportOptions, export, export_run, targets, write

    output.check_file("--json", json_file)
    console = output.console(json_file)
    if list_targets:
        for entry in targets.values():
            console.print(f"{entry.name}: {entry.summary}", markup=False)
            for line in entry.guaranteed:
                console.print(f"  + {line}", markup=False)
            for line in entry.not_guaranteed:
                console.print(f"  - {line}", markup=False)
        described = {
            e.name: {"guaranteed": list(e.guaranteed), "not_guaranteed": list(e.not_guaranteed)} for e in targets.values()
        }
        output.write_json(json_file, described)
        return
    if source is None:
        raise ExportError("name a plan's JSON file or a run folder", field="PLAN|RUN")
    if target is None:
        raise ExportError("name a format", field="--format", choices=targets)
    if target not in targets:
        raise ExportError("unknown format", field="--format", value=target, choices=targets)
    if out is None:
        raise ExportError("name the folder to write", field="--out")
    output.check_folder("--out", out)
    chosen: dict[str, Any] = {}
    for change in changes:
        chosen = settings.override(chosen, change)
    options = settings.build(ExportOptions, chosen, file="--set" if changes else None)
    if source.is_dir():
        from ..evaluation.decisions import read_plans

        done = export_run(read_plans(source / "plans"), target, out, options)
        output.write_json(
            json_file, {"out": str(out), "written": {k: list(v) for k, v in done.written.items()}, "refused": done.refused}
        )
        console.print(f"{len(done.written)} plans written for {target} to {out}", markup=False)
        for name, reason in list(done.refused.items())[:10]:
            console.print(f"  not written: {name}: {reason}", markup=False)
        return
    from ..plans import load_plan

    files = export(load_plan(source), target, options)
    write(files, out)
    output.write_json(json_file, {"out": str(out), "files": sorted(files)})
    console.print(f"{', '.join(sorted(files))} written for {target} to {out}", markup=False)
