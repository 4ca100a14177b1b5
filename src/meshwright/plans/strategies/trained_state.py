"""Which parameters of a model are trained, and in how many bytes what goes with them is kept."""

from __future__ import annotations

import re
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from ... import settings

MOMENT_BYTES: Final = 4
"""Bytes of one of Adam's two moments where nothing is said."""

SCALE_BITS = 0.127
"""Bits of the scales of a frozen parameter of 4 bits, quantised twice (Dettmers et al., "QLoRA", 2023, section 3)."""


class TrainedState(settings.Settings):
    """Keys of a layout about what is trained and how it is kept."""

    optimizer_bytes: Literal[1, 2, 4] = Field(
        default=MOMENT_BYTES,
        description="bytes of each of Adam's two moments: float32, 16 bits, or 8 bits in blocks with a scale",
        exclude_if=lambda number: number == MOMENT_BYTES,
    )
    offload: Literal["none", "optimizer"] = Field(
        default="none",
        description="none, or optimizer: the host keeps master weights and moments, and its processors update them",
        exclude_if=lambda state: state == "none",
    )
    trainable: str = Field(
        default="all",
        description="all parameters, or lora(R): matrices of R columns and rows at each product of the layers, experts apart",
        exclude_if=lambda what: what == "all",
    )
    frozen_bits: Literal[4, 8, 16] = Field(
        default=16, description="bits of a parameter of the layers that is not trained", exclude_if=lambda bits: bits == 16
    )

    @field_validator("trainable")
    @classmethod
    def _is_known(cls, what: str) -> str:
        if re.fullmatch(r"all|lora\([1-9][0-9]{0,4}\)", what) is None:
            raise ValueError("is all, or lora(R) of a rank from 1 to 99,999")
        return what

    @model_validator(mode="after")
    def _frozen(self) -> Self:
        if self.frozen_bits < 16 and self.lora_rank is None:
            raise ValueError(f"frozen_bits={self.frozen_bits} needs trainable=lora(R), all are trained")
        if self.offload != "none" and self.optimizer_bytes != MOMENT_BYTES:
            raise ValueError("offload=optimizer keeps moments in float32: optimizer_bytes=4")
        return self

    @property
    def lora_rank(self) -> int | None:
        """Columns of the matrices that are trained in place of the model's; None where all parameters are."""
        return None if self.trainable == "all" else int(self.trainable[len("lora(") : -1])

    @property
    def frozen_parameter_bytes(self) -> float:
        """Bytes of a parameter of the layers that is not trained, with its scales."""
        return (self.frozen_bits + (SCALE_BITS if self.frozen_bits == 4 else 0.0)) / 8
