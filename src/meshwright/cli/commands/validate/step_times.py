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
                out.print(f"unsupported: {row.row.name}: {row.remark}")
        for row in known:
            if row.remark:
                out.print(f"{row.row.name}: {row.remark}")
        noted: dict[str, list[str]] = {}
        for note, name in ((note, row.row.name) for row in rows for note in row.row.notes):
            noted.setdefault(note, []).append(name)
        for note, names in noted.items():
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            out.print(f"note: {note} ({', '.join(names[:NAMED])}{more})")
    _memory(out, [one for one in result.predictions if one.predicted is not None])
    summary = result.summary()
    columns = ["family", "rows", "unsupported", "mean error", "largest", "bias", "tau", "mean regret", "largest"]
    output.table(out, "Families", columns, [_summary_line(family, data) for family, data in summary.items()])
    columns = ["family", "rows", "inside 68 %", "inside 95 %", "rms z", "largest z", "left out: rows", "inside 95 %", "rms z"]
    lines = [_coverage_line(family, data) for family, data in summary.items() if "coverage" in data]
    output.table(out, "Rows inside predicted intervals", columns, lines)
    out.print("Left out: predicted from the other families alone.")
    out.print("Constants fitted on, and on nothing else:")
    for line in CALIBRATION_SET:
        out.print(f"  {line}")
    output.write_json(json_file, result.to_data())
    judge_families(out, {family: data for family, data in summary.items() if not data["is_calibration"]}, keys.max_mean_error)


def _memory(out: Console, rows: list[Any]) -> None:
    """Print the memory of the fullest rank, of the rows that say it: its tensors, and all that its allocator held."""
    lines, errors = [], list[list[float]]([[], []])
    for one in rows:
        cells = [one.row.name]
        pairs = (one.allocated_bytes, one.row.allocated_bytes), (one.held_bytes, one.row.held_bytes)
        for (predicted, measured), known in zip(pairs, errors, strict=True):
            known += [] if measured is None else [predicted / measured - 1.0]
            cells += [""] * 3 if measured is None else [f"{predicted / GIB:.1f}", f"{measured / GIB:.1f}", f"{known[-1]:+.1%}"]
        lines += [cells] if any(cells[1:]) else []
    if lines:
        means = (f"{sum(map(abs, known)) / len(known):.1%}" if known else "" for known in errors)
        lines.append(["mean error", *(cell for mean in means for cell in ("", "", mean))])
        columns = [f"{word}\n{kind}" for kind in ("tensors", "held") for word in ("predicted", "measured", "error,")]
        output.table(out, "Memory of the fullest rank, GiB: tensors, and what the allocator held", ["row", *columns], lines)


def _summary_line(family: str, data: dict[str, Any]) -> list[str]:
    errors = {"mean_relative_error": ".1%", "max_relative_error": ".1%", "mean_signed_error": "+.1%"}
    forms = {"items": "", "unsupported": ""} | errors | {"kendall_tau": ".3f", "mean_regret": ".1%", "max_regret": ".1%"}
    return [family, *("" if data.get(key) is None else f"{data[key]:{form}}" for key, form in forms.items())]


def _coverage_line(family: str, data: dict[str, Any]) -> list[str]:
    coverage, other = data["coverage"], data["coverage_left_out"]
    forms = {"mean_uncertainty": ".0%", "inside_68": ".0%", "inside_95": ".0%", "rms_z": ".2f", "largest_z": "+.1f"}
    cells = [f"{coverage[key]:{form}}" for key, form in forms.items()]
    return [family, *cells, *(f"{other[key]:{forms[key]}}" for key in ("mean_uncertainty", "inside_95", "rms_z"))]
