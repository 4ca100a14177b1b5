"""``meshwright dev validate sharing``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import interrupts, output
from ...kinds import no_source
from .published import judge

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.validation.sharing.validate import SharingValidation
    from ...key_models import HeldSharingKeys


def validate_sharing(sources: Sequence[str], keys: HeldSharingKeys, json_file: str | None) -> None:
    """Draw sets of jobs on three clusters, simulate each event by event, and hold the fast model of sharing against that.

    Exit 1 only where an error of all jobs is larger than a key allows.
    """
    output.check_file("--json", json_file)
    no_source(sources)
    from ....evaluation.validation.sharing.validate import validate

    out = output.console(json_file)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        report = output.phases(bars, check_interrupt)
        found = validate(keys.sets, keys.keep, progress=report)
    _show(out, found)
    output.write_json(json_file, found.to_data())
    output.print_written(out, json_file)
    every = found.errors()[0].to_data()
    mean, tail = "mean error of all jobs", "95th percentile of the error of all jobs"
    judge(out, {mean: every["mean_error"], tail: every["p95_error"]}, {mean: keys.max_mean_error, tail: keys.max_p95_error})


def _show(out: Console, found: SharingValidation) -> None:
    lines = []
    for group in found.errors():
        data = group.to_data()
        errors = [data[f"{name}{error}_error"] for name in ("", "no_sharing_") for error in ("mean", "p95")]
        lines.append([group.group, str(data["jobs"]), *(f"{100 * error:.1f} %" for error in errors)])
    columns = ["", "jobs", "mean error", "95th percentile", "without sharing: mean", "95th percentile"]
    title = f"Step times of jobs that share links, {len(found.sets)} simulated sets, none used to fit constants"
    output.table(out, title, columns, lines)
