"""What a process of its own does for the service: a replay, at low priority. It loads nothing of the web."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..deciding import Planners
from ..ledger import Ledger
from .report import Asked, replay

NICE = 15


def played(path: Path, asked: Asked, recipe: dict[str, Any]) -> dict[str, Any]:
    """Play a span of the past under a policy.

    Raises:
        MeshwrightError: as `replay`.
    """
    with suppress(OSError):
        os.nice(NICE)
    with Ledger(path, is_read=True) as ledger:
        return replay(
            ledger, recipe["cluster"], asked, lambda spec: Planners(**{**recipe, "policy": spec}), cache=recipe["cache"]
        )
