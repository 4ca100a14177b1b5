"""``meshwright calibrate``: constants of the cost model from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

calibrate = typer.Typer(
    name="calibrate",
    help="Fit constants of the cost model to measurements.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,
)


@calibrate.callback()
def about() -> None:
    """Fit constants of the cost model to measurements."""


@calibrate.command(short_help="Tables of measured collectives.")
def collectives(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="What nccl-tests wrote (text, or JSON by -J), or CSV of its times.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML or JSON to write; NAME.yaml in this folder by default.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the system; by default its device's.")] = None,
    operation: Annotated[
        str | None, typer.Option(metavar="NAME", help="What an nccl-tests file measures that does not say so itself.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which devices, where the files tell of several or of none.")
    ] = None,
    library_version: Annotated[
        str | None, typer.Option(metavar="V", help="Which version of the library, where the files tell of several.")
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep every second size only, to hold the others against.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
) -> None:
    """Read measured collectives and write a system's tables, for costs with collectives: measured."""
    from . import collectives as calibrating_collectives

    calibrating_collectives.calibrate_collectives(files, out, name, operation, device, library_version, half, json_file)


@calibrate.command(short_help="What kernels reach on a device.")
def kernels(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="What calibrate measure wrote, or h100 for what comes measured; or, for the A100's constants, the JSON with "
            "the times of one layer, and vTrain's table as CSV.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the constants as YAML, for costs with kernels: FILE.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
) -> None:
    """Fit the kernels' constants, and print them beside those in use.

    Of measured kernels every second row is fitted on; validate kernels shows the others and whole layers.
    """
    from . import kernels as calibrating_kernels

    calibrating_kernels.calibrate_kernels(files, out, json_file)


@calibrate.command(short_help="What kernels reach on this machine's GPU.")
def measure(
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML to write; DEVICE-kernels.yaml in this folder by default.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Device type; by default the one that the GPU's name holds.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few items of each family, in seconds.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the random operands.")] = 0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
) -> None:
    """Measure products, attention, sweeps, whole layers and networks on the GPU that torch sees, in minutes."""
    from . import measure as calibrating_measured

    calibrating_measured.measure_device(out, device, quick, seed, json_file)
