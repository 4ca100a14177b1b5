"""``meshwright dev validate placements``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...key_models import PlacementKeys


from ....errors import InputFileError
from ... import output
from ...kinds import one_source
from .published import show_figures


def validate_placements(sources: Sequence[str], keys: PlacementKeys, json_file: str | None) -> None:
    """Compute the published figures of operator placement again, or show all values of one instance.

    Exit 1 where a figure disagrees.
    """
    output.check_file("--json", json_file)
    source, placement = Path(one_source(sources)), keys.placement
    if source.is_dir():
        if placement is not None:
            raise InputFileError("needs one instance, not a folder", field="--set placement", value=str(source))
        from ....evaluation.validation.placements.validate import PlacementSources, validate

        read = PlacementSources(source, keys.graphs or source.resolve().parent / "pipedream", keys.search_s)
        show_figures(partial(validate, read), json_file)
    else:
        _instance(source, placement, keys.search_s, json_file)


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
