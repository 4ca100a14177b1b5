"""``meshwright export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import settings
from ..errors import ExportError
from ..files import read_json
from . import output


def run(
    source: Path | None, target: str | None, changes: list[str], out: Path | None, list_targets: bool, json_file: str | None
) -> None:
    """Export a plan or all plans of a run, or list the formats."""
    from ..export import export, export_run, targets, write

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
    from ..plans import load_plan

    options: dict[str, Any] = {}
    for change in changes:
        options = settings.override(options, change)
    if source.is_dir():
        index = source / "plans" / "index.json"
        if not index.is_file():
            raise ExportError("holds no plans (plans/index.json); meshwright evaluate --out writes them", file=source)
        plans = {name: load_plan(index.parent / f"{name}.json") for name in read_json(index)["plans"]}
        if not plans:
            raise ExportError("no job was placed in the episode, so there is nothing to export", file=index)
        done = export_run(plans, target, out, options)
        console.print(f"{len(done.written)} plans written for {target} to {out}", markup=False)
        for name, reason in list(done.refused.items())[:10]:
            console.print(f"  not written: {name}: {reason}", markup=False)
        output.write_json(
            json_file, {"out": str(out), "written": {k: list(v) for k, v in done.written.items()}, "refused": done.refused}
        )
        return
    files = export(load_plan(source), target, options)
    write(files, out)
    console.print(f"{', '.join(sorted(files))} written for {target} to {out}", markup=False)
    output.write_json(json_file, {"out": str(out), "files": sorted(files)})
