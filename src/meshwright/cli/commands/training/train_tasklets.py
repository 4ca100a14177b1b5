"""``meshwright train`` with a config of ``method: tasklets``."""

from __future__ import annotations

from .placing import train_placing
from .request import TrainRequest


def train_tasklet_policy(asked: TrainRequest) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.tasklets.settings import TaskletTrainSettings

    chosen = asked.settings_without_profiles(TaskletTrainSettings, "tasklets")

    from ....planners.arrangement.arrange import CHAIN
    from ....training.tasklets.train import train_tasklets

    searched = chosen.imitation.networks if chosen.imitation else 0
    train_placing(asked, chosen, train_tasklets, CHAIN, ("networks searched", searched))
