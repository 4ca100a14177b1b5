"""The interface of every decider, from a rule of thumb to a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import PolicyError
from ..simulation.cluster.decision import Decision


def checked(choice: object, name: str, num_candidates: int) -> int:
    """A policy's answer as a candidate.

    Raises:
        PolicyError: the answer is no whole number from 0 to ``num_candidates - 1``.
    """
    if isinstance(choice, bool | np.bool_) or not isinstance(choice, int | np.integer) or not 0 <= choice < num_candidates:
        raise PolicyError(f"must choose a candidate 0..{num_candidates - 1}", field=name, value=choice)
    return int(choice)


class Policy(Protocol):
    """Maps a decision to a candidate.

    One that looks at plain figures only may say so by an attribute ``observes = False``; it is then handed no observation,
    which saves making one.

    Attributes:
        name: for tables.
    """

    name: str

    def reset(self, seed: int) -> None:
        """Start an episode; all randomness of the policy follows from the seed."""
        ...

    def choose(self, decision: Decision, observation: Mapping[str, NDArray[Any]]) -> int:
        """The candidate to take; zero rejects the job.

        Args:
            decision: the job and its candidates in plain figures.
            observation: the same as an agent sees it (see `envs.job_partitioning.JobPartitioningEnv`).
        """
        ...
