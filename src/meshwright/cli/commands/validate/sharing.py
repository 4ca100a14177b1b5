"""``meshwright dev validate sharing`` and ``dev calibrate sharing``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import ConfigError
from ... import interrupts, output
from ...kinds import no_source
from .published import judge

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.validation.sharing.simulated_sets import SimulatedSet
    from ...key_models import HeldSharingKeys, SharingKeys

NAMES = ("a", "b", "h", "t")


def validate_sharing(sources: Sequence[str], keys: HeldSharingKeys, json_file: str | None) -> None:
    """Draw sets of jobs on three clusters, simulate each event by event, and hold the fast model of sharing against that.

    Exit 1 only where an error of all jobs is larger than a key allows.
    """
    no_source(sources)
    from ....evaluation.validation.sharing.validate import validate

    out = output.console(json_file)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        report = output.phases(bars, check_interrupt)
        result = validate(keys.sets, keys.keep, progress=report)
    _show(out, result)
    output.write_json(json_file, result)
    output.print_written(out, json_file)
    every = result["groups"][0]
    mean, tail = "mean error of all jobs", "95th percentile of the error of all jobs"
    judge(out, {mean: every["mean_error"], tail: every["p95_error"]}, {mean: keys.max_mean_error, tail: keys.max_p95_error})


def _show(out: Console, data: dict[str, Any]) -> None:
    keys = [f"{name}{error}_error" for name in ("", "no_sharing_") for error in ("mean", "p95")]
    lines = [[one["group"], str(one["jobs"]), *(f"{100 * one[key]:.1f} %" for key in keys)] for one in data["groups"]]
    columns = ["", "jobs", "mean error", "95th percentile", "without sharing: mean", "95th percentile"]
    title = f"Step times of jobs that share links, {data['sets']} simulated sets, none used to fit constants"
    output.table(out, title, columns, lines)


def calibrate_sharing(sources: Sequence[str], keys: SharingKeys, out: Path | None, json_file: str | None) -> None:
    """Fit the constants of the sharing model to simulated sets of jobs, and print them next to those in use.

    The sets differ from those that validate sharing draws.
    """
    import numpy as np

    from ....evaluation.validation.sharing.validate import FITTED_SEEDS, fit, sharing_errors, simulated
    from ....simulation.fleet.sharing import CONSTANTS

    no_source(sources)
    if out is not None:
        raise ConfigError("constants of sharing are printed, and written by --json", field="--out", value=str(out))
    console = output.console(json_file)
    run: list[SimulatedSet] = []
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        report = output.phases(bars, check_interrupt)
        for place, seed in enumerate(FITTED_SEEDS):
            run += simulated((keys.sets + 1 - place) // 2, seed, keys.keep, report)
    lines, data = [], {}
    for name, constants in (("fitted", fit(run)), ("in use", CONSTANTS)):
        errors = np.abs(sharing_errors(run, constants))
        mean, p95 = float(errors.mean()), float(np.quantile(errors, 0.95))
        lines.append([name, *(f"{value:.2f}" for value in constants), f"{100 * mean:.1f} %", f"{100 * p95:.1f} %"])
        data[name.replace(" ", "_")] = {"constants": constants.tolist(), "mean_error": mean, "p95_error": p95}
    title = f"Constants of the sharing model on {len(run)} simulated sets, and the errors of jobs that share links"
    output.table(console, title, ["", *NAMES, "mean error", "95th percentile"], lines)
    output.write_json(json_file, {"sets": len(run), **data})
    output.print_written(console, json_file)
