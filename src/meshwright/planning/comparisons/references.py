"""Layouts that people run without a search, priced to be compared with the fastest one that a search found.

`REFERENCES` holds what makes them, by name: the recipe that a vendor publishes for the model and the device, a framework's
default, which shards over all devices and cuts along no other axis, and the fastest of plain 1F1B pipelines. Each is priced by
the cost model of the search and with the keys that the search does not vary, so that doubts which both share cancel. Of several
of a kind those that leave a device room come first: a tight fit is run by few.

Source:
    Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021, takeaways 1 and 2
    (tensor parallelism inside a host, then pipeline stages); the examples of PyTorch's ``fully_shard`` and of DeepSpeed's ZeRO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import PlanError
from ...planners.layouts.request import SearchRequest
from ...planners.layouts.results import RankedLayout
from ...planners.layouts.space import SEARCHED, divisors
from ...planners.layouts.ties import Compared
from ...plans.frameworks.table import FRAMEWORKS
from ...plans.rank_order import DEFAULT_ORDER
from ..job_work import TransformerWork
from .recipes import load_recipes

if TYPE_CHECKING:
    from ..search_table import RankedLayouts

NUM_TRIED = 20
"""Layouts of a kind among which one is looked for that is no tight fit."""

_ALONE = {"tp": [1], "cp": [1], "pp": [1], "ep": [1]}
_COPIES = {"pp": [1], "sp_d": [1], "sp_h": [1], "sp_w": [1]}
_DEFAULTS = {"fsdp": "pure FSDP", "zero-3": "pure ZeRO-3"}
_SEARCHED_AWAY = (*SEARCHED, "shard_group")
"""Keys that a user may have kept for the search and that a reference decides by itself."""


@dataclass(frozen=True)
class ReferenceLayout:
    """A layout that is run without a search.

    Attributes:
        name: as ``--take`` spells it.
        title: what it is, for people.
        found: its layout.
        compared: the fastest layout of the search with it.
        source: file and date of its publication; empty where it has none.
    """

    name: str
    title: str
    found: RankedLayout
    compared: Compared
    source: str = ""

    def to_data(self) -> dict[str, Any]:
        """The reference as plain data; ``difference`` is that of the fastest layout to it."""
        found = self.found
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "step_s": found.step_s,
            "memory_bytes": found.memory_bytes,
            "devices": found.devices,
            "text": found.text,
            "order": found.order,
            **self.compared.to_data(),
            "layout": found.layout.model_dump(mode="json"),
        }


Found = Iterator[tuple[str, str, RankedLayout]]
"""Title, source and layout of each reference of a kind."""


def _recipes(found: RankedLayouts) -> Found:
    maker = found.maker
    if isinstance(maker, TransformerWork):
        for one in load_recipes(found.request.recipes).of(maker.shape, found.device.name, maker.sequence_length):
            keys = one.keys(found.best.devices)
            try:
                priced = None if keys is None else found.priced(keys)
            except PlanError:
                continue
            if priced is not None:
                yield one.title, f"{one.source}, {one.date}", priced


def _default(found: RankedLayouts) -> Found:
    framework = found.request.framework
    kind = "fsdp" if framework is None else framework.default
    if not found.maker.has_layers:
        yield from _fastest(found, "data parallelism alone", _COPIES)
    elif kind is not None:
        sharded = {"zero": [3]} if found.best.devices > 1 else {}
        yield from _fastest(found, _DEFAULTS[kind], _ALONE | sharded)


def _plain_pipeline(found: RankedLayouts) -> Found:
    keep: dict[str, Sequence[object]] = {"schedule": ["1f1b"]}
    if found.maker.has_layers:
        keep["tp"] = [tp for tp in divisors(found.best.devices) if tp <= found.maker.devices_per_host]
        keep |= {"cp": [1], "ep": [1], "zero": [0, 1] if found.best.devices > 1 else [0], "recompute": ["none", "full"]}
    yield from _fastest(found, "tp inside a host, 1F1B", keep)


REFERENCES: dict[str, Callable[[RankedLayouts], Found]] = {
    "recipe": _recipes,
    "default": _default,
    "1f1b": _plain_pipeline,
}
"""What makes the references of a kind. Several of one kind are numbered, the fastest first."""


def check_take(take: str) -> None:
    """Refuse a word that names none of the layouts of a plan; references of one kind are numbered from the second on.

    Raises:
        PlanError: naming all words.
    """
    kind, _, number = take.partition("-")
    if take not in ("fastest", "plain") and (kind not in REFERENCES or not (number.isdigit() or kind == take)):
        raise PlanError("no such layout", field="--take", value=take, choices=("fastest", "plain", *REFERENCES))


def references(found: RankedLayouts) -> tuple[ReferenceLayout, ...]:
    """The references that fit on as many devices as the fastest layout takes, those of one kind side by side."""
    made = []
    for kind, make in REFERENCES.items():
        for number, (title, source, layout) in enumerate(sorted(make(found), key=lambda one: one[2][:4]), start=1):
            name = kind if number == 1 else f"{kind}-{number}"
            made.append(ReferenceLayout(name, title, layout, found.compared(layout), source))
    return tuple(made)


def gain_text(found: RankedLayouts) -> str:
    """One line: the fastest layout's step, and how it compares with the best reference."""
    this = f"fastest: {_step_text(found, found.best)}"
    if not found.references:
        return f"{this}; no reference fits ({', '.join(REFERENCES)})"
    best = min(found.references, key=lambda one: (found.is_tight(one.found), *one.found[:4]))
    text = f"the best reference, {best.name} ({best.title}), takes {_step_text(found, best.found)} with {best.found.text}"
    return f"{this}; {text}: {best.compared.text}"


