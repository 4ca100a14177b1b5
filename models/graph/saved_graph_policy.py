"""A graph policy on disk, of any world."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from ...errors import CheckpointError, PolicyError
from ...planners.policy_names import parsed
from ...worlds.world import World
from ..policy_files import SHIPPED, policy_path, shipped_with, with_weights
from ..saved_policy import SavedPolicy
from .graph_network import GraphNetwork
from .graph_player import GraphPlayer, PlayMode
from .hetero_gnn import GraphNetworkSettings

KIND = "graph-policy"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class SavedGraphPolicy(SavedPolicy):
    """A graph policy as it lies on disk.

    Attributes:
        world: name of the world that it plays.
        digest: of that world's spec.
    """

    world: str = ""
    digest: str = ""

    head: ClassVar = {"kind": KIND, "format_version": FORMAT_VERSION}
    refused = f"is no graph policy of version {FORMAT_VERSION}; policies of earlier versions must be trained again"
    widths = GraphNetworkSettings

    @classmethod
    def from_network(cls, network: GraphNetwork, trained: dict[str, Any], **more: Any) -> Self:
        """Return a copy of a network's weights."""
        return super().from_network(network, trained, world=network.spec.name, digest=network.spec.digest, **more)

    def to_data(self) -> dict[str, Any]:
        """See `SavedPolicy`."""
        return super().to_data() | {"world": self.world, "digest": self.digest}

    @classmethod
    def from_data(cls, data: Any, file: str | Path, **more: Any) -> Self:
        """See `SavedPolicy`."""
        saved, names = super().from_data(data, file, **more), {key: data.get(key) for key in ("world", "digest")}
        if not all(isinstance(name, str) for name in names.values()):
            raise CheckpointError("the policy lacks a part", file=file)
        return replace(saved, **names)

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
    mode, saved = PlayMode.from_text(how or "greedy", field), SavedGraphPolicy.load(policy_path(name, ending, world.kind))
    trained = saved.trained | {"network": saved.settings.model_dump(mode="json")}
    return GraphPlayer(saved.network(world, name), world, spec, trained), mode
