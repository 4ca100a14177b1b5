"""Sources of the kinds of `meshwright dev`: one, or none."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ConfigError


def one_source(sources: Sequence[str]) -> str:
    """Return the only source.

    Raises:
        ConfigError: there are none or several.
    """
    if len(sources) != 1:
        raise ConfigError("name one" if sources else "is missing", field="SOURCE", value=" ".join(sources) or None)
    return sources[0]


def no_source(sources: Sequence[str]) -> None:
    """Refuse sources.

    Raises:
        ConfigError: there is one.
    """
    if sources:
        raise ConfigError("this kind reads none", field="SOURCE", value=sources[0])
