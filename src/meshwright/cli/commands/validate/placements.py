"""``meshwright validate placements``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ....errors import InputFileError
from ... import output
from ...options import JsonFile
from .published import show_figures


def validate_placements(
    source: Annotated[
        Path, typer.Argument(metavar="DIR|FILE", help="Folder of dnn_partitioning/, piper/ and tasklets/, or one instance.")
    ],
    profiles: Annotated[
        Path | None, typer.Option("--graphs", metavar="DIR", help="PipeDream's profiles NAME/graph.txt; by default beside DIR.")
    ] = None,
    placement: Annotated[
        Path | None,
        typer.Option("--placement", metavar="FILE", help="With one instance: the device of each op, or stages, as JSON."),
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
        from ....evaluation.validation.placements.validate import PlacementSources, validate

        sources = PlacementSources(source, profiles or source.resolve().parent / "pipedream", search_s)
        show_figures(partial(validate, sources), json_file)
    else:
        _instance(source, placement, search_s, json_file)


def _instance(source: Path, placement: Path | None, search_s: float, json_file: str | None) -> None:
    from ....evaluation.validation.placements.placed_instance import values_of

    found = values_of(source, placement, search_s)
    out = output.console(json_file)
    lines = [
        [
            f"{each.objective}, {each.form}",
            each.planner,
            "" if each.value_s is None else f"{each.value_s:.10g}",
            output.shortened(each.note),
        ]
        for each in found.values
    ]
    output.table(out, found.name, ["form of the value", "by", "s", "note"], lines, numbers_from=2, numbers_to=3)
    output.write_json(json_file, found.to_data())
