"""Keys of every training config: writers of a learning curve by name, without their libraries, and minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field

from ...errors import ConfigError

LogName = Literal["stdout", "csv", "tensorboard"]
NAMES: tuple[LogName, ...] = get_args(LogName)
MOST_MINUTES = 1e6
Minutes = Annotated[float | None, Field(gt=0, le=MOST_MINUTES, exclude_if=lambda minutes: minutes is None)]
"""CPU minutes after which a run ends, or earlier (see `stopping.StopInTime`); None: when its steps are done."""


def log_names(text: str) -> tuple[LogName, ...]:
    """Writers as ``csv,tensorboard`` spells them; ``none`` is none.

    Raises:
        ConfigError: one of them is unknown.
    """
    if text.strip() == "none":
        return ()
    found: list[LogName] = []
    for word in text.split(","):
        name = next((name for name in NAMES if name == word.strip()), None)
        if name is None:
            raise ConfigError("no such writer", field="--log", value=word.strip(), choices=[*NAMES, "none"])
        found.append(name)
    return unique(found)


def unique(names: Sequence[LogName]) -> tuple[LogName, ...]:
    """The names without repetitions, in order."""
    return tuple(dict.fromkeys(names))
