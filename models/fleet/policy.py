"""`FleetActor` as a policy of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.type_aliases import Schedule

from ...envs.fleet.fleet import Fleet
from ..masked_policy import ScorePolicy
from ..settings import FleetNetworkSettings
from .network import FleetActor


class FleetPolicy(ScorePolicy):
    """Scores a fleet's actions by a `FleetActor`.

    Args:
        network: widths.
        fleet: whose menu it plays.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        network: FleetNetworkSettings,
        fleet: Fleet,
        **rest: Any,
    ) -> None:
        self._made_of = network, fleet
        super().__init__(observation_space, action_space, lr_schedule, **rest)

    def make_network(self) -> FleetActor:
        """See `ScorePolicy.make_network`."""
        return FleetActor(*self._made_of)
