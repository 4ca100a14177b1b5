"""Commands whose first word names a kind: one function and one model of ``--set`` keys for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from .keys import own_keys

CommandKind = tuple[Callable[..., None], str]
"""A function of the sources, the keys and the files to write; and the class of `key_models` with the keys of its ``--set``."""


def run_kind(
    kinds: Mapping[str, CommandKind], kind: str, sources: Sequence[str] | None, changes: Sequence[str] | None, *to: Any
) -> None:
    """Run a kind by its name.

    Args:
        kinds: by name.
        kind: name.
        sources: files and folders.
        changes: of ``--set``.
        to: files to write: of ``--out``, where the command has it, and of ``--json``.

    Raises:
        ConfigError: no such kind, or a key is wrong.
    """
    if kind not in kinds:
        raise ConfigError("no such kind", field="KIND", value=kind, choices=kinds)
    from . import key_models

    run, model = kinds[kind]
    keys = own_keys(getattr(key_models, model), changes)
    run(sources or [], keys, *to)


def one_source(sources: Sequence[str]) -> str:
    """The only source.

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
