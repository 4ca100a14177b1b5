"""Measured step times from a file into a store: each line a row ``{"step": 10, "step_s": 0.53, "rank": 0}``."""

from __future__ import annotations

import json
from pathlib import Path

from ... import files, settings
from ...errors import ConfigError, InputFileError
from ..decisions import Observation


def read_observations(path: str | Path) -> list[Observation]:
    """The rows of a file of JSON lines; blank lines do not count.

    Raises:
        InputFileError: the file is missing, no text, holds no row, or a line is no JSON object.
        ConfigError: an unknown key or impossible value, by its line.
    """
    rows = []
    for number, line in enumerate(files.read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:
            raise InputFileError("is no JSON", file=path, line=number, value=line[:80]) from None
        if not isinstance(data, dict):
            raise InputFileError('a row is an object as {"step": 10, "step_s": 0.53}', file=path, line=number, value=line[:80])
        try:
            rows.append(settings.build_settings(Observation, data))
        except ConfigError as error:
            raise error.at(file=path, line=number) from None
    if not rows:
        raise InputFileError("holds no step times", file=path)
    return rows
