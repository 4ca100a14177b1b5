"""``meshwright calibrate sharing``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import interrupts, output
from ...options import JsonFile

NAMES = ("a", "b", "h", "t")

if TYPE_CHECKING:
    from ....evaluation.validation.sharing.simulated_sets import SimulatedSet


def calibrate_sharing(
    sets: Annotated[int, typer.Option(metavar="N", min=2, help="Sets of jobs to simulate, half of either seed.")] = 250,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that keeps simulated sets, so that a later call goes on.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Fit the constants of the sharing model to simulated sets of jobs, and print them beside those in use.

    Other sets than those that validate sharing draws.
    """
    output.check_file("--json", json_file)
    import numpy as np

    from ....evaluation.validation.sharing.fit import fit
    from ....evaluation.validation.sharing.validate import FITTED_SEEDS, sharing_errors, simulated
    from ....simulation.fleet.sharing import CONSTANTS

    out = output.console(json_file)
    run: list[SimulatedSet] = []
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        report = output.phases(bars, check_interrupt)
        for place, seed in enumerate(FITTED_SEEDS):
            run += simulated((sets + 1 - place) // 2, seed, keep, report)
    lines, data = [], {}
    for name, constants in (("fitted", fit(run)), ("in use", CONSTANTS)):
        errors = np.abs(sharing_errors(run, constants))
        mean, p95 = float(errors.mean()), float(np.quantile(errors, 0.95))
        lines.append([name, *(f"{value:.2f}" for value in constants), f"{100 * mean:.1f} %", f"{100 * p95:.1f} %"])
        data[name.replace(" ", "_")] = {"constants": constants.tolist(), "mean_error": mean, "p95_error": p95}
    title = f"Constants of the sharing model on {len(run)} simulated sets, and the errors of jobs that share links"
    output.table(out, title, ["", *NAMES, "mean error", "95th percentile"], lines)
    output.write_json(json_file, {"sets": len(run), **data})
    output.print_written(out, json_file)
