"""Published figures beside ours, as tables of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from ... import output

if TYPE_CHECKING:
    from ....evaluation.validation.published_figures import Progress, PublishedFigure, PublishedFigures


def show_figures(computed: Callable[[Progress], PublishedFigures], json_file: str | None) -> None:
    """Compute figures with a bar for each family, print a table for each, and write the JSON.

    Raises:
        Exit: with 1, where a figure disagrees.
    """
    with output.progress() as bars:
        found = computed(output.phases(bars))
    out = output.console(json_file)
    for family in dict.fromkeys(each.family for each in found.figures):
        lines = [_line(each) for each in found.figures if each.family == family]
        columns = ["item", "figure", "ours", "published", "deviation", "tolerance", "", "s"]
        output.table(out, family, columns, lines, numbers_from=2)
    wrong = sum(not each.agrees for each in found.figures)
    told = "all agree" if not wrong else f"{wrong} disagree{'s' if wrong == 1 else ''}"
    out.print(f"{len(found.figures)} figures, {told}", markup=False)
    output.write_json(json_file, found.to_data())
    if wrong:
        raise typer.Exit(1)


def _line(each: PublishedFigure) -> list[str]:
    ours = each.ours if isinstance(each.ours, str) else f"{each.ours:.10g}"
    deviation, verdict = f"{each.deviation:+.1e}", "agrees" if each.agrees else "DISAGREES"
    return [each.item, each.figure, ours, each.told, deviation, f"{each.tolerance:.0e}", verdict, f"{each.seconds:.2f}"]
