"""The errors that a user can cause, and the warnings, each with one line of text.

Every class derives from `MeshwrightError`; the command line prints ``str(error)`` and exits with 2. A message
names, as far as they are known, the file and line, the field, the value found and the nearest valid choice.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self

_NUMBER = re.compile(r"[0-9]+")
_A_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_FILE = re.compile(r"\.[a-z]{2,5}$")
_PREFIX = re.compile(r"^(?:preset|zoo|shipped)[-_/.]")
_WORD = re.compile(r"[^\W\d_]+")
_GENERATION = re.compile(r"(?<![^\W_])([a-z])[-_ ]?([0-9]+[a-z]*)")
"""A letter and a number by themselves, such as a100 and l40s."""


_SUBJECT = re.compile(r"^(?:Input|Value|String|List|Tuple|Dictionary|Set|Frozenset|Mapping|Data|URL) should ", re.IGNORECASE)
_OURS = (
    ("must be greater than or equal to", "must be at least"),
    ("must be less than or equal to", "must be at most"),
    ("must be greater than", "must be more than"),
    ("must be a valid integer", "must be a whole number"),
    ("must be a valid string", "must be a text"),
    ("must be a valid number", "must be a number"),
    ("must be a valid boolean", "must be true or false"),
    ("must be a valid list", "must be a list"),
    ("must be a valid dictionary or object to extract fields from", "must be a mapping of keys"),
    ("must be a valid dictionary", "must be a mapping of keys"),
    ("must have timezone info", "must name its time zone, as 2026-11-24T15:00:00Z"),
    ("Field required", "the key is missing"),
    ("Extra inputs are not permitted", "unknown key"),
)
"""Phrases of pydantic, and ours in their place."""
_LETTERS = {"A-Za-z": "letter", "a-z": "small letter", "0-9": "digit", ".": "dot", "_": "underscore", "-": "hyphen"}
_SIGN = re.compile("|".join(map(re.escape, _LETTERS)))
_OF_NAMES = re.compile(rf"\^\[(?P<first>(?:{_SIGN.pattern})+)\]\[(?P<rest>(?:{_SIGN.pattern})+)\]\{{0,(?P<most>[0-9]+)\}}\$")
"""Regular expressions of names: a first letter, and a number of others."""


class Names(list[str]):
    """Valid names that are never cut without a word on the others.

    Attributes:
        listing: what ``meshwright list`` is asked for; None where nothing lists them, so that a message names all.
    """

    def __init__(self, listing: str | None, names: Iterable[str]) -> None:
        super().__init__(names)
        self.listing = listing


class MeshwrightError(Exception):
    """Something in the user's input is wrong.

    Args:
        problem: what is wrong, as a phrase without a full stop.
        file: the file with the mistake.
        line: its line in that file, counted from 1.
        field: the key, option or column, dotted from the root of the file.
        value: the value in the input; ``None`` means that there is no value to show.
        choices: the valid values; the message names the nearest one, or all where none is near.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        value: object = None,
        choices: Iterable[str] | None = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.line = line
        self.field = field
        self.value = value
        self.choices = None if choices is None else sorted(choices, key=_as_numbers)
        if self.choices is not None and isinstance(choices, Names):
            self.choices = Names(choices.listing, self.choices)
        super().__init__(self._message())

    def at(
        self, *, file: str | Path | None = None, line: int | None = None, field: str | None = None, problem: str | None = None
    ) -> Self:
        """Return the error with the file, line and field that the caller knows, unless it names its own, or another problem."""
        places = {"file": self.file or file, "line": self.line or line, "field": self.field or field}
        return type(self)(problem or self.problem, **self._parts() | places)

    def _parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("file", "line", "field", "value", "choices")}

    def _message(self) -> str:
        where = "" if self.file is None else _cut(self.file, 1_000) + ("" if self.line is None else f":{self.line}") + ": "
        field = "" if self.field is None else f"{_cut(self.field)}: "
        value = "" if self.value is None else f" (got {_shortened(self.value)})"
        problem = _cut(self.problem, 1_000)
        return " ".join(f"{where}{field}{problem}{value}{self._advice()}".split())

    def _advice(self) -> str:
        if not self.choices:
            return ""
        if self.value is not None and (meant := variants(str(self.value), self.choices)):
            return f"; did you mean {' or '.join(map(_shortened, meant))}?"
        near = nearest(str(self.value), self.choices) if self.value is not None else None
        if near is not None:
            return f"; did you mean {_shortened(near)}?"
        listing = self.choices.listing if isinstance(self.choices, Names) else ""
        most = len(self.choices) if listing is None else 20
        shown = ", ".join(_cut(choice) for choice in self.choices[:most])
        if len(self.choices) > most:
            shown += ", ..." + (f" (all: meshwright list {listing})" if listing else "")
        return f"; valid: {shown}"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), **self._parts()), (self.problem,)


