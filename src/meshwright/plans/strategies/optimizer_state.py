"""Bytes in which an optimizer keeps its state."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from ... import settings

MOMENT_BYTES: Final = 4
"""Bytes of one of Adam's two moments where nothing is said."""


class OptimizerState(settings.Settings):
    """Keys of a layout about the optimizer's state."""

    optimizer_bytes: Literal[1, 2, 4] = Field(
        default=MOMENT_BYTES,
        description="bytes of each of Adam's two moments: float32, 16 bits, or 8 bits in blocks with a scale",
        exclude_if=lambda number: number == MOMENT_BYTES,
    )
