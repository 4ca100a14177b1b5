"""`BatchedEpisodes`: what every world offers, so that one environment, one vector environment and one ``VecEnv`` play them all.

Legend: ``e`` episodes, ``a`` actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ..errors import PolicyError

Observations = dict[str, NDArray[Any]]
Columns = dict[str, NDArray[Any]]
"""Entries of infos, ``(e,)`` each."""
Advanced = tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]
"""Rewards, which episodes terminated and which were truncated, ``(e,)`` each."""


class BatchedEpisodes(ABC):
    """``e`` episodes of one decision problem side by side.

    Attributes:
        num_episodes: ``e``.
        ignores_later_seeds: whether all seeds but the first one of an environment are passed over.
    """

    num_episodes: int
    ignores_later_seeds: bool = False

    @property
    def space(self) -> spaces.Dict:
        """Return the observation space of one episode: figures from 0 to 1, but for `other_spaces`."""
        boxes = {key: spaces.Box(0, 1, values.shape[1:], values.dtype.type) for key, values in self.shown().items()}
        return spaces.Dict({**boxes, **self.other_spaces})

    @property
    def other_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Spaces of what is observed otherwise than from 0 to 1, by key."""
        return {}

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """Number of actions, ``a``."""

    @abstractmethod
    def reset(self, e: int, rng: np.random.Generator, seed: int | None = None) -> None:
        """Start the next episode ``e`` from its generator; a seed only where it was given for this episode."""

    @abstractmethod
    def advance(self, actions: NDArray[np.int64]) -> Advanced:
        """Carry out an action ``(e,)`` in each episode that is not over; elsewhere nothing is paid."""

    @abstractmethod
    def shown(self) -> Observations:
        """Return the observations, ``(e, ...)`` each; they may change in place."""

    @abstractmethod
    def masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(e, a)``; it may change in place."""

    @abstractmethod
    def frame(self, e: int, mode: str) -> Any:
        """Return an episode as its users look at it, in one of the environment's render modes."""

    def taken(self, actions: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Return the actions ``(e,)`` that are carried out, the first possible one for each that is not, and which were possible.

        Where nothing is said of the latter, an action that is not possible has a meaning of its own.

        Raises:
            PolicyError: not one whole number for each episode.
        """
        values, mask = whole_numbers(actions, self.num_episodes), self.masks()
        if len(values) == 1:  # as below, without the time that arrays take
            action = int(values[0])
            was_one_possible = 0 <= action < self.num_actions and bool(mask[0, action])
            return (values if was_one_possible else mask.argmax(axis=1)), np.array([was_one_possible])
        inside = (values >= 0) & (values < self.num_actions)
        was_possible = inside & mask[np.arange(len(values)), np.where(inside, values, 0)]
        return np.where(was_possible, values, mask.argmax(axis=1)), was_possible

    def infos(self, which: Sequence[int]) -> Columns:
        """Return the info of some episodes, which have begun; the entries of others do not count."""
        return {}

    def info(self, e: int) -> dict[str, Any]:
        """Return the same of one episode."""
        return {name: values.item(e) for name, values in self.infos((e,)).items()}

    def step_infos(self) -> Columns:
        """Return the further info after a step."""
        return {}

    def step_info(self, e: int) -> dict[str, Any]:
        """Return the same of one episode."""
        return {name: values.item(e) for name, values in self.step_infos().items()}

    def last_info(self, e: int) -> dict[str, Any]:
        """Return the further info of an episode that is over."""
        return {}


def whole_numbers(actions: Any, num_episodes: int) -> NDArray[Any]:
    """Return the actions as an array ``(e,)``.

    Raises:
        PolicyError: not one whole number for each episode.
    """
    values = np.asarray(actions)
    if values.dtype.kind not in "iu" or values.shape != (num_episodes,):
        problem = "an action is one number" if num_episodes == 1 else f"one whole number for each of {num_episodes} is an action"
        raise PolicyError(f"{problem}, a whole one", value=f"{values.dtype} of shape {values.shape}")
    return values
