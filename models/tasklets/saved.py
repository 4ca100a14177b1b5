"""A policy of tasklets on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ... import files
from ...errors import CheckpointError
from ...simulation.tasklets.filling import CANDIDATE_FEATURES, PROGRESS_FEATURES
from ..policy_files import check_weights, network_settings, policy_path, shipped_with, with_weights
from ..tensor_file import load_tensors, save_tensors
from .graphs import NUM_DEVICE_FEATURES, NUM_LINK_FEATURES, NUM_NETWORK_FEATURES
from .network import TaskletNetworkSettings
from .policy import TaskletPolicy

KIND = "tasklets"
_ENDING = ".tasklets.pt"
FORMAT_VERSION = 1
FEATURES = files.digest(
    list(CANDIDATE_FEATURES), list(PROGRESS_FEATURES), [NUM_DEVICE_FEATURES, NUM_LINK_FEATURES, NUM_NETWORK_FEATURES]
)


@dataclass(frozen=True, eq=False)
class SavedTaskletPolicy:
    """A policy as it lies on disk.

    Attributes:
        settings: of its network.
        weights: named tensors.
        trained: how: config name, benchmark, seed, updates, figures reached.
    """

    settings: TaskletNetworkSettings
    weights: dict[str, torch.Tensor]
    trained: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: TaskletPolicy, trained: dict[str, Any]) -> SavedTaskletPolicy:
        """A copy of a policy's weights."""
        weights = {name: tensor.detach().cpu().clone() for name, tensor in policy.state_dict().items()}
        return cls(policy.settings, weights, trained)

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        save_tensors(
            path,
            {
                "format_version": FORMAT_VERSION,
                "kind": KIND,
                "features": FEATURES,
                "network": self.settings.model_dump(),
                "weights": self.weights,
                "trained": self.trained,
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> SavedTaskletPolicy:
        """Read a file, or the ``policy.pt`` of a run folder.

        Raises:
            CheckpointError: missing, truncated, or no policy of tasklets of this version.
        """
        file = Path(path) / "policy.pt" if Path(path).is_dir() else Path(path)
        data = load_tensors(file)
        if not isinstance(data, dict) or data.get("kind") != KIND or data.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(f"is no policy of tasklets of version {FORMAT_VERSION}", file=file)
        if data.get("features") != FEATURES:
            raise CheckpointError("was trained on other features than this version observes; train it again", file=file)
        weights, trained = data.get("weights"), data.get("trained")
        if not isinstance(weights, dict) or not isinstance(trained, dict):
            raise CheckpointError("the policy lacks a part", file=file)
        check_weights(weights, file)
        chosen = network_settings(TaskletNetworkSettings, data.get("network"), file)
        return cls(chosen, weights, trained)

    def policy(self, file: str | Path = "policy") -> TaskletPolicy:
        """The policy, ready to play.

        Raises:
            CheckpointError: weights of other shapes than the settings make.
        """
        return with_weights(TaskletPolicy(self.settings), self.weights, file)


def shipped_tasklets() -> list[str]:
    """The trained policies of tasklets that come with the package."""
    return shipped_with(_ENDING)


def tasklet_policy_file(spec: str) -> Path:
    """The run folder or file of a policy, which need not exist; ``shipped:NAME`` comes with the package.

    Raises:
        PolicyError: no such shipped policy of tasklets.
    """
    return policy_path(spec, _ENDING, "tasklets")
