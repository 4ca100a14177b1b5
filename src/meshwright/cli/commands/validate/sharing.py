"""``meshwright validate sharing``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import interrupts, output
from ...options import JsonFile
from .published import judge

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.validation.sharing.validate import SharingValidation


def validate_sharing(
    sets: Annotated[int | None, typer.Option(metavar="N", help="Sets to simulate, 2 to 8 jobs each; 20 by default.")] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that keeps simulated sets, so that a later call goes on.")
    ] = None,
    max_mean_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error that the step times may have, as 0.05.")
    ] = None,
    max_p95_error: Annotated[
        float | None, typer.Option("--max-p95-error", metavar="X", help="95th percentile that their errors may have, as 0.12.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Draw sets of jobs on three clusters, simulate each event by event, and hold the fast model of sharing against that.

    Exit 1 only where an error of all jobs is larger than an option allows.
    """
    output.check_file("--json", json_file)
    output.check_allowed("--max-mean-error", max_mean_error)
    output.check_allowed("--max-p95-error", max_p95_error)
    from ....evaluation.validation.sharing.validate import QUICK_SETS, validate

    out = output.console(json_file)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        report = output.phases(bars, check_interrupt)
        found = validate(QUICK_SETS if sets is None else sets, keep, progress=report)
    _show(out, found)
    output.write_json(json_file, found.to_data())
    output.print_written(out, json_file)
    every = found.errors()[0].to_data()
    mean, tail = "mean error of all jobs", "95th percentile of the error of all jobs"
    judge(out, {mean: every["mean_error"], tail: every["p95_error"]}, {mean: max_mean_error, tail: max_p95_error})


def _show(out: Console, found: SharingValidation) -> None:
    lines = []
    for group in found.errors():
        data = group.to_data()
        errors = [data[f"{name}{error}_error"] for name in ("", "no_sharing_") for error in ("mean", "p95")]
        lines.append([group.group, str(data["jobs"]), *(f"{100 * error:.1f} %" for error in errors)])
    columns = ["", "jobs", "mean error", "95th percentile", "without sharing: mean", "95th percentile"]
    title = f"Step times of jobs that share links, {len(found.sets)} simulated sets of which nothing was fitted on"
    output.table(out, title, columns, lines)
