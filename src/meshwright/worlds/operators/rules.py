"""Rules that place ops without a planner, by name, and planners of `planners.operators.place` as a world asks for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...errors import PolicyError
from ...planners.operators.place import PLACEMENT_PLANNERS, TIMED, place
from ...planners.operators.request import PlacementRequest
from ...planners.policy_names import budget_in, parsed
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement
from ..world import World

Solver = Callable[[OperatorInstance, int], OperatorPlacement]

CONSTANTS = ("fastest-device", "round-robin")
"""``fastest-device``: each group on the fastest device that memory allows; ``round-robin``: in turns, in topological order."""


def rule_or_planner(spec: str, world: World[OperatorInstance], objective: OperatorObjective) -> Solver:
    """Return one of `CONSTANTS`, or a planner with ``@SECONDS`` behind its name where these end it.

    Raises:
        PolicyError: it does not plan for this objective, takes no seconds, or these are none.
    """
    name, *_, how = parsed(spec)
    if how is not None and name not in TIMED:
        raise PolicyError("takes no seconds, so that nothing may follow its name", field="policy", value=spec)
    if name in CONSTANTS:
        return _constant(name, world)
    budget_s = budget_in(spec, how) if how or PLACEMENT_PLANNERS[name].is_search else None
    if objective not in PLACEMENT_PLANNERS[name].objectives:
        able = [each for each, one in PLACEMENT_PLANNERS.items() if objective in one.objectives]
        raise PolicyError(f"does not plan for {objective}", field="policy", value=spec, choices=able)
    return lambda instance, seed: place(instance, name, PlacementRequest(objective=objective, budget_s=budget_s, seed=seed))


def _constant(name: str, world: World[OperatorInstance]) -> Solver:
    """Return one of `CONSTANTS`; it looks at nothing but speeds and memory."""

    def placed(instance: OperatorInstance, seed: int) -> OperatorPlacement:
        by_speed, turn = _by_speed(instance), 0
        batch = world.batch(1, 1, world.sizes_of(instance))
        batch.restart([instance])
        while batch.is_live[0]:
            target = by_speed if name == "fastest-device" else np.roll(np.arange(instance.num_devices), -turn)
            device = int(target[batch.decisions.mask[0, target].argmax()])
            turn = (device + 1) % instance.num_devices
            batch.step(np.array([device]))
        placement: OperatorPlacement = batch.outcome(0, name)
        return placement

    return placed


def _by_speed(instance: OperatorInstance) -> NDArray[np.int64]:
    """Return devices by the mean seconds of the ops that they run, the fastest first, ``(m,)``."""
    runs = np.isfinite(instance.times_s)
    mean_s = np.where(runs, instance.times_s, 0.0).sum(axis=0) / np.maximum(runs.sum(axis=0), 1)
    return np.argsort(np.where(runs.any(axis=0), mean_s, np.inf), kind="stable")
