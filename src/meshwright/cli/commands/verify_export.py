"""``meshwright verify-export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ... import files
from ...errors import ExportError, InputFileError
from .. import output
from ..options import JsonFile, argument, option
from .export import Framework


def verify_export(
    plan: Annotated[Path, argument("PLAN", "The plan's JSON file.")],
    logs: Annotated[list[str], argument("LOG...", "Output of the job; - for standard input.")],
    target: Annotated[str | None, option("NAME", "Required: its format, see export --list.", "--format")] = None,
    framework: Framework = None,
    json_file: JsonFile = None,
) -> None:
    """Compare the printed places of a launched job's ranks with its plan; exit 1 where one differs.

    Export with --set probe=true, launch, and keep the output of the ranks. The first misplaced rank is named.

    Examples:
      meshwright verify-export plan.json slurm-1.out --format slurm
    """
    from ...export import read_places, target_of, targets, verify
    from ...plans import load_plan

    if target is None:
        raise ExportError("name a format", field="--format", choices=targets)
    target_of(target, field="--format")
    planned = load_plan(plan)
    places = [place for log in logs for place in read_places(_text(log), file=log)]
    result = verify(planned, target, places, framework)
    output.write_json(json_file, result.to_data())
    out = output.console(json_file)
    compared = f" (compared with the host: {', '.join(result.compared)})" if result.compared else " (only hosts were compared)"
    if result.agrees:
        out.print(f"all {result.num_ranks} ranks are where the plan puts them{compared}", soft_wrap=True)
        return
    count = sum(rank < result.num_ranks for rank in result.elsewhere)
    out.print(result.first, soft_wrap=True)
    unknown = f", ranks beyond the plan's: {more}" if (more := len(result.elsewhere) - count) else ""
    out.print(f"{count} of {result.num_ranks} ranks are not as planned{unknown}{compared}", soft_wrap=True)
    raise typer.Exit(1)


def _text(log: str) -> str:
    if log != "-":
        return files.read_text(log)
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InputFileError("not UTF-8 text", file=log, value=f"byte {error.start}") from None
