"""YAML read strictly: the scalars of YAML 1.2, no key twice, and the line of every key.

``3e-4`` is a number, ``010`` is ten, ``no`` and ``1:30`` are texts. PyYAML on its own follows YAML 1.1 and reads them as a
text, eight, false and ninety. Digits may be grouped by ``_``.
"""

from __future__ import annotations

import pickle
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError
from .quantities import MOST_DIGITS

Location = tuple[str | int, ...]
"""Keys and indices from the root of a document."""

Lines = dict[Location, int]
"""The line, from 1, of each place of a document."""

MAX_VALUES = 1_000_000
"""Aliases of aliases blow a small document up; no configuration comes near this."""

MAX_DEPTH = 100
"""Values within values."""

MAX_PLACES = 10 * MAX_VALUES
"""Keys and indices of all places together; they are kept, so that errors can name lines."""

NUM_KEPT, MOST_KEPT = 256, 100_000
"""How many documents are kept parsed, and of how many letters each: an evaluation reads some again and again."""

_CORE = "tag:yaml.org,2002:"
_SPELLINGS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"""[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9][0-9_]*(?:[eE][-+]?[0-9]+)
        |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN)""",
        re.X,
    ),
}
"""The scalars of the core schema that are no texts, in the order in which they are tried."""


def parse(text: str, *, file: str | Path | None = None) -> tuple[Any, Lines]:
    """Return the content of one YAML document, None where it is empty, and the lines of its keys.

    Args:
        text: the document.
        file: named in errors.

    Raises:
        ConfigError: bad YAML, a tag that is not of the core schema or does not fit its value, or half of a surrogate pair. Also
            a key that is no scalar or appears twice in a mapping, an alias that contains itself, or more than `MAX_VALUES`
            values.
    """
    try:
        if len(text) > MOST_KEPT:
            return _parse(text)
        result: tuple[Any, Lines] = pickle.loads(_pickled(text))  # noqa: S301 - made here, so that each reader has its own copy
    except ConfigError as error:
        raise error.at(file=file) from None
    return result


