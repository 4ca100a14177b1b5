"""`FleetActor` as a policy of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule

from ..envs.fleet.fleet import Fleet
from .fleet_network import FleetActor
from .masked_policy import CandidatePolicy, NoFeatures
from .settings import FleetNetworkSettings


class FleetPolicy(CandidatePolicy):
    """Scores a fleet's actions by a `FleetActor`; the mask travels in the observation.

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
        MaskableActorCriticPolicy.__init__(
            self, observation_space, action_space, lr_schedule, features_extractor_class=NoFeatures, **rest
        )

    def _build(self, lr_schedule: Schedule) -> None:
        self.network = FleetActor(*self._made_of)  # type: ignore[assignment]
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def set_training_mode(self, mode: bool) -> None:
        """As in Stable-Baselines3."""
        MaskableActorCriticPolicy.set_training_mode(self, mode)
