"""The rules by which a scenario is played: our own, or those of the published PAC-ML simulator and its defects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ... import settings
from .switches import PRESETS, Defects


class GeneralSemantics(settings.Settings):
    """Step times as `simulation.step.timeline` simulates them; a job owns one block; nothing is distorted."""

    kind: Literal["general"] = "general"


class PacmlSemantics(settings.Settings):
    """Cutting, step times, deadlines and blocking as `simulation.pacml` has them.

    Attributes:
        preset: ``pacml-compat`` keeps every defect of the published simulator, ``pacml-physical`` none.
        defects: switches that differ from the preset's.
    """

    kind: Literal["pacml"]
    preset: Literal["pacml-compat", "pacml-physical"] = "pacml-compat"
    defects: Defects = Defects()

    @model_validator(mode="before")
    @classmethod
    def _preset_below_changes(cls, data: Any) -> Any:
        """Fill in the switches of the preset that are not given."""
        if not isinstance(data, dict) or data.get("preset", "pacml-compat") not in PRESETS:
            return data
        changes = data.get("defects", {})
        if not isinstance(changes, dict):
            return data
        return {**data, "defects": {**PRESETS[data.get("preset", "pacml-compat")].model_dump(), **changes}}


Semantics = Annotated[GeneralSemantics | PacmlSemantics, Field(discriminator="kind")]
