"""The settings of a menu in YAML: types of jobs, and the extent of the search for their layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from ... import settings
from ...errors import PlanError, in_our_words
from ...packaged import Shipped, path_in_folder
from ...plans.compression import Compression
from ...plans.frameworks.defaults import LauncherName
from ...plans.rank_order import check_order
from ...plans.training import Synchronous, Training
from ...plans.transformer import PlannedTransformer
from ..layouts.request import parse_keep
from .named_entry import NO_MULTIPLIER, OWN, NamedEntrySettings, OwnStrategy

SPACE = "tp=1|2|4|8,cp=1,pp=1|2|4|8|16,ep=1|4|8,virtual_stages=1|2|4,schedule=1f1b|interleaved,micro_batch=1|2|4|8|16,zero=0|1|3"
"""Default search space of transformers. The cut by sequence takes both its values, ``dp`` the rest. Activations are computed
again only where no layout fits otherwise."""

PRESET = "preset:"

JOB_TYPES = Shipped("job_types", "a list of job types", "job_types")


class JobTypeSettings(settings.Settings):
    """A type of jobs: a model with its batch.

    Attributes:
        name: for tables; no two of a list are equal.
        job: ``zoo:NAME``, a ``config.json``, or any other job graph, which is cut by data parallelism alone.
        transformer: in its place, the shape of a transformer with the length of its sequences.
        global_batch: samples of a step over all ranks.
        sequence_length: tokens of a sequence of ``job``; by default the model's own.
        training: how its replicas agree on their parameters, whatever layout is chosen.
        compression: how its gradients are coded.
    """

    name: str = Field(min_length=1)
    job: str | None = None
    transformer: PlannedTransformer | None = None
    global_batch: Annotated[int, Field(ge=1, le=2**31)]
    sequence_length: int | None = Field(default=None, ge=1)
    training: Training = Field(default=Synchronous(), exclude_if=lambda training: training == Synchronous())
    compression: Compression | None = Field(default=None, exclude_if=lambda compression: compression is None)

    @property
    def own(self) -> OwnStrategy | None:
        """How it is trained, if otherwise than synchronously."""
        if self.compression is None and self.training.kind == "synchronous":
            return None
        return OwnStrategy(training=self.training, compression=self.compression)

    def relative_to(self, folder: Path) -> Self:
        """Return the same with the path of its job found from the folder of the file that names it."""
        return self if self.job is None else self.model_copy(update={"job": path_in_folder(self.job, folder, is_folder_too=True)})

    @model_validator(mode="after")
    def _is_one_model(self) -> Self:
        if (self.job is None) == (self.transformer is None):
            raise ValueError(f"{self.name}: a job type has a job or a transformer, one of the two")
        if self.transformer is not None and self.sequence_length is not None:
            raise ValueError(f"{self.name}: sequence_length: belongs under transformer")
        try:
            _ = self.own
        except ValidationError as error:
            reported = in_our_words(str(error.errors()[0]["msg"]).removeprefix(f"Value error, {OWN}: "))
            raise ValueError(f"{self.name}: {reported}") from None
        return self


class JobTypesSettings(settings.Settings):
    """A file of job types."""

    job_types: tuple[JobTypeSettings, ...] = Field(min_length=1)

    @field_validator("job_types")
    @classmethod
    def _are_distinct(cls, job_types: tuple[JobTypeSettings, ...]) -> tuple[JobTypeSettings, ...]:
        names = [job_type.name for job_type in job_types]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} appears twice")
        return job_types


class MenuSettings(settings.Settings):
    """``menu:`` of a scenario.

    Attributes:
        layouts: most entries of a type on one number of devices.
        degrees: numbers of devices, powers of two. Where they are left out, those of the default that the cluster has devices for
            and some job can use.
        keep: values of the layout's keys that are tried in place of those of `SPACE`, as ``plan --search --keep`` takes them.
        is_whole: whether transformers get the whole space of ``plan --search`` in place of `SPACE`; it takes several times as
            long.
        orders: rank orders that are tried.
        framework: framework that runs the layouts, as ``plan --search --for`` takes it; absent: any.
        least_gain: a further entry is taken where it is faster than all others by such a share on some class of placements.
        entries: more entries by name: layouts, training strategies, codes of gradients and collectives of their own.
        unranked: such entries that are never on the menu: only their break-even is reported, so they need no multiplier.
    """

    layouts: int = Field(default=4, ge=1, le=64)
    degrees: tuple[Annotated[int, Field(ge=1, le=2**16)], ...] = Field(default=(1, 2, 4, 8, 16, 32, 64), min_length=1)
    keep: str = ""
    is_whole: bool = Field(default=False, exclude_if=lambda is_whole: not is_whole)
    orders: tuple[str, ...] = Field(default=("tp-cp-dp-pp",), min_length=1)
    framework: LauncherName | None = Field(default=None, exclude_if=lambda framework: framework is None)
    least_gain: float = Field(default=0.01, ge=0, lt=1)
    # Left out of dumps where there are none, so that no digest of earlier menus changes.
    entries: tuple[NamedEntrySettings, ...] = Field(default=(), exclude_if=lambda entries: not entries)
    unranked: tuple[NamedEntrySettings, ...] = Field(default=(), exclude_if=lambda entries: not entries)

    @field_validator("entries")
    @classmethod
    def _have_multipliers(cls, entries: tuple[NamedEntrySettings, ...]) -> tuple[NamedEntrySettings, ...]:
        for entry in entries:
            if entry.steps_multiplier is None:
                raise ValueError(f"{entry.name}: {NO_MULTIPLIER}")
        return entries

    @field_validator("degrees")
    @classmethod
    def _are_powers_of_two(cls, degrees: tuple[int, ...]) -> tuple[int, ...]:
        for degree in degrees:
            if degree & (degree - 1):
                raise ValueError(f"{degree} is no power of two")
        if list(degrees) != sorted(set(degrees)):
            raise ValueError("must rise, none twice")
        return degrees

    def on(self, num_devices: int) -> MenuSettings:
        """Return the same for a cluster: degrees that nobody has written stop at its size."""
        if "degrees" in self.model_fields_set or self.degrees[-1] <= num_devices:
            return self
        return self.model_copy(update={"degrees": tuple(degree for degree in self.degrees if degree <= num_devices)})

    def check(self) -> None:
        """Refuse keys, values and rank orders that no layout of a menu has.

        Raises:
            PlanError: there is one.
        """
        named = (*self.entries, *self.unranked)
        for order in (*self.orders, *(order for one in named for order in one.orders)):
            check_order(order)
        texts = {"keep": self.keep} | {f"{one.name}.partition": one.partition for one in named}
        for field, text in texts.items():
            if set(parse_keep(text).get("offload", ())) - {"none"}:
                raise PlanError("is not priced in menus, which know no hosts' memory", field=f"{field}.offload", value=text)

    @field_validator("unranked")
    @classmethod
    def _have_no_multipliers(cls, unranked: tuple[NamedEntrySettings, ...]) -> tuple[NamedEntrySettings, ...]:
        for one in unranked:
            if one.steps_multiplier is not None:
                raise ValueError(f"{one.name}: is exact or has a multiplier; list it in entries")
        return unranked

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [one.name for one in (*self.entries, *self.unranked)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"entries: {name} appears twice")
        return self

    @property
    def has_strategies(self) -> bool:
        """Whether jobs may choose more than layouts that are searched for."""
        return bool(self.entries)

    @property
    def kept_values(self) -> dict[str, tuple[object, ...]]:
        """The values that are tried, by key of a layout.

        Raises:
            PlanError: ``keep`` has an unknown key or value.
        """
        return ({} if self.is_whole else parse_keep(SPACE)) | parse_keep(self.keep)


def load_job_types(spec: str | Path) -> tuple[JobTypeSettings, ...]:
    """Return the job types by ``preset:NAME`` or by the path of their YAML; a relative path of a job starts at the file's folder.

    Raises:
        InputFileError: no such file or preset.
        ConfigError: an unknown key or an impossible value.
    """
    text = str(spec)
    path = JOB_TYPES.path(text.removeprefix(PRESET)) if text.startswith(PRESET) else Path(text)
    return tuple(one.relative_to(path.parent) for one in settings.load(JobTypesSettings, path).job_types)
