"""``meshwright train`` with a config of ``method: operators``."""

from __future__ import annotations

from .placing import train_placing
from .request import TrainRequest


def train_operator_policy(asked: TrainRequest) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.operators.settings import OperatorTrainSettings

    chosen = asked.settings_without_profiles(OperatorTrainSettings, "operator placement")

    from ....models.operators.player import RULE
    from ....training.operators.train import train_operators

    train_placing(asked, chosen, train_operators, RULE, ("instances", chosen.num_training_instances))
