"""Layouts that people run without a search, priced to be compared with the fastest one that a search found.

`REFERENCES` holds their makers by name. One is the recipe that a vendor publishes for the model and the device. Another is a
framework's default, which shards over all devices and cuts along no other axis. The third is the fastest of plain 1F1B
pipelines. Each is priced by the cost model of the search with the keys that the search does not vary, so errors of both cancel.
Of several of a kind those that leave a device room come first, since few people run a tight fit.

Source:
    Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021. Its takeaways 1
    and 2 put tensor parallelism inside a host, then pipeline stages. The examples of PyTorch's ``fully_shard`` and of
    DeepSpeed's ZeRO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...costs.process_groups.regular_groups import is_regular
from ...errors import PlanError
from ...planners.layouts.request import SearchRequest
from ...planners.layouts.results import RankedLayout
from ...planners.layouts.space import SEARCHED, divisors
from ...planners.layouts.ties import FARTHEST, Compared, are_tied
from ...plans.frameworks.recipes import Recipe, load_recipes
from ...plans.rank_order import DEFAULT_ORDER
from ...plans.stage_meshes import value_text
from ..job_work import TransformerWork

if TYPE_CHECKING:
    from ..search_table import RankedLayouts

NUM_TRIED = 20
"""Layouts of a kind among which one is looked for that is no tight fit."""

_ALONE = {"tp": [1], "cp": [1], "pp": [1], "ep": [1]}
_COPIES = {"pp": [1], "sp_d": [1], "sp_h": [1], "sp_w": [1]}
_DEFAULTS = {"fsdp": "pure FSDP", "zero-3": "pure ZeRO-3"}
_SEARCHED_AWAY = (*SEARCHED, "shard_group", "etp")
"""Keys that a user may have kept for the search and that a reference decides by itself."""


@dataclass(frozen=True)
class ReferenceLayout:
    """A layout that is run without a search.

    Attributes:
        name: as ``--take`` spells it.
        title: what it is, for people.
        ranked: its layout.
        compared: it with the fastest layout of the search.
        source: file and date of its publication; empty where it has none.
    """

    name: str
    title: str
    ranked: RankedLayout
    compared: Compared
    source: str = ""

    def to_data(self) -> dict[str, Any]:
        """Return the reference as plain data."""
        result = self.ranked
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "step_s": result.step_s,
            "memory_bytes": result.memory_bytes,
            "devices": result.devices,
            "text": result.text,
            "order": result.order,
            **self.compared.to_data(),
            "layout": result.layout.model_dump(mode="json"),
        }


Found = Iterator[tuple[str, str, RankedLayout]]
"""Title, source and layout of each reference of a kind."""


def _priced_recipes(ranking: RankedLayouts) -> Iterator[tuple[Recipe, RankedLayout | PlanError]]:
    """Yield the recipes for the model and the device, each with its layout or why it has none."""
    maker = ranking.maker
    if isinstance(maker, TransformerWork):
        device = ranking.cluster.device_types[0].name
        for one in load_recipes(ranking.request.recipes).of(maker.shape, device, maker.sequence_length):
            try:
                yield one, ranking.priced(one.keys(ranking.best.devices))
            except PlanError as error:
                yield one, error


def _recipes(ranking: RankedLayouts) -> Found:
    for one, layout in _priced_recipes(ranking):
        if isinstance(layout, RankedLayout):
            yield one.title, f"{one.source}, {one.date}", layout


def _default(ranking: RankedLayouts) -> Found:
    framework = ranking.request.framework
    kind = "fsdp" if framework is None else framework.default
    if not ranking.maker.has_layers:
        yield from _fastest(ranking, "data parallelism alone", _COPIES)
    elif kind is not None:
        sharded = {"zero": [3]} if ranking.best.devices > 1 else {}
        yield from _fastest(ranking, _DEFAULTS[kind], _ALONE | sharded)


def _plain_pipeline(ranking: RankedLayouts) -> Found:
    keep: dict[str, Sequence[object]] = {"schedule": ["1f1b"]}
    if ranking.maker.has_layers:
        keep["tp"] = [tp for tp in divisors(ranking.best.devices) if tp <= ranking.maker.devices_per_host]
        keep |= {"cp": [1], "ep": [1], "zero": [0, 1] if ranking.best.devices > 1 else [0], "recompute": ["none", "full"]}
    yield from _fastest(ranking, "tp inside a host, 1F1B", keep)


REFERENCES: dict[str, Callable[[RankedLayouts], Found]] = {
    "recipe": _recipes,
    "default": _default,
    "1f1b": _plain_pipeline,
}
"""The maker of the references of each kind. Several of one kind are numbered, the fastest first."""


def check_take(request: SearchRequest) -> None:
    """Refuse a word that names none of the layouts of a plan; references of one kind are numbered from the second on.

    Raises:
        PlanError: naming all words, or strategies are priced too, which is done for the fastest alone.
    """
    kind, dash, number = request.take.partition("-")
    is_numbered = not dash or (number.isdecimal() and number == str(int(number)) and int(number) > 1)
    if request.take not in ("fastest", "plain") and not (kind in REFERENCES and is_numbered):
        choices = ("fastest", "plain", *REFERENCES)
        raise PlanError("no such layout", field="--take", value=request.take, choices=choices)
    if request.take != "fastest" and (request.training or request.compression):
        raise PlanError("strategies are priced for the fastest alone", field="--take", value=request.take)


def references(ranking: RankedLayouts) -> tuple[ReferenceLayout, ...]:
    """Return the references that fit on as many devices as the fastest layout takes, those of one kind side by side."""
    made = []
    for kind, make in REFERENCES.items():
        for number, (title, source, layout) in enumerate(sorted(make(ranking), key=lambda one: one[2][:4]), start=1):
            name = kind if number == 1 else f"{kind}-{number}"
            made.append(ReferenceLayout(name, title, layout, ranking.compared(layout), source))
    return tuple(made)


def gain_text(ranking: RankedLayouts) -> str:
    """Return one line: the fastest layout's step, and how the best reference compares with it."""
    this = f"fastest: {_step_text(ranking, ranking.best)}"
    if not ranking.references:
        return f"{this}; no reference fits ({', '.join(REFERENCES)})"
    best = min(ranking.references, key=lambda one: (ranking.is_tight(one.ranked), *one.ranked[:4]))
    text = f"the best reference, {best.name} ({best.title}), takes {_step_text(ranking, best.ranked)} with {best.ranked.text}"
    return f"{this}; {text}: {best.compared.text}"


