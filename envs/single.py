"""`EpisodeEnv`: one episode of any world as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ..errors import ConfigError, PolicyError
from .episodes import BatchedEpisodes, Observations


class EpisodeEnv(gymnasium.Env[Observations, np.int64]):
    """Play one episode after another; a subclass says of what by `make_batch`, and its docstring what it shows.

    Args:
        arguments: of what is played, see the subclass.
        render_mode: one of ``metadata["render_modes"]``.
        options: further ones, by name.

    Raises:
        ConfigError: an argument is none of these.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as in the base

    make_batch: ClassVar[Callable[..., BatchedEpisodes]]
    """Makes so many episodes from the arguments of the environment."""

    def __init__(self, *arguments: Any, render_mode: str | None = None, **options: Any) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        batch = type(self).make_batch(1, *arguments, **options)
        self._batch, self.render_mode = batch, render_mode
        self._has_begun, self._is_over = False, True
        self.observation_space: spaces.Space[Any] = batch.space
        self.action_space = spaces.Discrete(batch.num_actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Start an episode; the same seed starts the same one, and without one the generator continues.

        Raises:
            ConfigError: any option is given; there are none.
        """
        is_ignored = self._batch.ignores_later_seeds and self._has_begun
        super().reset(seed=None if is_ignored else seed)
        refuse_options(options)
        self._batch.reset(0, self.np_random, seed)
        self._has_begun, self._is_over = True, False
        return self._observation(), self._batch.info(0)

    def step(self, action: np.int64 | int) -> tuple[Observations, SupportsFloat, bool, bool, dict[str, Any]]:
        """Carry out a decision and go to the next one.

        Raises:
            PolicyError: the action is no number of one, or the episode is over or has not begun.
        """
        if self._is_over:
            raise PolicyError("the episode is over or has not begun; reset the environment first")
        batch = self._batch
        actions, was_possible = batch.taken(np.array([action]))
        rewards, terminated, truncated = batch.advance(actions)
        has_ended, is_cut = bool(terminated[0]), bool(truncated[0])
        self._is_over = has_ended or is_cut
        info = {**batch.info(0), **batch.step_info(0)}
        if was_possible is not None:
            info["was_possible"] = bool(was_possible[0])
        if self._is_over:
            info |= batch.last_info(0)
        return self._observation(), float(rewards[0]), has_ended, is_cut, info

    def render(self) -> Any:
        """Return the episode as a frame of the render mode; None without one."""
        return None if self.render_mode is None else self._begun().frame(0, self.render_mode)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(a,)``; sb3-contrib asks for it by this name."""
        possible: NDArray[np.bool_] = self._begun().masks()[0].copy()
        return possible

    def _begun(self) -> BatchedEpisodes:
        """Return the episode.

        Raises:
            PolicyError: none has begun.
        """
        if not self._has_begun:
            raise PolicyError("no episode has begun; reset the environment first")
        return self._batch

    def _observation(self) -> Observations:
        return {key: values[0].copy() for key, values in self._batch.shown().items()}


def check_render_mode(mode: str | None, modes: Sequence[str]) -> None:
    """Refuse a render mode that an environment does not have.

    Raises:
        ConfigError: it has none of this name.
    """
    if mode is not None and mode not in modes:
        raise ConfigError("unknown render mode", field="render_mode", value=mode, choices=modes)


def refuse_options(options: Mapping[str, Any] | None, choices: Sequence[str] = ()) -> None:
    """Refuse options of ``reset`` where an environment has none of them.

    Raises:
        ConfigError: one is given that it does not have.
    """
    for name in options or ():
        if name not in choices:
            raise ConfigError("unknown reset option", value=name, choices=choices)
