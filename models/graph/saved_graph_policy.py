"""A graph policy on disk, of any world."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...errors import CheckpointError, PolicyError
from ...planners.policy_names import parsed
from ...worlds.world import World
from ..policy_files import SHIPPED, check_weights, network_settings, policy_path, shipped_with, with_weights
from ..tensor_file import load_tensors, save_tensors
from .graph_network import GraphNetwork
from .graph_player import GraphPlayer
from .hetero_gnn import GraphNetworkSettings
from .play_mode import PlayMode

KIND = "graph-policy"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class SavedGraphPolicy:
    """A policy as it lies on disk.

    Attributes:
        world: name of the world that it plays.
        digest: of that world's spec.
        settings: of its network.
        weights: named tensors.
        trained: how: config, benchmark, seed, stages with their steps and validation values.
    """

    world: str
    digest: str
    settings: GraphNetworkSettings
    weights: dict[str, torch.Tensor]
    trained: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, network: GraphNetwork, trained: dict[str, Any]) -> SavedGraphPolicy:
        """Return a copy of a network's weights."""
        weights = {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
        return cls(network.spec.name, network.spec.digest, network.settings, weights, trained)

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        data = {"kind": KIND, "format_version": FORMAT_VERSION, "world": self.world, "digest": self.digest}
        data |= {"network": self.settings.model_dump(), "weights": self.weights, "trained": self.trained}
        save_tensors(path, data)

    @classmethod
    def load(cls, path: str | Path) -> SavedGraphPolicy:
        """Read a file, or the ``policy.pt`` of a run folder.

        Raises:
            CheckpointError: missing, truncated, or no graph policy of this version.
        """
        file = Path(path) / "policy.pt" if Path(path).is_dir() else Path(path)
        data = load_tensors(file)
        if not isinstance(data, dict) or data.get("kind") != KIND or data.get("format_version") != FORMAT_VERSION:
            problem = f"is no graph policy of version {FORMAT_VERSION}; policies of earlier versions must be trained again"
            raise CheckpointError(problem, file=file)
        world, digest, weights, trained = (data.get(name) for name in ("world", "digest", "weights", "trained"))
        if (
            not isinstance(world, str)
            or not isinstance(digest, str)
            or not isinstance(weights, dict)
            or not isinstance(trained, dict)
        ):
            raise CheckpointError("the policy lacks a part", file=file)
        check_weights(weights, file)
        return cls(world, digest, network_settings(GraphNetworkSettings, data.get("network"), file), weights, trained)

    def network(self, world: World[Any], file: str | Path = "policy") -> GraphNetwork:
        """Return the network, ready to play a world.

        Raises:
            CheckpointError: it plays another world, or weights have other shapes than the settings make.
        """
        if self.world != world.spec.name:
            raise CheckpointError(f"plays {self.world}, not {world.spec.name}", file=file)
        if self.digest != world.spec.digest:
            raise CheckpointError("was trained on other features than this version observes; train it again", file=file)
        try:
            network = GraphNetwork(world.spec, self.settings)
        except PolicyError as error:
            raise CheckpointError(
                f"its network cannot be made: {error.problem}", file=file, value=self.settings.encoder
            ) from None
        return with_weights(network, self.weights, file)


def load_graph_player(
    spec: str, world: World[Any], others: Sequence[str] = (), field: str = "policy"
) -> tuple[GraphPlayer, PlayMode]:
    """Return a policy and how it is asked: a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@MODE`` or greedily.

    Args:
        spec: the spelling.
        world: that is played.
        others: names that the caller knows, for the error.
        field: where the spelling is from, for the error.

    Raises:
        PolicyError: no such file or shipped policy, or no such way to ask.
        CheckpointError: the file holds no policy of this world.
    """
    name, *_, how = parsed(spec)
    ending = f".{world.kind}.pt"
    shipped = [SHIPPED + each for each in shipped_with(ending)]
    if name not in shipped and (name.startswith(SHIPPED) or not os.path.exists(name)):
        raise PolicyError("no such solver, file or shipped policy", field=field, value=spec, choices=[*others, *shipped])
    mode, saved = PlayMode.of(how or "greedy", field), SavedGraphPolicy.load(policy_path(name, ending, world.kind))
    trained = saved.trained | {"network": saved.settings.model_dump(mode="json")}
    return GraphPlayer(saved.network(world, name), world, spec, trained), mode
