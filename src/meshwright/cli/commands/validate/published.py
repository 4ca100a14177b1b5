"""Common output and exit status of several kinds of validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from ... import output

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.validation.comparison import Comparison
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


def show_families(out: Console, found: Comparison) -> None:
    """Print a line for each family of compared figures."""
    lines = [
        [family, str(s["items"]), str(s["disagreeing"]), f"{s['mean_relative_error']:.1e}", f"{s['max_relative_error']:.1e}"]
        for family, s in found.summary().items()
    ]
    output.table(out, "Families", ["family", "figures", "disagree", "mean relative error", "largest"], lines)


def judge(out: Console, errors: Mapping[str, float], allowed: Mapping[str, float | None]) -> None:
    """Print what is larger than an option allows.

    Args:
        out: where.
        errors: by what each is of, as ``products: mean error``.
        allowed: by the same; None where an option was left out.

    Raises:
        Exit: with 1, where something is.
    """
    limits = [(name, error, allowed.get(name)) for name, error in errors.items()]
    wrong = [(name, error, most) for name, error, most in limits if most is not None and error > most]
    output.exit_where(out, [f"{name} {error:.2%}, allowed {most:.2%}" for name, error, most in wrong])


def judge_families(out: Console, families: Mapping[str, Mapping[str, Any]], allowed: float | None) -> None:
    """Judge the ``mean_relative_error`` of each family that has one; see `judge`."""
    errors = {f"{name}: mean error": data.get("mean_relative_error", 0.0) for name, data in families.items()}
    judge(out, errors, dict.fromkeys(errors, allowed))
