"""``meshwright place``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .... import files
from ....errors import ConfigError, InputFileError
from ... import output
from ...job_options import JobOptions
from ...options import GraphsDir, JsonFile, KeepInputOps, ProfileBatch
from ...plans import show_summary, write_plan

if TYPE_CHECKING:
    from ....planning.place import PlacedOps


def place_job(
    job: Annotated[
        str, typer.Option(metavar="JOB", help="zoo:NAME, a NAME of --graphs, or a path: graph.txt, JSON, config.json.")
    ],
    cluster: Annotated[str, typer.Option(metavar="CLUSTER", help="preset:NAME or a path to YAML.")],
    objective: Annotated[
        str, typer.Option(metavar="NAME", help="latency: the end of one step; throughput: the largest load of a pipeline.")
    ] = "latency",
    by: Annotated[
        str, typer.Option(metavar="PLANNER", help="A planner by name; best: the best of those that end in the budget.")
    ] = "best",
    budget_ms: Annotated[
        float, typer.Option("--budget-ms", metavar="N", help="A search takes so long; best starts no planner after it.")
    ] = 5000.0,
    optimizer: Annotated[
        str, typer.Option(metavar="NAME", help="adam holds 4 bytes for each byte of parameters, sgd 2.")
    ] = "adam",
    forward_only: Annotated[
        bool, typer.Option("--forward-only", help="Only the forward pass runs, and nothing is trained.")
    ] = False,
    in_flight: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Micro-batches whose outputs a device holds; training a pipeline one for each device, else 1."
        ),
    ] = None,
    devices: Annotated[int | None, typer.Option(metavar="N", help="Only the first devices of the cluster.")] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Samples of a step of a zoo model or config.json.")] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Training steps of the job, for exports.")] = 10_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Of planners that draw.")] = 0,
    graphs: GraphsDir = None,
    keep_input_ops: KeepInputOps = False,
    profile_batch: ProfileBatch = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one micro-batch as a Chrome trace, which Perfetto opens.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the ops on their devices, and what crosses, as .svg; with a timeline as .html."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Put each op of a job on a device, for the shortest step or for the fullest pipeline, and say how good that is."""
    from ....planning.place import place

    for option, path in (("--json", json_file), ("--trace", trace), ("--plot", plot)):
        output.check_file(option, path)
    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise InputFileError("the name must end in .svg or .html", field="--plot", value=str(plot))
    if seed < 0:
        raise ConfigError("must be at least 0", field="--seed", value=seed)
    found = place(
        job,
        cluster,
        objective=objective,  # type: ignore[arg-type]
        by=by,
        budget_s=budget_ms / 1e3,
        optimizer=optimizer,  # type: ignore[arg-type]
        forward_only=forward_only,
        in_flight=in_flight,
        num_devices=devices,
        batch_size=batch,
        num_steps=steps,
        seed=seed,
        **JobOptions(graphs, keep_input_ops, profile_batch).arguments(),
    )
    write_plan(json_file, found.plan)
    if trace is not None:
        files.write_json(trace, found.timeline().to_chrome_trace(found.graph))
    if plot is not None:
        from ....evaluation.report.drawing import drawn_placement

        files.write_text(plot, drawn_placement(found, plot.suffix))
    _show(found, json_file)
    output.print_written(output.console(json_file), json_file, trace, plot)


def _show(found: PlacedOps, json_file: str | None) -> None:
    out = output.console(json_file)
    rows = [
        [
            "->" if run.is_taken else "",
            run.planner,
            "-" if run.value_s is None else f"{1e3 * run.value_s:.4f}",
            "-" if run.planning_s is None else f"{run.planning_s:.3f}",
        ]
        for run in found.runs
    ]
    title = f"{found.placement.objective} of {found.plan.job.name} on {found.cluster.name}"
    output.table(out, title, ["", "planner", "value ms", "planning s"], rows, numbers_from=2, breaks_numbers=False)
    why_not: dict[str, list[str]] = {}
    for run in found.runs:
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
        for row in found.device_rows()
    ]
    columns = ["rank", "device", "type", "ops", "ops ms", "load ms", "GB", "sent MB"]
    output.table(out, "Devices that have ops", columns, devices, numbers_from=3, breaks_numbers=False)
    show_summary(out, found.plan, but="why")
    output.print_remarks(out, [*([found.placement.note] if found.placement.note else []), *found.remarks])
