"""The interface of every decider, from a rule of thumb to a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from ..simulation.decision import Decision


class Policy(Protocol):
    """Maps a decision to a candidate.

    Attributes:
        name: for tables.
    """

    name: str

    def begin(self, seed: int) -> None:
        """Start an episode; all randomness of the policy follows from the seed."""
        ...

    def choose(self, decision: Decision, observation: Mapping[str, NDArray[Any]]) -> int:
        """The candidate to take; zero rejects the job.

        Args:
            decision: the job and its candidates in plain figures.
            observation: the same as an agent sees it (see `envs.job_partitioning.JobPartitioningEnv`).
        """
        ...
