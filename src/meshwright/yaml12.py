"""YAML read strictly: the scalars of YAML 1.2, no key twice, and the line of every key.

``3e-4`` is a number, ``010`` is ten, ``no`` and ``1:30`` are texts (YAML 1.1, which PyYAML follows on its own, reads
them as a text, eight, false and ninety). Digits may be grouped by ``_``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError

Location = tuple[str | int, ...]
"""Keys and indices from the root of a document."""

MAX_VALUES = 1_000_000
"""Aliases of aliases blow a small document up; no configuration comes near this."""

Lines = dict[Location, int]
"""The line, from 1, of each place of a document."""


def parse(text: str, *, file: str | Path | None = None) -> tuple[Any, Lines]:
    """The content of one YAML document, None where it is empty, and the lines of its keys.

    Args:
        text: the document.
        file: named in errors.

    Raises:
        ConfigError: bad YAML, a key stands twice in one mapping, an alias contains itself, or more than `MAX_VALUES` values.
    """
    lines: Lines = {}
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            return None, lines
        _collect_lines(node, (), lines, file, above=())
        return _Loader("").construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"not valid YAML: {error.problem or error.context}", file=file, line=line) from None
    except (yaml.YAMLError, ValueError) as error:  # a control character; a number of thousands of digits
        raise ConfigError(f"not valid YAML: {error}", file=file) from None
    except RecursionError:
        raise ConfigError("not valid YAML: nested too deeply", file=file) from None


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
        return int(text, 8 if "o" in text else 16 if "x" in text else 10)


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
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_core_int)


def _collect_lines(node: yaml.Node, path: Location, lines: Lines, file: str | Path | None, above: tuple[int, ...]) -> None:
    line = node.start_mark.line + 1
    if id(node) in above:
        raise ConfigError("the alias contains itself", file=file, line=line, field=dotted(path) or None)
    if len(lines) > MAX_VALUES:
        raise ConfigError(f"holds more than {MAX_VALUES} values", file=file, line=line)
    above = (*above, id(node))
    lines.setdefault(path, line)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise ConfigError("the key stands twice", file=file, line=key.start_mark.line + 1, field=dotted((*path, name)))
            seen.add(name)
            lines[(*path, name)] = key.start_mark.line + 1
            _collect_lines(value, (*path, name), lines, file, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(item, (*path, index), lines, file, above)
