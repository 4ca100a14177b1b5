"""The cost model as options of a command spell it: a YAML file, single keys, and shortcuts for the most used ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..costs.settings import CostSettings


@dataclass(frozen=True)
class CostOptions:
    """What was given.

    Attributes:
        file: YAML of `CostSettings`.
        changes: keys of it, as ``key=value``.
        collectives, collectives_table, overlap_slowdown: three of its keys, by options of their own.
    """

    file: Path | None = None
    changes: tuple[str, ...] = ()
    collectives: str | None = None
    collectives_table: str | None = None
    overlap_slowdown: float | None = None

    def settings(self) -> CostSettings:
        """The choices: options of their own before ``--set``, and both before the file; what was not given stays unset.

        Raises:
            InputFileError, ConfigError: the file is missing, or a key or value is wrong.
        """
        from .. import settings
        from ..costs.settings import CostSettings

        read = CostSettings() if self.file is None else settings.load(CostSettings, self.file).relative_to(self.file.parent)
        data = read.model_dump(exclude_unset=True)
        for change in self.changes:
            data = settings.override(data, change)
        if self.changes:
            data = settings.build_settings(CostSettings, data, file="--set").model_dump(exclude_unset=True)
        given = {
            "overlap_slowdown": self.overlap_slowdown,
            "collectives": self.collectives or ("measured" if self.collectives_table else None),
            "collectives_table": self.collectives_table,
        }
        return settings.build_settings(CostSettings, data | {key: value for key, value in given.items() if value is not None})
