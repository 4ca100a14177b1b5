"""What groups devices into stages, by name: searches, learned policies, and what users write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...envs.tasklets.batch import FillingBatch
from ...envs.tasklets.observation import new_filling_observations, observe_filling, observe_network
from ...planners.arrangement.arrange import SOLVERS, ArrangementRequest, arrange
from ...planners.own_policy import OWN, own_policy, possible_choice
from ...planners.policy import Policy, WorldDecision
from ...planners.policy_names import parsed
from ...simulation.tasklets.filling import CANDIDATE_FEATURES
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets
from ..operators.policies import PlacingPolicy, searching_s

TaskletPolicySpec = PlacingPolicy[TaskletInstance, TaskletPlacement]
"""A policy that groups the devices of networks."""


def tasklet_policy(spec: str) -> TaskletPolicySpec:
    """A solver of `planners.arrangement.arrange`, with ``@SECONDS`` behind it (1 by default), or a learned policy.

    A learned one is a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@greedy`` (by default), ``@sample-K`` or
    ``@search-SECONDS`` behind it.

    Raises:
        PolicyError: no such name, or no such budget.
        CheckpointError: the file holds no policy of tasklets.
    """
    name, *_, how = parsed(spec)
    if name in SOLVERS:
        budget_s = searching_s(spec, how)
        return TaskletPolicySpec(
            spec, "baseline", lambda instance, seed: arrange(instance, ArrangementRequest(budget_s, seed, name))
        )
    if spec.startswith(OWN):
        own = own_policy(spec)
        return TaskletPolicySpec(spec, "own", lambda instance, seed: fill_by(own(instance), instance, seed))
    from ...models.tasklets.player import load_tasklet_player  # takes a while, and searches need no network

    player, mode = load_tasklet_player(spec)
    return TaskletPolicySpec(spec, "learned", lambda instance, seed: player.place(instance, mode, seed), dict(player.trained))


def fill_by(policy: Policy, instance: TaskletInstance, seed: int) -> TaskletPlacement:
    """Group the devices of a network by a policy that chooses which device joins the stage that is being filled.

    Its decisions have the features ``device``, ``stage``, the number of that stage, and `CANDIDATE_FEATURES`. The order in which
    the stages follow each other is the best one, as of every other policy.

    Raises:
        PolicyError: the policy chose a device that is in a stage already.
    """
    batch, seen = FillingBatch([instance], 1), new_filling_observations(1, instance.num_devices)
    batch.begin(np.zeros(1, np.int64))
    observe_network(batch.stacked, batch.state, 0, seen)
    all_devices = np.arange(instance.num_devices)

    def figures() -> dict[str, NDArray[Any]]:
        stage = np.full(instance.num_devices, batch.state.num_joined[0] // instance.num_replicas)
        features = zip(CANDIDATE_FEATURES, batch.state.candidates[0].T.copy(), strict=True)
        return {"device": all_devices, "stage": stage, **dict(features)}

    def observe() -> dict[str, NDArray[Any]]:
        observe_filling(batch.stacked, batch.state, np.ones(1, np.bool_), seen)
        return {name: values[0].copy() for name, values in seen._asdict().items()}

    policy.reset(seed)
    while batch.is_live[0]:
        decision = WorldDecision(instance, batch.state.can_join[0].astype(np.bool_), figures)
        batch.step(np.array([possible_choice(policy, decision, observe)]))
    return placed_tasklets(instance, batch.stages(0), policy.name)
