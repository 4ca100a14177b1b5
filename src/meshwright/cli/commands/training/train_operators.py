"""``meshwright train`` with a config of ``method: operators``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .... import files
from ... import interrupts, output
from .train_fleet import chosen_settings

if TYPE_CHECKING:
    from ....training.operators.train import OperatorProgress


def train_operator_policy(
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
    from ....training.operators.settings import OperatorTrainSettings

    chosen = chosen_settings(OperatorTrainSettings, config, changes, resume, graphs, "operator placement")
    folder = resume or out or Path("runs") / chosen.name
    if resume is None:
        output.check_folder("--out", folder, is_replaced=True)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....models.operators.player import RULE
        from ....training.operators.train import train_operators

        drawing = bars.add_task("instances", total=chosen.num_training_instances, note="")
        learning = bars.add_task("PPO", total=chosen.updates, note="")

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
            resume=resume is not None,
            overwrite=overwrite,
            command=["meshwright", *sys.argv[1:]],
            progress=report,
            drawn=drawn,
        )
    curve = files.read_json(made.learning_curve)
    best = min(curve, key=lambda row: row["validation"])
    rows = [
        ["run folder", str(made.path)],
        ["updates", f"{curve[-1]['update']:,}"],
        [f"validation over {RULE}, untrained", f"{curve[0]['validation']:.3f}"],
        [f"validation over {RULE}, best", f"{best['validation']:.3f} after {best['update']:,} updates (kept as policy.pt)"],
        ["time", f"{curve[-1]['elapsed_s']:.0f} s"],
    ]
    output.write_json(json_file, {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve})
    output.table(output.console(json_file), f"Trained {chosen.name}", ["", ""], rows, numbers_from=2)
