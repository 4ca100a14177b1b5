"""``meshwright dev validate pacml``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ... import output
from ...kinds import one_source
from .published import show_families

if TYPE_CHECKING:
    from ....evaluation.validation.comparison import ComparedFigure, Comparison
    from ...key_models import PacmlKeys


def validate_pacml(sources: Sequence[str], keys: PacmlKeys, json_file: str | None) -> None:
    """Compute the published PAC-ML figures again and replay the decision logs."""
    output.check_file("--json", json_file)
    from ....evaluation.validation.pacml.replay import validate

    with output.progress() as bars:
        found = validate(
            Path(one_source(sources)),
            keys.graphs,
            with_statistics=keys.statistics,
            num_seeds=keys.seeds,
            progress=output.phases(bars),
        )
    show(found, json_file)


def show(found: Comparison, json_file: str | None) -> None:
    """Print a line for each group and family and every figure that disagrees, write JSON; exit 1 where one does.

    Raises:
        typer.Exit: with status 1, some figure disagrees.
    """
    out = output.console(json_file)
    lines = [[group, *_line(rows)] for (_, group), rows in found.groups().items()]
    output.table(out, "Items", ["item", "figures", "largest relative error", ""], lines)
    wrong = [row for row in found.rows if not row.agrees]
    if wrong:
        columns = ["item", "figure", "predicted", "reference", "relative error"]
        if any(row.interval for row in wrong):
            columns += ["over other ties", "reference is"]
        figures = [
            [row.group, row.figure, _text(row.predicted), _text(row.reference), f"{row.relative_error:.1e}", *_chance(row)]
            for row in wrong
        ]
        output.table(out, "Disagreements", columns, [line[: len(columns)] for line in figures], numbers_from=2)
    show_families(out, found)
    output.write_json(json_file, found.to_data())
    if wrong:
        raise typer.Exit(1)


def _line(rows: Sequence[ComparedFigure]) -> list[str]:
    verdict = "agrees" if all(row.agrees for row in rows) else "DISAGREES"
    return [str(len(rows)), f"{max(row.relative_error for row in rows):.1e}", verdict]


def _chance(row: ComparedFigure) -> list[str]:
    """Over which interval a figure moves as ties fall, and where in it the reference is."""
    if row.interval is None:
        return ["", ""]
    least, greatest = map(_text, row.interval)
    return [f"{least} to {greatest}", "attained" if row.is_attained else "within" if row.is_within else "outside"]


def _text(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
