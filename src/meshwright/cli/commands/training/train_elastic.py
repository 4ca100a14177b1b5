"""``meshwright train`` with a config of ``method: elastic``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .... import files
from ... import interrupts, output
from .train_fleet import chosen_settings

if TYPE_CHECKING:
    from ....training.elastic.search import ElasticSearch


def train_elastic_policy(
    config: Path | None,
    changes: Sequence[str],
    resume: Path | None,
    out: Path | None,
    overwrite: bool,
    graphs: Path | None,
    json_file: str | None,
) -> None:
    """Search, or go on searching, and say where the run folder is and what the weights reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.elastic.settings import ElasticTrainSettings

    chosen = chosen_settings(ElasticTrainSettings, config, changes, resume, graphs, "elastic jobs")
    folder = resume or out or Path("runs") / chosen.name
    if resume is None:
        output.check_folder("--out", folder, is_replaced=True)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....training.elastic.train import train_elastic

        task = bars.add_task("generations", total=chosen.generations, note="")

        def report(now: ElasticSearch) -> None:
            check_interrupt()
            latest, best = (row["validation_mean_completion_s"] for row in (now.curve[-1], now.best))
            bars.update(task, completed=now.generation, note=f"completion {latest:.0f} s (best {best:.0f} s)")

        command = ["meshwright", *sys.argv[1:]]
        made = train_elastic(chosen, folder, resume=resume is not None, overwrite=overwrite, command=command, progress=report)
    curve = files.read_json(made.learning_curve)
    best = min(curve, key=lambda row: row["validation_mean_completion_s"])
    reached = f"{best['validation_mean_completion_s']:.1f} s after {best['generation']} generations (kept as policy.json)"
    rows = [
        ["run folder", str(made.path)],
        ["validation completion time", reached],
        ["with weights by hand", f"{curve[0]['validation_mean_completion_s']:.1f} s"],
        ["time", f"{curve[-1]['elapsed_s']:.0f} s"],
    ]
    output.write_json(json_file, {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve})
    output.table(output.console(json_file), f"Searched {chosen.name}", ["", ""], rows, numbers_from=2)