class InputFileError(MeshwrightError):
    """A file is missing, unreadable or not of the expected form."""


class ConfigError(MeshwrightError):
    """A YAML file or a ``--set`` option holds an unknown key or an impossible value."""


class GraphError(MeshwrightError):
    """A job graph is malformed: a bad line, a cycle, a negative or non-finite cost."""


class TraceError(MeshwrightError):
    """A model cannot be made or traced: what its code raised, in one line."""


class ClusterError(MeshwrightError):
    """A cluster is impossible: no device, a link without bandwidth, an unknown host."""


class PlanError(MeshwrightError):
    """A plan is illegal: a rank twice, an absent device, more memory than a device has."""


class StateError(MeshwrightError):
    """The state of a live cluster contradicts itself or the cluster: two jobs on one device, an unknown host or job."""


class ConflictError(StateError):
    """A request contradicts an earlier decision: a key of another request, a plan whose devices were given back."""


class TimeLimitError(MeshwrightError):
    """Something takes longer than it may."""


class PolicyError(MeshwrightError):
    """A policy is unknown or does not fit the environment that it is asked to act in."""


class NothingToLearnError(MeshwrightError):
    """Every policy does as well as any other, so that training could only keep the network that it began with."""

    exit_code = 1  # the input is right; what is asked for cannot be had


class CheckpointError(MeshwrightError):
    """A checkpoint or run folder is missing, truncated or of another version."""


class ExportError(MeshwrightError):
    """A plan cannot be expressed in the chosen scheduler's form."""


class MeasurementError(MeshwrightError):
    """A device cannot be measured: torch sees none, or what it computes is wrong."""


class MeshwrightWarning(UserWarning):
    """Something in the user's input is odd and is used unchanged; the command line prints one line to standard error."""


class PlausibilityWarning(MeshwrightWarning):
    """A figure of hardware is outside the range of real machines, most often by a wrong unit."""


def nearest(value: str, choices: Iterable[str]) -> str | None:
    """Return the choice that ``value`` misspells, or None.

    Marks that distinguish products never count as a slip: first letter, numbers, and the letter of a generation (``h100`` is no
    ``v100``). Nor do letters of a family before a size or variant (``llava-7b`` is no ``llama-7b``). Case and a prefix before a
    colon (``zoo:``, ``preset:``) are ignored. Names of files are compared letter by letter.
    """
    named = list(choices)
    if value in named:
        return value
    if _FILE.search(value):
        return next(iter(difflib.get_close_matches(value, named, n=1, cutoff=0.65)), None)
    bare = _bare(value)
    similar = [choice for choice in named if _may_mean(bare, _bare(choice))]
    cut = [choice for choice in similar if bare and _bare(choice).startswith(bare)]
    result = difflib.get_close_matches(bare, [_bare(choice) for choice in similar], n=1, cutoff=0.65)
    result = result or difflib.get_close_matches(bare, [_bare(choice) for choice in cut], n=1, cutoff=0.55)
    return next((choice for choice in similar if _bare(choice) in result), None)


