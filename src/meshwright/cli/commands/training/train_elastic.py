"""``meshwright train`` with a config of ``method: elastic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import interrupts, output
from .kept import kept_rows
from .request import TrainRequest

if TYPE_CHECKING:
    from ....training.elastic.search import ElasticSearch


def train_elastic_policy(asked: TrainRequest) -> None:
    """Search, or go on searching, and say where the run folder is and what the weights reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.elastic.settings import ElasticTrainSettings

    chosen = asked.settings_without_profiles(ElasticTrainSettings, "elastic jobs")
    folder = asked.folder(chosen.name)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ....training.elastic.train import train_elastic

        task = bars.add_task("generations", total=chosen.generations, note="")

        def report(now: ElasticSearch) -> None:
            check_interrupt()
            latest, best = (row["validation_mean_completion_s"] for row in (now.curve[-1], now.best))
            note = asked.note(latest, best, lambda value: f"{value:.1f} s", "completion")
            bars.update(task, completed=now.generation, note=note)

        made = train_elastic(chosen, folder, progress=report, **asked.arguments())
    curve = asked.curve(made)
    rows = kept_rows(
        curve,
        "validation_mean_completion_s",
        "validation completion time",
        lambda value: f"{value:.1f} s",
        lambda row: f"after {row['generation']} generations",
        made.policy.name,
        "with weights by hand",
        last="of the last mean",
    )
    asked.show(made, f"Searched {chosen.name}", curve, rows)
