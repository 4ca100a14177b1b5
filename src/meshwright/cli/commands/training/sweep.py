"""``meshwright sweep``: many training runs with other values of some keys."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .... import files, inputs
from ....errors import CheckpointError, ConfigError
from ... import interrupts, output
from ...options import Changes, JsonFile

if TYPE_CHECKING:
    from ....training.sweeps.settings import SweepSettings
    from ....training.sweeps.study import TrialSummary


def sweep_config(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="YAML of the sweep; left out with --resume.")] = None,
    changes: Changes = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the sweep of a folder.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the sweep; runs/NAME by default.")] = None,
    trials: Annotated[int | None, typer.Option(metavar="N", help="Trials in all, in place of the sweep's.")] = None,
    budget: Annotated[
        float | None, typer.Option("--budget-s", "--budget", metavar="SECONDS", help="Begin no trial after so many seconds.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Trials trained at a time, each in a process.")] = 1,
    json_file: JsonFile = None,
) -> None:
    """Try values of some keys of a training config, and write the best config and a page that shows what mattered."""
    if jobs < 1 or jobs > 256:
        raise ConfigError("must be 1 to 256", field="--jobs", value=jobs)
    if trials is not None and trials < 1:
        raise ConfigError("must be at least 1", field="--trials", value=trials)
    if budget is not None and not budget > 0:
        raise ConfigError("must be a number above 0", field="--budget-s", value=str(budget))
    if resume is not None and (out is not None or config is not None or changes):
        raise ConfigError("goes on as it was begun; leave out CONFIG, --set and --out", field="--resume", value=str(resume))
    if resume is None and config is None:
        raise ConfigError("name the YAML of a sweep, or a folder with --resume", field="CONFIG")
    output.check_file("--json", json_file)
    output.check_folder("--out", out)
    from ....training.sweeps.settings import SweepSettings, config_path, load_sweep
    from ....training.sweeps.study import SWEEP, check_optuna

    if resume is not None:
        if not (resume / SWEEP).is_file():
            raise CheckpointError(f"is no folder of a sweep (it has no {SWEEP})", file=resume)
        inputs.declare_file("--resume", resume / SWEEP, is_update=True)
        chosen = load_sweep(resume / SWEEP)
    else:
        assert config is not None
        chosen = load_sweep(config, tuple(changes or ()))
        inputs.note(config_path(chosen))
    check_optuna()
    if trials is not None:
        chosen = SweepSettings.model_validate({**chosen.model_dump(), "trials": trials})
    _run(chosen, resume or out or Path("runs") / chosen.name, resume is not None, jobs, budget, json_file)


def _run(chosen: SweepSettings, folder: Path, is_resumed: bool, jobs: int, budget_s: float | None, json_file: str | None) -> None:
    """Train the trials with a bar, or a line for each, and print where the best config is."""
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....evaluation.report import sweep_page
        from ....training.sweeps.study import BEST, best_of, importances, is_less_better, measure_of, sweep

        bar = bars.add_task("trials", total=chosen.trials, note="")
        measure, less = measure_of(chosen), is_less_better(chosen)
        best: list[float] = []

        def told(trial: TrialSummary, ended: int) -> None:
            check_interrupt()
            if trial.state == "complete" and trial.value is not None:
                best.append(trial.value)
            reached = "no value" if trial.value is None else f"{measure} {trial.value:.4g}"
            so_far = f"  best {(min if less else max)(best):.4g}" if best else ""
            bars.update(bar, completed=min(ended, chosen.trials), note=f"{measure}{so_far}" if best else "")
            if bars.disable:
                out = sys.stderr if json_file == "-" else sys.stdout
                out.write(f"trial {trial.number:>4}  {trial.state:<8}  {reached}{so_far}\n")
                out.flush()

        trials = sweep(chosen, folder, resume=is_resumed, jobs=jobs, budget_s=budget_s, told=told)
        shares = importances(chosen, folder)
        written = folder / sweep_page.FILE
        files.write_text(written, sweep_page.to_html(chosen, trials, shares, folder, measure=measure, is_less_better=less))
    winner = best_of(trials, is_less_better=less)
    data = {
        "name": chosen.name,
        "measure": measure,
        "best": None if winner is None else winner.number,
        "importances": shares,
        "trials": [asdict(trial) for trial in trials],
    }
    output.write_json(json_file, data)
    console = output.console(json_file)
    rows = [["trials", str(len(trials))], ["pruned", str(sum(trial.state == "pruned" for trial in trials))]]
    if winner is not None:
        rows.append([f"best {measure}", f"{winner.value:.4g} in trial {winner.number}"])
        rows += [[key, str(value)] for key, value in winner.values.items()]
    output.table(console, f"Sweep {chosen.name}", ["", ""], rows, numbers_from=2)
    output.print_written(console, written, folder / BEST if winner is not None else None)
