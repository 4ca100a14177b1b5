"""`BatchVectorEnv`: what all vector environments share: Gymnasium's three ways to reset, seeds, and the form of infos.

``gymnasium.make_vec`` builds one where an id has a ``vector_entry_point``. It shows what Gymnasium's own vectorisation of as many
single environments shows, bit for bit, and steps them in compiled code.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ..errors import ConfigError, PolicyError
from .single import check_render_mode, refuse_options

Observations = dict[str, NDArray[Any]]
Infos = dict[str, Any]
Stepped = tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Infos]

MODES = [mode.value for mode in AutoresetMode]


class BatchVectorEnv(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """``e`` episodes side by side.

    A subclass has the episodes: `_begin` starts one, `_advance` steps some, `_current`, `_begun_infos` and `_stepped_infos`
    return what is seen of them.

    An episode that is over begins anew

    - in the next step, whose action is passed over and whose reward is 0 (``NextStep``, as Gymnasium does by default);
    - in the same step (``SameStep``): the observation is the first of the new episode, and ``infos`` has the last one of the old
      as ``final_obs`` and its info as ``final_info``;
    - or not by itself (``Disabled``), but by ``reset(options={"reset_mask": ...})``.

    Args:
        num_envs: ``e``.
        observation_space: of one environment.
        action_space: of one environment.
        autoreset_mode: one of Gymnasium's, or its name.
        render_mode: one of ``metadata["render_modes"]``.

    Raises:
        ConfigError: an argument is none of these.
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        autoreset_mode: str | AutoresetMode,
        render_mode: str | None,
    ) -> None:
        modes = self.metadata["render_modes"]
        check_render_mode(render_mode, modes)
        self.autoreset_mode = _mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._has_begun = np.zeros(num_envs, np.bool_)
        self._is_over = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Reset all episodes, or those of a mask.

        Args:
            seed: environment ``i`` has ``seed + i``, or the ``i``-th of as many; without one its generator goes on.
            options: nothing but ``reset_mask``, which to begin, ``(e,)``; the others stay as they are.

        Raises:
            ConfigError: another option is given, the mask is none, or there is not one seed for each environment.
        """
        chosen = self._reset_mask(dict(options or {}))
        seeds = self._seeds(seed)
        for e in np.flatnonzero(chosen).tolist():
            self._restart(e, seeds[e])
        self._has_begun |= chosen
        self._is_over &= ~chosen
        return self._observations(), self._begun_infos(chosen)

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        """Carry out an action in every environment.

        Returns:
            Observations ``(e, ...)``, rewards, whether episodes terminated and whether they were truncated ``(e,)``, infos.

        Raises:
            PolicyError: not one action for each environment, one of them is no number of an action, or an episode has not begun
                or, where nothing begins by itself, is over.
        """
        mode, was_over = self.autoreset_mode, self._is_over
        if not self._has_begun.all() or (mode is AutoresetMode.DISABLED and was_over.any()):
            raise PolicyError("an episode is over or has not begun; reset it first")
        is_stepped = ~was_over
        rewards, terminated, truncated = self._advance(self._taken(actions, is_stepped), is_stepped)
        infos = self._stepped_infos(is_stepped)
        self._is_over = terminated | truncated
        if mode is AutoresetMode.NEXT_STEP and was_over.any():
            for e in np.flatnonzero(was_over).tolist():
                self._restart(e, None)
            infos = merged(infos, self._begun_infos(was_over))
        elif mode is AutoresetMode.SAME_STEP and self._is_over.any():
            infos = self._begin_next(infos)
        return self._observations(), rewards, terminated, truncated, infos

    @abstractmethod
    def action_masks(self) -> NDArray[np.bool_]:
        """Whether each action is possible, ``(e, a)``."""

    @abstractmethod
    def _begin(self, e: int, rng: np.random.Generator, seed: int | None) -> None:
        """Start the next episode of an environment, with its generator; a seed only where it was given for this episode."""

    @abstractmethod
    def _advance(
        self, actions: NDArray[np.int64], is_stepped: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Carry out actions ``(e,)`` in some environments: rewards, terminated, truncated; 0 and False elsewhere."""

    @abstractmethod
    def _current(self) -> Observations:
        """The observations, ``(e, ...)`` each; they may change in place."""

    @abstractmethod
    def _begun_infos(self, which: NDArray[np.bool_]) -> Infos:
        """Infos of environments whose episode has just begun; made by `note`."""

    @abstractmethod
    def _stepped_infos(self, which: NDArray[np.bool_]) -> Infos:
        """Infos of environments that were stepped; made by `note`."""

    def _counts_first_seed_only(self) -> bool:
        """Whether all seeds but the first one of an environment are passed over."""
        return False

    def _restart(self, e: int, seed: int | None) -> None:
        rng = self._rngs[e]
        if rng is None or (seed is not None and not self._counts_first_seed_only()):
            rng = self._rngs[e] = seeding.np_random(seed)[0]
        self._begin(e, rng, seed)

    def _begin_next(self, infos: Infos) -> Infos:
        """Where episodes are over: keep what was last seen of them, and start the next ones."""
        over, last = self._is_over, self._current()
        final = np.full(self.num_envs, None, object)
        for e in np.flatnonzero(over).tolist():
            final[e] = {key: values[e].copy() for key, values in last.items()}
        told = {"final_obs": final, "_final_obs": over.copy(), "final_info": only(infos, over), "_final_info": over.copy()}
        for e in np.flatnonzero(over).tolist():
            self._restart(e, None)
        rest = merged(only(infos, ~over), self._begun_infos(over))
        self._is_over = np.zeros(self.num_envs, np.bool_)
        return {**rest, **told}

    def _observations(self) -> Observations:
        return {key: values.copy() for key, values in self._current().items()}

    def _taken(self, actions: NDArray[np.int64], is_stepped: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The actions, checked; 0 where none is carried out."""
        given = np.asarray(actions)
        if given.dtype.kind not in "iu" or given.shape != (self.num_envs,):
            shown = f"{given.dtype} of shape {given.shape}"
            raise PolicyError(f"one whole number for each of {self.num_envs} environments is an action", value=shown)
        return np.where(is_stepped, given, 0).astype(np.int64)

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
        chosen = np.asarray(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (self.num_envs,) or not chosen.any():
            problem = f"must say of each of {self.num_envs} environments whether it begins, and of one that it does"
            raise ConfigError(problem, field="options.reset_mask", value=f"{chosen.dtype} of shape {chosen.shape}")
        return chosen


def taken_actions(actions: NDArray[np.int64], mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The actions ``(e,)`` that are carried out, the first possible one in place of each that is not, and which were possible."""
    inside = (actions >= 0) & (actions < mask.shape[1])
    was_possible = inside & mask[np.arange(len(actions)), np.where(inside, actions, 0)]
    return np.where(was_possible, actions, mask.argmax(axis=1)), was_possible


def empty_observations(space: spaces.Dict, num_episodes: int) -> Observations:
    """Arrays for the observations of a number of episodes, all zero."""
    return {key: np.zeros((num_episodes, *(one.shape or ())), one.dtype) for key, one in space.items()}


def note(infos: Infos, name: str, values: NDArray[Any] | Infos, which: NDArray[np.bool_]) -> None:
    """Add an entry as Gymnasium's vector environments have it: values ``(e,)``, empty elsewhere, and ``_name``, where they hold.

    Args:
        infos: what they are added to; as it is where none holds.
        name: of the entry.
        values: ``(e,)``, or entries made by this function.
        which: environments that the entry is about, ``(e,)``.
    """
    if not which.any():
        return
    if isinstance(values, np.ndarray):
        empty = np.full(len(which), None, object) if values.dtype == object else np.zeros(len(which), values.dtype)
        empty[which] = values[which]
        values = empty
    infos[name], infos[f"_{name}"] = values, which.copy()


def only(infos: Infos, which: NDArray[np.bool_]) -> Infos:
    """The entries of some environments."""
    kept: Infos = {}
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if mask is not None:
            note(kept, name, only(values, which) if isinstance(values, dict) else values, mask & which)
    return kept


def merged(one: Infos, other: Infos) -> Infos:
    """Entries of two sets of environments without a common member."""
    both: Infos = {}
    for name in [*one, *(name for name in other if name not in one)]:
        if f"_{name}" not in one and f"_{name}" not in other:
            continue  # a mask
        told = [each for each in (one, other) if name in each]
        values = told[0][name]
        which = np.logical_or.reduce([each[f"_{name}"] for each in told])
        if len(told) == 2:
            values = merged(values, other[name]) if isinstance(values, dict) else np.where(other[f"_{name}"], other[name], values)
        note(both, name, values, which)
    return both


def counted(records: Mapping[int, Mapping[str, int]], num_envs: int) -> tuple[Infos, NDArray[np.bool_]]:
    """Counts of some environments as one entry, and which they are, for `note`."""
    which = np.zeros(num_envs, np.bool_)
    values: dict[str, NDArray[np.int64]] = {}
    holds: dict[str, NDArray[np.bool_]] = {}
    for e, counts in records.items():
        which[e] = True
        for name, number in counts.items():
            values.setdefault(name, np.zeros(num_envs, np.int64))[e] = number
            holds.setdefault(name, np.zeros(num_envs, np.bool_))[e] = True
    infos: Infos = {}
    for name, numbers in values.items():
        note(infos, name, numbers, holds[name])
    return infos, which


def _mode(given: str | AutoresetMode) -> AutoresetMode:
    try:
        return given if isinstance(given, AutoresetMode) else AutoresetMode(given)
    except ValueError:
        raise ConfigError("unknown way of beginning anew", field="autoreset_mode", value=given, choices=MODES) from None
