"""``meshwright train`` with a config of ``method: fleet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import interrupts, output
from .request import TrainRequest

if TYPE_CHECKING:
    from ....training.fleet.train import FleetProgress


def train_fleet_policy(asked: TrainRequest) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.fleet.settings import FleetTrainSettings

    chosen = asked.settings_without_profiles(FleetTrainSettings, "a fleet")
    folder = asked.folder(chosen.name)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....envs.fleet.benchmark import load_fleet_benchmark

        with output.set_up(bars) as priced:
            fleet, *mixed = (
                load_fleet_benchmark(one, changes=chosen.changes).build(progress=priced) for one in chosen.benchmarks
            )
        from ....training.fleet.train import train_fleet

        stages = {"search": chosen.search, "imitation": chosen.imitation, "PPO": chosen.ppo}
        tasks = {stage: bars.add_task(stage, total=100, note="") for stage, there in stages.items() if there is not None}

        def report(now: FleetProgress) -> None:
            check_interrupt()
            note = "" if now.value is None else f"{fleet.settings.objective} {now.value:.4g} (best {now.best:.4g})"
            bars.update(tasks[now.stage], completed=100 * now.done, note=note)

        made = train_fleet(chosen, folder, fleet, mixed=mixed, progress=report, **asked.arguments())
    curve = asked.curve(made)
    rows = [
        ["decisions learned from", f"{curve[-1]['steps']:,}"],
        [f"validation {fleet.settings.objective}, first", f"{curve[0]['validation']:.4g}"],
        [f"validation {fleet.settings.objective}, last", f"{curve[-1]['validation']:.4g}"],
    ]
    asked.show(made, f"Trained {chosen.name}", curve, rows)
