"""`BatchVectorEnv`: the vector environment of all worlds, with Gymnasium's three ways to reset, its seeds and its form of infos.

``gymnasium.make_vec`` builds one where an id has a ``vector_entry_point``. It shows what Gymnasium's own vectorisation of as many
single environments shows, bit for bit, and steps them in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ..errors import ConfigError, PolicyError
from .episodes import BatchedEpisodes, Observations, whole_numbers
from .single import check_render_mode, refuse_options

Infos = dict[str, Any]
Stepped = tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Infos]

MODES = [mode.value for mode in AutoresetMode]


class BatchVectorEnv(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """``e`` episodes side by side; a subclass says of what by `make_batch`.

    An episode that is over begins anew

    - in the next step, whose action is passed over and whose reward is 0 (``NextStep``, as Gymnasium does by default);
    - in the same step (``SameStep``). The observation is the first of the new episode. ``infos`` has the last one of the old as
      ``final_obs`` and its info as ``final_info``;
    - or not by itself (``Disabled``), but by ``reset(options={"reset_mask": ...})``.

    Args:
        num_envs: ``e``.
        arguments: as of the single environment.
        autoreset_mode: one of Gymnasium's, or its name.
        render_mode: one of ``metadata["render_modes"]``: `render` gives a frame for each environment.
        options: further arguments of the single environment.

    Attributes:
        batch: the episodes.

    Raises:
        ConfigError: an argument is none of these.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as in the base
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }
    make_batch: ClassVar[Callable[..., BatchedEpisodes]]
    """Makes so many episodes from the arguments of the single environment."""

    def __init__(
        self,
        num_envs: int = 1,
        *arguments: Any,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        if num_envs < 1:
            raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.autoreset_mode = _mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.num_envs, self.render_mode = num_envs, render_mode
        self.batch = type(self).make_batch(num_envs, *arguments, **options)
        self.single_observation_space = self.batch.space
        self.single_action_space = spaces.Discrete(self.batch.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._none = np.zeros(num_envs, np.bool_)
        self._has_begun, self._is_over = self._none.copy(), self._none.copy()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Reset all episodes, or those of a mask.

        Args:
            seed: environment ``i`` has ``seed + i``, or the ``i``-th of as many; without one its generator continues.
            options: nothing but ``reset_mask``, which to begin, ``(e,)``; the others stay as they are.

        Raises:
            ConfigError: another option is given, the mask is none, or there is not one seed for each environment.
        """
        reset_mask = self._reset_mask(dict(options or {}))
        seeds = self._seeds(seed)
        for e in np.flatnonzero(reset_mask).tolist():
            self._restart(e, seeds[e])
        self._has_begun |= reset_mask
        self._is_over &= ~reset_mask
        return self._observations(), self._infos(self._none, reset_mask)

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        """Carry out an action in every environment.

        Returns:
            Observations ``(e, ...)``, rewards, whether episodes terminated and whether they were truncated ``(e,)``, infos.

        Raises:
            PolicyError: not one action for each environment, or one that is no number of an action. Or an episode has not
                begun, or is over where none begins by itself.
        """
        mode, was_over, final = self.autoreset_mode, self._is_over, Infos()
        if not self._has_begun.all() or (mode is AutoresetMode.DISABLED and was_over.any()):
            raise PolicyError("an episode is over or has not begun; reset it first")
        stepped, begun = ~was_over, was_over
        taken, self._was_possible = self.batch.taken(np.where(stepped, whole_numbers(actions, self.num_envs), 0))
        rewards, terminated, truncated = self.batch.advance(taken)
        terminated, truncated = terminated & stepped, truncated & stepped
        self._is_over = terminated | truncated
        if mode is AutoresetMode.SAME_STEP:
            begun = self._is_over
            final = self._final_infos()
            stepped, self._is_over = ~begun, self._none.copy()
        for e in np.flatnonzero(begun).tolist():
            self._restart(e, None)
        infos = {**self._infos(stepped, begun), **final}
        return self._observations(), rewards.astype(np.float64), terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(e, a)``."""
        return self.batch.masks().copy()

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame for each environment; None without a render mode."""
        mode = self.render_mode
        return None if mode is None else tuple(self.batch.frame(e, mode) for e in range(self.num_envs))

    def _restart(self, e: int, seed: int | None) -> None:
        rng = self._rngs[e]
        if rng is None or (seed is not None and not self.batch.ignores_later_seeds):
            rng = self._rngs[e] = seeding.np_random(seed)[0]
        self.batch.reset(e, rng, seed)

    def _infos(self, stepped: NDArray[np.bool_], begun: NDArray[np.bool_]) -> Infos:
        """Return the infos as Gymnasium has them: values ``(e,)``, empty elsewhere, and under ``_name`` where they hold."""
        infos, shown = Infos(), stepped | begun
        for name, values in self.batch.infos(np.flatnonzero(shown).tolist()).items():
            self._note(infos, name, values, shown)
        if stepped.any():
            for name, values in self.batch.step_infos().items():
                self._note(infos, name, values, stepped)
            if self._was_possible is not None:
                self._note(infos, "was_possible", self._was_possible, stepped)
        for e in np.flatnonzero(stepped & self._is_over).tolist():
            self._add_info(infos, self.batch.last_info(e), e)  # by Gymnasium for its subclasses, without a public name
        return infos

    def _note(self, infos: Infos, name: str, values: NDArray[Any], which: NDArray[np.bool_]) -> None:
        """Add an entry, unless it holds nowhere."""
        rows = np.flatnonzero(which).tolist()
        if rows and isinstance(values[rows[0]], dict):
            for e in rows:
                self._add_info(infos, {name: values[e]}, e)
        elif rows:
            empty = np.full(len(which), None, object) if values.dtype == object else np.zeros(len(which), values.dtype)
            empty[which] = values[which]
            infos[name], infos[f"_{name}"] = empty, which.copy()

    def _final_infos(self) -> Infos:
        """Return the last observation and info of each episode that has just ended; nothing where none has."""
        over, last = self._is_over, self.batch.shown()
        if not over.any():
            return {}
        final = np.full(self.num_envs, None, object)
        for e in np.flatnonzero(over).tolist():
            final[e] = {key: values[e].copy() for key, values in last.items()}
        infos = self._infos(over, self._none)
        return {"final_obs": final, "_final_obs": over.copy(), "final_info": infos, "_final_info": over.copy()}

    def _observations(self) -> Observations:
        return {key: values.copy() for key, values in self.batch.shown().items()}

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + e for e in range(self.num_envs)]
        seeds = [None if each is None else int(each) for each in seed]
        if len(seeds) != self.num_envs:
            raise ConfigError(f"one for each of {self.num_envs} environments is wanted", field="seed", value=len(seeds))
        return seeds

    def _reset_mask(self, options: dict[str, Any]) -> NDArray[np.bool_]:
        mask = options.pop("reset_mask", None)
        refuse_options(options, ["reset_mask"])
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        reset_mask = np.asarray(mask)
        if reset_mask.dtype != np.bool_ or reset_mask.shape != (self.num_envs,) or not reset_mask.any():
            problem = f"must say of each of {self.num_envs} environments whether it begins, and of one that it does"
            raise ConfigError(problem, field="options.reset_mask", value=f"{reset_mask.dtype} of shape {reset_mask.shape}")
        return reset_mask


def _mode(mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        raise ConfigError("unknown way of beginning anew", field="autoreset_mode", value=mode, choices=MODES) from None
