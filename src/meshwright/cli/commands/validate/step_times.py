"""``meshwright dev validate step-times``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import output
from .published import judge_families

if TYPE_CHECKING:
    from rich.console import Console

    from ...key_models import StepTimeKeys

SHOWN = 40  # rows of a family that are shown; of a larger family the worst ten, the JSON holds all
WORST = 10
GIB = 2.0**30
NAMED = 3  # rows that a note names; the JSON has it at each


def validate_step_times(sources: Sequence[str], keys: StepTimeKeys, json_file: str | None) -> None:
    """Predict every published step; what a source leaves open is the fastest legal value by the model.

    Exit 1 only where a family's mean error is larger than the key allows. Rows that cannot be priced are listed.
    """
    from ....evaluation.validation.step_times.validate import CALIBRATION_SET, validate

    with output.progress() as bars:
        result = validate([Path(source) for source in sources], progress=output.phases(bars))
    out = output.console(json_file)
    for family, rows in result.families().items():
        known = [one for one in rows if one.predicted is not None]
        shown = known if len(known) <= SHOWN else sorted(known, key=lambda one: -one.relative_error)[:WORST]
        lines = [
            [
                one.row.name,
                f"{one.step_s:.4g}",
                f"{one.row.measured_s:.4g}",
                f"{one.step_s / one.row.measured_s - 1:+.1%}",
                " ".join(f"{key}={value}" for key, value in one.choice.items()),
            ]
            for one in shown
        ]
        title = family if len(shown) == len(known) else f"{family}: the worst {WORST} of {len(known)} rows"
        output.table(out, title, ["row", "predicted s", "measured s", "error", "chosen by the model"], lines)
        for row in rows:
            if row.predicted is None:
                out.print(f"unsupported: {row.row.name}: {row.remark}", markup=False)
        for row in known:
            if row.remark:
                out.print(f"{row.row.name}: {row.remark}", markup=False)
        noted: dict[str, list[str]] = {}
        for note, name in ((note, row.row.name) for row in rows for note in row.row.notes):
            noted.setdefault(note, []).append(name)
        for note, names in noted.items():
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            out.print(f"note: {note} ({', '.join(names[:NAMED])}{more})", markup=False)
    _memory(out, [one for one in result.predictions if one.predicted is not None and one.row.allocated_bytes is not None])
    summary = result.summary()
    columns = ["family", "rows", "unsupported", "mean error", "largest", "bias", "tau", "mean regret", "largest"]
    output.table(out, "Families", columns, [_summary_line(family, data) for family, data in summary.items()])
    columns = ["family", "rows", "inside 68 %", "inside 95 %", "rms z", "largest z", "left out: rows", "inside 95 %", "rms z"]
    lines = [_coverage_line(family, data) for family, data in summary.items() if "coverage" in data]
    output.table(out, "Rows inside predicted intervals", columns, lines)
    out.print("Left out: predicted from the other families alone.", markup=False)
    out.print("Constants fitted on, and on nothing else:", markup=False)
    for line in CALIBRATION_SET:
        out.print(f"  {line}", markup=False)
    output.write_json(json_file, result.to_data())
    judge_families(out, {family: data for family, data in summary.items() if not data["is_calibration"]}, keys.max_mean_error)


def _memory(out: Console, rows: list[Any]) -> None:
    """Print what tensors take on the fullest rank, of the rows that say it."""
    if not rows:
        return
    errors = [row.allocated_bytes / row.row.allocated_bytes - 1.0 for row in rows]
    lines = []
    for one, error in zip(rows, errors, strict=True):
        held = "" if one.row.held_bytes is None else f"{one.row.held_bytes / GIB:.1f}"
        given = (f"{number / GIB:.1f}" for number in (one.allocated_bytes, one.row.allocated_bytes))
        lines.append([one.row.name, *given, f"{error:+.1%}", held])
    lines.append([f"mean error of {len(rows)}", "", "", f"{sum(map(abs, errors)) / len(errors):.1%}", ""])
    columns = ["row", "predicted\nallocated GiB", "measured\nallocated", "error", "measured\nheld"]
    output.table(out, "Memory of the fullest rank: tensors, and what the allocator held", columns, lines)


def _summary_line(family: str, data: dict[str, Any]) -> list[str]:
    def percent(key: str, sign: str = "") -> str:
        value = data.get(key)
        return "" if value is None else f"{value:{sign}.1%}"

    tau = data.get("kendall_tau")
    return [
        family,
        str(data["items"]),
        str(data["unsupported"]),
        percent("mean_relative_error"),
        percent("max_relative_error"),
        percent("mean_signed_error", "+"),
        "" if tau is None else f"{tau:.3f}",
        percent("mean_regret"),
        percent("max_regret"),
    ]


def _coverage_line(family: str, data: dict[str, Any]) -> list[str]:
    coverage, other = data["coverage"], data["coverage_left_out"]
    return [
        family,
        f"{coverage['mean_uncertainty']:.0%}",
        f"{coverage['inside_68']:.0%}",
        f"{coverage['inside_95']:.0%}",
        f"{coverage['rms_z']:.2f}",
        f"{coverage['largest_z']:+.1f}",
        f"{other['mean_uncertainty']:.0%}",
        f"{other['inside_95']:.0%}",
        f"{other['rms_z']:.2f}",
    ]