def reference_texts(found: RankedLayouts) -> list[str]:
    """A remark on each reference: what it is, and how the fastest layout compares with it."""
    return [
        f"{one.name}: {one.title}; the fastest takes {one.compared.text}" + (f"; {one.source}" if one.source else "")
        for one in found.references
    ]


def frameworks_text(found: RankedLayouts) -> str:
    """One line: which frameworks run the layout of the plan, and which key keeps the others from it; a script may run any."""
    winner = found.strategies.winner
    best, maker = found.taken if winner is None else winner.found, found.maker
    asked = maker.of_model(best.layout)
    run, left, askable = [], [], []
    for name, one in FRAMEWORKS.items():
        refusal = one.refusal(asked, as_priced=False)
        askable += [name] if maker.has_layers or not one.needs_layers else []
        if one.needs_layers and not maker.has_layers:
            left.append(f"{name} (a graph of ops)")
        elif refusal is not None:
            left.append(f"{name} ({refusal.key})")
        elif not one.numbering(best.layout, best.order, maker.devices_per_host):
            left.append(f"{name} (order of ranks)")
        else:
            run.append(name)
            askable.remove(name)
    text = f"runs on {', '.join(run) or 'no framework that is known here, only by a script of your own'}"
    how = f": --for NAME, as --for {askable[0]}, searches what it runs" if askable else ""
    return text + (f"; not on {', '.join(left)}{how}" if left else "")


def _step_text(found: RankedLayouts, layout: RankedLayout) -> str:
    return f"{layout.step_s:.4g} s ± {100 * found.row(layout).step.uncertainty:.0f} %"


def _fastest(found: RankedLayouts, title: str, keep: Mapping[str, Sequence[object]]) -> Found:
    """The fastest layout that keeps some keys and is no tight fit, else the fastest; nothing where none is legal or fits."""
    kept = {key: values for key, values in found.request.kept.items() if key not in keep and key not in _SEARCHED_AWAY}
    words = [f"{key}={'|'.join(map(_spelled, values))}" for key, values in {**kept, **keep}.items()]
    asked = found.request
    order = asked.order or (DEFAULT_ORDER if asked.framework is None else None)
    request = replace(asked, keep=",".join(words), order=order, top=NUM_TRIED, on_best=SearchRequest.on_best)
    try:
        ranking = found.maker.search(request).run([found.best.devices]).ranking
    except PlanError:
        return
    yield title, "", min(ranking, key=lambda one: (found.is_tight(one), *one[:4]))


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
