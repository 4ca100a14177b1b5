"""The options of a search over layouts, made once from those of a command or from keyword arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import settings
from ...errors import ConfigError, PlanError
from ...jobs.transformer import TransformerKeys
from ...plans.frameworks.defaults import hidden_unrequested
from ...plans.frameworks.limits import Framework, LayoutOfModel
from ...plans.frameworks.names import build_of_plan, unknown_layout_key
from ...plans.frameworks.table import framework
from ...plans.partition import Layout
from ...plans.rank_order import ORDERS, check_order

if TYPE_CHECKING:
    from .results import Counts, RankedLayout

DEFAULT_NUM_STEPS = 10_000

DEFAULTS: dict[str, Any] = {name: spec.get_default() for name, spec in Layout.model_fields.items() if not spec.is_required()}
DEFAULTS |= hidden_unrequested(1)
"""Of the keys that are not searched, as in a layout that is spelled, see `hidden_unrequested`."""

FREE_MESHES = "stage_meshes=free"
"""Among what is kept: stages may have meshes of their own."""


@dataclass(frozen=True)
class SearchRequest:
    """The options of a search.

    Attributes:
        batch: sequences, or samples, of a step over all ranks; by default the job's own. A profile has its ``profile_batch``, a
            ``config.json`` none.
        sequence_length: tokens of a transformer's sequence; by default the model's own, 2,048 at most.
        devices: how many to use: all, or a number, several with commas between, or a range ``A-B``.
        keep: values to which keys of the layout are kept (see `parse_keep`).
        order: the only rank order to try.
        top: how many layouts to rank; None ranks every one that fits.
        num_steps: training steps of the plan.
        training: strategies that are priced too (see `plans.training.parse_training`).
        compression: codes of gradients that are priced too (see `plans.compression.parse_compression`).
        arrange: how much is done to put the hosts of an uneven network in a better order: none, fast or thorough.
        launcher: framework that is to run the layout (see `plans.frameworks.table`); None: any.
        on_best: called with each layout that is better than all before, and the counts so far.
        tied_within: also price every layout whose step may be as near to the fastest, by the logarithm of their ratio.
        progress: called with what is done, how often so far, and how often in all where that is known.
        take: which layout the plan is of, see `planning.search_table.RankedLayouts.taken`.
        recipes: a file of more recipes than come with the package, see `plans.frameworks.recipes`.

    Raises:
        PlanError: a number below 1, or an unknown rank order, key or value.
    """

    batch: int | None = None
    sequence_length: int | None = None
    devices: str | Sequence[int] | None = None
    keep: str = ""
    order: str | None = None
    top: int | None = 10
    num_steps: int = DEFAULT_NUM_STEPS
    training: str | None = None
    compression: str | None = None
    arrange: str = "fast"
    launcher: str | None = None
    on_best: Callable[[RankedLayout, Counts], None] = lambda result, counts: None
    tied_within: float = 0.0
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None
    take: str = "fastest"
    recipes: str | Path | None = None

    def __post_init__(self) -> None:
        for field, value in (("--batch", self.batch), ("--sequence-length", self.sequence_length), ("--set top", self.top)):
            if value is not None and value < 1:
                raise PlanError("must be at least 1", field=field, value=value)
        if self.order is not None:
            check_order(self.order)
        parse_keep(self.keep)
        if self.launcher is not None:
            framework(self.launcher)

    @cached_property
    def kept_values(self) -> dict[str, tuple[Any, ...]]:
        """The values that are tried, by key of the layout."""
        return parse_keep(self.keep)

    @property
    def frees_meshes(self) -> bool:
        """Whether stages may have meshes of their own."""
        return any(part.replace(" ", "") == FREE_MESHES for part in self.keep.split(","))

    @property
    def tries_some_layers(self) -> bool:
        """Whether some layers of each model chunk may be computed again where none are kept to be, see `search`."""
        return not {"recompute", "recompute_method", "recompute_num_layers"} & self.kept_values.keys()

    @property
    def orders(self) -> tuple[str, ...]:
        """Rank orders that are tried."""
        return ORDERS if self.order is None else (self.order,)

    @cached_property
    def framework(self) -> Framework | None:
        """The framework that runs the layout; None: any."""
        return None if self.launcher is None else framework(self.launcher)

    @cached_property
    def refused(self) -> Counter[tuple[str, Any, str]]:
        """How often each key was refused by the framework so far: key, value and what is wrong."""
        return Counter()

    def is_run(self, layout: Layout, shape: TransformerKeys | None = None, sequence_length: int | None = None) -> bool:
        """Return whether the framework runs a layout of a model; what it refuses is counted in `refused`."""
        refusal = None if self.framework is None else self.framework.refusal(LayoutOfModel(layout, shape, sequence_length))
        if refusal is not None:
            self.refused[refusal] += 1
        return refusal is None

    def not_run(self, devices: str) -> PlanError | None:
        """Return the reason why no layout of a number of devices is left, if it is the framework."""
        if self.framework is None:
            return None
        title = self.framework.title
        kept = Layout.model_construct(**self.fixed(())[0] | {"micro_batch": 1, "global_batch": 1})
        refused = self.refused or Counter(
            one for one in self.framework.refusals(LayoutOfModel(kept)) if one.key in self.kept_values
        )
        if refused:
            (key, value, problem), _ = refused.most_common(1)[0]
            reason = f"no legal layout of {devices} is one that {title} runs; most fail by this key: {problem}"
            return PlanError(reason, field=f"layout.{key}", value=value)
        if self.order is not None:
            reason = f"{title} starts no layout of {devices} with its ranks so"
            return PlanError(reason, field="--set order", value=self.order)
        return None

    def orders_of(self, layout: Layout, devices_per_host: int) -> tuple[str, ...]:
        """Rank orders that are tried of a layout: those in which the framework starts it."""
        if self.framework is None:
            return self.orders
        return tuple(order for order in self.orders if self.framework.numbering(layout, order, devices_per_host))

    def sharded_by(self, zero_stages: list[int], has_copies: bool) -> list[int]:
        """Return the given ZeRO stages that the framework has."""
        if self.framework is None or not has_copies:
            return zero_stages
        known = self.framework.zero_stages
        has = f"{self.framework.title} has the ZeRO stages {', '.join(map(str, known))}"
        self.refused.update(("zero", stage, has) for stage in zero_stages if stage not in known and "zero" in self.kept_values)
        return [stage for stage in zero_stages if stage in known]

    def as_cut(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys that are not searched as the framework has them in a layout of these degrees; kept ones stay."""
        return {} if self.framework is None else self._unkept(self.framework.as_cut(keys))

    def values_for(self, key: str, values: list[Any]) -> list[Any]:
        """Return the values of a key that are tried."""
        kept_values = self.kept_values.get(key)
        return values if kept_values is None else [value for value in values if value in kept_values]

    def fixed(self, searched: Collection[str]) -> list[dict[str, Any]]:
        """Return the combinations of values of the keys that are not searched: each kept one, else the default."""
        fixed_values = {key: values for key, values in self.kept_values.items() if key not in searched}
        result = [DEFAULTS | dict(zip(fixed_values, values, strict=True)) for values in product(*fixed_values.values())]
        result = [keys for keys in result if keys["frozen_bits"] == 16 or keys["trainable"] != "all"]
        if not result:
            raise PlanError(
                "needs trainable=lora(R), all are trained", field="keep.frozen_bits", value=fixed_values["frozen_bits"][0]
            )
        return result

    def as_run(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the communication that a layout of these keys hides by default or under its framework; kept keys stay."""
        fixed_keys: dict[str, Any] = {**hidden_unrequested(keys["virtual_stages"], keys["schedule"])}
        if self.framework is not None:
            fixed_keys |= self.framework.as_run({**keys, **fixed_keys})
        return self._unkept(fixed_keys)

    def _unkept(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key not in self.kept_values}

    def refuse(self, keys: Sequence[str], problem: str) -> None:
        """Refuse degrees that are kept at more than one where a job cannot be cut so.

        Raises:
            PlanError: naming the first of them, and ``problem``.
        """
        for key in keys:
            if (values := self.kept_values.get(key, (1,))) != (1,):
                raise PlanError(problem, field=f"keep.{key}", value="|".join(map(str, values)))


def parse_keep(text: str) -> dict[str, tuple[Any, ...]]:
    """Return the values that a text such as ``tp=4|8,schedule=1f1b|interleaved,overlap_dp=false`` keeps.

    Raises:
        PlanError: a key that is unknown or twice, ``global_batch``, or a value that the key cannot have.
    """
    values_of: dict[str, tuple[Any, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, values = (word.strip() for word in part.partition("="))
        if not equals or not key:
            last = next(reversed(values_of), None)
            hint = f"; did you mean {last}={'|'.join(map(str, values_of[last]))}|{part}?" if last and not equals else ""
            raise PlanError(f"must read key=value or key=value|value (got {part!r}){hint}", field="keep")
        if key == "global_batch":
            raise PlanError("is given by --batch", field="keep.global_batch", value=part)
        if key == "stage_meshes":
            if values != "free":
                raise PlanError("is free, or left out for one mesh of all stages", field="keep.stage_meshes", value=values)
            continue
        if key == "stage_layers":
            problem = "is found by the search where devices are of several types; else keep first_ or last_stage_less_layers"
            raise PlanError(problem, field="keep.stage_layers", value=values)
        if key not in Layout.model_fields:
            raise unknown_layout_key(key, f"keep.{key}", set(Layout.model_fields) - {"global_batch"})
        if key in values_of:
            raise PlanError("the key appears twice", field=f"keep.{key}", value=part)
        values_of[key] = tuple(dict.fromkeys(_value(key, value.strip()) for value in values.split("|")))
    return values_of


def _value(key: str, text: str) -> Any:
    """Return a value as `Layout` reads it, with other keys that allow it."""
    try:
        data = settings.override({}, f"{key}={text}")
    except ConfigError as error:
        raise PlanError(error.problem, field=f"keep.{key}", value=text) from None
    if not text or (data[key] is None and key != "shard_group"):
        raise PlanError("wants a value, or several with | between", field=f"keep.{key}", value=text)
    degree = data[key] if isinstance(data[key], int) and not isinstance(data[key], bool) and data[key] > 0 else 1
    around: dict[str, dict[str, Any]] = {
        "virtual_stages": {"schedule": "interleaved", "pp": 2},
        "ep": {"dp": degree},
        "etp": {"tp": 2 * degree},
        "frozen_bits": {"trainable": "lora(1)"},
        "recompute_method": {"recompute": "full"},
        "recompute_num_layers": {"recompute": "full"},
        "shard_group": {"dp": degree, "zero": 1},
    }
    rest = {"micro_batch": 1, **around.get(key, {}), **data}
    rest["global_batch"] = rest["micro_batch"] * rest.get("dp", 1) if isinstance(rest["micro_batch"], int) else 1
    if isinstance(data[key], bool) or not isinstance(data[key], int) or data[key] < 1:
        rest["global_batch"] = 1 if key in ("micro_batch", "dp") else rest["global_batch"]
    return getattr(build_of_plan(Layout, rest, prefix="keep."), key)
