"""``meshwright train`` with a config of ``method: fleet``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ... import interrupts, output
from .kept import kept_rows, written
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
        from ....envs.fleet.objective import is_better

        with output.set_up(bars) as priced:
            fleet, *mixed = (
                load_fleet_benchmark(one, changes=chosen.changes).build(progress=priced) for one in chosen.benchmarks
            )
        built = dict(zip(chosen.benchmarks, (fleet, *mixed), strict=True))
        from ....training.fleet.train import train_fleet

        stages = {"search": chosen.search, "imitation": chosen.imitation, "PPO": chosen.ppo}
        tasks = {stage: bars.add_task(stage, total=100, note="") for stage, there in stages.items() if there is not None}

        def report(now: FleetProgress) -> None:
            check_interrupt()
            note = "" if now.value is None else asked.note(now.value, now.best, written, str(fleet.settings.objective))
            bars.update(tasks[now.stage], completed=100 * now.done, note=note)

        made = train_fleet(chosen, folder, fleet, mixed=mixed, progress=report, **asked.arguments(built))
    curve = asked.curve(made)
    about = kept_rows(
        curve,
        "validation",
        f"validation {fleet.settings.objective}",
        written,
        _where,
        made.policy.name,
        f"of the network {_where(curve[0])}" if {"searched", "cross_entropy"} & set(curve[0]) else "of the untrained network",
        is_less_better=is_better(fleet.settings, 0.0, 1.0),
    )
    asked.show(made, f"Trained {chosen.name}", curve, [["decisions learned from", f"{curve[-1]['steps']:,}"], *about])


def _where(row: Mapping[str, Any]) -> str:
    """At which point of a training a row of its learning curve was written: after a stage, or at a number of decisions of PPO."""
    if "searched" in row:
        return "after the search"
    return "after the imitation" if "cross_entropy" in row else f"at {row['steps']:,} decisions"
