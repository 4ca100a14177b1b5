"""``meshwright dev calibrate sharing``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import ConfigError
from ... import interrupts, output
from ...kinds import no_source

NAMES = ("a", "b", "h", "t")

if TYPE_CHECKING:
    from ....evaluation.validation.sharing.simulated_sets import SimulatedSet
    from ...key_models import SharingKeys


def calibrate_sharing(sources: Sequence[str], keys: SharingKeys, out: Path | None, json_file: str | None) -> None:
    """Fit the constants of the sharing model to simulated sets of jobs, and print them next to those in use.

    The sets differ from those that validate sharing draws.
    """
    output.check_file("--json", json_file)
    import numpy as np

    from ....evaluation.validation.sharing.fit import fit
    from ....evaluation.validation.sharing.validate import FITTED_SEEDS, sharing_errors, simulated
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
