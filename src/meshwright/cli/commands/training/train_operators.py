"""``meshwright train`` with a config of ``method: operators``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import interrupts, output
from .request import TrainRequest

if TYPE_CHECKING:
    from ....training.operators.train import OperatorProgress


def train_operator_policy(asked: TrainRequest) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.operators.settings import OperatorTrainSettings

    chosen = asked.settings_without_profiles(OperatorTrainSettings, "operator placement")
    folder = asked.folder(chosen.name)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....models.operators.player import RULE
        from ....training.operators.train import train_operators

        drawing = bars.add_task("instances", total=chosen.num_training_instances, note="")
        learning = bars.add_task("imitation, PPO" if chosen.imitation else "PPO", total=chosen.total_updates, note="")

        def drawn(done: int, total: int) -> None:
            check_interrupt()
            bars.update(drawing, completed=done, total=total)

        def report(now: OperatorProgress) -> None:
            check_interrupt()
            note = f"{now.value:.3f} of {RULE} (best {now.best:.3f})"
            bars.update(learning, completed=now.update, note=note)

        made = train_operators(
            chosen,
            folder,
            resume=asked.resume is not None,
            overwrite=asked.overwrite,
            command=asked.command,
            progress=report,
            drawn=drawn,
            callbacks=asked.callbacks(),
        )
    curve = asked.curve(made)
    best = min(curve, key=lambda row: row["validation"])
    rows = [
        ["updates, steps of the imitation among them", f"{curve[-1]['update']:,}"],
        [f"validation over {RULE}, untrained", f"{curve[0]['validation']:.3f}"],
        [f"validation over {RULE}, best", f"{best['validation']:.3f} after {best['update']:,} updates (kept as policy.pt)"],
    ]
    asked.show(made, f"Trained {chosen.name}", curve, rows)
