"""The one interface of whoever decides, in every world: rules, planners, networks and what users write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import PolicyError


def checked(choice: object, name: str, num_candidates: int) -> int:
    """Return a policy's answer as a candidate.

    Raises:
        PolicyError: the answer is no whole number from 0 to ``num_candidates - 1``.
    """
    if isinstance(choice, bool | np.bool_) or not isinstance(choice, int | np.integer) or not 0 <= choice < num_candidates:
        raise PolicyError(f"must choose a candidate 0..{num_candidates - 1}", field=name, value=choice)
    return int(choice)


@dataclass(frozen=True, eq=False)
class WorldDecision:
    """A decision of a fleet, of elastic jobs, of operator placement or of tasklets, of ``a`` actions.

    Attributes:
        world: what is played: a `Fleet`, `ElasticSimulation`, `OperatorInstance` or `TaskletInstance`.
        mask: whether each action is possible, ``(a,)``.
        figures: makes the features, which takes longer than most rules do.
    """

    world: Any
    mask: NDArray[np.bool_]
    figures: Callable[[], Mapping[str, NDArray[Any]]]

    @cached_property
    def features(self) -> Mapping[str, NDArray[Any]]:
        """Figures of each action by name, ``(a,)``, before it is taken; of actions that are not possible they mean nothing."""
        return self.figures()


class Policy(Protocol):
    """Maps a decision to an action.

    One that looks at plain figures only may say so by an attribute ``observes = False``; it is then handed no observation,
    which saves making one.

    Attributes:
        name: for tables.
    """

    name: str

    def reset(self, seed: int) -> None:
        """Start an episode; all randomness of the policy follows from the seed."""
        ...

    def choose(self, decision: Any, observation: Mapping[str, NDArray[Any]]) -> int:
        """Return the number of the action to take; in `JobPartitioning-v0` zero rejects the job.

        Args:
            decision: a `WorldDecision`, in `JobPartitioning-v0` a `simulation.cluster.decision.Decision`.
            observation: the same as an agent sees it, by the keys of the world's environment.
        """
        ...