def in_our_words(message: str) -> str:
    """Reword a complaint of pydantic in our terms: a phrase of what the value must be.

    Args:
        message: of one of its complaints, such as ``Input should be greater than or equal to 1``.
    """
    text = re.sub(r"( after validation, not [0-9]+|, unable to parse .*)$", "", message.removeprefix("Value error, "))
    text = _SUBJECT.sub("must ", text)
    for theirs, ours in _OURS:
        text = text.replace(theirs, ours)
    pattern = re.fullmatch(r"must match pattern '(.*)'", text, re.DOTALL)
    text = text if pattern is None else _spelled(pattern[1])
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]  # a word of capitals is a name


def _spelled(pattern: str) -> str:
    """Describe a regular expression, in words where it is a pattern of names."""
    match = _OF_NAMES.fullmatch(pattern)
    if match is None:
        return f"must match the pattern {pattern}"
    rest, first = ([_LETTERS[sign] for sign in _SIGN.findall(match[part])] for part in ("rest", "first"))
    several = " and ".join(filter(None, [", ".join(f"{word}s" for word in rest[:-1]), f"{rest[-1]}s"]))
    return f"must be at most {int(match['most']) + 1} {several}, the first of them {' or '.join(f'a {word}' for word in first)}"


def _as_numbers(choice: str) -> tuple[float, str]:
    """Return a key by which choices are sorted: numbers by their size, before texts."""
    return (float(choice) if _A_NUMBER.fullmatch(choice) else math.inf, choice)


def variants(value: str, choices: Iterable[str]) -> list[str]:
    """Return the two to four choices that begin with a value, none of them nearer than another; otherwise nothing."""
    bare = _bare(value)
    results = [name for name in choices if bare and re.match(re.escape(bare) + r"[-_.]", _bare(name))]
    return results if 1 < len(results) <= 4 and value not in choices else []


def _bare(name: str) -> str:
    """Return a name for comparison, without its case and prefix."""
    return _PREFIX.sub("", name.rpartition(":")[2].casefold())


def _may_mean(value: str, name: str) -> bool:
    """Return whether a value shares with a name what distinguishes the name."""
    if value[:1] != name[:1]:
        return False
    numbers = _NUMBER.findall(value)
    if Counter(numbers) - Counter(_NUMBER.findall(name)):
        return False
    generations = {letter + rest for letter, rest in _GENERATION.findall(name) if _NUMBER.findall(rest)[0] in numbers}
    if generations != {letter + rest for letter, rest in _GENERATION.findall(value)}:
        return False
    words, others = _WORD.findall(name), _WORD.findall(value)
    if not words or not others:
        return True
    family, member = words[0], others[0]
    has_number = bool(_NUMBER.search(name))
    if has_number or len(words) > 1:
        # A slip drops, doubles or swaps letters; a letter that the family lacks makes another family.
        whole = "".join(words)
        is_longer = member.startswith(family) and (not has_number or whole.startswith(member))
        if not is_longer and not set(member) <= set(family) and not _is_run_together(member, whole):
            return False
    return all(
        difflib.get_close_matches(word, words, n=1, cutoff=0.5) or _is_run_together(word, "".join(words))
        for word in others
        if len(word) > 2
    )


def _is_run_together(word: str, whole: str) -> bool:
    """Return whether a word is a name spelled without its separators."""
    return difflib.SequenceMatcher(None, word, whole).ratio() >= 0.8 and set(word) <= set(whole)


def _shortened(value: object) -> str:
    """Return a value as Python spells it, cut to a bearable length."""
    try:
        return _cut(repr(value))
    except ValueError:  # a whole number of more digits than Python spells
        return "a number of thousands of digits"


def _cut(text: str, limit: int = 240) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