def reference_texts(ranking: RankedLayouts) -> list[str]:
    """Return a remark on each reference, what it is and how it compares with the fastest layout, and on missing recipes."""
    texts = [
        f"{reference.name}, {reference.title}: {reference.compared.text}" + (f"; {reference.source}" if reference.source else "")
        for reference in ranking.references
    ]
    texts += [f"no reference: {one.title}: {error}" for one, error in _priced_recipes(ranking) if isinstance(error, PlanError)]
    return texts


def _step_text(ranking: RankedLayouts, layout: RankedLayout) -> str:
    return f"{layout.step_s:.4g} s {ranking.row(layout).step.spread}"


def _fastest(result: RankedLayouts, title: str, keep: Mapping[str, Sequence[object]]) -> Found:
    """Yield the fastest layout that keeps some keys and is no tight fit, else the fastest; nothing if none is legal or fits."""
    requested = result.request
    order = requested.order or (DEFAULT_ORDER if requested.framework is None else None)
    if (proven := _of_search(result, keep, order)) is not None:
        yield title, "", proven
        return
    kept_values = {key: values for key, values in requested.kept_values.items() if key not in keep and key not in _SEARCHED_AWAY}
    words = [f"{key}={'|'.join(map(value_text, values))}" for key, values in {**kept_values, **keep}.items()]
    request = replace(requested, keep=",".join(words), order=order, top=NUM_TRIED, on_best=SearchRequest.on_best)
    try:
        ranking = result.maker.search(request).run([result.best.devices]).ranking
    except PlanError:
        return
    yield title, "", min(ranking, key=lambda one: (result.is_tight(one), *one[:4]))


def _of_search(ranking: RankedLayouts, keep: Mapping[str, Sequence[object]], order: str | None) -> RankedLayout | None:
    """Return the fastest layout that keeps some keys and is no tight fit, as the search itself has priced it.

    The search has priced every layout of its own that is within `FARTHEST` of the fastest. None where no such layout is, or where
    what the user keeps leaves out some that this asks for.
    """
    request, best = ranking.request, ranking.best
    if any(key in _SEARCHED_AWAY and not {*keep.get(key, (None,))} <= {*values} for key, values in request.kept_values.items()):
        return None
    values_of: dict[str, Sequence[object]] = {**keep, "stage_meshes": (None,)}
    if "recompute" in keep and request.tries_some_layers:
        values_of |= {"recompute_method": ("uniform",), "recompute_num_layers": (1,)}
    fastest: RankedLayout | None = None
    for one in ranking.by_time:
        if not are_tied(best.step_s, one.step_s, FARTHEST) or (fastest is not None and one.step_s > fastest.step_s):
            break
        layout = one.layout
        if one.devices != best.devices or any(getattr(layout, key) not in values for key, values in values_of.items()):
            continue
        if order not in (None, one.order):  # its best order is another one
            sharded = layout.model_copy(update={"zero": 1, "shard_group": layout.shard_group or layout.copies})
            if not is_regular(sharded, ranking.maker.devices_per_host, order):
                continue
            one = ranking.at(layout, order)
        if not ranking.is_tight(one) and (fastest is None or one[:4] < fastest[:4]):
            fastest = one
    return fastest if fastest is not None and are_tied(best.step_s, fastest.step_s, FARTHEST) else None
