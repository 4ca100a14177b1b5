"""``meshwright validate collectives``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import output
from ...options import JsonFile
from .published import judge

if TYPE_CHECKING:
    from ....evaluation.validation.collectives import Errors


def validate_collectives(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV of measured collectives, or what nccl-tests wrote.")],
    operation: Annotated[
        str | None, typer.Option(metavar="NAME", help="What an nccl-tests file measures that does not say so itself.")
    ] = None,
    max_mean_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error that the sizes left out may have.")
    ] = None,
    max_mean_group_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error that the group sizes left out may have.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Calibrate on every second size of each table, predict the others, then whole group sizes from their neighbours.

    Exit 1 only where a mean error is larger than an option allows.
    """
    from ....costs.nccl import foreign_constants
    from ....evaluation.validation.collectives import BASELINES, GROUPS, SIZES, validate

    output.check_file("--json", json_file)
    allowed = {f"{SIZES}: mean error": max_mean_error, f"{GROUPS}: mean error": max_mean_group_error}
    output.check_allowed("--max-mean-error", max_mean_error)
    output.check_allowed("--max-mean-group-error", max_mean_group_error)
    found = validate(file, operation=operation)
    out = output.console(json_file)
    told = f"Calibrated on {found.num_calibrated} sizes, the 1st, 3rd, ... of each of {found.num_tables} tables"
    out.print(f"{told}; {found.num_outliers} outliers left out.", markup=False)
    families = found.families()
    for family, errors in families.items():
        names = BASELINES if family == SIZES else ()
        columns = ["operation", "ranks", "items", "mean error", "largest", "at", *names]
        lines = [[operation, str(n), *_line(some, len(names))] for (operation, n), some in found.groups(family).items()]
        output.table(out, family.capitalize(), columns, [*lines, ["all", "", *_line(errors, len(names))]])
    output.print_remarks(out, foreign_constants(row.table.device for row in found.rows))
    for problem in found.unsupported:
        out.print(f"unsupported: {problem}", markup=False)
    if GROUPS not in families:
        out.print("No group size stands between two others, so none was left out.", markup=False)
    output.write_json(json_file, found.to_data())
    judge(out, {f"{family}: mean error": errors.mean for family, errors in families.items()}, allowed)


def _line(errors: Errors, num_baselines: int) -> list[str]:
    worst = errors.worst
    baselines = [errors.baseline(number) for number in range(num_baselines)]
    return [
        str(len(errors.rows)),
        f"{errors.mean:.2%}",
        f"{worst.relative_error:.1%}",
        size_text(worst.payload_bytes),
        *("" if error is None else f"{error:.2%}" for error in baselines),
    ]


def size_text(payload_bytes: float) -> str:
    """A size with the largest binary unit in which it is at least 1."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if payload_bytes >= scale:
            return f"{payload_bytes / scale:g} {unit}"
    return f"{payload_bytes:g} B"