def dump(data: Any, **layout: Any) -> str:
    """Return a document that `parse` reads as these data, and readers of YAML 1.1 too; ``layout`` as for PyYAML's ``dump``."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, **layout))


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes texts which only YAML 1.2 takes for numbers, as ``1e3``."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_number = any(spelling.fullmatch(text) for spelling in _SPELLINGS.values())
    return dumper.represent_scalar(f"{_CORE}str", text, style="'" if is_number else None)


_Dumper.add_representer(str, _represent_text)


def dotted(location: Location) -> str:
    """Return a place as errors spell it: ``levels.0.bandwidth_gbytes_per_s``."""
    return ".".join(str(part) for part in location)


@lru_cache(NUM_KEPT)
def _pickled(text: str) -> bytes:
    return pickle.dumps(_parse(text))


def _parse(text: str) -> tuple[Any, Lines]:
    try:
        try:
            document = _Document(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, ValueError):
            document = _Document(text, yaml.SafeLoader)  # says what it found, and reads halves of letters as JSON spells them
        return (document.value(0, ())[0] if document.events else None), document.lines
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"not valid YAML: {error.problem or error.context}", line=line) from None
    except (yaml.YAMLError, ValueError) as error:  # a control character
        raise ConfigError(f"not valid YAML: {error}") from None


class _Document:
    """A document as its parser's events, made into values from there: no depth of brackets overflows a stack.

    Attributes:
        events: of the values; none where the document is empty.
        lines: of each place that was made.
    """

    def __init__(self, text: str, loader: Any) -> None:
        self.events: list[Any] = []
        self.lines: Lines = {}
        self._anchors: dict[str, int] = {}
        self._open: set[int] = set()
        self._num_places = depth = 0
        for event in yaml.parse(text, loader):
            if isinstance(event, yaml.DocumentStartEvent) and self.events:
                raise self._error("not valid YAML: found another document", event)
            if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                self._check_depth(depth, event)
                anchor = None if isinstance(event, yaml.AliasEvent) else getattr(event, "anchor", None)
                if anchor is not None and self._anchors.setdefault(anchor, len(self.events)) < len(self.events):
                    raise self._error(f"not valid YAML: the anchor {anchor!r} appears twice", event)
                self.events.append(event)

    def value(self, place: int, path: Location) -> tuple[Any, int]:
        """Return the value that begins with an event, and the place of the next; note the lines of all its parts."""
        start, event = self._meant(place)
        if start in self._open:
            raise self._error("the alias contains itself", event, path)
        self._check_depth(len(self._open), event)
        self._note(path, event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event), place + 1
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!"):
            self._check_tag(event, "map" if is_mapping else "seq")
        self._open.add(start)
        made, end = (self._mapping if is_mapping else self._list)(start + 1, path)
        self._open.remove(start)
        return made, 1 + (end if start == place else place)

    def _meant(self, place: int) -> tuple[int, Any]:
        """Return the place and event that an event means: an alias that of its anchor."""
        event = self.events[place]
        if not isinstance(event, yaml.AliasEvent):
            return place, event
        start = self._anchors.get(str(event.anchor), place)
        if start >= place:
            raise self._error(f"not valid YAML: found undefined alias {event.anchor!r}", event)
        return start, self.events[start]

    def _list(self, place: int, path: Location) -> tuple[list[Any], int]:
        made: list[Any] = []
        while not isinstance(self.events[place], yaml.SequenceEndEvent):
            value, place = self.value(place, (*path, len(made)))
            made.append(value)
        return made, place

    def _mapping(self, place: int, path: Location) -> tuple[dict[Any, Any], int]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        seen = set()
        while not isinstance(self.events[place], yaml.MappingEndEvent):
            _, key = self._meant(place)
            if not isinstance(key, yaml.ScalarEvent):
                raise self._error("not valid YAML: a key must be a name", key)
            result, name = self._scalar(key), str(key.value)
            if name in seen:
                raise self._error("the key appears twice", key, (*path, name))
            seen.add(name)
            self._note((*path, name), key)
            value, place = self.value(place + 1, (*path, name))
            if name == "<<" and key.implicit[0]:
                for one in reversed(value if isinstance(value, list) else [value]):
                    if not isinstance(one, dict):
                        raise self._error("not valid YAML: expected a mapping or list of mappings for merging", key)
                    merged |= one
            else:
                own[result] = value
        return merged | own, place

    def _scalar(self, event: Any) -> Any:
        try:  # two halves side by side, as JSON spells letters, are one
            text = event.value = event.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._error("not valid YAML: half of a surrogate pair is no letter", event) from None
        if event.tag not in (None, "!"):
            kind = self._check_tag(event, "str", *(kind for kind, spelling in _SPELLINGS.items() if spelling.fullmatch(text)))
        elif event.implicit[0]:
            kind = next((kind for kind, spelling in _SPELLINGS.items() if spelling.fullmatch(text)), "str")
        else:
            return text
        digits = text.replace("_", "").lower()
        match kind:
            case "null":
                return None
            case "bool":
                return digits == "true"
            case "int" if len(digits) > MOST_DIGITS:
                raise self._error(f"not valid YAML: a number of {len(digits)} digits", event)
            case "int":
                return int(digits, 8 if "o" in digits else 16 if "x" in digits else 10)
            case "float":
                return float(digits.replace(".inf", "inf").replace(".nan", "nan"))
        return text

    def _check_tag(self, event: Any, *kinds: str) -> str:
        """Return the kind that a tag names, which has to be one of some."""
        kind = str(event.tag).removeprefix(_CORE)
        if kind not in (*_SPELLINGS, "str", "map", "seq") or kind == event.tag:
            tag = event.tag if kind == event.tag else f"!!{kind}"
            raise self._error("not valid YAML: the tag is not of the core schema of YAML 1.2", event, value=tag)
        if kind not in kinds and not (kind == "float" and "int" in kinds):
            problem = f"not valid YAML: the value after the tag !!{kind} is no {kind}"
            raise self._error(problem, event, value=getattr(event, "value", None))
        return kind

    def _check_depth(self, depth: int, event: Any) -> None:
        if depth > MAX_DEPTH:
            raise self._error(f"not valid YAML: nested too deeply, more than {MAX_DEPTH} values within values", event)

    def _note(self, path: Location, event: Any) -> None:
        self._num_places += 1 + len(path)
        if len(self.lines) > MAX_VALUES or self._num_places > MAX_PLACES:
            raise self._error(f"holds more than {MAX_VALUES} values", event)
        self.lines.setdefault(path, event.start_mark.line + 1)

    def _error(self, problem: str, event: Any, path: Location = (), value: str | None = None) -> ConfigError:
        return ConfigError(problem, line=event.start_mark.line + 1, field=dotted(path) or None, value=value)
