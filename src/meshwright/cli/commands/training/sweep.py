"""``meshwright train --sweep``: many training runs with other values of some keys."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .... import inputs
from ....errors import CheckpointError, ConfigError
from ... import interrupts, output

if TYPE_CHECKING:
    from ....training.libraries.sweeps import SweepSettings


def sweep_config(
    config: Path | None,
    changes: Sequence[str] | None,
    resume: Path | None,
    out: Path | None,
    budget_s: float | None,
    jobs: str,
    json_file: str | None,
) -> None:
    """Try values of some keys of a training config, and write the best config.

    The arguments are what the options of the command say; after ``budget_s`` seconds no trial begins.
    """
    if not re.fullmatch(r"[0-9]{1,4}", jobs) or not 1 <= int(jobs) <= 256:
        raise ConfigError("must be 1 to 256", field="--jobs", value=jobs)
    if resume is not None and (out is not None or config is not None or changes):
        raise ConfigError("continues as it was begun; leave out CONFIG, --set and --out", field="--resume", value=str(resume))
    if resume is None and config is None:
        raise ConfigError("name the YAML of a sweep, or a folder with --resume", field="CONFIG")
    output.check_file("--json", json_file)
    output.check_folder("--out", out)
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("Optuna is not installed; the extra is: pip install 'meshwright[sweep]'", field="sweep")
    from ....training.libraries.sweeps import STORAGE, SWEEP, load_sweep

    if resume is not None:
        if not (resume / SWEEP).is_file() or not (resume / STORAGE).is_file():
            raise CheckpointError(f"is no folder of a sweep (it has no {SWEEP} and {STORAGE})", file=resume)
        inputs.declare("--resume", resume / SWEEP, is_update=True)
        config = resume / SWEEP
    assert config is not None
    settings = load_sweep(config, tuple(changes or ()))
    inputs.note(Path(settings.config))
    folder = resume or out or Path("runs") / settings.name
    if resume is None and folder.exists() and any(folder.iterdir()):
        raise CheckpointError("holds something already; give another folder, or --resume it", file=folder)
    folder.mkdir(parents=True, exist_ok=True)
    _run(settings, folder, int(jobs), time.monotonic() + (budget_s or float("inf")), json_file)


def _run(settings: SweepSettings, folder: Path, jobs: int, until_s: float, json_file: str | None) -> None:
    """Train the trials with a bar, or a line for each, and print where the best config is."""
    import optuna

    from ....training.libraries.sweeps import BEST, sweep

    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        bar = bars.add_task("trials", total=settings.trials, note="")

        def after(study: optuna.Study) -> None:
            check_interrupt()
            ended = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
            whole = [trial.value for trial in ended if trial.state.name == "COMPLETE"]
            note = f"best {study.best_value:.4g}" if whole else "no value yet"
            bars.update(bar, completed=min(len(ended), settings.trials), note=note)
            if bars.disable:
                output.say_line(json_file, f"{len(ended)} trials have ended  {note}")

        study = sweep(settings, folder, jobs, until_s, after)
    trials = [trial for trial in study.trials if trial.state.is_finished()]
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    best = study.best_trial if complete else None
    shares: dict[str, float] = {}
    if len(complete) >= 4 and len({trial.value for trial in complete}) > 1:
        shares = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    data = {
        "name": settings.name,
        "best": None if best is None else best.number,
        "importances": shares,
        "trials": [
            {
                "number": trial.number,
                "state": trial.state.name.lower(),
                "values": settings.values_of(trial),
                "value": trial.value,
                "validations": trial.intermediate_values,
                "seconds": None if trial.duration is None else trial.duration.total_seconds(),
                "problem": trial.user_attrs.get("problem"),
            }
            for trial in trials
        ],
    }
    output.write_json(json_file, data)
    console = output.console(json_file)
    rows = [["trials", str(len(trials))], ["pruned", str(sum(trial.state.name == "PRUNED" for trial in trials))]]
    if best is not None:
        rows.append(["best value", f"{best.value:.4g} in trial {best.number}"])
        rows += [[key, str(value)] for key, value in settings.values_of(best).items()]
        rows += [[f"importance of {key}", f"{share:.2f}"] for key, share in shares.items()]
    output.table(console, f"Sweep {settings.name}", ["", ""], rows, numbers_from=2)
    output.print_written(console, folder / BEST if best is not None else None)
