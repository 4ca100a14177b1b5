"""A policy of operator placement on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ... import files
from ...envs.operators.benchmark import load_placement_benchmark
from ...errors import CheckpointError, MeshwrightError
from ...simulation.operators.decisions.candidates import CANDIDATE_FEATURES
from ...simulation.operators.generators import DeviceDraw
from ...simulation.operators.placement import OBJECTIVES, OperatorObjective
from ..policy_files import check_weights, network_settings, policy_path, shipped_with, with_weights
from ..tensor_file import load_tensors, save_tensors
from .graphs import NUM_DEVICE_FEATURES, NUM_EDGE_FEATURES, NUM_LINK_FEATURES, NUM_OP_FEATURES, NUM_PAIR_FEATURES
from .network import OperatorNetworkSettings
from .policy import OperatorPolicy

KIND = "operators"
_ENDING = ".operators.pt"
FORMAT_VERSION = 1
FEATURES = files.digest(
    list(CANDIDATE_FEATURES),
    [NUM_OP_FEATURES, NUM_DEVICE_FEATURES, NUM_EDGE_FEATURES, NUM_LINK_FEATURES, NUM_PAIR_FEATURES],
)


@dataclass(frozen=True, eq=False)
class SavedOperatorPolicy:
    """A policy as it lies on disk.

    Attributes:
        settings: of its network.
        objective: for which it was trained.
        weights: named tensors.
        trained: how: config name, benchmark, seed, updates, figures reached.
    """

    settings: OperatorNetworkSettings
    objective: OperatorObjective
    weights: dict[str, torch.Tensor]
    trained: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: OperatorPolicy, objective: OperatorObjective, trained: dict[str, Any]) -> SavedOperatorPolicy:
        """A copy of a policy's weights."""
        weights = {name: tensor.detach().cpu().clone() for name, tensor in policy.state_dict().items()}
        return cls(policy.settings, objective, weights, trained)

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        save_tensors(
            path,
            {
                "format_version": FORMAT_VERSION,
                "kind": KIND,
                "features": FEATURES,
                "objective": self.objective,
                "network": self.settings.model_dump(),
                "weights": self.weights,
                "trained": self.trained,
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> SavedOperatorPolicy:
        """Read a file, or the ``policy.pt`` of a run folder.

        Raises:
            CheckpointError: missing, truncated, or no policy of operator placement of this version.
        """
        file = Path(path) / "policy.pt" if Path(path).is_dir() else Path(path)
        data = load_tensors(file)
        if not isinstance(data, dict) or data.get("kind") != KIND or data.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(f"is no policy of operator placement of version {FORMAT_VERSION}", file=file)
        weights, trained, objective = data.get("weights"), data.get("trained"), data.get("objective")
        if not isinstance(weights, dict) or not isinstance(trained, dict) or objective not in OBJECTIVES:
            raise CheckpointError("the policy lacks a part", file=file)
        if data.get("order", "upward-rank") != "upward-rank" or data.get("refine_steps", 0) != 0:
            raise CheckpointError("places ops in another order or refines placements, which is gone; train it again", file=file)
        if data.get("features") != FEATURES:
            raise CheckpointError("was trained on other features than this version observes; train it again", file=file)
        check_weights(weights, file)
        chosen = network_settings(OperatorNetworkSettings, data.get("network"), file)
        return cls(chosen, objective, weights, trained)

    @property
    def most_slowdown(self) -> float:
        """Times as long as on the fastest device that an op took at most on the slowest one in training."""
        known = self.trained.get("most_slowdown")
        if known is not None:
            return float(known)
        try:  # files from before this was kept
            of = load_placement_benchmark(str(self.trained.get("benchmark")), changes=self.trained.get("changes"))
        except MeshwrightError:
            return DeviceDraw().most_slowdown
        return of.placement.devices.most_slowdown

    def policy(self, file: str | Path = "policy") -> OperatorPolicy:
        """The policy, ready to play.

        Raises:
            CheckpointError: weights of other shapes than the settings make.
        """
        return with_weights(OperatorPolicy(self.settings), self.weights, file)


def shipped_operators() -> list[str]:
    """The trained policies of operator placement that come with the package."""
    return shipped_with(_ENDING)


def operator_policy_file(spec: str) -> Path:
    """The run folder or file of a policy, which need not exist; ``shipped:NAME`` comes with the package.

    Raises:
        PolicyError: no such shipped policy of operator placement.
    """
    return policy_path(spec, _ENDING, "operator placement")
