"""``--set KEY=VALUE``: keys of the cost model, of how a job is read, and of a command's own settings; checked as in YAML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..costs.settings import CostSettings
    from ..settings import AnySettings


def split_keys(model: type[AnySettings], changes: Sequence[str] | None) -> tuple[AnySettings, tuple[str, ...]]:
    """Return the settings of the changes that name a key of theirs, and the other changes.

    Raises:
        ConfigError: a value is wrong.
    """
    own = [change for change in changes or () if change.partition("=")[0].strip() in model.model_fields]
    return own_keys(model, own), tuple(change for change in changes or () if change not in own)


def own_keys(model: type[AnySettings], changes: Sequence[str] | None) -> AnySettings:
    """Return the settings of a command whose ``--set`` takes nothing else.

    Raises:
        ConfigError: a key or value is wrong.
    """
    from .. import settings

    data: Any = {}
    for change in changes or ():
        data = settings.override(data, change)
    return settings.build_settings(model, data, file="--set")


def cost_settings(changes: Sequence[str]) -> CostSettings:
    """Return the choices of the cost model: ``key=value`` texts and YAML files of the same keys, later ones first.

    A table of measured collectives means ``collectives: measured`` unless an algorithm is named.

    Raises:
        InputFileError, ConfigError: a file is missing, or a key or value is wrong.
    """
    from .. import settings
    from ..costs.settings import CostSettings

    data: Any = {}
    for change in changes:
        if "=" not in change and Path(change).suffix in (".yaml", ".yml"):
            read = settings.load(CostSettings, change).relative_to(Path(change).parent)
            data |= read.model_dump(exclude_unset=True)
        else:
            data = settings.override(data, change)
    if "collectives_table" in data:
        data = {"collectives": "measured"} | data
    return settings.build_settings(CostSettings, data, file="--set" if changes else None)
