"""Strategies and codes as a command line or a YAML file spells them, as plain data."""

from __future__ import annotations

from typing import Any

from ... import settings
from ...errors import ConfigError, PlanError


def split_strategies(text: str, kinds: Any, *, field: str) -> list[dict[str, Any]]:
    """The keys of each strategy of a text, every combination of the values with ``|`` between them by itself.

    Raises:
        PlanError: no kind, a key twice, or a text that is no ``key=value``.
    """
    if text.endswith((".yaml", ".yml")):
        return _of_file(text, field)
    strategies: list[dict[str, list[str]]] = []
    last = ""
    for word in (word.strip() for word in text.split("|")):
        first, *others = [part.strip() for part in word.split(",")]
        begins = first in kinds or first.startswith("kind=")
        if begins:
            strategies.append({})
        elif not strategies or not last or "=" in first:
            raise PlanError(f"must name a kind, as {next(iter(kinds))} or kind=...", field=field, value=word, choices=kinds)
        else:
            strategies[-1][last].append(first)
        for part in [first, *others] if begins else others:
            key, equals, value = (half.strip() for half in part.partition("="))
            if not equals and key in kinds and begins and part is first:
                key, value = "kind", part
            elif not equals or not key or not value:
                raise PlanError("must read key=value, or a kind", field=field, value=part)
            if key in strategies[-1]:
                raise PlanError("the key stands twice", field=f"{field}.{key}", value=part)
            strategies[-1][key] = [value]
            last = key
    found: list[dict[str, Any]] = []
    for keys in strategies:
        combined: list[dict[str, Any]] = [{}]
        for key, values in keys.items():
            combined = [one | {key: _read(key, value, field)} for one in combined for value in values]
        found += combined
    return found


def _of_file(path: str, field: str) -> list[dict[str, Any]]:
    """What a YAML file says under a key: one strategy, or a list of them."""
    data, _ = settings.read_yaml(path)
    found = data.get(field) if isinstance(data, dict) else None
    strategies = found if isinstance(found, list) else [found]
    known = [one for one in strategies if isinstance(one, dict)]
    if len(known) < len(strategies):
        raise PlanError(f"must hold the keys of a strategy under {field}:", file=path, field=field)
    return known


def _read(key: str, text: str, field: str) -> Any:
    if key in ("kind", "multiplier_source"):
        return text
    try:
        return settings.override({}, f"{key}={text}")[key]
    except ConfigError as error:
        raise PlanError(error.problem, field=f"{field}.{key}", value=text) from None
