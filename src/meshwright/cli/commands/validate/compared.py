"""``meshwright dev validate`` of figures that must equal their reference: ``flows``, ``pacml`` and ``elastic``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ... import output
from ...kinds import one_source

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.validation.comparison import ComparedFigure, Comparison
    from ...key_models import FlowKeys, NoKeys, PacmlKeys

SHOWN = 10  # flows that disagree, at most; the JSON holds all


def validate_flows(sources: Sequence[str], keys: FlowKeys, json_file: str | None) -> None:
    """Hold finish times of flows against max-min fair sharing of every link."""
    from ....evaluation.validation.flows import MAX_RELATIVE_ERROR, validate

    allowed = MAX_RELATIVE_ERROR if keys.max_error is None else keys.max_error
    files, latency_first = [Path(source) for source in sources], keys.latency_first
    result = validate(files, max_relative_error=allowed, latency_first=latency_first)
    lines = []
    for (_, file), rows in result.groups().items():
        worst = max(rows, key=lambda row: row.relative_error)
        verdict = "agrees" if worst.agrees else "DISAGREES"
        lines.append([file, str(len(rows)), f"{worst.relative_error:.1e}", worst.figure, verdict])
    out = output.console(json_file)
    title = f"Finish times by max-min fair sharing, within {allowed:g}"
    output.table(out, title, ["file", "flows", "largest relative error", "of", ""], lines)
    wrong = sorted((row for row in result.rows if not row.agrees), key=lambda row: -row.relative_error)
    if wrong:
        title = f"{len(wrong)} of {len(result.rows)} flows disagree" + (f", the worst {SHOWN}" if len(wrong) > SHOWN else "")
        deviations = [
            [row.group, row.figure, f"{row.predicted:.12g}", f"{row.reference:.12g}", f"{row.relative_error:.1e}"]
            for row in wrong[:SHOWN]
        ]
        output.table(out, title, ["file", "", "predicted s", "reference s", "relative error"], deviations, numbers_from=2)
        if validate(files, max_relative_error=allowed, latency_first=not latency_first).agrees:
            other = "leave out --set latency_first=true" if latency_first else "give --set latency_first=true"
            out.print(f"All agree where latency is counted the other way: {other}.")
    output.write_json(json_file, result.to_data())
    if not result.agrees:
        raise typer.Exit(1)


def validate_elastic(sources: Sequence[str], keys: NoKeys, json_file: str | None) -> None:
    """Play the published workloads under the published schedulers Tiresias and Optimus.

    Exit 1 where a job under Tiresias ends more than a round apart, or a mean of a load is more than 1 % off.
    """
    from ....evaluation.validation.elastic import validate

    with output.progress() as bars:
        result, workloads = validate(Path(one_source(sources)), output.phases(bars))
    out = output.console(json_file)
    lines = [[f"{each:.1f}" if isinstance(each, float) else str(each) for each in row.values()] for row in workloads]
    columns = ["scheduler", "load", "workload", "published mean s", "mean s", "jobs", "equal", "within a round", "off"]
    output.table(out, "Completion times", columns, lines, numbers_from=3)
    show_families(out, result)
    output.write_json(json_file, {**result.to_data(), "workloads": workloads})
    if not result.agrees:
        raise typer.Exit(1)


def validate_pacml(sources: Sequence[str], keys: PacmlKeys, json_file: str | None) -> None:
    """Compute the published PAC-ML figures again and replay the decision logs."""
    from ....evaluation.validation.pacml.replay import validate

    with output.progress() as bars:
        result = validate(
            Path(one_source(sources)),
            keys.graphs,
            with_statistics=keys.statistics,
            num_seeds=keys.seeds,
            progress=output.phases(bars),
        )
    show(result, json_file)


def show(comparison: Comparison, json_file: str | None) -> None:
    """Print a line for each group and family and every figure that disagrees, write JSON; exit 1 where one does.

    Raises:
        typer.Exit: with status 1, some figure disagrees.
    """
    out = output.console(json_file)
    lines = [[group, *_line(rows)] for (_, group), rows in comparison.groups().items()]
    output.table(out, "Items", ["item", "figures", "largest relative error", ""], lines)
    wrong = [row for row in comparison.rows if not row.agrees]
    if wrong:
        columns = ["item", "figure", "predicted", "reference", "relative error"]
        if any(row.interval for row in wrong):
            columns += ["over other ties", "reference is"]
        figures = [
            [row.group, row.figure, _text(row.predicted), _text(row.reference), f"{row.relative_error:.1e}", *_chance(row)]
            for row in wrong
        ]
        output.table(out, "Disagreements", columns, [line[: len(columns)] for line in figures], numbers_from=2)
    show_families(out, comparison)
    output.write_json(json_file, comparison.to_data())
    if wrong:
        raise typer.Exit(1)


def _line(rows: Sequence[ComparedFigure]) -> list[str]:
    verdict = "agrees" if all(row.agrees for row in rows) else "DISAGREES"
    return [str(len(rows)), f"{max(row.relative_error for row in rows):.1e}", verdict]


def _chance(row: ComparedFigure) -> list[str]:
    """Return over which interval a figure moves as ties fall, and where in it the reference is."""
    if row.interval is None:
        return ["", ""]
    least, greatest = map(_text, row.interval)
    return [f"{least} to {greatest}", "attained" if row.is_attained else "within" if row.is_within else "outside"]


def _text(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def show_families(out: Console, comparison: Comparison) -> None:
    """Print a line for each family of compared figures."""
    lines = [
        [family, str(s["items"]), str(s["disagreeing"]), f"{s['mean_relative_error']:.1e}", f"{s['max_relative_error']:.1e}"]
        for family, s in comparison.summary().items()
    ]
    output.table(out, "Families", ["family", "figures", "disagree", "mean relative error", "largest"], lines)
