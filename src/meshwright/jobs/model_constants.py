"""Constants of a transformer's computation besides its sizes.

Frameworks need them; a price depends on the activation alone, where nothing fuses its operators.
"""

from __future__ import annotations

from pydantic import Field

from .. import settings
from ..settings import Count


def is_absent(value: object) -> bool:
    """Whether a key is left out where a shape is written, so that shapes without it read as they did before it was known."""
    return value is None


class RotaryScaling(settings.Settings):
    """How rotary positions are changed for sequences longer than those of the first training."""

    kind: str = Field(min_length=1, description="rule, as Hugging Face names it: llama3, linear, yarn, ...")
    factor: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="how many times longer")
    low_frequency_factor: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="of llama3")
    high_frequency_factor: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="of llama3")
    original_positions: Count | None = Field(default=None, exclude_if=is_absent, description="length of the first training")


class ModelConstants(settings.Settings):
    """The constants of a model; what is absent is not known."""

    rotary_base: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="base of rotary positions")
    rotary_share: float | None = Field(default=None, gt=0, le=1, exclude_if=is_absent, description="part of a head that turns")
    rotary_scaling: RotaryScaling | None = Field(default=None, exclude_if=is_absent, description="absent: none")
    norm_epsilon: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="added to a norm's variance")
    activation: str | None = Field(default=None, exclude_if=is_absent, description="of the feed-forward layer or its gate")
