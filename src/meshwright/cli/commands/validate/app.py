"""``meshwright validate``: our figures held against figures from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

validate = typer.Typer(
    name="validate",
    help="Hold our figures against figures from elsewhere; exit 1 where one disagrees.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,
)

JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")]


@validate.command(short_help="Finish times of flows by max-min fair sharing.")
def flows(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON of links and flows with their finish times.")],
    max_error: Annotated[
        float | None, typer.Option(metavar="X", help="Relative error up to which a finish time agrees; 1e-9 by default.")
    ] = None,
    latency_first: Annotated[
        bool, typer.Option("--latency-first", help="A flow takes its share only once its first byte has arrived.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Hold finish times of flows against max-min fair sharing of every link."""
    from . import flows as validating_flows

    validating_flows.validate_flows(files, max_error, latency_first, json_file)


@validate.command(short_help="Figures and decision logs of the published PAC-ML simulator.")
def pacml(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON of the published figures and decision logs.")],
    graphs: Annotated[Path, typer.Option("--graphs", metavar="DIR", help="Folder of the profiles DIR/NAME/graph.txt.")],
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Also play the published policies on episodes of our own.")
    ] = False,
    seeds: Annotated[int, typer.Option(metavar="N", help="Episodes of each policy, with --statistics.")] = 10,
    json_file: JsonFile = None,
) -> None:
    """Compute the published PAC-ML figures again and replay the decision logs."""
    from . import pacml as validating_pacml

    validating_pacml.validate_pacml(file, graphs, statistics, seeds, json_file)


@validate.command(short_help="Messages of gloo over shaped wires between network namespaces (as root).")
def network(
    quick: Annotated[bool, typer.Option("--quick", help="A selection that takes less than a minute.")] = False,
    max_mean_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error allowed, alone and with two jobs; 0.1 by default.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Build network namespaces with shaped links, measure gloo over them, and hold our predictions against that."""
    from . import network as validating_network

    validating_network.validate_network(quick, max_mean_error, json_file)


@validate.command(short_help="Measured collectives, of sizes and groups that were left out.")
def collectives(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV of measured collectives, or what nccl-tests wrote.")],
    operation: Annotated[
        str | None, typer.Option(metavar="NAME", help="What an nccl-tests file measures that does not say so itself.")
    ] = None,
    max_mean_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error that the sizes left out may have.")
    ] = None,
    max_mean_group_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error that the group sizes left out may have.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Calibrate on every second size of each table, predict the others, then whole group sizes from their neighbours.

    Exit 1 only where a mean error is larger than an option allows.
    """
    from . import collectives as validating_collectives

    validating_collectives.validate_collectives(file, operation, max_mean_error, max_mean_group_error, json_file)


@validate.command(name="step-times", short_help="Measured training steps of published runs.")
def step_times(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON of published steps, or vTrain's single-host table as CSV.")
    ],
    max_mean_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error that each family may have, as 0.05.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Predict every published step; what a source leaves open is the fastest legal value by the model.

    Exit 1 only where a family's mean error is larger than the option allows. Rows that cannot be priced are listed.
    """
    from . import step_times as validating_step_times

    validating_step_times.validate_step_times(files, max_mean_error, json_file)


@validate.command(short_help="Kernels and layers that were measured on a device.")
def kernels(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What calibrate measure wrote, or h100 for what comes measured.")],
    max_mean_error: Annotated[
        float | None, typer.Option(metavar="X", help="Mean relative error that each family of layers may have, as 0.1.")
    ] = None,
    constants: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What calibrate kernels wrote, or a device's name; by default the device's own."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw what products reach, and predicted over measured, as SVG.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Hold measured kernels that nothing was fitted on, and whole layers, against the constants in use.

    Exit 1 only where the mean error of a family of layers is larger than the option allows.
    """
    from . import kernels as validating_kernels

    validating_kernels.validate_kernels(file, max_mean_error, constants, plot, json_file)
