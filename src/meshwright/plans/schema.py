"""The JSON Schema of a plan, published in the folder of this module as ``placement_plan.schema.json``.

``python -m meshwright.plans.schema > plans/placement_plan.schema.json`` writes it anew from the models.
"""

from __future__ import annotations

import sys
from importlib.resources import files as resources
from typing import Any

from .. import files
from .document import PlacementPlan

FILE_NAME = "placement_plan.schema.json"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the current version, made from the models."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **PlacementPlan.model_json_schema()}


def published_text() -> str:
    """Return the schema as it ships in the package."""
    return (resources("meshwright.plans") / FILE_NAME).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.stdout.write(files.json_text(json_schema()) + "\n")
