"""The errors that a user can cause, and the warnings, each told in one line.

Every class derives from `MeshwrightError`; the command line prints ``str(error)`` and exits with 2. A message
names, as far as they are known, the file and line, the field, the value found and the nearest valid choice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Self


class MeshwrightError(Exception):
    """Something in the user's input is wrong.

    Args:
        problem: what is wrong, as a phrase without a full stop.
        file: the file in which it stands.
        line: its line in that file, counted from 1.
        field: the key, option or column, dotted from the root of the file.
        value: what was found there; ``None`` means that there is no value to show.
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
        self.choices = None if choices is None else sorted(choices)
        super().__init__(self._message())

    def at(self, *, file: str | Path | None = None, field: str | None = None) -> Self:
        """The same error with the file and field that the caller knows, where it names none itself."""
        return type(self)(
            self.problem,
            file=file if self.file is None else self.file,
            line=self.line,
            field=field if self.field is None else self.field,
            value=self.value,
            choices=self.choices,
        )

    def _message(self) -> str:
        where = "" if self.file is None else self.file + ("" if self.line is None else f":{self.line}") + ": "
        field = "" if self.field is None else f"{_cut(self.field)}: "
        value = "" if self.value is None else f" (got {_shortened(self.value)})"
        problem = _cut(self.problem, 1_000)
        return " ".join(f"{where}{field}{problem}{value}{self._advice()}".split())

    def _advice(self) -> str:
        if not self.choices:
            return ""
        near = nearest(str(self.value), self.choices) if self.value is not None else None
        if near is not None:
            return f"; did you mean {_shortened(near)}?"
        shown = ", ".join(_cut(choice) for choice in self.choices[:20]) + (", ..." if len(self.choices) > 20 else "")
        return f"; valid: {shown}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.problem, self.file, self.line, self.field, self.value, self.choices)


class InputFileError(MeshwrightError):
    """A file is missing, unreadable or not of the expected form."""


class ConfigError(MeshwrightError):
    """A YAML file or a ``--set`` option holds an unknown key or an impossible value."""


class GraphError(MeshwrightError):
    """A job graph is malformed: a bad line, a cycle, a negative or non-finite cost."""


class ClusterError(MeshwrightError):
    """A cluster is impossible: no device, a link without bandwidth, an unknown host."""


class PlanError(MeshwrightError):
    """A plan is illegal: a rank twice, an absent device, more memory than a device has."""


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
    """Something in the user's input is odd and taken as it stands; the command line tells it in one line on standard error."""


class PlausibilityWarning(MeshwrightWarning):
    """A figure of hardware is beyond what machines are like: most often a unit was mistaken."""


def nearest(value: str, choices: Iterable[str]) -> str | None:
    """The choice that is spelled most like ``value``, or None where none is near."""
    found = difflib.get_close_matches(value, list(choices), n=1, cutoff=0.55)
    return found[0] if found else None


def _shortened(value: object) -> str:
    """A value as Python spells it, cut to a bearable length."""
    try:
        return _cut(repr(value))
    except ValueError:  # a whole number of more digits than Python spells
        return "a number of thousands of digits"


def _cut(text: str, limit: int = 240) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _rebuild(
    kind: type[MeshwrightError],
    problem: str,
    file: str | None,
    line: int | None,
    field: str | None,
    value: object,
    choices: list[str] | None,
) -> MeshwrightError:
    return kind(problem, file=file, line=line, field=field, value=value, choices=choices)
