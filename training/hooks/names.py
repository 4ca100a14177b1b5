"""The writers of a learning curve by name, apart from them so that a config is read without their libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ...errors import ConfigError

LogName = Literal["stdout", "csv", "tensorboard"]
NAMES: tuple[LogName, ...] = get_args(LogName)


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
