"""``meshwright train`` with a config of ``method: fleet``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .... import files, settings
from ....errors import CheckpointError, ConfigError
from ... import interrupts, output

if TYPE_CHECKING:
    from ....settings import AnySettings
    from ....training.fleet.train import FleetProgress


def train_fleet_policy(
    config: Path | None,
    changes: Sequence[str],
    resume: Path | None,
    out: Path | None,
    overwrite: bool,
    graphs: Path | None,
    json_file: str | None,
) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.fleet.settings import FleetTrainSettings

    chosen = chosen_settings(FleetTrainSettings, config, changes, resume, graphs, "a fleet")
    folder = resume or out or Path("runs") / chosen.name
    if resume is None:
        output.check_folder("--out", folder, is_replaced=True)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....envs.fleet.benchmark import load_fleet_benchmark

        with output.set_up(bars) as priced:
            fleet = load_fleet_benchmark(chosen.benchmark, changes=chosen.changes).build(progress=priced)
        from ....training.fleet.train import train_fleet

        tasks = {stage: bars.add_task(stage, total=100, note="") for stage in ("imitation", "PPO")}

        def report(now: FleetProgress) -> None:
            check_interrupt()
            note = "" if now.value is None else f"{fleet.settings.objective} {now.value:.4g} (best {now.best:.4g})"
            bars.update(tasks[now.stage], completed=100 * now.done, note=note)

        command = ["meshwright", *sys.argv[1:]]
        made = train_fleet(
            chosen, folder, fleet, resume=resume is not None, overwrite=overwrite, command=command, progress=report
        )
    curve = files.read_json(made.learning_curve)
    rows = [
        ["run folder", str(made.path)],
        ["decisions learned from", f"{curve[-1]['steps']:,}"],
        [f"validation {fleet.settings.objective}, first", f"{curve[0]['validation']:.4g}"],
        [f"validation {fleet.settings.objective}, last", f"{curve[-1]['validation']:.4g}"],
        ["time", f"{curve[-1]['elapsed_s']:.0f} s"],
    ]
    output.write_json(json_file, {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve})
    output.table(output.console(json_file), f"Trained {chosen.name}", ["", ""], rows, numbers_from=2)


def chosen_settings(
    kind: type[AnySettings], config: Path | None, changes: Sequence[str], resume: Path | None, graphs: Path | None, of: str
) -> AnySettings:
    """The config that is given, or that of the run folder that is resumed.

    Raises:
        ConfigError: it is wrong, or profiles are given, which no benchmark ``of`` this kind takes.
        CheckpointError: a run that is resumed is to be changed.
    """
    if graphs is not None:
        raise ConfigError(f"does not go with a benchmark of {of}", field="--graphs", value=str(graphs))
    if resume is not None and changes and config is None:
        raise CheckpointError("a run is resumed as it was begun; leave out --set", file=resume, value=changes[0])
    path = resume / "config.yaml" if config is None and resume is not None else config
    assert path is not None, "one of the two was given"
    return settings.load(kind, path, changes=changes)
