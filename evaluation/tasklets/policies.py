"""What groups devices into stages, by name: searches and learned policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...planners.arrangement.arrange import SOLVERS, ArrangementRequest, arrange
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement
from ..operators.policies import searching_s


@dataclass(frozen=True)
class TaskletPolicySpec:
    """A policy that groups the devices of networks.

    Attributes:
        name: as it was asked for.
        kind: ``planner`` or ``learned``.
        place: groups the devices of a network; the seed is of what is drawn.
        trained: of a learned policy, how it was made.
    """

    name: str
    kind: str
    place: Callable[[TaskletInstance, int], TaskletPlacement]
    trained: Mapping[str, Any] = field(default_factory=dict)


def tasklet_policy(spec: str) -> TaskletPolicySpec:
    """A solver of `planners.arrangement.arrange`, with ``@SECONDS`` behind it (1 by default), or a learned policy.

    A learned one is a run folder, a ``policy.pt`` or ``shipped:NAME``, with ``@greedy`` (by default), ``@sample-K`` or
    ``@search-SECONDS`` behind it.

    Raises:
        PolicyError: no such name, or no such budget.
        CheckpointError: the file holds no policy of tasklets.
    """
    name, _, how = spec.partition("@")
    if name in SOLVERS:
        budget_s = searching_s(spec, how)
        return TaskletPolicySpec(
            spec, "planner", lambda instance, seed: arrange(instance, ArrangementRequest(budget_s, seed, name))
        )
    from ...models.tasklets.player import load_tasklet_player  # takes a while, and searches need no network

    player, mode = load_tasklet_player(spec)
    return TaskletPolicySpec(spec, "learned", lambda instance, seed: player.place(instance, mode, seed), player.trained)
