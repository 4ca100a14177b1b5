"""Partially masked training: some steps of a masked core, then some of the whole model, in turn."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from ...jobs.masked import Core
from ...settings import Count
from .declared_steps import DeclaredSteps


class Masked(DeclaredSteps):
    """A cycle of ``core_steps`` steps of the core, whose other weights are masked, and ``full_steps`` of the whole model.

    Gradients are summed in every step, those of the core in its steps, so that layouts may shard what they like. The whole model
    and its optimizer are held in both phases, and the mask is known by its key.

    Source:
        Mohtashami, Jaggi and Stich, "Masked training of neural networks with partial gradients", 2022, arXiv 2106.08895.
    """

    kind: Literal["masked"] = "masked"
    core: Core = Field(description="what is left of the model: a share of its width, or matrices of a rank")
    core_steps: Count = Field(description="steps of the core in a cycle")
    full_steps: Count = Field(description="steps of the whole model in a cycle")

    @field_validator("core", mode="before")
    @classmethod
    def _of_text(cls, core: Any) -> Any:
        """``width:0.5`` and ``rank:64``, as a command line spells them."""
        if not isinstance(core, str):
            return core
        key, colon, value = core.partition(":")
        if not colon or key not in ("width", "rank"):
            raise ValueError("must read width:SHARE or rank:NUMBER")
        try:
            return {key: int(value) if key == "rank" else float(value)}
        except ValueError:
            raise ValueError(f"{key} wants a number, not {value!r}") from None

    @property
    def num_steps(self) -> int:
        """Steps of a cycle."""
        return self.core_steps + self.full_steps
