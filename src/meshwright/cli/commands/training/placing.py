"""What ``meshwright train`` shows of trainings that imitate a search and go on by PPO on whole placements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ... import interrupts, output
from .kept import kept_rows
from .request import TrainRequest

if TYPE_CHECKING:
    from ....training.placing.run import PlacingProgress
    from ....training.placing.settings import PlacingTrainSettings


def train_placing(
    asked: TrainRequest,
    chosen: PlacingTrainSettings,
    train: Callable[..., Any],
    against: str,
    first: tuple[str, int],
) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached.

    Args:
        asked: what the command line says.
        chosen: the config.
        train: `train_operators` or its like.
        against: what the validation is held against.
        first: what is drawn or searched at the start, and how many of it.
    """
    folder, (what, number) = asked.folder(chosen.name), first
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        drawing = bars.add_task(what, total=number, visible=number > 0, note="")
        learning = bars.add_task("imitation, PPO" if chosen.imitation_steps else "PPO", total=chosen.total_updates, note="")

        def prepared(done: int, total: int) -> None:
            check_interrupt()
            bars.update(drawing, completed=done, total=total)

        def report(now: PlacingProgress) -> None:
            check_interrupt()
            note = asked.note(now.value, now.best, lambda value: f"{value:.3f}", f"over {against}")
            bars.update(learning, completed=now.update, note=note)

        made = train(chosen, folder, progress=report, prepared=prepared, **asked.arguments())
    curve = asked.curve(made)
    about = kept_rows(
        curve,
        "validation",
        f"validation over {against}",
        lambda value: f"{value:.3f}",
        lambda row: f"after {row['update']:,} updates",
        made.policy.name,
        "of the untrained network",
    )
    rows = [["updates, steps of the imitation among them", f"{curve[-1]['update']:,}"], *about]
    asked.show(made, f"Trained {chosen.name}", curve, rows)
