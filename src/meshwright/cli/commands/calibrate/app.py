"""``meshwright calibrate``: constants of the cost model from measurements."""

from __future__ import annotations

import typer

from . import collectives, kernels, measure, sharing

calibrate = typer.Typer(name="calibrate", help="Fit constants of the cost model to measurements.", no_args_is_help=True)


calibrate.command("collectives", short_help="Tables of measured collectives.")(collectives.calibrate_collectives)
calibrate.command("kernels", short_help="What kernels reach on a device.")(kernels.calibrate_kernels)
calibrate.command("measure", short_help="What kernels reach on this machine's GPU.")(measure.measure_device)
calibrate.command("sharing", short_help="How much jobs that share links slow each other down.")(sharing.calibrate_sharing)
