"""`SavedPolicy`: a network on disk, of any kind.

A file holds widths and weights, the names of the features that the weights read, and how the policy was trained. It
is read by `tensor_file`, so a file from elsewhere neither runs code nor asks for more memory than it is long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from .. import settings as configs
from ..errors import CheckpointError, ConfigError
from .tensor_file import load_tensors, save_tensors

READS = "features"
"""Key of the digest of the features that a network reads."""


@dataclass(frozen=True, eq=False)
class SavedPolicy:
    """A network as it lies on disk; each kind derives from it.

    Attributes:
        settings: widths.
        weights: named tensors.
        trained: how it was trained, plain data (config name, benchmark, seed, steps, figures reached).
        file: where it was read from, for messages.
    """

    settings: Any
    weights: dict[str, torch.Tensor]
    trained: dict[str, Any] = field(default_factory=dict)
    file: str | None = None

    head: ClassVar[dict[str, Any]]
    """The first entries of every file of the kind."""
    refused: ClassVar[str]
    """The error of a file without them."""
    widths: ClassVar[type[configs.Settings]]

    @classmethod
    def from_network(cls, network: Any, trained: dict[str, Any], **more: Any) -> Self:
        """Return a copy of a network's weights."""
        weights = {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
        return cls(network.settings, weights, trained, **more)

    def to_data(self) -> dict[str, Any]:
        """Return what `tensor_file.save_tensors` writes."""
        return {**self.head, "network": self.settings.model_dump(), "weights": self.weights, "trained": self.trained}

    @classmethod
    def from_data(cls, data: Any, file: str | Path, **more: Any) -> Self:
        """Return the policy that `to_data` described.

        Args:
            data: of the file.
            file: for messages.
            more: further attributes of the kind.

        Raises:
            CheckpointError: of another kind or version, for other features, with missing parts, or weights that are not finite.
        """
        kind = {key: value for key, value in cls.head.items() if key != READS}
        if not isinstance(data, dict) or any(data.get(key) != value for key, value in kind.items()):
            raise CheckpointError(cls.refused, file=file)
        for part in (*cls.head, "network", "weights", "trained"):
            if part not in data:
                raise CheckpointError("the policy lacks a part", file=file, field=part)
        if READS in cls.head and data[READS] != cls.head[READS]:
            raise CheckpointError("was trained on other features than this version observes; train it again", file=file)
        try:
            widths = configs.build_settings(cls.widths, data["network"])
        except ConfigError as error:
            raise CheckpointError(error.problem, file=file, field=f"network.{error.field}", value=error.value) from None
        weights, trained = data["weights"], data["trained"]
        if not isinstance(weights, dict) or not isinstance(trained, dict):
            raise CheckpointError("a part of the policy is not what it should be", file=file)
        for name, tensor in weights.items():
            if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
                raise CheckpointError("holds something other than finite numbers", file=file, field=f"weights.{name}")
        return cls(widths, weights, trained, str(file), **more)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file, or the ``policy.pt`` of a run folder.

        Raises:
            CheckpointError: missing, truncated or no policy of this kind.
        """
        file = policy_file(path)
        return cls.from_data(load_tensors(file), file)

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        save_tensors(path, self.to_data())


def policy_file(path: str | Path) -> Path:
    """Return a file, or the ``policy.pt`` of a run folder."""
    return Path(path) / "policy.pt" if Path(path).is_dir() else Path(path)
