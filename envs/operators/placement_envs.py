"""The environments of ``meshwright/OperatorPlacement-v0``: those of ops, and of a benchmark of tasklets that of its world."""

from __future__ import annotations

from typing import Any

from ...worlds.registry import world_key
from ...worlds.world import World
from ..world_env import WorldEnv, WorldVectorEnv
from .env import OperatorPlacementEnv
from .vector_env import PlacementVectorEnv


def placement_env(benchmark: Any = None, **options: Any) -> OperatorPlacementEnv | WorldEnv:
    """Return the environment of a benchmark; the options are those of its class. Without a benchmark, the default one of ops."""
    given: dict[str, Any] = options if benchmark is None else {"benchmark": benchmark, **options}
    return WorldEnv(**given) if _is_of_world(benchmark) else OperatorPlacementEnv(**given)


def placement_vector_env(num_envs: int = 1, benchmark: Any = None, **options: Any) -> PlacementVectorEnv | WorldVectorEnv:
    """Return an environment that plays many episodes at once, of ops or of a world."""
    given: dict[str, Any] = options if benchmark is None else {"benchmark": benchmark, **options}
    return (WorldVectorEnv if _is_of_world(benchmark) else PlacementVectorEnv)(num_envs, **given)


def _is_of_world(benchmark: Any) -> bool:
    return isinstance(benchmark, World) or (isinstance(benchmark, str) and world_key(benchmark) is not None)
