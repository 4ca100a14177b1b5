"""What single environments do alike: refuse arguments, read an action, draw instances by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, PolicyError

SPLITS = ("test", "validation", "training")

Instance = TypeVar("Instance")


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


def taken_action(action: Any, mask: NDArray[np.bool_]) -> tuple[int, bool]:
    """The action that is carried out, the first possible one where another is asked for, and whether it was possible.

    Raises:
        PolicyError: it is no number of one.
    """
    try:
        chosen = int(action)
    except (TypeError, ValueError, OverflowError):
        raise PolicyError("an action is one number", value=action) from None
    was_possible = 0 <= chosen < len(mask) and bool(mask[chosen])
    return (chosen if was_possible else int(mask.argmax())), was_possible


class NumberedInstances(Generic[Instance]):
    """The choice of the instance that an episode plays.

    Args:
        draw: the instance of a number of a split.
        given: always this one instead.
        split: of the seeds.
        num_instances: how many are drawn from without a seed, each drawn once; None: without end.

    Raises:
        ConfigError: an unknown split, or less than one instance.
    """

    def __init__(
        self, draw: Callable[[Any, int], Instance], given: Instance | None, split: str, num_instances: int | None
    ) -> None:
        if split not in SPLITS:
            raise ConfigError("unknown split", field="split", value=split, choices=SPLITS)
        if num_instances is not None and num_instances < 1:
            raise ConfigError("must be at least 1", field="num_instances", value=num_instances)
        self._draw, self._given, self._split, self._num = draw, given, split, num_instances
        self._drawn: dict[int, Instance] = {}

    def number(self, rng: np.random.Generator, seed: int | None) -> int:
        """The number of the next instance: the seed where one is given, else a drawn number."""
        drawn = seed if seed is not None else int(rng.integers(2**31 if self._num is None else self._num))
        return 0 if self._given is not None else drawn

    def instance(self, number: int) -> Instance:
        """The instance of a number; those of less than ``num_instances`` are drawn once."""
        if self._given is not None:
            return self._given
        if number in self._drawn:
            return self._drawn[number]
        found = self._draw(self._split, number)
        if self._num is not None and number < self._num:
            self._drawn[number] = found
        return found
