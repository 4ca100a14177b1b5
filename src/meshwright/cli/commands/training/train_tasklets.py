"""``meshwright train`` with a config of ``method: tasklets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import interrupts, output
from .request import TrainRequest

if TYPE_CHECKING:
    from ....training.tasklets.train import TaskletProgress


def train_tasklet_policy(asked: TrainRequest) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.tasklets.settings import TaskletTrainSettings

    chosen = asked.settings_without_profiles(TaskletTrainSettings, "tasklets")
    folder = asked.folder(chosen.name)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....planners.arrangement.arrange import CHAIN
        from ....training.tasklets.train import train_tasklets

        total = chosen.imitation.networks if chosen.imitation else 0
        drawing = bars.add_task("networks searched", total=total, visible=total > 0, note="")
        learning = bars.add_task("imitation, PPO" if chosen.imitation else "PPO", total=chosen.total_updates, note="")

        def searching(done: int, total: int) -> None:
            check_interrupt()
            bars.update(drawing, completed=done, total=total)

        def report(now: TaskletProgress) -> None:
            check_interrupt()
            note = f"{now.value:.3f} of {CHAIN} (best {now.best:.3f})"
            bars.update(learning, completed=now.update, note=note)

        made = train_tasklets(
            chosen,
            folder,
            resume=asked.resume is not None,
            overwrite=asked.overwrite,
            command=asked.command,
            progress=report,
            searching=searching,
            callbacks=asked.callbacks(),
        )
    curve = asked.curve(made)
    best = min(curve, key=lambda row: row["validation"])
    rows = [
        ["updates, steps of the imitation among them", f"{curve[-1]['update']:,}"],
        [f"validation over {CHAIN}, untrained", f"{curve[0]['validation']:.3f}"],
        [f"validation over {CHAIN}, best", f"{best['validation']:.3f} after {best['update']:,} updates (kept as policy.pt)"],
    ]
    asked.show(made, f"Trained {chosen.name}", curve, rows)
