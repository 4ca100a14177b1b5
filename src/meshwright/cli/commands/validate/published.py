"""``meshwright dev validate`` of published figures, ``placements`` and ``strategies``; errors judged by allowed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ....errors import InputFileError
from ... import output
from ...kinds import no_source, one_source

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.validation.published_figures import Progress, PublishedFigure
    from ...key_models import PlacementKeys, StrategyKeys


def validate_placements(sources: Sequence[str], keys: PlacementKeys, json_file: str | None) -> None:
    """Compute the published figures of operator placement again, or show all values of one instance.

    Exit 1 where a figure disagrees.
    """
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

    name, values = values_of(source, placement, search_s)
    out = output.console(json_file)
    lines = [
        [
            f"{each.objective}, {each.form}",
            each.planner,
            "" if each.value_s is None else f"{each.value_s:.10g}",
            output.shortened(each.note),
        ]
        for each in values
    ]
    output.table(out, name, ["form of the value", "by", "s", "note"], lines, numbers_from=2, numbers_to=3)
    output.write_json(json_file, {"name": name, "values": [each._asdict() for each in values]})


def validate_strategies(sources: Sequence[str], keys: StrategyKeys, json_file: str | None) -> None:
    """Compute the published figures of training strategies and communication techniques again.

    Exit 1 where a figure disagrees.
    """
    from ....evaluation.validation.strategies.families import FAMILIES, OF_REFERENCE, validate

    no_source(sources)
    only, reference = keys.only, keys.reference
    for name in only:
        if name not in FAMILIES | OF_REFERENCE:
            raise InputFileError("no such family", field="--set only", value=name, choices=FAMILIES | OF_REFERENCE)
        if name in OF_REFERENCE and reference is None:
            raise InputFileError(f"is missing: {name!r} reads files of the folder of reference data", field="--set reference")
    show_figures(partial(validate, tuple(only or FAMILIES | OF_REFERENCE), reference=reference), json_file)
    if reference is None and not only:
        left_out = ", ".join(OF_REFERENCE)
        output.print_remarks(output.console(json_file), [f"left out, as they read files of --set reference=DIR: {left_out}"])


def show_figures(computed: Callable[[Progress], list[PublishedFigure]], json_file: str | None) -> None:
    """Compute figures with a bar for each family, print a table for each, and write the JSON.

    Raises:
        Exit: with 1, where a figure disagrees.
    """
    with output.progress() as bars:
        result = computed(output.phases(bars))
    out = output.console(json_file)
    for family in dict.fromkeys(each.family for each in result):
        lines = [_line(each) for each in result if each.family == family]
        columns = ["item", "figure", "ours", "published", "deviation", "tolerance", "", "s"]
        output.table(out, family, columns, lines, numbers_from=2)
    wrong = sum(not each.agrees for each in result)
    summary = "all agree" if not wrong else f"{wrong} disagree{'s' if wrong == 1 else ''}"
    out.print(f"{len(result)} figures, {summary}")
    output.write_json(json_file, {"figures": [each.to_data() for each in result], "agrees": not wrong})
    if wrong:
        raise typer.Exit(1)


def _line(each: PublishedFigure) -> list[str]:
    ours = each.ours if isinstance(each.ours, str) else f"{each.ours:.10g}"
    deviation, verdict = f"{each.deviation:+.1e}", "agrees" if each.agrees else "DISAGREES"
    return [each.item, each.figure, ours, each.text, deviation, f"{each.tolerance:.0e}", verdict, f"{each.seconds:.2f}"]


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
    for name, error, most in wrong:
        out.print(f"{name} {error:.2%}, allowed {most:.2%}")
    if wrong:
        raise typer.Exit(1)


def judge_families(out: Console, families: Mapping[str, Mapping[str, Any]], allowed: float | None) -> None:
    """Judge the ``mean_relative_error`` of each family that has one; see `judge`."""
    errors = {f"{name}: mean error": data.get("mean_relative_error", 0.0) for name, data in families.items()}
    judge(out, errors, dict.fromkeys(errors, allowed))
