"""``meshwright dev validate flows``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ... import output

if TYPE_CHECKING:
    from ...key_models import FlowKeys


SHOWN = 10  # flows that disagree, at most; the JSON holds all


def validate_flows(sources: Sequence[str], keys: FlowKeys, json_file: str | None) -> None:
    """Hold finish times of flows against max-min fair sharing of every link."""
    from ....evaluation.validation.flows import MAX_RELATIVE_ERROR, validate

    output.check_file("--json", json_file)
    allowed = MAX_RELATIVE_ERROR if keys.max_error is None else keys.max_error
    files, latency_first = [Path(source) for source in sources], keys.latency_first
    found = validate(files, max_relative_error=allowed, latency_first=latency_first)
    lines = []
    for (_, file), rows in found.groups().items():
        worst = max(rows, key=lambda row: row.relative_error)
        verdict = "agrees" if worst.agrees else "DISAGREES"
        lines.append([file, str(len(rows)), f"{worst.relative_error:.1e}", worst.figure, verdict])
    out = output.console(json_file)
    title = f"Finish times by max-min fair sharing, within {allowed:g}"
    output.table(out, title, ["file", "flows", "largest relative error", "of", ""], lines)
    wrong = sorted((row for row in found.rows if not row.agrees), key=lambda row: -row.relative_error)
    if wrong:
        title = f"{len(wrong)} of {len(found.rows)} flows disagree" + (f", the worst {SHOWN}" if len(wrong) > SHOWN else "")
        told = [
            [row.group, row.figure, f"{row.predicted:.12g}", f"{row.reference:.12g}", f"{row.relative_error:.1e}"]
            for row in wrong[:SHOWN]
        ]
        output.table(out, title, ["file", "", "predicted s", "reference s", "relative error"], told, numbers_from=2)
        if validate(files, max_relative_error=allowed, latency_first=not latency_first).agrees:
            other = "leave out --set latency_first=true" if latency_first else "give --set latency_first=true"
            out.print(f"All agree where latency is counted the other way: {other}.", markup=False)
    output.write_json(json_file, found.to_data())
    if not found.agrees:
        raise typer.Exit(1)
