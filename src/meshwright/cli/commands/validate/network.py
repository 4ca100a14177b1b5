"""``meshwright validate network``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ... import interrupts, output
from ...options import JsonFile

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.validation.network import NetworkValidation


def validate_network(
    quick: Annotated[bool, typer.Option("--quick", help="A selection that takes less than a minute.")] = False,
    max_mean_error: Annotated[
        float | None,
        typer.Option(metavar="X", help="Mean relative error allowed, alone and of each way to meet; 0.1 by default."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Build network namespaces with shaped links, measure gloo over them, and hold our predictions against that."""
    output.check_file("--json", json_file)
    from ....evaluation.validation.network import MAX_MEAN_ERROR, validate

    allowed = MAX_MEAN_ERROR if max_mean_error is None else max_mean_error
    out = output.console(json_file)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        report = output.phases(bars)

        def told(scene: str, done: int, of: int) -> None:
            check_interrupt()
            report(scene, done, of)

        found = validate(quick=quick, max_mean_error=allowed, progress=told)
    if isinstance(found, str):
        out.print(f"skipped: {found}", markup=False, soft_wrap=True)
        output.write_json(json_file, {"skipped": found})
        return
    _show(out, found)
    output.write_json(json_file, found.to_data())
    output.print_written(out, json_file)
    if not found.agrees:
        raise typer.Exit(1)


def _show(out: Console, found: NetworkValidation) -> None:
    rows = []
    for row in found.comparison.rows:
        assert isinstance(row.predicted, float)
        assert isinstance(row.reference, float)
        error = f"{100 * (row.predicted / row.reference - 1):+.1f} %"
        rows.append([row.family, row.group, row.figure, f"{1e3 * row.predicted:.1f}", f"{1e3 * row.reference:.1f}", error])
    title = "Messages of gloo over shaped wires: predicted, and the median of what was measured"
    output.table(out, title, ["family", "wires", "", "predicted ms", "measured ms", "error"], rows, numbers_from=3)
    conditions = [
        [c.scene, f"{1e6 * c.latency_s:.0f}", f"{c.link_bytes_per_s / 1e6:.2f}", f"{c.unshaped_bytes_per_s / 1e6:.0f}"]
        for c in found.conditions
    ]
    columns = ["wires", "latency us (calibrated)", "link MB/s (by its shaper)", "each rank without shapers MB/s"]
    output.table(out, "Conditions", columns, conditions)
    summary = [
        [family, str(s["items"]), f"{100 * s['mean_relative_error']:.1f} %", f"{100 * s['max_relative_error']:.1f} %"]
        for family, s in found.comparison.summary().items()
    ]
    output.table(out, "Families", ["family", "rows", "mean error", "largest"], summary)
    for kind, mean_error in found.mean_errors.items():
        verdict = "agrees" if mean_error <= found.max_mean_error else "DISAGREES"
        text = f"{kind}: mean error {100 * mean_error:.1f} %, allowed {100 * found.max_mean_error:g} %: {verdict}"
        out.print(text, markup=False, soft_wrap=True)
    versions = found.versions
    priority = "before all other programs" if versions["is_real_time"] else "like all other programs"
    text = f"Linux {versions['kernel']}, torch {versions['torch']}, {versions['cores']} cores, ranks run {priority}."
    out.print(text, markup=False, soft_wrap=True)
