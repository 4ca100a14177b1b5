"""Layouts that vendors publish for a model on a device, as data: ``configs/recipes.yaml`` and files of a user's own."""

from __future__ import annotations

from functools import cache
from importlib.resources import files as resources
from math import prod
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ... import settings
from ...errors import ConfigError, PlanError
from ...jobs.transformer import TransformerKeys
from ..partition import Layout

LENGTH_RATIO = 2
"""Sequences this many times as long or as short as the published ones are another problem: the recipe is none for them."""


class ModelClass(settings.Settings):
    """The sizes by which a model belongs to a class; a model of other heads or another vocabulary is of the class too."""

    num_layers: settings.Count
    hidden: settings.Count
    feed_forward: settings.Count
    num_experts: settings.Count = 1

    def has(self, shape: TransformerKeys) -> bool:
        """Return whether a model is of the class."""
        return all(getattr(shape, name) == size for name, size in self)


class Recipe(settings.Settings):
    """A published layout; see the comments of ``configs/recipes.yaml``."""

    maker: str
    model: str = Field(description="a class of models")
    device: str
    num_devices: settings.Count
    global_batch: settings.Count
    sequence_length: settings.Count
    layout: Layout = Field(description="in a file without dp, batch and schedule, which follow from the rest")
    source: str
    date: str

    @field_validator("layout", mode="before")
    @classmethod
    def _whole(cls, keys: Any, info: ValidationInfo) -> Any:
        """Return the layout on all devices: ``dp`` is what is left of them, the schedule 1F1B or interleaved."""
        if not isinstance(keys, dict) or not {"num_devices", "global_batch"} <= info.data.keys():
            return keys
        degrees = [keys.get(axis, 1) for axis in ("tp", "cp", "pp")]
        width = prod(degree for degree in degrees if isinstance(degree, int) and degree > 0)
        schedule = "none" if keys.get("pp", 1) == 1 else "1f1b" if keys.get("virtual_stages", 1) == 1 else "interleaved"
        dp = max(1, info.data["num_devices"] // width)
        return {"dp": dp, "schedule": schedule, "global_batch": info.data["global_batch"]} | keys

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if self.layout.world != self.num_devices:
            raise ValueError(f"num_devices={self.num_devices} is no multiple of tp x cp x pp = {self.replica_devices}")
        return self

    @property
    def replica_devices(self) -> int:
        """Devices of a replica."""
        return self.layout.world // self.layout.dp

    @property
    def title(self) -> str:
        """Whose it is and for what it was published, for people."""
        return f"{self.maker} on {self.num_devices} {self.device}, {self.global_batch} sequences of {self.sequence_length}"

    def keys(self, num_devices: int) -> dict[str, Any]:
        """Return the keys of the layout on a number of devices, scaled by data parallelism, without the batch.

        Raises:
            PlanError: the devices are no whole number of replicas.
        """
        if num_devices % self.replica_devices:
            raise PlanError(f"wants multiples of {self.replica_devices} devices", field="--devices", value=num_devices)
        keys = {key: getattr(self.layout, key) for key in self.layout.model_fields_set - {"global_batch"}}
        return keys | {"dp": num_devices // self.replica_devices}


class Recipes(settings.Settings):
    """The content of a file of recipes."""

    models: dict[str, ModelClass] = Field(default_factory=dict)
    recipes: tuple[Recipe, ...]

    def of(self, shape: TransformerKeys, device: str, sequence_length: int) -> list[Recipe]:
        """Return the recipes for a model on a device with sequences of about this length."""
        return [
            recipe
            for recipe in self.recipes
            if recipe.device == device
            and self.models[recipe.model].has(shape)
            and 1 / LENGTH_RATIO <= sequence_length / recipe.sequence_length <= LENGTH_RATIO
        ]


@cache
def shipped_recipes() -> Recipes:
    """Return the recipes that come with the package."""
    return settings.load(Recipes, Path(str(resources("meshwright.configs"))) / "recipes.yaml")


def load_recipes(path: str | Path | None) -> Recipes:
    """Return the recipes that come with the package, before them those of a file, which may name the same classes of models.

    Raises:
        InputFileError: the file is missing.
        ConfigError: a key or a value is wrong, or a class of models is unknown.
    """
    shipped = shipped_recipes()
    if path is None:
        return shipped
    own = settings.load(Recipes, path)
    models = shipped.models | own.models
    for place, one in enumerate(own.recipes):
        if one.model not in models:
            error = ConfigError(
                "no such class of models", field=f"recipes.{place}.model", value=one.model, choices=sorted(models)
            )
            raise settings.located(error, path)
    return Recipes(models=models, recipes=(*own.recipes, *shipped.recipes))
