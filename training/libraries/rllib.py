"""`ScorerRLModule`: a network for RLlib's PPO that scores candidates and keeps to the mask.

RLlib makes the environments by itself: ``config.environment("meshwright:meshwright/JobPartitioning-v0")`` with
``gym_env_vectorize_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT`` steps all episodes of a runner in one compiled call.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor

from .scorer import CandidateScorer


class ScorerRLModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """A `CandidateScorer` as a module of RLlib; ``model_config={"width": ...}`` is its width (64)."""

    def setup(self) -> None:
        """See RLlib."""
        space, chosen = self.observation_space, self.model_config
        assert isinstance(space, spaces.Dict)
        self.scorer = CandidateScorer(space, chosen.get("width", 64) if isinstance(chosen, dict) else 64)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        return {Columns.ACTION_DIST_INPUTS: self.scorer(batch[Columns.OBS])[0]}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """Values of states, ``(b,)``."""
        values: Tensor = self.scorer(batch[Columns.OBS])[1]
        return values
