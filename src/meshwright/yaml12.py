"""YAML read strictly: the scalars of YAML 1.2, no key twice, and the line of every key.

``3e-4`` is a number, ``010`` is ten, ``no`` and ``1:30`` are texts (YAML 1.1, which PyYAML follows on its own, reads
them as a text, eight, false and ninety). Digits may be grouped by ``_``.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError
from .quantities import MOST_DIGITS

Location = tuple[str | int, ...]
"""Keys and indices from the root of a document."""

MAX_VALUES = 1_000_000
"""Aliases of aliases blow a small document up; no configuration comes near this."""

MAX_DEPTH = 100
"""Values within values."""

MAX_PLACES = 10 * MAX_VALUES
"""Keys and indices of all places together; they are kept, so that errors can name lines."""

NUM_KEPT, MOST_KEPT = 256, 100_000
"""How many documents are kept parsed, of how many letters and of how many places: an evaluation reads some again and again."""

Lines = dict[Location, int]
"""The line, from 1, of each place of a document."""


def parse(text: str, *, file: str | Path | None = None) -> tuple[Any, Lines]:
    """The content of one YAML document, None where it is empty, and the lines of its keys.

    Args:
        text: the document.
        file: named in errors.

    Raises:
        ConfigError: bad YAML, a tag that is not of the core schema or whose value is none of its kind, a key that stands twice
            in one mapping or is no scalar, an alias that contains itself, half of a surrogate pair, or more than
            `MAX_VALUES` values.
    """
    if text not in _kept:
        data, lines = _parse(text, file)
        if len(text) > MOST_KEPT or len(lines) > MOST_KEPT:
            return data, lines
        if len(_kept) == NUM_KEPT:
            _kept.clear()
        _kept[text] = pickle.dumps((data, lines))
    found: tuple[Any, Lines] = pickle.loads(_kept[text])  # noqa: S301 - made above
    return found


_kept: dict[str, bytes] = {}
"""What the documents say that were read last, so that each reader gets a copy of its own."""


def _parse(text: str, file: str | Path | None) -> tuple[Any, Lines]:
    if _QuickLoader is not None and not _READ_OTHERWISE.search(text):
        try:
            return _made(text, _QuickLoader, file)
        except (ConfigError, yaml.YAMLError, ValueError, RecursionError):
            pass  # the other parser says what is wrong
    try:
        return _made(text, _Loader, file)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"not valid YAML: {error.problem or error.context}", file=file, line=line) from None
    except (yaml.YAMLError, ValueError) as error:  # a control character
        raise ConfigError(f"not valid YAML: {error}", file=file) from None
    except RecursionError:
        raise ConfigError("not valid YAML: nested too deeply", file=file) from None


def _made(text: str, loader: Any, file: str | Path | None) -> tuple[Any, Lines]:
    node = yaml.compose(text, Loader=loader)
    if node is None:
        return None, {}
    checked = _Checked(file)
    checked.look(node, ())
    return _Loader("").construct_document(node), checked.lines


def dotted(location: Location) -> str:
    """A place as errors spell it: ``levels.0.bandwidth_gbytes_per_s``."""
    return ".".join(str(part) for part in location)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema, and ``_`` allowed between digits."""

    # PyYAML keeps these by the first letter of a scalar; its own are those of YAML 1.1.
    yaml_implicit_resolvers = {  # noqa: RUF012 - the name and form are PyYAML's
        letter: [(tag, pattern) for tag, pattern in found if tag.rsplit(":", 1)[1] in ("merge", "null")]
        for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_core_int(self, node: yaml.ScalarNode) -> int:
        """``10``, ``1_000``, ``0x1f`` and ``0o17``; leading zeros mean nothing."""
        text = str(self.construct_scalar(node)).replace("_", "")
        if len(text) > MOST_DIGITS:
            raise yaml.MarkedYAMLError(problem=f"a number of {len(text)} digits", problem_mark=node.start_mark)
        return int(text, 8 if "o" in text else 16 if "x" in text else 10)


_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_CORE = "tag:yaml.org,2002:"
_Loader.add_implicit_resolver(f"{_CORE}bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver(f"{_CORE}int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_CORE}float", _FLOAT, list("-+0123456789."))
_Loader.add_constructor(f"{_CORE}int", _Loader.construct_core_int)

_READ_OTHERWISE = re.compile("[\t\x85\u2028\u2029\ufeff%!?]|---")
"""What libyaml reads, or counts as lines, otherwise than PyYAML's own parser."""

_QuickLoader: Any = None
if yaml.__with_libyaml__:

    class _LibyamlLoader(yaml.CSafeLoader):
        """The same scalars from libyaml's parser, which takes a fifth of the time."""

        yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

    _QuickLoader = _LibyamlLoader

# What a tag may stand before; a tag without a pattern takes any text, or is no scalar's.
_SPELLINGS: dict[str, tuple[re.Pattern[str], ...]] = {
    **{f"{_CORE}{kind}": () for kind in ("str", "map", "seq", "merge")},
    f"{_CORE}null": (_NULL,),
    f"{_CORE}bool": (_BOOL,),
    f"{_CORE}int": (_INT,),
    f"{_CORE}float": (_FLOAT, re.compile(r"^[-+]?[0-9][0-9_]*$")),
}
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Checked:
    """A document that is looked through before anything is made of it.

    Attributes:
        lines: of each place that was looked at.
    """

    def __init__(self, file: str | Path | None) -> None:
        self.lines: Lines = {}
        self._file = file
        self._above: list[int] = []
        self._num_places = 0

    def look(self, node: yaml.Node, path: Location) -> None:
        """Note the lines of a value and of all within it, and refuse what parsers stumble over."""
        line = node.start_mark.line + 1
        if id(node) in self._above:
            raise self._error("the alias contains itself", line, path)
        if len(self._above) > MAX_DEPTH:
            raise self._error(f"not valid YAML: nested more than {MAX_DEPTH} deep", line)
        self._note(path, line)
        self._check_tag(node)
        self._above.append(id(node))
        if isinstance(node, yaml.MappingNode):
            self._look_into(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.look(item, (*path, index))
        self._above.pop()

    def _look_into(self, node: yaml.MappingNode, path: Location) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise self._error("not valid YAML: a key must be a name", line)
            self._check_tag(key)
            name = str(key.value)
            if name in seen:
                raise self._error("the key stands twice", line, (*path, name))
            seen.add(name)
            self._note((*path, name), line)
            self.look(value, (*path, name))

    def _note(self, path: Location, line: int) -> None:
        self._num_places += 1 + len(path)
        if len(self.lines) > MAX_VALUES or self._num_places > MAX_PLACES:
            raise self._error(f"holds more than {MAX_VALUES} values", line)
        self.lines.setdefault(path, line)

    def _check_tag(self, node: yaml.Node) -> None:
        line, kind = node.start_mark.line + 1, node.tag.removeprefix(_CORE)
        spellings = _SPELLINGS.get(node.tag)
        if spellings is None:
            tag = node.tag if kind == node.tag else f"!!{kind}"
            raise self._error("not valid YAML: the tag is not of the core schema of YAML 1.2", line, value=tag)
        if not isinstance(node, yaml.ScalarNode):
            return
        if spellings and not any(spelling.match(node.value) for spelling in spellings):
            raise self._error(f"not valid YAML: what the tag !!{kind} stands before is no {kind}", line, value=node.value)
        if _SURROGATE.search(node.value):
            try:  # two halves side by side, as JSON spells letters, are one
                node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                raise self._error("not valid YAML: half of a surrogate pair is no letter", line) from None

    def _error(self, problem: str, line: int, path: Location = (), value: str | None = None) -> ConfigError:
        return ConfigError(problem, file=self._file, line=line, field=dotted(path) or None, value=value)
