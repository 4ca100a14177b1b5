"""``meshwright train`` with a config of ``method: graph``."""

from __future__ import annotations

from .placing import train_placing
from .request import TrainRequest


def train_graph_policy(asked: TrainRequest) -> None:
    """Train, or continue, and say where the run folder is and what the policy reached.

    Raises:
        ConfigError: the config is wrong, or profiles are given.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.graph.settings import GraphTrainSettings

    chosen = asked.settings_without_profiles(GraphTrainSettings, "graph")

    from ....training.graph.train import train_graph
    from ....worlds.registry import load_world

    searched = chosen.imitation.instances if chosen.imitation else 0
    against = load_world(chosen.benchmark, chosen.changes).reference_name
    train_placing(asked, chosen, train_graph, against, ("instances searched", searched))
