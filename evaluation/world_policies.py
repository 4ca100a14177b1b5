"""Policies of any world of `worlds.registry`, by name: its rules and searches, graph policies, and what users write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..envs.world_env import WorldEpisodes
from ..planners.own_policy import OWN, own_policy, possible_choice
from ..planners.policy import Policy, WorldDecision
from ..planners.policy_names import parsed
from ..worlds.world import World

Instance = TypeVar("Instance")
Placement = TypeVar("Placement")


@dataclass(frozen=True)
class PlacingPolicy(Generic[Instance, Placement]):
    """A policy that decides whole instances.

    Attributes:
        name: as it was asked for.
        kind: ``baseline``, ``planner`` (searches and exact methods), ``learned`` or a user's ``own``.
        place: places an instance; the seed is of what is drawn.
        trained: of a learned policy, on what and how, and the settings of its network.
    """

    name: str
    kind: str
    place: Callable[[Instance, int], Placement]
    trained: dict[str, Any] = field(default_factory=dict)


def world_policy(spec: str, world: World[Any]) -> PlacingPolicy[Any, Any]:
    """Return a rule of the world, a policy of the user's own (``python:MODULE:NAME``), or a learned one.

    A learned one is a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@greedy`` (by default), ``@sample-K``,
    ``@search-SECONDS`` or ``@shuffled`` behind it.

    Raises:
        PolicyError: no such name, or no such way to ask.
        CheckpointError: the file holds no policy of this world.
    """
    name = parsed(spec).whole
    if name in world.rules:
        return PlacingPolicy(spec, "planner" if name in world.planners else "baseline", world.solver(spec))
    if spec.startswith(OWN):
        own = own_policy(spec)
        return PlacingPolicy(spec, "own", lambda instance, seed: placed_by(own, world, instance, seed))
    from ..models.graph.saved_graph_policy import load_graph_player  # takes a while, and searches need no network

    player, mode = load_graph_player(spec, world, world.rules)
    return PlacingPolicy(spec, "learned", lambda instance, seed: player.place(instance, mode, seed), player.trained)


def placed_by(make: Callable[[object], Policy], world: World[Any], instance: Any, seed: int) -> Any:
    """Return the outcome of an instance by a policy that is made for it and chooses one action after another.

    Its decisions have the features of the world's actions by name, and the node of each slot by its type.

    Raises:
        PlanError: the episode ended without a result.
        PolicyError: the policy chose an action that is not possible.
    """
    episodes = WorldEpisodes(1, world, instance=instance, split="test")
    episodes.reset(0, np.random.default_rng(seed), seed)
    batch, spec, played = episodes.batch, world.spec, episodes.batch.played(0)
    policy = make(played)

    def figures() -> dict[str, NDArray[Any]]:
        now = batch.decisions
        nodes = {kind: now.nodes[0, :, slot].copy() for slot, kind in reversed(list(enumerate(spec.slots)))}
        return nodes | batch.figures(0) | dict(zip(spec.action, now.features[0].T.copy(), strict=True))

    def observe() -> dict[str, NDArray[Any]]:
        return {name: values[0].copy() for name, values in episodes.shown().items()}

    policy.reset(seed)
    while batch.is_live[0]:
        decision = WorldDecision(played, batch.decisions.mask[0].copy(), figures)
        episodes.advance(np.array([possible_choice(policy, decision, observe)]))
    return batch.outcome(0, policy.name)
