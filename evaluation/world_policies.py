"""Policies of any world of `worlds.registry`, by name: its rules and searches, graph policies, and what users write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..envs.world_env import WorldEpisodes
from ..planners.own_policy import OWN, own_policy, possible_choice
from ..planners.policy import Policy, WorldDecision
from ..planners.policy_names import parsed
from ..worlds.world import World
from .operators.policies import PlacingPolicy


def world_policy(spec: str, world: World[Any]) -> PlacingPolicy[Any, Any]:
    """Return a rule of the world, a policy of the user's own (``python:MODULE:NAME``), or a learned one.

    A learned one is a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@greedy`` (by default), ``@sample-K``,
    ``@search-SECONDS`` or ``@shuffled`` behind it.

    Raises:
        PolicyError: no such name, or no such way to ask.
        CheckpointError: the file holds no policy of this world.
    """
    if parsed(spec).whole in world.rules:
        return PlacingPolicy(spec, "baseline", world.solver(spec))
    if spec.startswith(OWN):
        own = own_policy(spec)
        return PlacingPolicy(spec, "own", lambda instance, seed: placed_by(own(instance), world, instance, seed))
    from ..models.graph.saved_graph_policy import load_graph_player  # takes a while, and searches need no network

    player, mode = load_graph_player(spec, world, world.rules)
    return PlacingPolicy(spec, "learned", lambda instance, seed: player.place(instance, mode, seed), player.trained)


def placed_by(policy: Policy, world: World[Any], instance: Any, seed: int) -> Any:
    """Return the outcome of an instance by a policy that chooses one action after another.

    Its decisions have the features of the world's actions by name, and the node of each slot by its type.

    Raises:
        PlanError: the episode ended without a result.
        PolicyError: the policy chose an action that is not possible.
    """
    episodes = WorldEpisodes(world, instance, "test", None, 1)
    episodes.begin(0, np.random.default_rng(seed), seed)
    batch, spec = episodes.batch, world.spec

    def figures() -> dict[str, NDArray[Any]]:
        now = batch.decisions
        nodes = {kind: now.nodes[0, :, slot].copy() for slot, kind in reversed(list(enumerate(spec.slots)))}
        return nodes | dict(zip(spec.action, now.features[0].T.copy(), strict=True))

    def observe() -> dict[str, NDArray[Any]]:
        return {name: values[0].copy() for name, values in episodes.observed().items()}

    policy.reset(seed)
    while batch.is_live[0]:
        decision = WorldDecision(instance, batch.decisions.mask[0].copy(), figures)
        batch.step(np.array([possible_choice(policy, decision, observe)]))
    return batch.outcome(0, policy.name)
