"""What places ops, by name: planners, constant rules, learned policies, and what users write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...envs.operators.batch import PlacementBatch
from ...envs.operators.observation import new_placement_observations, observe_placements
from ...errors import PlanError, PolicyError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.own_policy import OWN, own_policy, possible_choice
from ...planners.policy import Policy, WorldDecision
from ...planners.policy_names import budget_in, parsed
from ...simulation.operators.decisions.candidates import CANDIDATE_FEATURES
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement

CONSTANTS = ("fastest-device", "round-robin")
"""``fastest-device``: each group on the fastest device that memory allows; ``round-robin``: in turns, in topological order."""


Instance = TypeVar("Instance")
Placement = TypeVar("Placement")


@dataclass(frozen=True)
class PlacingPolicy(Generic[Instance, Placement]):
    """A policy that places whole instances.

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


OperatorPolicySpec = PlacingPolicy[OperatorInstance, OperatorPlacement]
"""A policy that gives ops devices."""


def operator_policy(spec: str, objective: OperatorObjective) -> OperatorPolicySpec:
    """A planner (``annealing@SECONDS`` for those that search), a constant, or a learned policy.

    A learned one is a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@greedy`` (by default), ``@sample-K``,
    ``@search-SECONDS`` or ``@shuffled`` behind it.

    Raises:
        PolicyError: no such name, or not for this objective.
        CheckpointError: the file holds no policy of operator placement.
    """
    name, *_, how = parsed(spec)
    if name in PLACEMENT_PLANNERS:
        budget_s = budget_in(spec, how) if how or PLACEMENT_PLANNERS[name].is_search else None

        def plan(instance: OperatorInstance, seed: int) -> OperatorPlacement:
            return place(instance, name, PlacementRequest(objective=objective, budget_s=budget_s, seed=seed))

        if objective not in PLACEMENT_PLANNERS[name].objectives:
            able = [each for each, planner in PLACEMENT_PLANNERS.items() if objective in planner.objectives]
            raise PolicyError(f"does not plan for {objective}", field="policy", value=spec, choices=able)
        kind = "planner" if PLACEMENT_PLANNERS[name].is_search or PLACEMENT_PLANNERS[name].is_exact else "baseline"
        return OperatorPolicySpec(spec, kind, plan)
    if name in CONSTANTS and not how:
        return OperatorPolicySpec(
            spec, "baseline", lambda instance, seed: place_by(ConstantRule(name, instance), instance, objective, seed)
        )
    if spec.startswith(OWN):
        own = own_policy(spec)
        return OperatorPolicySpec(spec, "own", lambda instance, seed: place_by(own(instance), instance, objective, seed))
    from ...models.operators.player import load_player  # takes a while, and planners need no network

    player, mode = load_player(spec, objective)
    return OperatorPolicySpec(spec, "learned", lambda instance, seed: player.place(instance, mode, seed), player.trained)


class ConstantRule:
    """One of `CONSTANTS`; it looks at nothing but speeds and memory."""

    observes = False

    def __init__(self, name: str, instance: OperatorInstance) -> None:
        self.name, self._turn = name, 0
        ratio = np.where(np.isfinite(instance.times_s), instance.times_s, np.nan)
        self._by_speed = np.argsort(np.nan_to_num(np.nanmean(ratio, axis=0), nan=np.inf), kind="stable")

    def reset(self, seed: int) -> None:
        """Begin with the first device again."""
        self._turn = 0

    def choose(self, decision: WorldDecision, observation: Mapping[str, NDArray[Any]]) -> int:
        """See `planners.policy.Policy`."""
        num_devices = len(decision.mask)
        wanted = self._by_speed if self.name == "fastest-device" else np.roll(np.arange(num_devices), -self._turn)
        device = next(int(each) for each in wanted if decision.mask[each])
        self._turn = (device + 1) % num_devices
        return device


def place_by(policy: Policy, instance: OperatorInstance, objective: OperatorObjective, seed: int) -> OperatorPlacement:
    """Place an instance by a policy that chooses a device for one group of ops after another.

    Its decisions have the features ``device``, ``op_s``, the seconds of the group on each device, and `CANDIDATE_FEATURES`.

    Raises:
        PlanError: memory leaves no device for some op.
        PolicyError: the policy chose a device that the ops may not have.
    """
    batch, all_devices = PlacementBatch([instance], objective, 1), np.arange(instance.num_devices)
    batch.begin(np.zeros(1, np.int64))
    seen = new_placement_observations(1, instance.num_ops, instance.num_devices)

    def figures() -> dict[str, NDArray[Any]]:
        op_s = instance.times_s[instance.group == instance.group[batch.lead[0]]].sum(axis=0)
        features = zip(CANDIDATE_FEATURES, batch.state.candidates[0].T.copy(), strict=True)
        return {"device": all_devices, "op_s": op_s, **dict(features)}

    def observe() -> dict[str, NDArray[Any]]:
        observe_placements(batch.stacked, batch.state, batch.lead, np.ones(1, np.bool_), seen)
        return {name: values[0].copy() for name, values in seen._asdict().items()}

    policy.reset(seed)
    while batch.is_live[0]:
        decision = WorldDecision(instance, batch.state.can_place[0].astype(np.bool_), figures)
        batch.step(np.array([possible_choice(policy, decision, observe)]))
    if batch.is_dead[0]:
        raise PlanError("memory leaves no device for some op", field=policy.name, value=instance.name)
    return batch.placement(0, policy.name)
