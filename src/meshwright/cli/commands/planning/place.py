"""``meshwright plan --ops``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .... import files
from ....errors import InputFileError
from ... import output
from ...keys import own_keys
from ...plans import show_summary, write_plan

if TYPE_CHECKING:
    from ....planning.place import PlacedOps


def place_ops(
    job: str,
    cluster: str,
    objective: str,
    planner: str,
    budget_s: float,
    devices: int | None,
    batch: int | None,
    steps: int,
    changes: Sequence[str] | None,
    trace: Path | None,
    plot: Path | None,
    json_file: str | None,
) -> None:
    """Put each op of a job on a device, for the shortest step or for the fullest pipeline, and say how good that is.

    The arguments are what the options of the command say; of ``devices`` the first so many are taken.
    """
    from ....planning.place import place

    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise InputFileError("the name must end in .svg or .html", field="--plot", value=str(plot))
    from ...key_models import OpKeys

    keys = own_keys(OpKeys, changes)
    result = place(
        job,
        cluster,
        objective=objective,  # type: ignore[arg-type]
        by=planner,
        budget_s=budget_s,
        optimizer=keys.optimizer,  # type: ignore[arg-type]
        forward_only=keys.forward_only,
        in_flight=keys.in_flight,
        num_devices=devices,
        batch_size=batch,
        num_steps=steps,
        seed=keys.seed,
        **keys.arguments(),
    )
    write_plan(json_file, result.plan)
    if trace is not None:
        files.write_json(trace, result.timeline().to_chrome_trace(result.graph))
    if plot is not None:
        from ....evaluation.report.drawing import drawn_placement

        files.write_text(plot, drawn_placement(result, plot.suffix))
    _show(result, json_file)
    output.print_written(output.console(json_file), json_file, trace, plot)


def _show(placement: PlacedOps, json_file: str | None) -> None:
    out = output.console(json_file)
    rows = [
        [
            "->" if run.is_taken else "",
            run.planner,
            "-" if run.value_s is None else f"{1e3 * run.value_s:.4f}",
            "-" if run.planning_s is None else f"{run.planning_s:.3f}",
        ]
        for run in placement.runs
    ]
    title = f"{placement.placement.objective} of {placement.plan.job.name} on {placement.cluster.name}"
    output.table(out, title, ["", "planner", "value ms", "planning s"], rows, numbers_from=2, breaks_numbers=False)
    why_not: dict[str, list[str]] = {}
    for run in placement.runs:
        if run.problem:
            why_not.setdefault(output.shortened(run.problem), []).append(run.planner)
    output.print_remarks(out, [f"{', '.join(names)}: {problem}" for problem, names in why_not.items()])
    devices = [
        [
            str(row["rank"]),
            row["device"],
            row["type"],
            str(row["num_ops"]),
            f"{1e3 * row['ops_s']:.3f}",
            f"{1e3 * row['load_s']:.3f}",
            f"{row['memory_bytes'] / 1e9:.2f} of {row['capacity_bytes'] / 1e9:.0f}",
            f"{row['sent_bytes'] / 1e6:,.1f}",
        ]
        for row in placement.device_rows()
    ]
    columns = ["rank", "device", "type", "ops", "ops ms", "load ms", "GB", "sent MB"]
    output.table(out, "Devices that have ops", columns, devices, numbers_from=3, breaks_numbers=False)
    show_summary(out, placement.plan, but="why")
    output.print_remarks(out, [*([placement.placement.note] if placement.placement.note else []), *placement.remarks])
