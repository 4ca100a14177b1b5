"""``meshwright validate placements``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....errors import InputFileError
from ... import output
from ...options import JsonFile

if TYPE_CHECKING:
    from ....evaluation.validation.placements import PlacementFigure, PlacementSources


def validate_placements(
    source: Annotated[
        Path, typer.Argument(metavar="DIR|FILE", help="Folder of dnn_partitioning/, piper/ and tasklets/, or one instance.")
    ],
    profiles: Annotated[
        Path | None, typer.Option("--graphs", metavar="DIR", help="PipeDream's profiles NAME/graph.txt; by default beside DIR.")
    ] = None,
    placement: Annotated[
        Path | None, typer.Option("--placement", metavar="FILE", help="With one instance: the device of each op, as JSON.")
    ] = None,
    search_s: Annotated[
        float, typer.Option("--search-s", metavar="S", min=0.1, max=86_400, help="Seconds for each search without an end.")
    ] = 60.0,
    json_file: JsonFile = None,
) -> None:
    """Compute the published figures of operator placement again, or show all values of one instance.

    Exit 1 where a figure disagrees.
    """
    output.check_file("--json", json_file)
    if source.is_dir():
        if placement is not None:
            raise InputFileError("needs one instance, not a folder", field="--placement", value=str(source))
        from ....evaluation.validation.placements import PlacementSources

        _figures(PlacementSources(source, profiles or source.resolve().parent / "pipedream", search_s), json_file)
    else:
        _instance(source, placement, search_s, json_file)


def _figures(sources: PlacementSources, json_file: str | None) -> None:
    from ....evaluation.validation.placements import validate

    with output.progress() as bars:
        tasks: dict[str, Any] = {}

        def report(name: str, done: int, of: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=of, note="")
            bars.update(tasks[name], completed=done)

        found = validate(sources, report)
    out = output.console(json_file)
    for family in dict.fromkeys(each.family for each in found.figures):
        lines = [_line(each) for each in found.figures if each.family == family]
        columns = ["item", "figure", "ours", "published", "deviation", "tolerance", "", "s"]
        output.table(out, family, columns, lines, numbers_from=2)
    output.write_json(json_file, found.to_data())
    if not found.agrees:
        raise typer.Exit(1)


def _line(each: PlacementFigure) -> list[str]:
    ours = each.ours if isinstance(each.ours, str) else f"{each.ours:.10g}"
    deviation, verdict = f"{each.deviation:+.1e}", "agrees" if each.agrees else "DISAGREES"
    published = f"<= {each.published}" if each.is_limit else each.published
    return [each.item, each.figure, ours, published, deviation, f"{each.tolerance:.0e}", verdict, f"{each.seconds:.2f}"]


def _instance(source: Path, placement: Path | None, search_s: float, json_file: str | None) -> None:
    from ....evaluation.validation.placed_instance import values_of

    found = values_of(source, placement, search_s)
    out = output.console(json_file)
    lines = [
        [each.form, each.planner, "" if each.value_s is None else f"{each.value_s:.10g}", each.note] for each in found.values
    ]
    output.table(out, found.name, ["form of the value", "by", "s", "note"], lines, numbers_from=2, numbers_to=3)
    output.write_json(json_file, found.to_data())
