"""Layouts that vendors publish for a model on a device, as data: ``configs/recipes.yaml`` and files of a user's own."""

from __future__ import annotations

from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ... import settings
from ...errors import ConfigError
from ...jobs.transformer import TransformerKeys

LENGTH_RATIO = 2
"""Sequences this many times as long or as short as the published ones are another problem: the recipe is none for them."""


class ModelClass(settings.Settings):
    """The sizes by which a model belongs to a class; a model of other heads or another vocabulary is of the class too."""

    num_layers: settings.Count
    hidden: settings.Count
    feed_forward: settings.Count
    num_experts: settings.Count = 1

    def has(self, shape: TransformerKeys) -> bool:
        """Whether a model is of the class."""
        return all(getattr(shape, name) == size for name, size in self)


class RecipeLayout(settings.Settings):
    """Keys of a layout; ``dp`` is what is left of the devices."""

    micro_batch: settings.Count
    tp: settings.Count = 1
    cp: settings.Count = 1
    pp: settings.Count = 1
    ep: settings.Count = 1
    virtual_stages: settings.Count = 1
    sequence_parallel: settings.Switch = False
    recompute: Literal["none", "selective", "full", "selective-ops"] = "none"
    zero: Literal[0, 1, 2, 3] = 0
    first_stage_less_layers: settings.Index = 0
    last_stage_less_layers: settings.Index = 0


class Recipe(settings.Settings):
    """A published layout; see the comments of ``configs/recipes.yaml``."""

    maker: str
    model: str = Field(description="a class of models")
    device: str
    num_devices: settings.Count
    global_batch: settings.Count
    sequence_length: settings.Count
    layout: RecipeLayout
    source: str
    date: str

    @property
    def title(self) -> str:
        """Whose it is and for what it was published, for people."""
        return f"{self.maker} on {self.num_devices} {self.device}, {self.global_batch} sequences of {self.sequence_length}"

    def keys(self, num_devices: int) -> dict[str, Any] | None:
        """The keys of the layout on a number of devices, scaled by data parallelism; None where that is impossible."""
        found = self.layout.model_dump()
        dp, rest = divmod(num_devices, self.layout.tp * self.layout.cp * self.layout.pp)
        if rest or dp == 0:
            return None
        schedule = "none" if self.layout.pp == 1 else "1f1b" if self.layout.virtual_stages == 1 else "interleaved"
        return found | {"dp": dp, "schedule": schedule}


class Recipes(settings.Settings):
    """The content of a file of recipes."""

    models: dict[str, ModelClass] = Field(default_factory=dict)
    recipes: tuple[Recipe, ...]

    def of(self, shape: TransformerKeys, device: str, sequence_length: int) -> list[Recipe]:
        """The recipes for a model on a device with sequences of about this length."""
        return [
            one
            for one in self.recipes
            if one.device == device
            and self.models[one.model].has(shape)
            and 1 / LENGTH_RATIO <= sequence_length / one.sequence_length <= LENGTH_RATIO
        ]


@cache
def shipped_recipes() -> Recipes:
    """The recipes that come with the package."""
    return settings.load(Recipes, Path(str(resources("meshwright.configs"))) / "recipes.yaml")


def load_recipes(path: str | Path | None) -> Recipes:
    """The recipes that come with the package, before them those of a file, which may name the same classes of models.

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
